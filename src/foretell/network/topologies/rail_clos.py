"""Rail-optimised Clos: chips of the same index in every node share a switch, their rail.

Between chips of different index the way is over the node's own switch to the chip on the right rail,
and from there over one rail switch; so no taper counts under one leaf, but the inner links carry
forwarded bytes.
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
    choose_cost,
    cost_among,
)
from foretell.network.topologies.fat_tree import FatTree
from foretell.network.topologies.fat_tree import from_tier as fat_tree_from_tier
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.system import Tier

NAMES = ("rail-clos",)
RAIL_NODES = 32
"""Nodes under one leaf of a rail: half the ports of a switch of 64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RailClos(Topology):
    """Nodes of `rails` chips on an inner switch, and a switch for each rail; ranks fill nodes."""

    nodes: Num
    """Nodes of the group."""
    rails: Num = 1.0
    """Members of one node, each with a port into its own rail."""
    bandwidth_bytes_per_s: Num
    """Rate of a port into a rail, one direction."""
    latency_s: Num
    """Latency over a rail."""
    inner_bytes_per_s: Num = np.inf
    """Rate of a port into the node's switch, one direction."""
    inner_latency_s: Num = 0.0
    """Latency over the node's switch."""

    patterns: ClassVar[Mapping[Pattern, Claim]] = {"exchange": "exact", "spread": "exact"}

    @property
    def members(self) -> Num:  # type: ignore[override]
        """Nodes times rails."""
        return self.nodes * self.rails

    def exchange(self, distance: Num) -> Cost:
        """Inside the node below `rails` (a power of two), over the rails from there."""
        rail = Cost(latency_s=self.latency_s, s_per_byte=1.0 / self.bandwidth_bytes_per_s)
        inner = Cost(latency_s=self.inner_latency_s, s_per_byte=1.0 / self.inner_bytes_per_s)
        return cost_among(self.members, choose_cost(np.asarray(distance) < self.rails, inner, rail))

    def spread(self) -> Cost:
        """n - rails messages over each rail port, n (rails - 1) / rails over each inner port."""
        rail = (self.members - self.rails) / self.bandwidth_bytes_per_s
        inner = self.members * (self.rails - 1.0) / self.rails / self.inner_bytes_per_s
        latency = np.where(np.asarray(self.nodes) > 1, self.latency_s, 0.0)
        latency = latency + np.where(np.asarray(self.rails) > 1, self.inner_latency_s, 0.0)
        return Cost(latency_s=latency, s_per_byte=np.maximum(rail, inner))

    def injection_s_per_byte(self) -> Num:
        """The port into the rail, and the one into the node where there are others in it."""
        inner = np.where(np.asarray(self.rails) > 1, self.inner_bytes_per_s, 0.0)
        rail = np.where(np.asarray(self.nodes) > 1, self.bandwidth_bytes_per_s, 0.0)
        return np.asarray(1.0 / np.maximum(inner + rail, 1e-300))

    def bisection_bytes_per_s(self) -> Num:
        """The rail ports of half the nodes; at most that."""
        half = np.floor(np.asarray(self.nodes) / 2.0)
        return np.asarray(half * self.rails * self.bandwidth_bytes_per_s)

    def graph(self) -> LinkGraph:
        """Members, then node switches, then rails."""
        nodes, rails = int(self.nodes), int(self.rails)
        count = nodes * rails
        links: list[Link] = []
        for m in range(count):
            if rails > 1:
                inner, half = float(self.inner_bytes_per_s), float(self.inner_latency_s) / 2.0
                links += both_ways(m, count + m // rails, inner, half)
            if nodes > 1:
                rate, half = float(self.bandwidth_bytes_per_s), float(self.latency_s) / 2.0
                links += both_ways(m, count + nodes + m % rails, rate, half)
        return LinkGraph(members=count, links=tuple(links))


def from_tier(tier: Tier, members: Num) -> FatTree:
    """The rail of one chip index: leaves of nodes, each chip with the tier's rate.

    Up to a leaf of nodes (`shape`, else 32: half the ports of a switch of 64) nothing crosses the spines, so
    neither taper nor static routes count; a plain fat tree has the chips of four nodes under a leaf.
    """
    leaves = tier if tier.shape else replace(tier, shape=(RAIL_NODES, 1))
    return fat_tree_from_tier(leaves, members)


def forwards(tier: Tier) -> bool:
    """Whether messages to other rails go over the links below this tier first."""
    return tier.pxn and tier.topology in NAMES


def off_rail(tier: Tier, nodes: Num, rails: Num) -> Num:
    """An all-to-all's time per byte over that with all messages on their rails; 1 with PXN.

    `rails` members of the group stand in each of its `nodes`. Without PXN all but one in `rails` of what a
    chip sends to other nodes is for chips of another index, and crosses the spines from leaf to leaf even
    where both nodes are near.
    """
    if tier.pxn or tier.topology not in NAMES:
        return 1.0
    aligned = from_tier(tier, nodes)
    away = np.maximum(np.asarray(rails, float) - 1.0, 0.0) / np.maximum(rails, 1.0)
    beyond = np.asarray(nodes, float) - aligned.inside()
    crossing = away * (np.asarray(nodes) - 1.0) + (1.0 - away) * beyond
    port = (np.asarray(nodes) - 1.0) / np.asarray(tier.bandwidth_bytes_per_s)
    load = np.maximum(port, crossing / aligned.up_bytes_per_s())
    return np.where(
        np.asarray(nodes) > 1, load / np.maximum(aligned.spread().s_per_byte, 1e-300), 1.0
    )
