"""Seconds of a collective in the batch path: as the system's library runs it, or as its tiers allow.

Where the library of a system's links is known (network/library.py), its candidates and fitted coefficients
give the time. Elsewhere (TPUs, chips of one's own) the topologies of the tiers do (network/stack.py).

Links are shared. A job fills units of a tier, and all its chips send at once: a tapered tier gives each its
part of the unit's up link (`as_filled`). And what runs at the same time on the same links slows each other
(`occupancy`, `contention_s`).

Sizes are (groups,) or (groups, further axes).
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from foretell.network.library import prepare, seconds
from foretell.network.library_catalog import inner_tiers, library_for
from foretell.network.library_records import Kind, Library, LibraryCurve, PlacedGroups
from foretell.network.library_shapes import MEASURED, direct_share, is_grid, ratios
from foretell.network.placement import with_groups
from foretell.network.stack import CollectiveCandidates, TierStack, stack_of, stack_s
from foretell.network.topologies.base import Cost
from foretell.specs._base import Num
from foretell.specs.arrays import Array, Index
from foretell.specs.corrections import AS_PREDICTED
from foretell.specs.system import Network, System, Tier

KINDS: tuple[Kind, ...] = ("all-reduce", "all-gather", "reduce-scatter")
"""What training asks for."""


Group = TierStack | PlacedGroups
"""Groups placed on a network, ready to be asked."""


def place(
    counts: Array, system: System, kinds: tuple[Kind, ...] = KINDS, slower: Num = 1.0
) -> Group:
    """Groups placed as `counts` (tiers, groups) says, for these kinds; `slower`: factor on all times."""
    library, network = library_for(system), with_groups(system.network)
    if counts.shape[1] == 1:
        found = _placed(library, network, tuple(counts[:, 0].tolist()), kinds)
    else:
        found = _place(library, network, counts, kinds)
    return found if isinstance(slower, float) else replace(found, slower=slower)


def _place(
    library: Library | None, network: Network, counts: Array, kinds: tuple[Kind, ...]
) -> Group:
    if library is None:
        return stack_of(counts, network, kinds)
    return prepare(library, network, counts, kinds)


@lru_cache(maxsize=4096)
def _placed(
    library: Library | None, network: Network, counts: tuple[float, ...], kinds: tuple[Kind, ...]
) -> Group:
    """One group: the same few placements recur from estimate to estimate."""
    return _place(library, network, np.array(counts)[:, None], kinds)


def take(group: Group, rows: Index) -> Group:
    """Some of the groups, in an order of their own; a single one serves all."""
    if len(group.members) == 1:
        return group
    if isinstance(group, TierStack):
        kinds = {kind: _take_candidates(found, rows) for kind, found in group.kinds.items()}
        return TierStack(members=group.members[rows], kinds=kinds, slower=_some(group.slower, rows))
    return PlacedGroups(
        members=group.members[rows],
        curves={kind: _take_curve(curve, rows) for kind, curve in group.curves.items()},
        hop_weight=group.hop_weight.take(rows, axis=-1),
        slower=_some(group.slower, rows),
    )


def _some(factor: Num, rows: Index) -> Num:
    return factor[rows] if isinstance(factor, np.ndarray) and factor.size > 1 else factor


def _take_candidates(found: CollectiveCandidates, rows: Index) -> CollectiveCandidates:
    return CollectiveCandidates(
        latency_s=found.latency_s.take(rows, axis=-1),
        s_per_byte=found.s_per_byte.take(rows, axis=-1),
        names=found.names,
    )


def _take_curve(curve: LibraryCurve, rows: Index) -> LibraryCurve:
    def some(values: Array | None) -> Array | None:
        return None if values is None else values.take(rows, axis=-1)

    return LibraryCurve(
        names=curve.names,
        base_s=curve.base_s.take(rows, axis=-1),
        latency_s=curve.latency_s.take(rows, axis=-1),
        chunk_s_per_byte=curve.chunk_s_per_byte.take(rows, axis=-1),
        chunk_limit_s=curve.chunk_limit_s.take(rows, axis=-1),
        wire_s_per_byte=curve.wire_s_per_byte.take(rows, axis=-1),
        overlap=curve.overlap.take(rows, axis=-1),
        ramp_s_per_root_byte=some(curve.ramp_s_per_root_byte),
        largest_bytes=some(curve.largest_bytes),
    )


def link_speed(tier: Tier, count: Array) -> Array:
    """Bytes per second that one member sends to the next of `count` that take part.

    Where every pair has a link of its own, a few members have only the links among them; in a grid a
    neighbour is at the end of one link of several.
    """
    nominal = tier.bandwidth_bytes_per_s * tier.efficiency * tier.taper
    apart = ratios(tier, np.asarray(count, float), "switch") if is_grid(tier) else MEASURED
    return np.asarray(nominal * direct_share(tier, count) / apart.neighbour)


def collective_s(kind: Kind, size_bytes: Num, group: Group) -> Array:
    """Seconds of one collective; a group of one, or nothing to send, is free."""
    size = np.asarray(size_bytes, float)
    if isinstance(group, PlacedGroups):
        found = seconds(kind, size.T, group).T
    else:
        found = stack_s(kind, size.T, group).T
    return found if isinstance(group.slower, float) else found * by_group(group.slower, size.ndim)


def by_group(factor: Num, axes: int) -> Array:
    """A factor on groups, laid along the first of so many axes."""
    return np.reshape(np.asarray(factor, float), (-1, *[1] * (axes - 1)))


def slower_by(kind: Num, counts: Array, system: System) -> Num:
    """Factor on messages of groups: of a parallelism's own (`kind`), and inside or between nodes."""
    known = system.corrections
    if known is AS_PREDICTED:
        return 1.0
    inner = inner_tiers(tuple(tier.name for tier in system.network.tiers))
    far = outermost(counts) >= inner
    return np.asarray(kind * np.where(far, known.between_nodes, known.inside_nodes))


