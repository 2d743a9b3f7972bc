"""Dragonfly (Kim et al., ISCA 2008) and dragonfly+ (Shpiner et al., HiPINEB 2017): every two groups joined.

`Groups` is what a tier of a system means by either name: members in groups, each chip with the tier's rate,
routes over third groups where they are adaptive. `size_groups` fills in the number of groups and their links
from a tier's fields.
"""

from collections.abc import Mapping
from dataclasses import replace
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
    claims,
    cost_among,
)
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.system import Tier

NAMES = ("dragonfly", "dragonfly-plus")
GROUP_CHIPS = 512.0
"""Chips of a group: routers of 64 ports have 16 for chips, 31 for one another and 17 to other groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups(Topology):
    """Groups of members joined pairwise, each chip with its share of its group's links.

    Members fill one group after another, and inside a group nothing is narrow. Of the G - 1 bundles of links
    out of a group one leads to any given other. With adaptive routes a permutation of n groups fills that
    bundle, those to the G - n groups that do nothing, and half of those to the n - 2 others, which have
    their own bytes to send and forward as many: (1 + (G-n) + (n-2)/2) / (G-1) of the rate, about half
    for all groups, as Valiant's routing. No routing does better; static, minimal routes have the one bundle.
    """

    members: Num
    """Members that take part."""
    groups: Num
    """Groups of the machine."""
    bandwidth_bytes_per_s: Num
    """What a chip can send out of its own port, one direction."""
    taper: Num
    """Bandwidth between groups over that of all chips."""
    latency_s: Num
    """Latency between two members."""
    group_members: Num = 1.0
    """Members of one group."""
    adaptive: bool = True
    """Whether flows take other ways than the shortest where those are busy."""

    patterns: ClassVar[Mapping[Pattern, Claim]] = claims(
        at_least="ring chain ring-both rings exchange shift permutation port spread"
    )

    def claim(self, pattern: Pattern) -> Claim | None:
        """Rings in many orders of the groups need routes by load: libraries lay theirs in one order."""
        return None if pattern == "rings" and not self.adaptive else self.patterns.get(pattern)

    def permutation(self) -> Cost:
        """At worst all members of a group send to one other group."""
        return self._leaving(self._inside())

    def port(self) -> Cost:
        """No routing takes more out of a group than all its links, which the edges of a tree share."""
        return self._evenly(1.0)

    def ring(self) -> Cost:
        """In rank order one message leaves each group."""
        return self._leaving(1.0)

    def ring_both(self) -> Cost:
        """Two messages through each port, two out of each group: over all links where routes go by load."""
        if self.adaptive:
            return self._evenly(2.0)
        one = self._leaving(1.0)
        both = np.maximum(2.0 / np.asarray(self.bandwidth_bytes_per_s), one.s_per_byte)
        return cost_among(self.members, Cost(latency_s=one.latency_s, s_per_byte=both))

    def rings(self) -> Cost:
        """Rings in many orders of the groups use the links between them evenly."""
        return self._evenly(1.0)

    def exchange(self, distance: Num) -> Cost:
        """All members leave their group where the partner is a group away, else none."""
        return self._leaving(np.where(np.asarray(distance) >= self._inside(), self._inside(), 0.0))

    def shift(self, distance: Num) -> Cost:
        """min(distance, n - distance, group) messages leave each group."""
        apart = np.asarray(distance) % self.members
        return self._leaving(np.minimum(np.minimum(apart, self.members - apart), self._inside()))

    def spread(self) -> Cost:
        """n - 1 messages through each port; those to other groups use every link, at the tapered rate."""
        members = np.asarray(self.members, float)
        port = (members - 1.0) / self.bandwidth_bytes_per_s
        out = (members - self._inside()) / (self.bandwidth_bytes_per_s * self.taper)
        cost = Cost(latency_s=self.latency_s, s_per_byte=np.maximum(port, out))
        return cost_among(self.members, cost)

    def injection_s_per_byte(self) -> Num:
        """The port."""
        return 1.0 / self.bandwidth_bytes_per_s

    def bisection_bytes_per_s(self) -> Num:
        """Direct links between the halves of the groups that take part, or half the ports of one."""
        ports = np.floor(np.asarray(self.members) / 2.0) * self.bandwidth_bytes_per_s
        half = np.floor(self._used() / 2.0)
        cut = half * (self._used() - half) * self._bundle_bytes_per_s()
        return np.asarray(np.where(self._used() > 1, np.minimum(ports, cut), ports))

    def graph(self) -> LinkGraph:
        """A router for each group, idle ones too; members on those that take part."""
        count, groups, inside = int(self.members), int(self.groups), int(self._inside())
        rate, half = float(self.bandwidth_bytes_per_s), float(self.latency_s) / 2.0
        bundle = float(self._bundle_bytes_per_s())
        links: list[Link] = []
        for m in range(count):
            links += both_ways(m, count + m // inside, rate, half)
        for a in range(groups):
            for b in range(a + 1, groups):
                links += both_ways(count + a, count + b, bundle, 0.0)
        return LinkGraph(members=count, links=tuple(links))

    def _inside(self) -> Array:
        """Members of the collective's group that are in one group of the machine."""
        return np.asarray(np.minimum(np.asarray(self.members, float), self.group_members))

    def _used(self) -> Array:
        """Groups that take part."""
        return np.asarray(np.ceil(np.asarray(self.members, float) / self._inside() - 1e-9))

    def _bundle_bytes_per_s(self) -> Num:
        """Links from one group to one other, for each chip of a member."""
        out = self.group_members * self.bandwidth_bytes_per_s * self.taper
        return out / np.maximum(self.groups - 1.0, 1.0)

    def _leaving(self, messages: Num) -> Cost:
        """A message through every port, and this many from each group to one other."""
        used = self._used()
        bundles: Num = 1.0
        if self.adaptive:
            bundles = 1.0 + (self.groups - used) + np.maximum(used - 2.0, 0.0) / 2.0
        crosses = (np.asarray(messages) > 0) & (used > 1)
        out = messages / (self._bundle_bytes_per_s() * bundles)
        port = 1.0 / self.bandwidth_bytes_per_s
        cost = Cost(
            latency_s=self.latency_s, s_per_byte=np.maximum(port, np.where(crosses, out, 0.0))
        )
        return cost_among(self.members, cost)

    def _evenly(self, messages: float) -> Cost:
        """So many messages through each port, and as many out of each group over all its links."""
        port = 1.0 / self.bandwidth_bytes_per_s
        out = port / (self._inside() * self.taper)
        slowest = np.maximum(port, np.where(self._used() > 1, out, 0.0))
        cost = Cost(latency_s=self.latency_s, s_per_byte=messages * slowest)
        return cost_among(self.members, cost)


