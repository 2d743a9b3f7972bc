"""Candidates of large fabrics: PAT between nodes of one rank each, and sums in the switches between nodes.

    PAT       latency = ceil(lg N) x a share of a step + N x a part that stays linear, wire = (N-1)/N S over a
              share of the port: NCCL 2.23 and later, for gathers and scatters of groups with one rank a node
    CollNet   latency = once up and down the switches, whatever the nodes; wire = S of an all-reduce, since
              every port sends and gets each byte once (a ring: 2 (N-1)/N S); gathers and scatters send what
              they must and save the steps alone. Where switches add up inside nodes too (NVLS), these do.

Both are NCCL's own forms (src/graph/tuning.cc) with the fabric's steps and rates in the place of its
constants. Not offered: inf. Bounds: never below the bytes that have to go through a port.
"""

import numpy as np

from foretell.network.library_records import Kind, Library, LibraryCurve
from foretell.network.library_shapes import GroupShape
from foretell.specs.arrays import Array

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