def send_s(size_bytes: Num, counts: Array, network: Network) -> Array:
    """Seconds of one message between neighbours of a chain, averaged over the chain's hops."""
    return send_cost(counts, network).seconds(size_bytes)


def send_cost(counts: Array, network: Network) -> Cost:
    """Seconds of any message between neighbours of a chain, averaged over its hops; (groups,)."""
    members = np.prod(counts, axis=0)
    latency_s, s_per_byte = np.zeros_like(members), np.zeros_like(members)
    units = members.copy()
    below = np.ones_like(members)
    for tier, count in zip(network.tiers, counts, strict=True):
        next_units = units / count
        # Of the stages inside a unit only the last sends out of it: few share its up link.
        open_share = np.minimum(tier.taper * below, 1.0) / tier.taper
        hops = (units - next_units) / np.maximum(members - 1.0, 1.0)
        latency_s = latency_s + hops * tier.latency_s
        s_per_byte = s_per_byte + hops / (link_speed(tier, np.asarray(2.0)) * open_share)
        units, below = next_units, below * count
    return Cost(latency_s=latency_s, s_per_byte=s_per_byte)


def ring_step_s(size_bytes: Array, counts: Array, network: Network) -> Array:
    """Seconds of a ring's slowest hop, all members sending; sizes are (groups, further axes)."""
    slowest = np.zeros_like(size_bytes)
    below = np.ones(counts.shape[1])
    for tier, count in zip(network.tiers, counts, strict=True):
        # One member of a unit sends out of it, and few share its up link.
        open_share = np.minimum(tier.taper * below, 1.0) / tier.taper
        rate = link_speed(tier, np.asarray(2.0)) * open_share
        latency = np.asarray(tier.latency_s).reshape(-1, *[1] * (size_bytes.ndim - 1))
        hop = latency + size_bytes / rate.reshape(-1, *[1] * (size_bytes.ndim - 1))
        there = (count > 1.0).reshape(-1, *[1] * (size_bytes.ndim - 1))
        slowest = np.where(there, np.maximum(slowest, hop), slowest)
        below = below * count
    return np.asarray(slowest * (size_bytes > 0.0))


def ring_send_s(size_bytes: Array, counts: Array, system: System) -> Array:
    """The same as the system's library sends, where it is known: with its start, and LL or Simple by size."""
    library = library_for(system)
    if library is None:
        return ring_step_s(size_bytes, counts, system.network)
    curve = prepare(library, system.network, counts, ("send",)).curves["send"]
    wide = [1] * (size_bytes.ndim - 1)
    slowest = np.zeros_like(size_bytes)
    for i, count in enumerate(counts):
        ways = [
            curve.base_s[row].reshape(-1, *wide)
            + size_bytes * (curve.chunk_s_per_byte + curve.wire_s_per_byte)[row].reshape(-1, *wide)
            for row in (2 * i, 2 * i + 1)
        ]
        there = (count > 1.0).reshape(-1, *wide)
        slowest = np.where(there, np.maximum(slowest, np.minimum(*ways)), slowest)
    return np.asarray(slowest * (size_bytes > 0.0))


def occupancy(counts: Array, network: Network) -> Array:
    """(tiers, groups): share of a ring's time that each tier's links are in use; 1 on the slowest."""
    needs = link_needs(counts, network)
    return np.asarray(needs / np.maximum(needs.max(axis=0), 1e-300))


def link_needs(counts: Array, network: Network) -> Array:
    """(tiers, groups): seconds that each tier's links are in use for a byte of a group's rings: 1 / (m x
    bandwidth) for a tier with m members below it."""
    below = np.cumprod(counts, axis=0) / counts
    rates = [np.asarray(t.bandwidth_bytes_per_s * t.taper, float) for t in network.tiers]
    return np.asarray((counts > 1.0) / np.stack([r * b for r, b in zip(rates, below, strict=True)]))


def outermost(counts: Array) -> Index:
    """The outermost tier that each group touches; 0 for a group of one."""
    tiers = np.arange(len(counts))[:, None]
    return np.asarray(np.where(counts > 1.0, tiers, 0).max(axis=0))


def contention_s(own_s: Array, other_s: Array, pass_s: Array) -> Array:
    """What a pass takes longer because others send over the links that its own exchanges wait for.

    Of `pass_s` seconds, exchanges take `own_s`, times the share of the time that the others keep their
    links in use (`occupancy`); `other_s` seconds of the others' collectives are under way from the pass's
    start. While both want a link each has half of it, so the pass is held up by as much as the others get
    meanwhile: own x min(1, other / pass). With links in full use and much to send, pass and rest
    together take the link's work, own + other, and no less.
    """
    meanwhile = np.minimum(other_s / np.maximum(pass_s, 1e-300), 1.0)
    return np.asarray(own_s * meanwhile)
