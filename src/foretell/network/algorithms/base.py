"""What an algorithm is: a closed form over a topology's patterns, and its messages as data.

S is the full buffer of a rank: what an all-gather ends with, a reduce-scatter begins with, an all-reduce
sums, or one rank sends in an all-to-all, its own block included. Shares are shares of S.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Literal

import numpy as np

from foretell.network.topologies.base import Claim, Cost, Pattern, Topology
from foretell.records import dataclass
from foretell.specs._base import Num

Collective = Literal[
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "broadcast",
    "reduce",
    "send",
    "barrier",
]
GATHERS: tuple[Collective, ...] = ("all-gather", "reduce-scatter", "all-reduce")
"""The three that one all-gather schedule gives."""
NETWORK = -1
"""In messages: the switches, which add up and multicast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Some chunks from one member to another."""

    source: int
    """Member that sends, or NETWORK."""
    destination: int
    """Member that receives, or NETWORK."""
    chunks: tuple[int, ...]
    """Numbers of the chunks."""
    reduce: bool = False
    """Whether they are added to what is there, rather than copied."""


Step = tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSchedule:
    """Every message of one collective, step by step."""

    collective: Collective
    """What it promises."""
    members: int
    """Ranks, from 0."""
    weights: tuple[float, ...]
    """Share of S of each chunk; a rank's own buffer of an all-to-all sums to 1 as well."""
    owners: tuple[int, ...]
    """Rank that each chunk belongs to: begins (all-gather, broadcast) or ends (reduce-scatter,
    all-to-all, reduce) with it."""
    steps: tuple[Step, ...]
    """Messages of a step go at once; what they carry was there before the step."""
    sources: tuple[int, ...] = ()
    """All-to-all: rank that each chunk comes from."""
    flows: bool = False
    """Steps overlap in small pieces: latencies add up, but the busiest link sets the pace once."""
    barriers: tuple[int, ...] = ()
    """Steps before which all that flows must have arrived."""

    def share(self, message: Message) -> float:
        """Share of S in one message."""
        return sum(self.weights[c] for c in message.chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """One way of doing some collectives."""

    name: str = field(kw_only=False)
    """Its name in flags and reports."""
    collectives: tuple[Collective, ...] = field(kw_only=False)
    """What it does."""
    patterns: tuple[Pattern, ...] = field(kw_only=False)
    """What its closed form asks of a topology."""
    cost: Callable[[Collective, Topology], Cost] = field(kw_only=False)
    """Seconds as a function of S."""
    schedule: Callable[[Collective, Topology], MessageSchedule] = field(kw_only=False)
    """Its messages, for one group of whole numbers."""
    claim: Claim = "exact"
    """How the closed form relates to the simulation where all its patterns are exact."""

    def claim_on(self, topology: Topology) -> Claim | None:
        """How the closed form relates to the simulation on this topology; None: not at home there."""
        claims = {topology.claim(pattern) for pattern in self.patterns} | {self.claim}
        if None in claims or len(claims - {"exact"}) > 1:
            return None
        return next(iter(claims - {"exact"}), "exact")


Item = tuple[int, int]
"""(position, half): one half of what a position brings to an all-gather."""
Gather = list[list[tuple[int, int, list[Item]]]]
"""An all-gather between positions, step by step: from, to, items."""


def whole(position: int) -> list[Item]:
    """Both halves of what a position brings."""
    return [(position, 0), (position, 1)]


def gather_schedule(
    collective: Collective, gather: Gather, nodes: Sequence[int], *, flows: bool = False
) -> MessageSchedule:
    """An all-gather over `nodes`; a reduce-scatter is the same backwards, an all-reduce is both."""
    number = {item: 2 * i + item[1] for i in range(len(nodes)) for item in whole(i)}
    forward = tuple(
        tuple(
            Message(
                source=nodes[a], destination=nodes[b], chunks=tuple(number[item] for item in items)
            )
            for a, b, items in step
        )
        for step in gather
    )
    steps = {
        "all-gather": forward,
        "reduce-scatter": backwards(forward),
        "all-reduce": backwards(forward) + forward,
    }[collective]
    return MessageSchedule(
        collective=collective,
        members=len(nodes),
        weights=(0.5 / len(nodes),) * (2 * len(nodes)),
        owners=tuple(nodes[i // 2] for i in range(2 * len(nodes))),
        steps=steps,
        flows=flows,
        barriers=(len(forward),) if collective == "all-reduce" else (),
    )


def backwards(steps: Iterable[Step]) -> tuple[Step, ...]:
    """The messages the other way, last first, adding up where they copied."""
    turned = [
        tuple(
            Message(source=m.destination, destination=m.source, chunks=m.chunks, reduce=True)
            for m in step
        )
        for step in steps
    ]
    return tuple(reversed(turned))


def side_by_side(parts: Sequence[tuple[float, MessageSchedule]]) -> MessageSchedule:
    """Schedules of one collective at the same time, each for its share of the buffer."""
    weights: list[float] = []
    owners: list[int] = []
    steps: list[list[Message]] = [[] for _ in range(max(len(s.steps) for _, s in parts))]
    for share, schedule in parts:
        first = len(weights)
        for i, step in enumerate(schedule.steps):
            steps[i] += [
                Message(
                    source=m.source,
                    destination=m.destination,
                    chunks=tuple(first + c for c in m.chunks),
                    reduce=m.reduce,
                )
                for m in step
            ]
        weights += [share * w for w in schedule.weights]
        owners += schedule.owners
    head = parts[0][1]
    return MessageSchedule(
        collective=head.collective,
        members=head.members,
        weights=tuple(weights),
        owners=tuple(owners),
        steps=tuple(tuple(step) for step in steps),
        flows=head.flows,
        barriers=head.barriers,
    )


def blocks_schedule(members: int, steps: Iterable[Step]) -> MessageSchedule:
    """An all-to-all whose chunk s x n + d goes from s to d."""
    pairs = [(s, d) for s in range(members) for d in range(members)]
    return MessageSchedule(
        collective="all-to-all",
        members=members,
        weights=(1.0 / members,) * len(pairs),
        owners=tuple(d for _, d in pairs),
        sources=tuple(s for s, _ in pairs),
        steps=tuple(steps),
    )


def whole_schedule(
    collective: Collective, members: int, steps: Iterable[Step], *, flows: bool = False
) -> MessageSchedule:
    """All of S as one chunk of rank 0's: broadcast, reduce, all-reduce, send and barrier."""
    return MessageSchedule(
        collective=collective,
        members=members,
        weights=(0.0 if collective == "barrier" else 1.0,),
        owners=(0,),
        steps=tuple(steps),
        flows=flows,
    )


def passes(collective: Collective) -> float:
    """An all-reduce is a reduce-scatter and an all-gather."""
    return 2.0 if collective == "all-reduce" else 1.0


def log2_floor(members: Num) -> Num:
    """Whole doublings that fit."""
    return np.floor(np.log2(members) + 1e-12)


def log2_ceil(members: Num) -> Num:
    """Doublings needed."""
    return np.ceil(np.log2(members) - 1e-12)


def doublings(members: Num) -> range:
    """0, 1, ... for the most doublings any group of a batch needs."""
    return range(int(np.max(log2_ceil(members))))
