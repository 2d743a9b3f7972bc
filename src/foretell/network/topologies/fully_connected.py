"""Members of which each pair has a link of its own (four A100 on NVLink bridges, MI300X)."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

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
from foretell.specs.system import Tier

NAMES = ("fully-connected",)


@dataclass(frozen=True, slots=True, kw_only=True)
class FullyConnected(Topology):
    """A link of `link_bytes_per_s` between any two; no member forwards for others."""

    members: Num
    """Members of the group."""
    link_bytes_per_s: Num
    """Rate of one link, one direction."""
    latency_s: Num
    """Latency of one link."""

    patterns: ClassVar[Mapping[Pattern, Claim]] = claims(
        exact="ring chain ring-both rings exchange shift permutation spread", at_most="port"
    )

    def permutation(self) -> Cost:
        """Every message has a link to itself."""
        cost = Cost(latency_s=self.latency_s, s_per_byte=1.0 / self.link_bytes_per_s)
        return cost_among(self.members, cost)

    def ring(self) -> Cost:
        """One of a member's links works."""
        return self.permutation()

    def ring_both(self) -> Cost:
        """Two links work, but between two members they are one and the same."""
        return self.permutation().times(1.0, np.where(np.asarray(self.members) == 2, 2.0, 1.0))

    def rings(self) -> Cost:
        """All n - 1 links work: rings can be found that use every link alike."""
        return self.permutation().times(1.0, 1.0 / np.maximum(self.members - 1.0, 1.0))

    def exchange(self, distance: Num) -> Cost:
        """A permutation."""
        return self.permutation().times(np.ones_like(distance))

    def shift(self, distance: Num) -> Cost:
        """A permutation."""
        return self.permutation().times(np.ones_like(distance))

    def spread(self) -> Cost:
        """All links work at once, one message each."""
        return self.permutation()

    def injection_s_per_byte(self) -> Num:
        """All links to the other members."""
        return 1.0 / (self.link_bytes_per_s * np.maximum(self.members - 1.0, 1.0))

    def bisection_bytes_per_s(self) -> Num:
        """floor(n/2) x ceil(n/2) links."""
        half = np.floor(np.asarray(self.members) / 2.0)
        return np.asarray(half * (self.members - half) * self.link_bytes_per_s)

    def ring_orders(self) -> tuple[tuple[float, tuple[int, ...]], ...]:
        """Rings that use every link alike."""
        rings = even_rings(int(self.members))
        return tuple((1.0 / len(rings), ring) for ring in rings)

    def graph(self) -> LinkGraph:
        """Every pair joined."""
        count = int(self.members)
        rate, latency = float(self.link_bytes_per_s), float(self.latency_s)
        pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
        links = [link for a, b in pairs for link in both_ways(a, b, rate, latency)]
        return LinkGraph(members=count, links=tuple(links))


def even_rings(members: int) -> list[tuple[int, ...]]:
    """Directed rings through all members that together use every link equally often.

    Walecki's zigzags: on Z_m they cut the complete graph in paths. An odd number of members closes them
    over one member more. An even number closes each path by itself, which doubles the pairs at half the
    ring; so they are taken in all n - 1 rounds of a tournament, whose pairings meet every pair once.
    """
    if members <= 2:
        return [tuple(range(members))]
    even = members - members % 2
    zigzag = [0] + [k // 2 + 1 if k % 2 == 0 else -(k // 2 + 1) for k in range(even - 1)]
    paths = [[(start + z) % even for z in zigzag] for start in range(even // 2)]
    if members % 2:
        rings = [(*path, even) for path in paths]
    else:
        rings = [
            tuple(_tournament(x, turn, members) for x in path)
            for turn in range(members - 1)
            for path in paths
        ]
    return rings + [ring[::-1] for ring in rings]


def _tournament(x: int, turn: int, members: int) -> int:
    """Pairs x and x + n/2 become those of round `turn`: the last with the turn, the others mirrored."""
    half, ring = members // 2, members - 1
    pair, side = x % half, x // half
    if pair == 0:
        return members - 1 if side == 0 else turn
    return (turn + pair) % ring if side == 0 else (turn - pair) % ring


def from_tier(tier: Tier, members: Num) -> FullyConnected:
    """A chip's rate divided over its links to all others of the tier; a part of them uses its own."""
    links = np.maximum(np.maximum(tier.size, members) - 1.0, 1.0)
    return FullyConnected(
        members=members,
        link_bytes_per_s=tier.bandwidth_bytes_per_s / links,
        latency_s=tier.latency_s,
    )
