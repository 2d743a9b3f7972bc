"""Candidates of each kind of collective: from coefficients and placed groups to curves (library.py).

PAT and CollNet are NCCL's own forms (src/graph/tuning.cc) with the fabric's steps and rates in the place of
its constants:

    PAT       latency = ceil(lg N) x a share of a step + N x a part that stays linear, wire = (N-1)/N S over a
              share of the port: NCCL 2.23 and later, for gathers and scatters of groups with one rank a node
    CollNet   latency = once up and down the switches, whatever the nodes; wire = S of an all-reduce, since
              every port sends and gets each byte once (a ring: 2 (N-1)/N S); gathers and scatters send what
              they must and save the steps alone. Where switches add up inside nodes too (NVLS), these do.
"""

import numpy as np

from foretell.network.library_records import PROTOCOLS, Kind, Library, LibraryCurve
from foretell.network.library_shapes import GroupShape, tier_ratios
from foretell.specs._base import Num
from foretell.specs.arrays import Array

Row = tuple[Num, Num, Num]
"""Base, chunk and wire time of one candidate of a send."""

NEVER = 1e12
"""Stands for inf in products with zero: a time that no candidate wins with, a limit that none meets."""


def curve_of(kind: Kind, library: Library, shape: GroupShape) -> LibraryCurve:
    """The candidates of one kind of collective."""
    if kind == "all-to-all":
        return _exchange(library, shape)
    if kind == "send":
        return _send(library, shape)
    if kind == "all-reduce":
        parts = [_ring(kind, library, shape), *_tree(library, shape)]
        if np.isfinite(library.inside.in_network_base_s):
            parts.append(_in_network(library, shape))
        if library.custom is not None:
            parts.append(_custom(library, shape))
        return _stack([*parts, *collnet_curve(kind, library, shape)])
    parts = [_ring(kind, library, shape)]
    if kind in ("all-gather", "reduce-scatter"):
        parts += pat_curve(library, shape) + collnet_curve(kind, library, shape)
    return _stack(parts) if len(parts) > 1 else parts[0]


def _ring(kind: Kind, library: Library, shape: GroupShape) -> LibraryCurve:
    """Ring under LL, LL128 and Simple."""
    passes = 2.0 if kind == "all-reduce" else 1.0
    moved = (shape.members - 1.0) / shape.members
    if kind in ("broadcast", "reduce"):
        # The whole buffer goes past every member, chunk after chunk.
        moved = np.ones_like(moved)
    inside, between = library.inside, library.between
    share = _column(inside.protocol_share)
    full = shape.inside_s_per_byte / inside.efficiency
    copy = inside.copy_share if kind in ("all-gather", "broadcast") else inside.reduce_copy_share
    own = shape.first_s_per_byte / (inside.efficiency * copy) / shape.members
    latency = _column(inside.step_s) * shape.inside_steps
    wire = (passes * moved * full + own) / share
    chunk, limit = np.zeros_like(wire), np.zeros_like(wire)
    overlap, start = np.full_like(wire, inside.overlap), np.zeros_like(wire)
    if between is not None:
        away = _column(between.step_s) * shape.outer_steps
        away = away + _column(between.inner_step_s) * shape.inside_steps
        pass_s = _chunk_passes_s(library, shape)
        largest = _column((NEVER, NEVER, between.chunk_bytes[2]))
        chunk = passes * pass_s / np.where(moved < 1.0, shape.members, 1.0)
        limit = passes * pass_s * largest
        latency = np.where(shape.spans, away, latency)
        slow = np.maximum(shape.outer_s_per_byte, full) * passes * moved + own
        wire = np.where(shape.spans, slow, wire)
        overlap = np.where(shape.spans, _column(between.overlap), overlap)
        start = np.where(shape.spans, _column((0.0, 0.0, between.start_s)), start)
    return LibraryCurve(
        names=tuple(f"ring {protocol}" for protocol in PROTOCOLS),
        base_s=_column(inside.base_s) + start,
        latency_s=passes * latency,
        chunk_s_per_byte=chunk,
        chunk_limit_s=limit,
        wire_s_per_byte=wire,
        overlap=overlap,
        ramp_s_per_root_byte=_ramp(library, shape, passes * moved, simple=2),
    )


