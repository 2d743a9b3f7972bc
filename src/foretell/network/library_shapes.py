"""Where groups are on a library's tiers, and what a topology other than the measured one makes of its times.

A library's coefficients hold on the topology of the links that they were fitted on. The same tier joined
another way costs each pattern of messages more or less: `ratios` prices both ways, at the same rate and
latency, and the curves are scaled by the quotient. It is one, to the last digit, on what was measured.
"""

from dataclasses import replace

import numpy as np

from foretell.network.algorithms import able
from foretell.network.library_records import Library
from foretell.network.topologies import of_tier, plain_name
from foretell.network.topologies.base import Cost, Topology
from foretell.network.topologies.rail_clos import forwards, off_rail
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array, Mask
from foretell.specs.system import Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternRatios:
    """Costs on a tier's topology over those on the one that was measured; all 1 where it is that one."""

    gather: Num = 1.0
    """Bytes of gathers and scatters, and of a ring's all-reduce."""
    tree: Num = 1.0
    """Bytes of a tree's all-reduce."""
    tree_hops_s: Num = 0.0
    """What the longer edges of a tree add, one way."""
    exchange: Num = 1.0
    """Bytes of an all-to-all."""
    exchange_hops_s: Num = 0.0
    """What an all-to-all's longer ways add."""
    neighbour: Num = 1.0
    """Bytes of one message to the next member."""


MEASURED = PatternRatios()
"""The topology that was measured."""


def ratios(tier: Tier, count: Array, measured: str) -> PatternRatios:
    """Ratios for groups of so many members of a tier, over those on the topology `measured`."""
    reference = reference_tier(tier, measured)
    if reference is tier:
        return MEASURED
    members = np.maximum(np.rint(count), 1.0)
    here, there = of_tier(tier, members), of_tier(reference, members)
    exchange, direct = here.spread(), there.spread()
    gather = _over(gather_cost(here).s_per_byte, gather_cost(there).s_per_byte)
    tree, tree_hops_s = gather, np.zeros(members.shape)
    if here.claim("axes") is not None:
        tree, tree_hops_s = _tree_on_axes(here, there)
    return PatternRatios(
        gather=gather,
        tree=tree,
        tree_hops_s=tree_hops_s,
        exchange=_over(exchange.s_per_byte, direct.s_per_byte),
        exchange_hops_s=np.maximum(np.asarray(exchange.latency_s) - direct.latency_s, 0.0),
        neighbour=_over(here.chain().s_per_byte, there.chain().s_per_byte),
    )


def _tree_on_axes(grid: Topology, there: Topology) -> tuple[Array, Array]:
    """A double binary tree laid over a grid: bytes over those behind switches, and latency of its edges.

    Edges of distance 1, 2, 4, ... d/2 along an axis of d members: each link is crossed by lg d of them, which
    carry half of the buffer up or down for either tree, S lg d of them all; behind switches 2 S.
    """
    lines = grid.axes()
    levels = [np.ceil(np.log2(np.maximum(np.asarray(a.extent, float), 1.0))) for a in lines]
    loads = [n * a.s_per_byte / 2.0 for n, a in zip(levels, lines, strict=True)]
    far = [
        (np.asarray(a.extent) - 1.0 - n) * a.latency_s for n, a in zip(levels, lines, strict=True)
    ]
    busiest = np.max(np.broadcast_arrays(*loads), axis=0)
    ratio = np.maximum(_over(busiest, there.port().s_per_byte), 1.0)
    return ratio, np.asarray(np.sum(np.broadcast_arrays(*far), axis=0))


def reference_tier(tier: Tier, measured: str) -> Tier:
    """The tier as a library was measured on it: the same object where it is joined like that."""
    alike = plain_name(tier.topology) == plain_name(measured)
    plain = tier.routing == "adaptive" and not tier.shape
    if alike and (plain or tier.topology.startswith(("torus", "mesh", "hyperx"))):
        return tier
    even = tier.topology in SWITCHED and measured in SWITCHED
    if even and tier.routing == "adaptive" and np.all(np.asarray(tier.taper) == 1.0):
        return tier
    return replace(tier, topology=measured, shape=(), routing="adaptive")


