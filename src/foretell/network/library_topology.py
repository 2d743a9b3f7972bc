"""What another topology makes of times that a library was measured with: ratios of the closed forms.

A library's coefficients hold on the topology of the links that they were fitted on. The same tier joined
another way costs each pattern of messages more or less: `ratios` prices both ways, at the same rate and
latency, and the curves are scaled by the quotient. It is one, to the last digit, on what was measured.
"""

from dataclasses import replace

import numpy as np

from foretell.network.algorithms import able
from foretell.network.topologies import of_tier, plain_name
from foretell.network.topologies.base import Cost, Topology
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array
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