def _chunk_passes_s(library: Library, shape: GroupShape) -> Array:
    """Seconds per byte of a chunk that passes all steps of a ring, by protocol.

    LL is as slow inside a node as between nodes: its words wait for flags. Under LL128 and Simple a chunk
    goes from node to node through a port; inside a node the node's own links set the pace, or under Simple
    the port.
    """
    between = library.between
    assert between is not None
    port = shape.member_s_per_byte / _column(between.chunk_share)
    own = shape.first_s_per_byte / library.inside.efficiency
    words = port * (shape.members - 1.0)
    near = between.near_pass * port[2] + (1.0 - between.near_pass) * own
    words[1] = port[1] * (shape.nodes - 1.0) + own * (shape.members - shape.nodes)
    words[2] = port[2] * (shape.nodes - 1.0) + near * (shape.members - shape.nodes)
    return words


def _ramp(library: Library, shape: GroupShape, moved: Array, simple: int) -> Array:
    """The root term: of Simple, the last of its candidates, inside a node."""
    ramp = np.zeros((simple + 1, len(moved)))
    ramp[simple] = library.inside.ramp_s_per_root_byte * np.sqrt(moved) * ~shape.spans
    return ramp


def _tree(library: Library, shape: GroupShape) -> list[LibraryCurve]:
    """Double binary tree over the nodes, a chain inside each; not offered inside one node."""
    inside, between = library.inside, library.between
    if between is None:
        return []
    offered = [i for i in range(3) if np.isfinite(between.hop_s[i])]
    chain = shape.inside_steps / np.maximum(shape.nodes, 1.0)
    hops = 2.0 * shape.depth
    inner = 2.0 * _column(between.inner_step_s)[offered] * chain
    latency = hops * _column(between.hop_s)[offered] + inner + 2.0 * shape.tree_hops_s
    pass_s = hops * shape.member_s_per_byte / _column(between.hop_chunk_share)[offered]
    wire = 2.0 * np.maximum(
        shape.tree_ratio * shape.outer_s_per_byte / _column(between.tree_efficiency)[offered],
        shape.inside_s_per_byte / inside.efficiency,
    )
    base = _column(inside.base_s)[offered] + np.zeros_like(wire)
    return [
        LibraryCurve(
            names=tuple(f"tree {PROTOCOLS[i]}" for i in offered),
            base_s=np.where(shape.spans, base, np.inf),
            latency_s=latency,
            chunk_s_per_byte=pass_s,
            chunk_limit_s=pass_s * _column(between.chunk_bytes)[offered],
            wire_s_per_byte=wire,
            overlap=_column(between.overlap)[offered] + np.zeros_like(wire),
        )
    ]


def _in_network(library: Library, shape: GroupShape) -> LibraryCurve:
    """Switches of the node add and multicast; a tree of nodes above carries the sums."""
    inside, between = library.inside, library.between
    wire = shape.inside_s_per_byte / inside.in_network_share
    base = np.full_like(wire, inside.in_network_base_s)
    latency, overlap = np.zeros_like(wire), np.ones_like(wire)
    if between is not None:
        # Two nodes swap sums once; more of them send up and down.
        both = np.where(shape.nodes > 2.0, 2.0, 1.0) * shape.tree_ratio
        wire = np.maximum(wire, both * shape.outer_s_per_byte / between.tree_efficiency[2])
        edges = shape.depth * between.hop_s[2] + shape.tree_hops_s
        latency = np.where(shape.spans, 2.0 * edges, 0.0)
        overlap = np.where(shape.spans, between.overlap[2], 1.0)
    per_node = shape.members / shape.nodes
    # The switches that add are those of the topology that was measured.
    offered = (per_node >= LEAST_IN_NETWORK) & (shape.inside_ratio <= 1.0)
    return LibraryCurve(
        names=("in-network simple",),
        base_s=np.where(offered, base, np.inf)[None],
        latency_s=latency[None],
        chunk_s_per_byte=np.zeros_like(wire)[None],
        chunk_limit_s=np.zeros_like(wire)[None],
        wire_s_per_byte=wire[None],
        overlap=overlap[None],
    )


def _custom(library: Library, shape: GroupShape) -> LibraryCurve:
    """One-shot: everybody reads everything. Two-shot: reduce-scatter, then all-gather, by direct reads."""
    custom = library.custom
    assert custom is not None
    others = shape.members - 1.0
    ideal = np.stack([others, 2.0 * others / shape.members]) * shape.inside_s_per_byte
    wire = ideal / np.array(custom.share)[:, None]
    base = np.array(custom.base_s)[:, None] + custom.step_s * others
    return LibraryCurve(
        names=("one-shot", "two-shot"),
        base_s=np.where(shape.spans, np.inf, base),
        latency_s=np.zeros_like(wire),
        chunk_s_per_byte=np.zeros_like(wire),
        chunk_limit_s=np.zeros_like(wire),
        wire_s_per_byte=wire,
        overlap=np.ones_like(wire),
        largest_bytes=np.full_like(wire, custom.largest_bytes),
    )


