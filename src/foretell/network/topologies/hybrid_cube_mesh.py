"""Hybrid cube mesh of eight chips with six links each (DGX-1 with V100).

Two quads, each fully joined by one or two links, and every chip joined to one of the other quad; the
links as `nvidia-smi topo` prints them. A ring of double links and one of single links each pass all
eight, so six directed rings run at once. Chips that are not adjacent send through a third.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from foretell.errors import bad_input
from foretell.network.topologies.base import (
    Claim,
    Cost,
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

NAMES = ("hybrid-cube-mesh",)
CABLES = (
    (0, 1, 1), (0, 2, 1), (0, 3, 2), (0, 4, 2), (1, 2, 2), (1, 3, 1), (1, 5, 2), (2, 3, 2),
    (2, 6, 1), (3, 7, 1), (4, 5, 1), (4, 6, 1), (4, 7, 2), (5, 6, 2), (5, 7, 1), (6, 7, 2),
)  # fmt: skip
"""Pairs of chips and the links between them."""
DOUBLE = (0, 3, 2, 1, 5, 6, 7, 4)
"""The ring of double links."""
SINGLE = (0, 1, 3, 7, 5, 4, 6, 2)
"""The ring of single links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridCubeMesh(Topology):
    """The first 1, 2, 4 or all 8 chips."""

    members: Num
    """Chips that take part: the first so many; between these sizes the next larger one is priced."""
    link_bytes_per_s: Num
    """Rate of one link, one direction."""
    latency_s: Num
    """Latency of one link."""

    patterns: ClassVar[Mapping[Pattern, Claim]] = claims(exact="ring chain rings spread")

    def ring(self) -> Cost:
        """Eight on the double ring; four on 0-1-2-3, whose cable 0-1 is single."""
        return self._hop(self._by_size(1.0, 1.0, 0.5))

    def rings(self) -> Cost:
        """Links out of a chip that rings can use: six of six, four of four, one of one."""
        return self._hop(self._by_size(1.0, 1.0 / 4.0, 1.0 / 6.0))

    def spread(self) -> Cost:
        """The busiest cable, equal shortest ways taken alike: 1 message a link, with eight SPREAD."""
        cost = self._hop(self._by_size(1.0, 1.0, SPREAD))
        return Cost(
            latency_s=cost.latency_s * self._by_size(1.0, 1.0, 2.0), s_per_byte=cost.s_per_byte
        )

    def injection_s_per_byte(self) -> Num:
        """Links to the others that take part."""
        return 1.0 / (self.link_bytes_per_s * self._by_size(1.0, 5.0, 6.0))

    def bisection_bytes_per_s(self) -> Num:
        """Between the quads; inside one, its cheapest pairs."""
        return self.link_bytes_per_s * self._by_size(1.0, 5.0, 6.0)

    def ring_orders(self) -> tuple[tuple[float, tuple[int, ...]], ...]:
        """Eight: two thirds on the double ring, a third on the single one, half of it each way."""
        count = int(self.members)
        if count == 8:
            rings: tuple[tuple[float, tuple[int, ...]], ...] = ((1 / 3, DOUBLE), (1 / 6, SINGLE))
        elif count == 4:
            rings = ((1 / 4, (0, 1, 2, 3)), (1 / 4, (0, 2, 1, 3)))
        else:
            return ((1.0, tuple(range(count))),)
        return rings + tuple((share, ring[::-1]) for share, ring in rings)

    def graph(self) -> LinkGraph:
        """Cables as links of one or two times the rate."""
        count = int(self.members)
        order = DOUBLE if count == 8 else tuple(range(count))
        links = [
            link
            for a, b, width in CABLES
            if a < count and b < count
            for link in both_ways(a, b, width * float(self.link_bytes_per_s), float(self.latency_s))
        ]
        return LinkGraph(members=count, links=tuple(links), order=order)

    def _by_size(self, two: float, four: float, eight: float) -> Array:
        members = np.asarray(self.members)
        return np.where(members <= 2, two, np.where(members <= 4, four, eight))

    def _hop(self, load: Array) -> Cost:
        cost = Cost(latency_s=self.latency_s, s_per_byte=load / self.link_bytes_per_s)
        return cost_among(self.members, cost)


SPREAD = 4.0
"""Messages a link of the busiest cable when each of eight chips sends one to every other."""


def from_tier(tier: Tier, members: Num) -> HybridCubeMesh:
    """A sixth of a chip's rate for each link."""
    if np.any(np.asarray(members) > 8) or np.any(np.asarray(tier.size) > 8):
        raise bad_input(
            f"network.{tier.name}.size",
            tier.size,
            "a hybrid cube mesh joins eight chips",
            "up to 8",
        )
    return HybridCubeMesh(
        members=members,
        link_bytes_per_s=tier.bandwidth_bytes_per_s / 6.0,
        latency_s=tier.latency_s,
    )
