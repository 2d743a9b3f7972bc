"""Fat tree, or folded Clos: leaves of members under spines, with or without taper.

The taper is the up bandwidth of a leaf over its down bandwidth. Traffic that leaves a leaf is spread
over its up links evenly; RoCE networks that hash flows instead reach a share of that, given as
`spread_efficiency`.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from foretell.network.topologies.base import (
    IMPOSSIBLE,
    Claim,
    Cost,
    Link,
    LinkGraph,
    Pattern,
    Topology,
    both_ways,
    choose_cost,
    claims,
    cost_among,
    power_of_two,
)
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.system import Tier

NAMES = ("fat-tree", "clos", "roce-clos")
STATIC_SHARE = 1.0 - np.exp(-1.0)
"""Of the up links' rate under static routes: k flows hashed onto k links share them as balls share bins, and
get E[1 / (1 + Poisson(1))] = 1 - 1/e of a link each (0.55 to 0.6 seen on InfiniBand fat trees: Hoefler,
Schneider, Lumsdaine, "Multistage switches are not crossbars", Cluster 2008)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FatTree(Topology):
    """Leaves of `leaf_members` each; ranks fill one leaf after another."""

    members: Num
    """Members of the group, leaf by leaf; the last may be filled in part."""
    leaf_members: Num
    """Members under one leaf."""
    bandwidth_bytes_per_s: Num
    """Rate of a member's port, one direction."""
    latency_s: Num
    """Latency between two members of one leaf."""
    spine_latency_s: Num = 0.0
    """What the way over a spine adds."""
    taper: Num = 1.0
    """Up bandwidth of a leaf over the bandwidth of its members."""
    spread_efficiency: Num = 1.0
    """Share of the up bandwidth that routing makes use of."""
    in_network_reduction: bool = False
    """Whether switches add up (SHARP)."""

    patterns: ClassVar[Mapping[Pattern, Claim]] = claims(
        exact="ring ring-both exchange shift spread",
        at_most="chain rings permutation port",
        at_least="reduction",
    )

    def claim(self, pattern: Pattern) -> Claim | None:
        """Partners keep to leaves only where leaf and group have a power of two of members."""
        aligned = bool(np.all(power_of_two(self.inside()) & power_of_two(self.members)))
        return "at most" if pattern == "exchange" and not aligned else self.patterns.get(pattern)

    def permutation(self) -> Cost:
        """At worst all members of a leaf send out of it."""
        return self._leaving(self.inside())

    def ring(self) -> Cost:
        """One message leaves each leaf."""
        return self._leaving(1.0)

    def ring_both(self) -> Cost:
        """Two messages through each port, one out of each leaf on either side."""
        one = self._leaving(1.0)
        return one.times(1.0, 2.0)

    def rings(self) -> Cost:
        """Rings of which each leaves a leaf at another member, at worst all of them."""
        return self.permutation()

    def exchange(self, distance: Num) -> Cost:
        """Inside the leaf up to half of it, all members out of it beyond.

        A leaf that holds no power of two is left by some at every distance, at worst by all.
        """
        outside = (np.asarray(distance) >= self.inside()) | ~power_of_two(self.inside())
        return self._leaving(np.where(outside, self.inside(), 0.0))

    def shift(self, distance: Num) -> Cost:
        """min(distance, n - distance, leaf) messages leave each leaf."""
        apart = np.asarray(distance) % self.members
        return self._leaving(np.minimum(np.minimum(apart, self.members - apart), self.inside()))

    def spread(self) -> Cost:
        """n - 1 messages through each port, leaf x (n - leaf) out of each leaf."""
        port = (self.members - 1.0) / self.bandwidth_bytes_per_s
        up = (self.members - self.inside()) / self.up_bytes_per_s()
        latency = self.latency_s + np.where(self._leaves() > 1, self.spine_latency_s, 0.0)
        return cost_among(self.members, Cost(latency_s=latency, s_per_byte=np.maximum(port, up)))

    def reduction(self) -> Cost:
        """Each leaf sends the sum of its members up once, so the taper does not count."""
        latency = self.latency_s + np.where(self._leaves() > 1, self.spine_latency_s, 0.0)
        out = 1.0 / (self.inside() * np.asarray(self.up_bytes_per_s()))
        up = np.where(self._leaves() > 1, out, 0.0)
        cost = Cost(latency_s=latency, s_per_byte=np.maximum(1.0 / self.bandwidth_bytes_per_s, up))
        return choose_cost(self.in_network_reduction, cost_among(self.members, cost), IMPOSSIBLE)

    def injection_s_per_byte(self) -> Num:
        """One port."""
        return 1.0 / self.bandwidth_bytes_per_s

    def bisection_bytes_per_s(self) -> Num:
        """Up links of half the leaves, or half the ports; exact for an even number of leaves."""
        ports = np.floor(np.asarray(self.members) / 2.0) * self.bandwidth_bytes_per_s
        cut_leaves = np.floor(self._leaves() / 2.0) * self.inside() * self.up_bytes_per_s()
        return np.asarray(np.where(self._leaves() > 1, np.minimum(ports, cut_leaves), ports))

    def graph(self) -> LinkGraph:
        """Two spines; a leaf's up bandwidth divided over them."""
        count, inside, leaves = int(self.members), int(self.inside()), int(self._leaves())
        rate, half = float(self.bandwidth_bytes_per_s), float(self.latency_s) / 2.0
        up = inside * float(self.up_bytes_per_s()) / 2.0
        links: list[Link] = []
        for m in range(count):
            links += both_ways(m, count + m // inside, rate, half)
        for leaf in range(leaves if leaves > 1 else 0):
            for spine in (count + leaves, count + leaves + 1):
                links += both_ways(count + leaf, spine, up, float(self.spine_latency_s) / 2.0)
        return LinkGraph(members=count, links=tuple(links))

    def inside(self) -> Array:
        """Members of the group under one leaf."""
        return np.asarray(np.minimum(np.asarray(self.members, float), self.leaf_members))

    def _leaves(self) -> Array:
        return np.asarray(np.ceil(np.asarray(self.members, float) / self.inside()))

    def up_bytes_per_s(self) -> Num:
        """Up bandwidth for each member of a leaf that belongs to the group."""
        idle = np.asarray(self.leaf_members) / self.inside()
        return self.bandwidth_bytes_per_s * self.taper * self.spread_efficiency * idle

    def _leaving(self, messages: Num) -> Cost:
        """A message through every port, and this many out of each leaf."""
        crosses = (np.asarray(messages) > 0) & (self._leaves() > 1)
        up = messages / (self.inside() * np.asarray(self.up_bytes_per_s()))
        cost = Cost(
            latency_s=self.latency_s + np.where(crosses, self.spine_latency_s, 0.0),
            s_per_byte=np.maximum(1.0 / self.bandwidth_bytes_per_s, np.where(crosses, up, 0.0)),
        )
        return cost_among(self.members, cost)


def from_tier(tier: Tier, members: Num) -> FatTree:
    """Leaves as `shape` says (members a leaf, leaves); without it every member is a leaf of its own."""
    return FatTree(
        members=members,
        leaf_members=float(tier.shape[0]) if tier.shape else 1.0,
        bandwidth_bytes_per_s=tier.bandwidth_bytes_per_s,
        latency_s=tier.latency_s,
        taper=tier.taper,
        spread_efficiency=1.0 if tier.routing == "adaptive" else STATIC_SHARE,
        in_network_reduction=tier.in_network_reduction,
    )