def size_groups(tier: Tier, member_chips: float, members_are_groups: bool) -> Tier:
    """A dragonfly with its number of groups, and its links between them as a taper.

    Members that are groups stay so. Else a group has as many whole members as the routers that a switch of 64
    ports makes: 32, of 16 chips each. The a routers of a group of C chips have a x h links to others, and
    p = C / a chips each, whose bytes to all others take (p/a)(2g-1)/g of a local link.
    """
    groups = float(tier.groups)
    if not groups:
        each = 1.0 if members_are_groups else max(np.floor(GROUP_CHIPS / member_chips), 1.0)
        groups = float(np.ceil(tier.size / each))
    chips = member_chips * float(tier.size) / groups
    share = 1.0
    if float(tier.group_routers):
        a = float(tier.group_routers)
        share = min(share, a * a / chips * groups / (2.0 * groups - 1.0))
        if float(tier.router_globals):
            share = min(share, a * float(tier.router_globals) / chips)
    return replace(
        tier, groups=groups, group_routers=0.0, router_globals=0.0, taper=tier.taper * share
    )


def from_tier(tier: Tier, members: Num) -> Groups:
    """Members fill groups in order; without a number of groups each member is one (`size_groups`)."""
    groups = float(tier.groups) or tier.size
    each = np.maximum(np.ceil(np.asarray(tier.size / groups) - 1e-9), 1.0)
    return Groups(
        members=members,
        groups=np.maximum(groups, np.ceil(np.asarray(members) / each)),
        bandwidth_bytes_per_s=tier.bandwidth_bytes_per_s,
        taper=tier.taper,
        latency_s=tier.latency_s,
        group_members=each,
        adaptive=tier.routing == "adaptive",
    )