FLAGGED = 2.0
"""Bytes on the links for each byte sent under LL: four of data, four of flags."""


def _exchange(library: Library, shape: GroupShape) -> LibraryCurve:
    """Direct all-to-all under LL and Simple: every member sends to every other."""
    inside, between = library.inside, library.between
    per_node = shape.members / shape.nodes
    near = inside.peer_step_s * (per_node - 1.0)
    own = shape.first_s_per_byte / (inside.exchange_efficiency * inside.copy_share) / shape.members
    wire = shape.inside_exchange / inside.exchange_efficiency + own
    base = np.array(inside.peer_base_s)[:, None] + np.zeros_like(wire)
    latency = np.stack([near, near])
    block = shape.near_ratio / (shape.members * inside.peer_chunk_bytes_per_s)
    # Half of what LL sends are flags: its blocks are no faster than twice the bytes on the links.
    block = np.maximum(block, FLAGGED * shape.inside_exchange)
    chunk = np.stack([block, np.zeros_like(wire)])
    wires = np.stack([np.zeros_like(wire), wire])
    overlap = np.ones_like(latency)
    if between is not None:
        peers = shape.members - per_node
        away = np.array(between.peer_step_s)[:, None] * peers
        # However fast its ports are, a member gets no more between nodes.
        ports_s = np.maximum(shape.member_s_per_byte, 1e-30)
        held = shape.outer_exchange / ports_s / between.exchange_bytes_per_s
        slow = np.maximum(shape.outer_exchange / between.exchange_efficiency, held)
        block = peers / shape.members * shape.member_s_per_byte / between.peer_chunk_share
        block = np.maximum(block * shape.exchange_ratio, held)
        base = np.where(shape.spans, between.peer_base_s, base)
        latency = np.where(shape.spans, away, latency)
        chunk = np.where(shape.spans, np.stack([block, np.zeros_like(block)]), chunk)
        both = np.stack([np.zeros_like(wire), np.maximum(slow, wire)])
        wires = np.where(shape.spans, both, wires)
        overlap = np.where(shape.spans, between.overlap[2], overlap)
    latency = latency + shape.exchange_hops_s
    return LibraryCurve(
        names=("direct ll", "direct simple"),
        base_s=base,
        latency_s=latency,
        chunk_s_per_byte=chunk,
        chunk_limit_s=np.full_like(chunk, np.inf),
        wire_s_per_byte=wires,
        overlap=overlap,
        ramp_s_per_root_byte=_ramp(library, shape, 1.0 - 1.0 / shape.members, simple=1),
    )


def _send(library: Library, shape: GroupShape) -> LibraryCurve:
    """One message to the next member of a chain: LL and Simple on each tier in turn."""
    inside, between = library.inside, library.between
    names: list[str] = []
    rows: list[Row] = []
    for i, tier in enumerate(shape.tiers):
        inner = i < library.inner_tiers or between is None
        last = i == len(shape.tiers) - 1
        two = tier_ratios(tier, np.full_like(shape.members, 2.0), library, inner=inner, last=last)
        rate = tier.bandwidth_bytes_per_s / two.neighbour
        if i < library.inner_tiers or between is None:
            fast: Row = (inside.peer_base_s[0], 1.0 / inside.peer_chunk_bytes_per_s, 0.0)
            full: Row = (inside.peer_base_s[1], 0.0, 1.0 / (rate * inside.efficiency))
        else:
            reach = tier.efficiency if between.efficiency is None else between.efficiency
            start = inside.base_s[0]
            fast = (start + between.step_s[0], 1.0 / (between.chunk_share[0] * rate), 0.0)
            full = (start + between.step_s[2], 0.0, 1.0 / (rate * reach * between.alone_share))
        rows += [fast, full]
        names += [f"{tier.name} ll", f"{tier.name} simple"]
    zero = np.zeros_like(shape.members)
    base, chunk, wire = (np.stack([np.asarray(row[j]) + zero for row in rows]) for j in range(3))
    return LibraryCurve(
        names=tuple(names),
        base_s=base,
        latency_s=np.zeros_like(base),
        chunk_s_per_byte=chunk,
        chunk_limit_s=np.full_like(base, np.inf),
        wire_s_per_byte=wire,
        overlap=np.ones_like(base),
    )


