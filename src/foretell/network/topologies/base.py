"""What every topology answers: seconds of a few patterns of messages, and its graph as plain data.

A collective algorithm is a sum of steps, and a step is one of few patterns: all members send to the
next on a ring, exchange with a partner, shift by a distance, or each sends to all others. A topology
prices the patterns, an algorithm counts them, and neither knows the other. Every price is affine in
the bytes: `latency_s + s_per_byte x bytes`, the second being the busiest link's load over its
bandwidth. Members and extents may be arrays over plans; what cannot be done costs infinite latency.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array, Mask

Claim = Literal["exact", "at most", "at least"]
"""How a closed form relates to the simulation of its messages: equal to it, or the simulation takes at most
(at least) that long."""
Pattern = Literal[
    "ring",
    "ring-both",
    "chain",
    "rings",
    "exchange",
    "shift",
    "permutation",
    "port",
    "spread",
    "axes",
    "reduction",
]


def claims(exact: str = "", at_most: str = "", at_least: str = "") -> Mapping[Pattern, Claim]:
    """Patterns, in words, by how exactly they are priced."""
    named: Mapping[Claim, str] = {"exact": exact, "at most": at_most, "at least": at_least}
    return {pattern: how for how, words in named.items() for pattern in words.split()}  # type: ignore[misc]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds as an affine function of the bytes sent."""

    latency_s: Num = 0.0
    """Seconds of an empty message; infinite where it cannot be done."""
    s_per_byte: Num = 0.0
    """Seconds that each further byte takes."""

    def seconds(self, size_bytes: Num) -> Array:
        """Seconds for this many bytes; 0 bytes take the latency."""
        return np.asarray(self.latency_s + np.asarray(size_bytes, float) * self.s_per_byte)

    def times(self, steps: Num, share: Num | None = None) -> "Cost":
        """So many steps, which together send `share` times the bytes (default: as many times)."""
        with np.errstate(invalid="ignore"):
            latency = np.where(np.asarray(steps) > 0, np.multiply(self.latency_s, steps), 0.0)
        return Cost(
            latency_s=latency,
            s_per_byte=np.asarray(self.s_per_byte * (steps if share is None else share)),
        )

    def __add__(self, other: "Cost") -> "Cost":
        """One after the other."""
        return Cost(
            latency_s=np.add(self.latency_s, other.latency_s),
            s_per_byte=np.add(self.s_per_byte, other.s_per_byte),
        )


FREE = Cost()
"""What takes no time."""
IMPOSSIBLE = Cost(latency_s=np.inf)
"""What cannot be done here: a choice of the fastest never takes it."""


def cost_among(members: Num, cost: Cost) -> Cost:
    """The cost between members, free where there is but one."""
    many = np.asarray(members) > 1
    return Cost(
        latency_s=np.where(many, cost.latency_s, 0.0),
        s_per_byte=np.where(many, cost.s_per_byte, 0.0),
    )


def choose_cost(condition: ArrayLike, cost: Cost, other: Cost) -> Cost:
    """One cost where the condition holds, another elsewhere."""
    return Cost(
        latency_s=np.where(condition, cost.latency_s, other.latency_s),
        s_per_byte=np.where(condition, cost.s_per_byte, other.s_per_byte),
    )


