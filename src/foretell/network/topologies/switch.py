"""Members on one switch that never blocks (NVSwitch, one leaf), adding up on the way or not."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from foretell.network.topologies.base import (
    IMPOSSIBLE,
    Claim,
    Cost,
    LinkGraph,
    Pattern,
    Topology,
    both_ways,
    choose_cost,
    claims,
    cost_among,
)
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.system import Tier

NAMES = ("switch",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch(Topology):
    """One port of `bandwidth_bytes_per_s` a member; any permutation goes at full rate."""

    members: Num
    """Members on the switch."""
    bandwidth_bytes_per_s: Num
    """Rate of a port, one direction."""
    latency_s: Num
    """Latency from a member to another, through the switch."""
    in_network_reduction: bool
    """Whether the switch adds up and multicasts (NVLS, SHARP)."""

    patterns: ClassVar[Mapping[Pattern, Claim]] = claims(
        exact="ring chain ring-both rings exchange shift permutation port spread reduction"
    )

    def permutation(self) -> Cost:
        """Latency and one message through every port."""
        cost = Cost(latency_s=self.latency_s, s_per_byte=1.0 / self.bandwidth_bytes_per_s)
        return cost_among(self.members, cost)

    def ring(self) -> Cost:
        """A permutation."""
        return self.permutation()

    def ring_both(self) -> Cost:
        """Two messages through one port: two ways gain nothing."""
        return self.permutation().times(1.0, 2.0)

    def rings(self) -> Cost:
        """Any number of rings shares the one port."""
        return self.permutation()

    def exchange(self, distance: Num) -> Cost:
        """A permutation."""
        return self.permutation().times(np.ones_like(distance))

    def shift(self, distance: Num) -> Cost:
        """A permutation."""
        return self.permutation().times(np.ones_like(distance))

    def spread(self) -> Cost:
        """All n - 1 messages of a member leave through its port."""
        return self.permutation().times(1.0, self.members - 1.0)

    def reduction(self) -> Cost:
        """Bytes go up and come down at the same time: one latency, once the bytes."""
        return choose_cost(self.in_network_reduction, self.permutation(), IMPOSSIBLE)

    def injection_s_per_byte(self) -> Num:
        """One port."""
        return 1.0 / self.bandwidth_bytes_per_s

    def bisection_bytes_per_s(self) -> Num:
        """The ports of the smaller half."""
        return np.asarray(np.floor(np.asarray(self.members) / 2.0) * self.bandwidth_bytes_per_s)

    def graph(self) -> LinkGraph:
        """A star; half the latency on the way up, half on the way down."""
        count = int(self.members)
        rate, half = float(self.bandwidth_bytes_per_s), float(self.latency_s) / 2.0
        links = [link for m in range(count) for link in both_ways(m, count, rate, half)]
        return LinkGraph(members=count, links=tuple(links))


def from_tier(tier: Tier, members: Num) -> Switch:
    """A switch of this tier's rate and latency."""
    return Switch(
        members=members,
        bandwidth_bytes_per_s=tier.bandwidth_bytes_per_s * tier.taper,
        latency_s=tier.latency_s,
        in_network_reduction=tier.in_network_reduction,
    )