def _stack(parts: list[LibraryCurve]) -> LibraryCurve:
    """Candidates of several algorithms as one curve."""
    names = tuple(name for part in parts for name in part.names)
    return LibraryCurve(
        names=names,
        base_s=np.concatenate([part.base_s for part in parts]),
        latency_s=np.concatenate([part.latency_s for part in parts]),
        chunk_s_per_byte=np.concatenate([part.chunk_s_per_byte for part in parts]),
        chunk_limit_s=np.concatenate([part.chunk_limit_s for part in parts]),
        wire_s_per_byte=np.concatenate([part.wire_s_per_byte for part in parts]),
        overlap=np.concatenate([part.overlap for part in parts]),
        ramp_s_per_root_byte=_joined(parts, [part.ramp_s_per_root_byte for part in parts], 0.0),
        largest_bytes=_joined(parts, [part.largest_bytes for part in parts], np.inf),
    )


def _joined(parts: list[LibraryCurve], given: list[Array | None], default: float) -> Array | None:
    """A field that not all candidates have, for all of them; None where none has it."""
    if all(field is None for field in given):
        return None
    pairs = zip(parts, given, strict=True)
    filled = [np.full_like(p.base_s, default) if field is None else field for p, field in pairs]
    return np.concatenate(filled)


def _column(values: tuple[float, ...]) -> Array:
    """(protocols, 1), to be spread over groups."""
    column: Array = np.minimum(np.array(values, float), NEVER)[:, None]
    return column


LEAST_IN_NETWORK = 5.0
"""Members from which NCCL takes in-network reduction: it shows on 8 GPUs and not on 4 (measured)."""
SIMPLE = 2
"""Place of the Simple protocol, the only one that both have."""


def pat_curve(library: Library, shape: GroupShape) -> list[LibraryCurve]:
    """Parallel aggregated trees; an empty list where the library has none."""
    pat, between = library.pat, library.between
    if pat is None or between is None:
        return []
    hops = shape.depth * between.step_s[SIMPLE] * pat.step_share
    moved = (shape.members - 1.0) / shape.members
    wire = moved * shape.outer_s_per_byte / pat.bandwidth_share
    # Far shifts cost more than a ring's on a grid: there the ring is left alone.
    flat = (shape.tree_ratio <= 1.0) & (shape.tree_hops_s <= 0.0)
    offered = shape.spans & (shape.members == shape.nodes) & flat
    return [
        _one(
            "pat simple",
            np.where(offered, pat.base_s, np.inf),
            hops + pat.rank_s * shape.members,
            wire,
            np.full_like(wire, between.overlap[SIMPLE]),
        )
    ]


def collnet_curve(kind: Kind, library: Library, shape: GroupShape) -> list[LibraryCurve]:
    """Sums and multicast in the switches between nodes; an empty list where no tier has such switches."""
    collnet, between, inside = library.collnet, library.between, library.inside
    if collnet is None or between is None or not shape.adds_between.any():
        return []
    per_node = shape.members / shape.nodes
    full = shape.inside_s_per_byte / inside.efficiency
    multicast = (per_node >= LEAST_IN_NETWORK) & (shape.inside_ratio <= 1.0)
    multicast &= bool(np.isfinite(inside.in_network_base_s))
    base = np.where(multicast, min(inside.in_network_base_s, 1e9), inside.base_s[SIMPLE])
    if kind == "all-reduce":
        apart = 2.0 * (per_node - 1.0) / per_node * full
        near = np.where(multicast, shape.inside_s_per_byte / inside.in_network_share, apart)
        moved = np.ones_like(near)
    else:
        moved = (shape.members - 1.0) / shape.members
        near = moved * full
    outer = moved * shape.outer_s_per_byte / collnet.bandwidth_share
    ratio = shape.depth / np.maximum(np.ceil(np.log2(np.maximum(shape.nodes, 2.0)) - 1e-9), 1.0)
    steps = 2.0 * between.inner_step_s[SIMPLE] * (per_node - 1.0)
    wire = np.maximum(outer, near)
    return [
        _one(
            "collnet simple",
            np.where(shape.adds_between, base, np.inf),
            collnet.latency_s * ratio + steps,
            wire,
            np.full_like(wire, between.overlap[SIMPLE]),
        )
    ]


def _one(name: str, base_s: Array, latency_s: Array, wire: Array, overlap: Array) -> LibraryCurve:
    """One candidate, whose latency holds its chunks already."""
    zero = np.zeros_like(wire)[None]
    return LibraryCurve(
        names=(name,),
        base_s=np.asarray(base_s + 0.0 * wire)[None],
        latency_s=np.asarray(latency_s + 0.0 * wire)[None],
        chunk_s_per_byte=zero,
        chunk_limit_s=zero,
        wire_s_per_byte=wire[None],
        overlap=overlap[None],
    )
