"""Members on an optical circuit switch: each port has one circuit at a time, to any other.

Circuits of a ring stay in place. Another partner than the next on the ring takes a new circuit, and mirrors
take `reconfiguration_s` to turn; no packet is looked at, so that nothing is added up on the way.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from foretell.network.topologies.base import Claim, Cost, Pattern, claims, cost_among
from foretell.network.topologies.switch import Switch
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.system import Tier

NAMES = ("optical-circuit",)
MIRRORS_S = 10e-3
"""Reconfiguration of a switch of mirrors: milliseconds (N. Jouppi et al., TPU v4, ISCA 2023)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitSwitch(Switch):
    """A port a member; any permutation goes at full rate, once its circuits are set."""

    reconfiguration_s: Num
    """Time to set new circuits."""

    patterns: ClassVar[Mapping[Pattern, Claim]] = claims(
        exact="ring chain", at_most="exchange shift permutation port spread"
    )

    def ring(self) -> Cost:
        """The circuits that stay in place."""
        cost = Cost(latency_s=self.latency_s, s_per_byte=1.0 / self.bandwidth_bytes_per_s)
        return cost_among(self.members, cost)

    def permutation(self) -> Cost:
        """New circuits, then one message through every port."""
        return self.ring() + cost_among(self.members, Cost(latency_s=self.reconfiguration_s))

    def spread(self) -> Cost:
        """One partner after another, each with circuits of its own."""
        return self.permutation().times(np.asarray(self.members) - 1.0)


def from_tier(tier: Tier, members: Num) -> CircuitSwitch:
    """A circuit switch of this tier's rate and latency."""
    return CircuitSwitch(
        members=members,
        bandwidth_bytes_per_s=tier.bandwidth_bytes_per_s * tier.taper,
        latency_s=tier.latency_s,
        in_network_reduction=False,
        reconfiguration_s=tier.reconfiguration_s or MIRRORS_S,
    )
