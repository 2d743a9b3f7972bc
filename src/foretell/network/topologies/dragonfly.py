"""Dragonfly (Kim et al., ISCA 2008): groups of fully joined routers, every two groups joined.

`Dragonfly` is the whole of it, router by router, under minimal routes. `Groups` is what a tier of a
catalogue system means by the name: groups as members, each chip with the tier's rate, and adaptive
routes over third groups.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from foretell.network.topologies.base import (
    Claim,
    Cost,
    Link,
    LinkGraph,
    Pattern,
    Topology,
    both_ways,
    cost_among,
)
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.system import Tier

NAMES = ("dragonfly",)
FAR = 4.0
"""Length of a link between groups: no minimal route takes two to save links inside groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dragonfly(Topology):
    """The balanced full size: a x h + 1 groups, one link between any two of them."""

    router_members: Num
    """Members on one router (p)."""
    group_routers: Num
    """Routers of one group (a), at least two."""
    router_globals: Num
    """Links of one router to other groups (h)."""
    bandwidth_bytes_per_s: Num
    """Rate of a member's port, one direction."""
    local_bytes_per_s: Num
    """Rate of a link inside a group."""
    global_bytes_per_s: Num
    """Rate of a link between groups."""
    latency_s: Num
    """Latency between members of one router."""
    local_latency_s: Num = 0.0
    """Latency of a link inside a group."""
    global_latency_s: Num = 0.0
    """Latency of a link between groups."""

    patterns: ClassVar[Mapping[Pattern, Claim]] = {
        "ring": "exact",
        "chain": "at most",
        "spread": "exact",
    }

    @property
    def groups(self) -> Num:
        """a x h + 1."""
        return self.group_routers * self.router_globals + 1.0

    @property
    def members(self) -> Num:  # type: ignore[override]
        """p x a x groups."""
        return self.router_members * self.group_routers * self.groups

    def ring(self) -> Cost:
        """In rank order: out of a group and into one share the local link from last to first router."""
        load = np.maximum(2.0 / self.local_bytes_per_s, 1.0 / self.global_bytes_per_s)
        return Cost(
            latency_s=self._far_s(), s_per_byte=np.maximum(load, 1.0 / self.bandwidth_bytes_per_s)
        )

    def spread(self) -> Cost:
        """(p a)^2 messages on a link between groups, p^2 (1 + 2 a h) on one inside.

        Over the n messages of a member: p a / groups between groups and (p/a)(2g-1)/g inside.
        """
        port = (self.members - 1.0) / self.bandwidth_bytes_per_s
        across = (self.router_members * self.group_routers) ** 2 / self.global_bytes_per_s
        ways = 1.0 + 2.0 * self.group_routers * self.router_globals
        inside = self.router_members**2 * ways / self.local_bytes_per_s
        return Cost(
            latency_s=self._far_s(), s_per_byte=np.maximum(port, np.maximum(across, inside))
        )

    def injection_s_per_byte(self) -> Num:
        """One port."""
        return 1.0 / self.bandwidth_bytes_per_s

    def bisection_bytes_per_s(self) -> Num:
        """Links between two halves of the groups; at least that where groups are odd in number."""
        half = np.floor(np.asarray(self.groups) / 2.0)
        return np.asarray(half * (self.groups - half) * self.global_bytes_per_s)

    def graph(self) -> LinkGraph:
        """Link k of a group goes to the k+1st group after it, and is that one's link a h - 1 - k."""
        p, a, h = int(self.router_members), int(self.group_routers), int(self.router_globals)
        groups, count = a * h + 1, p * a * (a * h + 1)
        rate, half = float(self.bandwidth_bytes_per_s), float(self.latency_s) / 2.0
        links: list[Link] = []
        for m in range(count):
            links += both_ways(m, count + m // p, rate, half)
        for group in range(groups):
            first = count + group * a
            for x in range(a):
                for y in range(x + 1, a):
                    local = float(self.local_bytes_per_s), float(self.local_latency_s)
                    links += both_ways(first + x, first + y, *local)
            for k in range(a * h):
                other = (group + k + 1) % groups
                if group < other:
                    peer = count + other * a + (a * h - 1 - k) // h
                    far = float(self.global_bytes_per_s), float(self.global_latency_s), FAR
                    links += both_ways(first + k // h, peer, *far)
        return LinkGraph(members=count, links=tuple(links))

    def _far_s(self) -> Num:
        return self.latency_s + 2.0 * self.local_latency_s + self.global_latency_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups(Topology):
    """Groups joined pairwise, each chip with its share of its group's links, routes adaptive.

    Of the G - 1 links of a group one leads to any given other. A permutation of n groups fills that
    link, those to the G - n groups that do nothing, and half of those to the n - 2 others, which have
    their own bytes to send and forward as many: (1 + (G-n) + (n-2)/2) / (G-1) of the rate, about half
    for all groups, as Valiant's routing. No routing does better, minimal routes do far worse.
    """

    members: Num
    """Groups that take part."""
    groups: Num
    """Groups of the machine."""
    bandwidth_bytes_per_s: Num
    """What a chip can send out of its own port, one direction."""
    taper: Num
    """Bandwidth between groups over that of all chips."""
    latency_s: Num
    """Latency between two groups."""

    patterns: ClassVar[Mapping[Pattern, Claim]] = {
        "ring": "at least",
        "chain": "at least",
        "ring-both": "at least",
        "rings": "at least",
        "exchange": "at least",
        "shift": "at least",
        "permutation": "at least",
        "port": "at least",
        "spread": "at least",
    }

    def permutation(self) -> Cost:
        """Direct, over idle groups and over half of the busy ones."""
        members = np.asarray(self.members, float)
        links = 1.0 + (self.groups - members) + np.maximum(members - 2.0, 0.0) / 2.0
        share = self.taper * links / np.maximum(self.groups - 1.0, 1.0)
        rate = self.bandwidth_bytes_per_s * np.minimum(1.0, share)
        return cost_among(members, Cost(latency_s=self.latency_s, s_per_byte=1.0 / rate))

    def port(self) -> Cost:
        """No routing takes more out of a group than all its links."""
        rate = self.bandwidth_bytes_per_s * self.taper
        return cost_among(self.members, Cost(latency_s=self.latency_s, s_per_byte=1.0 / rate))

    def ring(self) -> Cost:
        """A permutation."""
        return self.permutation()

    def ring_both(self) -> Cost:
        """Twice the bytes of a permutation, over twice the direct links at best."""
        port = Cost(latency_s=self.latency_s, s_per_byte=2.0 / self.bandwidth_bytes_per_s)
        spread = self.spread()
        fastest = np.maximum(port.s_per_byte, 2.0 * spread.s_per_byte / self._others())
        return cost_among(self.members, Cost(latency_s=self.latency_s, s_per_byte=fastest))

    def rings(self) -> Cost:
        """Rings in many orders use the links between groups evenly, as all-to-all traffic does."""
        return self.spread().times(1.0, 1.0 / self._others())

    def exchange(self, distance: Num) -> Cost:
        """A permutation."""
        return self.permutation().times(np.ones_like(distance))

    def shift(self, distance: Num) -> Cost:
        """A permutation."""
        return self.permutation().times(np.ones_like(distance))

    def spread(self) -> Cost:
        """Every link of a group in use: the tapered rate."""
        rate = self.bandwidth_bytes_per_s * self.taper
        cost = Cost(latency_s=self.latency_s, s_per_byte=(self.members - 1.0) / rate)
        return cost_among(self.members, cost)

    def injection_s_per_byte(self) -> Num:
        """The port."""
        return 1.0 / self.bandwidth_bytes_per_s

    def bisection_bytes_per_s(self) -> Num:
        """Direct links between the halves of the groups that take part, for each chip of a group."""
        half = np.floor(np.asarray(self.members) / 2.0)
        link = self.bandwidth_bytes_per_s * self.taper / np.maximum(self.groups - 1.0, 1.0)
        return np.asarray(half * (self.members - half) * link)

    def graph(self) -> LinkGraph:
        """A router for each group, idle ones too; one chip on each that takes part."""
        count, groups = int(self.members), int(self.groups)
        link = float(self.bandwidth_bytes_per_s * self.taper) / max(groups - 1, 1)
        links: list[Link] = []
        for m in range(count):
            half = float(self.latency_s) / 2.0
            links += both_ways(m, count + m, float(self.bandwidth_bytes_per_s), half)
        for a in range(groups):
            for b in range(a + 1, groups):
                links += both_ways(count + a, count + b, link, 0.0)
        return LinkGraph(members=count, links=tuple(links))

    def _others(self) -> Num:
        return np.maximum(np.asarray(self.members) - 1.0, 1.0)


def from_tier(tier: Tier, members: Num) -> Groups:
    """Members of a tier are groups, or parts of groups that act as such."""
    return Groups(
        members=members,
        groups=np.maximum(tier.size, members),
        bandwidth_bytes_per_s=tier.bandwidth_bytes_per_s,
        taper=tier.taper,
        latency_s=tier.latency_s,
    )