SWITCHED = ("switch", "fat-tree", "clos", "roce-clos", "rail-clos")
"""Trees of switches: without taper, and with routes by load, one is as good as another."""


def is_grid(tier: Tier) -> bool:
    """Whether a tier's members are joined to neighbours alone: a ring, torus or mesh."""
    return plain_name(tier.topology) in ("ring", "torus", "mesh")


def gather_cost(topology: Topology) -> Cost:
    """An all-gather by the algorithm of least time per byte of those at home."""
    costs = [a.cost("all-gather", topology) for a in able("all-gather", topology)]
    both = np.broadcast_arrays(*(c.s_per_byte for c in costs), *(c.latency_s for c in costs))
    loads, hops = np.stack(both[: len(costs)]), np.stack(both[len(costs) :])
    loads = np.where(np.isfinite(hops), loads, np.inf)
    best = loads.argmin(axis=0)[None]
    return Cost(
        latency_s=np.take_along_axis(hops, best, 0)[0],
        s_per_byte=np.take_along_axis(loads, best, 0)[0],
    )


def _over(cost: Num, reference: Num) -> Array:
    """A quotient, 1 where there is nothing to divide by."""
    below = np.asarray(reference, float)
    some = below > 0.0
    return np.asarray(np.where(some, np.asarray(cost) / np.where(some, below, 1.0), 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShape:
    """How groups are placed on the tiers, and what their narrowest links carry."""

    members: Array
    """Members of each group, N."""
    nodes: Array
    """Nodes that each group touches."""
    spans: Mask
    """Whether it touches more than one."""
    inside_steps: Array
    """Steps of a ring inside nodes, scaled by the tiers' latency."""
    outer_steps: Array
    """Steps of a ring between nodes, scaled likewise."""
    depth: Array
    """Hops of a tree over the nodes, scaled likewise."""
    tree_ratio: Array
    """Bytes of a tree over the nodes over those of gathers, on these topologies; 1 where measured."""
    tree_hops_s: Array
    """What the longer edges of a tree add on these topologies, one way."""
    inside_ratio: Array
    """Bytes of gathers inside a node over those on the topology that was measured."""
    near_ratio: Array
    """The same of the blocks of an all-to-all inside a node."""
    exchange_ratio: Array
    """The same of the blocks of an all-to-all between nodes."""
    exchange_hops_s: Array
    """What the longer ways of an all-to-all add on these topologies."""
    inside_s_per_byte: Array
    """1 / (what a ring gets inside a node at full efficiency)."""
    outer_s_per_byte: Array
    """1 / (what rings get between nodes at the fabric's efficiency)."""
    first_s_per_byte: Array
    """1 / (nominal rate of a member inside its node)."""
    member_s_per_byte: Array
    """1 / (nominal rate of one member between nodes)."""
    inside_exchange: Array
    """Share of an exchange that crosses a tier inside the node / its bandwidth, at its slowest."""
    outer_exchange: Array
    """The same between nodes."""
    hop_weight: Array
    """(tiers, groups): share of a chain's hops on each tier."""
    adds_between: Mask
    """Whether the switches of every tier between nodes that it touches add up (SHARP)."""
    tiers: tuple[Tier, ...]
    """The tiers."""


def measure(library: Library, tiers: tuple[Tier, ...], counts: Array) -> GroupShape:
    """What the curves need to know of the groups' place."""
    members = np.prod(counts, axis=0)
    zero = np.zeros_like(members)
    inner_s, outer_s, member_s, in_x, out_x = zero, zero, zero, zero, zero
    in_steps, out_steps, depth, below, units = zero, zero, zero, np.ones_like(members), members
    tree, node, exchange, hops_s, tree_hops_s = zero, zero, zero, zero, zero
    near, adds = zero, np.ones_like(members, dtype=bool)
    weights = []
    inside, between = library.inside, library.between
    for i, (tier, count) in enumerate(zip(tiers, counts, strict=True)):
        more = count > 1.0
        here = units - units / count
        rate = np.asarray(tier.bandwidth_bytes_per_s * tier.taper, float)
        leaves = more * (members - below) / members
        inner = i < library.inner_tiers or between is None
        as_here = tier_ratios(tier, count, library, inner=inner, last=i == len(tiers) - 1)
        hops_s = hops_s + more * as_here.exchange_hops_s
        if inner:
            direct = direct_share(tier, count)
            inner_s = np.maximum(inner_s, more * as_here.gather / (rate * direct * below))
            in_x = np.maximum(in_x, leaves * as_here.exchange / (rate * direct))
            in_steps = in_steps + here * (tier.latency_s / inside.reference_latency_s)
            node = np.maximum(node, as_here.gather)
            near = np.maximum(near, np.where(more, as_here.exchange, 1.0))
        elif between is not None:
            ratio = tier.latency_s / between.reference_latency_s
            reach = tier.efficiency if between.efficiency is None else between.efficiency
            alone = np.where(below < 2.0, between.alone_share, 1.0)
            outer_s = np.maximum(outer_s, more * as_here.gather / (rate * reach * alone * below))
            member_s = np.maximum(member_s, more / rate)
            apart = off_rail(tier, count, below)
            out_x = np.maximum(out_x, leaves * as_here.exchange * apart / rate)
            in_x = forwarded(tier, tiers[:i], counts[:i], more, in_x)
            out_steps = out_steps + here * ratio
            depth = depth + np.ceil(np.log2(count) - 1e-9) * ratio
            tree = np.maximum(tree, as_here.tree / as_here.gather)
            tree_hops_s = tree_hops_s + more * as_here.tree_hops_s
            exchange = np.maximum(exchange, as_here.exchange * apart)
            adds = adds & (~more | tier.in_network_reduction)
        weights.append(here)
        units = units / count
        below = below * count
    nodes = np.prod(counts[library.inner_tiers :], axis=0) if between is not None else zero + 1.0
    return GroupShape(
        members=members,
        nodes=nodes,
        spans=nodes > 1.0,
        inside_steps=in_steps,
        outer_steps=out_steps,
        depth=depth,
        tree_ratio=tree,
        tree_hops_s=tree_hops_s,
        inside_ratio=node,
        near_ratio=near,
        exchange_ratio=exchange,
        exchange_hops_s=hops_s,
        inside_s_per_byte=inner_s,
        outer_s_per_byte=outer_s,
        first_s_per_byte=1.0 / np.asarray(tiers[0].bandwidth_bytes_per_s) + zero,
        member_s_per_byte=member_s,
        inside_exchange=in_x,
        outer_exchange=out_x,
        hop_weight=np.stack(weights) / np.maximum(members - 1.0, 1.0),
        adds_between=adds & (nodes > 1.0),
        tiers=tiers,
    )


def forwarded(
    rail: Tier, below: tuple[Tier, ...], counts: Array, spans: Mask, inside: Array
) -> Array:
    """Load of the links inside a node where every message of an all-to-all first goes to its rail (PXN):
    (n - 1)/n of S, whatever the nodes; elsewhere `inside` as it is."""
    if not forwards(rail):
        return inside
    for tier, count in zip(below, counts, strict=True):
        rate = np.asarray(tier.bandwidth_bytes_per_s * tier.taper, float)
        handed = (count - 1.0) / count / (rate * direct_share(tier, count))
        inside = np.where(spans, np.maximum(inside, handed), inside)
    return inside


def tier_ratios(
    tier: Tier, count: Array, library: Library, *, inner: bool, last: bool
) -> PatternRatios:
    """A tier's costs over those on the topology that the library was measured on.

    Inside a node `direct_share` stands for links between every two chips. Between nodes the fabric's own
    topology is that of the outermost tier, switches those of the tiers below it.
    """
    if inner or library.between is None:
        known = tier.topology in ("switch", "fully-connected", library.inside.topology)
        return MEASURED if known else ratios(tier, count, "switch")
    return ratios(tier, count, library.between.topology if last else "switch")


def direct_share(tier: Tier, count: Array) -> Num:
    """Share of a member's links that lead to members of the group: all of them behind a switch."""
    if tier.topology != "fully-connected":
        return 1.0
    links = np.clip((count - 1.0) / np.maximum(tier.size - 1.0, 1.0), 1e-9, 1.0)
    return np.where(count > 1.0, links, 1.0)
