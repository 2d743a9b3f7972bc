"""Dragonfly+ (Shpiner et al., HiPINEB 2017): groups of leaves and spines, every two groups joined."""

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
)
from foretell.network.topologies.dragonfly import FAR, Groups
from foretell.network.topologies.dragonfly import from_tier as groups_from_tier
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.system import Tier

NAMES = ("dragonfly-plus",)


@dataclass(frozen=True, slots=True, kw_only=True)
class DragonflyPlus(Topology):
    """Full size: spines x globals + 1 groups, one link between any two; minimal routes."""

    leaf_members: Num
    """Members on one leaf (p)."""
    leaves: Num
    """Leaves of one group, at least two."""
    spines: Num
    """Spines of one group, each joined to every leaf of it."""
    spine_globals: Num
    """Links of one spine to other groups (h)."""
    bandwidth_bytes_per_s: Num
    """Rate of a member's port, one direction."""
    local_bytes_per_s: Num
    """Rate of a link from a leaf to a spine."""
    global_bytes_per_s: Num
    """Rate of a link between groups."""
    latency_s: Num
    """Latency between members of one leaf."""
    local_latency_s: Num = 0.0
    """Latency of a link from a leaf to a spine."""
    global_latency_s: Num = 0.0
    """Latency of a link between groups."""

    patterns: ClassVar[Mapping[Pattern, Claim]] = {
        "ring": "exact",
        "chain": "at most",
        "spread": "exact",
    }

    @property
    def groups(self) -> Num:
        """spines x h + 1."""
        return self.spines * self.spine_globals + 1.0

    @property
    def members(self) -> Num:  # type: ignore[override]
        """p x leaves x groups."""
        return self.leaf_members * self.leaves * self.groups

    def ring(self) -> Cost:
        """In rank order: the one message out of a group has a leaf, a spine and a link to itself."""
        load = np.maximum(1.0 / self.local_bytes_per_s, 1.0 / self.global_bytes_per_s)
        return Cost(
            latency_s=self._far_s(), s_per_byte=np.maximum(load, 1.0 / self.bandwidth_bytes_per_s)
        )

    def spread(self) -> Cost:
        """(p leaves)^2 messages between groups; p^2 ((leaves-1)/spines + leaves h) to a spine."""
        port = (self.members - 1.0) / self.bandwidth_bytes_per_s
        across = (self.leaf_members * self.leaves) ** 2 / self.global_bytes_per_s
        ways = (self.leaves - 1.0) / self.spines + self.leaves * self.spine_globals
        inside = self.leaf_members**2 * ways / self.local_bytes_per_s
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
        """Link k of a group goes to the k+1st group after it, as in the dragonfly."""
        p, leaves, spines = int(self.leaf_members), int(self.leaves), int(self.spines)
        h = int(self.spine_globals)
        groups = spines * h + 1
        count = p * leaves * groups
        top = count + leaves * groups
        rate, half = float(self.bandwidth_bytes_per_s), float(self.latency_s) / 2.0
        local = float(self.local_bytes_per_s), float(self.local_latency_s)
        far = float(self.global_bytes_per_s), float(self.global_latency_s), FAR
        links: list[Link] = []
        for m in range(count):
            links += both_ways(m, count + m // p, rate, half)
        for group in range(groups):
            for leaf in range(leaves):
                for spine in range(spines):
                    ends = count + group * leaves + leaf, top + group * spines + spine
                    links += both_ways(*ends, *local)
            for k in range(spines * h):
                other = (group + k + 1) % groups
                if group < other:
                    peer = top + other * spines + (spines * h - 1 - k) // h
                    links += both_ways(top + group * spines + k // h, peer, *far)
        return LinkGraph(members=count, links=tuple(links))

    def _far_s(self) -> Num:
        across = 2.0 * self.local_latency_s + self.global_latency_s
        return self.latency_s + across


def from_tier(tier: Tier, members: Num) -> Groups:
    """As for the dragonfly: members of a tier are groups."""
    return groups_from_tier(tier, members)