def power_of_two(value: Num) -> Mask:
    """Whether whole numbers from 1 are powers of two."""
    return np.asarray(np.exp2(np.round(np.log2(value))) == value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction of one cable."""

    source: int
    """Node that sends."""
    target: int
    """Node that receives."""
    bandwidth_bytes_per_s: float
    """Its rate."""
    latency_s: float
    """Time of an empty message over it."""
    length: float = 1.0
    """What routes count it as: long links are taken only where there is no way round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkGraph:
    """Nodes and links as plain data: nodes below `members` are members, the others switches.

    Routes are shortest in the links' lengths, equal ones taken in equal parts. Where `coordinates` are
    given a route corrects one coordinate after another, from the first, each over its shortest paths.
    """

    members: int
    """Nodes that send and receive."""
    links: tuple[Link, ...]
    """All links, each direction by itself; at most one from a node to another."""
    coordinates: tuple[tuple[int, ...], ...] = ()
    """Place of every member on the axes; empty where routes have no order of axes."""
    order: tuple[int, ...] = ()
    """Members along the ring that the `ring` pattern prices; empty for 0, 1, 2, ..."""


def both_ways(
    a: int, b: int, bandwidth_bytes_per_s: float, latency_s: float, length: float = 1.0
) -> tuple[Link, Link]:
    """The two directions of one cable."""
    rate = {
        "bandwidth_bytes_per_s": bandwidth_bytes_per_s,
        "latency_s": latency_s,
        "length": length,
    }
    return (Link(source=a, target=b, **rate), Link(source=b, target=a, **rate))


@dataclass(frozen=True, slots=True, kw_only=True)
class LineAxis:
    """One direction along which members form lines."""

    extent: Num
    """Members of one line."""
    s_per_byte: Num
    """Seconds per byte of one link, one direction."""
    latency_s: Num
    """Latency of one link."""
    wrap: ArrayLike = False
    """Whether the last is joined to the first; two members then share a link of twice the rate."""
    full: bool = False
    """Whether every member of a line is joined to every other of it (HyperX)."""


class Topology:
    """Prices of the patterns, impossible unless a topology says otherwise.

    Each pattern is one step: every member sends one message of the bytes in question, all at once.
    """

    __slots__ = ()
    patterns: ClassVar[Mapping[Pattern, Claim]] = {}
    """The patterns priced here, and how exactly."""
    members: Num
    """Members of the group."""

    def claim(self, pattern: Pattern) -> Claim | None:
        """How exactly a pattern is priced for these members; None: not at all."""
        return self.patterns.get(pattern)

    def ring(self) -> Cost:
        """Each to the next on the best ring through all members."""
        return IMPOSSIBLE

    def ring_both(self) -> Cost:
        """Each to the next and, another message, to the one before, at once."""
        return IMPOSSIBLE

    def chain(self) -> Cost:
        """Each to the next on the best path from member 0 through all, as its own message passes."""
        return self.ring()

    def chain_order(self) -> tuple[int, ...]:
        """Members along that path."""
        ((_, ring), *_) = self.ring_orders()
        start = ring.index(0)
        return ring[start:] + ring[:start]

    def rings(self) -> Cost:
        """Each to the next on several rings at once, the bytes divided over them (`ring_orders`)."""
        return IMPOSSIBLE

    def exchange(self, distance: Num) -> Cost:
        """Each rank r with r xor distance, a power of two; powers of two of members."""
        return IMPOSSIBLE

    def shift(self, distance: Num) -> Cost:
        """Each rank r to (r + distance) mod n."""
        return IMPOSSIBLE

    def permutation(self) -> Cost:
        """Any messages of which no two have the same source or the same destination."""
        return IMPOSSIBLE

    def port(self) -> Cost:
        """As much as one message out of every member and one into it, whoever they are between."""
        return self.permutation()

    def spread(self) -> Cost:
        """Each to every other, a message of the bytes for each of them."""
        return IMPOSSIBLE

    def axes(self) -> tuple[LineAxis, ...]:
        """The axes along which members are placed; none where there are no such lines."""
        return ()

    def reduction(self) -> Cost:
        """Every member sends one message into the network, which adds them up for all."""
        return IMPOSSIBLE

    def injection_s_per_byte(self) -> Num:
        """Seconds per byte out of one member over all its links: no collective is faster."""
        raise NotImplementedError

    def bisection_bytes_per_s(self) -> Num:
        """Least bandwidth, one direction, from one half of the members to the other."""
        raise NotImplementedError

    def ring_orders(self) -> tuple[tuple[float, tuple[int, ...]], ...]:
        """(share of the bytes, members in order) of each ring of `rings`; the first is `ring`'s."""
        graph = self.graph()
        return ((1.0, graph.order or tuple(range(graph.members))),)

    def graph(self) -> LinkGraph:
        """Nodes and links; only for one group, not for a batch of them."""
        raise NotImplementedError
