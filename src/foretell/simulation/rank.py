"""One rank of a simulated step: what its time goes to, and how passes and collectives hold each other up.

Links are shared evenly (max-min fairness, network/placement.py). While a collective is under way

    kernels have the cores that the collective leaves them: they take 1 / (1 - held share) as long
    an exchange of the pass and the collective share the links that both use, also one that kernels hide,
    as far as its slack does not take that up

A framework that lets them run side by side only in part has both stand still for the rest (`apart_share`). A
pass alternates between kernels and exchanges many times, so both are taken at their mean over it.
"""

from collections import deque
from typing import NamedTuple

import numpy as np

from foretell.network.placement import fair_rates
from foretell.simulation.program import EXCHANGES, DataCollective, Pass, Program

SPENT = (
    "compute",
    "host",
    *EXCHANGES,
    "pipeline_parallel",
    "data_parallel",
    "contention",
    "offload",
    "bubble",
    "optimizer",
    "fixed",
)
"""What the time of a rank goes to; the sum is the step."""


Knot = tuple[float, float]
"""A fraction of a task, and when it was reached."""


class Slice(NamedTuple):
    """Something that ran on a stream."""

    name: str
    """What it was."""
    start_s: float
    """When it began."""
    end_s: float
    """When it ended."""


class StageSend(NamedTuple):
    """An activation or gradient on its way to another rank."""

    start_s: float
    """When it left."""
    end_s: float
    """When it was there."""
    to_rank: int
    """Where it went."""
    backward: bool
    """Whether it is a gradient."""
    chunk: int
    """Chunk of the receiver that it is for."""
    micro_batch: int
    """Micro-batch, counted on its route."""


class Rank:
    """Where a rank is while a step is simulated."""

    def __init__(self) -> None:
        """At the beginning."""
        self.now = 0.0
        self.host_free = 0.0
        self.sends_free = 0.0
        self.copies_free = 0.0
        self.queue: deque[list[float]] = deque()
        """Collectives under way: number, seconds left, group, when it was asked for."""
        self.done: dict[int, float] = {}
        """Number of a collective -> when it was through."""
        self.asked = 0
        self.names: list[str] = []
        self.messages: list[Slice] = []
        self.last_end = 0.0
        self.sends: list[StageSend] = []
        self.copies: list[Slice] = []
        self.launches: list[Slice] = []
        self.spent = dict.fromkeys(SPENT, 0.0)
        self.knots: dict[int, list[Knot]] = {}
        """Task of the order -> how far it was when, where it stopped for collectives."""
        self.later: list[DataCollective] = []
        """Collectives that nothing overlaps."""
        self.ahead: deque[int] = deque()
        """Numbers of collectives that were asked for before the piece that needs them."""

    def ask(self, message: DataCollective) -> int:
        """Put a collective behind those under way; its number."""
        self.queue.append([self.asked, message.seconds, message.group, self.now])
        self.names.append(message.name)
        self.asked += 1
        return self.asked - 1

    def through(self, when: float) -> None:
        """The first collective of the queue is done."""
        number, _, _, asked = self.queue.popleft()
        begun = max(asked, self.last_end)
        self.messages.append(Slice(self.names[int(number)], begun, when))
        self.last_end = self.done[int(number)] = when

    def idle(self, until: float) -> None:
        """Nothing but collectives until a moment."""
        while self.queue and self.now < until:
            head = self.queue[0]
            if self.now + head[1] > until:
                head[1] -= until - self.now
                break
            self.now += head[1]
            self.through(self.now)
        self.now = max(self.now, until)

    def wait_for(self, number: int) -> None:
        """Stand still until a collective is through."""
        before = self.now
        while number not in self.done:
            self.now += self.queue[0][1]
            self.through(self.now)
        self.spent["data_parallel"] += self.now - before


Use = tuple[float, ...]


def shared_rates(one: Use, other: Use) -> tuple[float, float]:
    """Rates of two flows, over their own, that take these shares of the links' time alone."""
    if not one or not other:
        return 1.0, 1.0
    uses = np.array([one, other]).T
    rates = fair_rates(uses, np.ones(len(uses)), np.ones(2))
    return float(rates[0]), float(rates[1])


class Contention:
    """Slowdown of passes and of the collectives beside them, each case computed once."""

    def __init__(self, program: Program) -> None:
        """Rates of every pair of an exchange and a group."""
        self.program = program
        held = [min(share, 0.95) for share in program.held_cores]
        self.longer = [share / (1.0 - share) for share in held] or [0.0] * len(program.group_use)
        self.exchange_rates = [
            [shared_rates(use, group) for use in program.exchange_use]
            for group in program.group_use
        ]
        self.send_rates = [shared_rates(program.send_use, group) for group in program.group_use]
        self._known: dict[tuple[int, int], tuple[float, float]] = {}

    def of_pass(self, work: Pass, group: int) -> tuple[float, float]:
        """How much longer a pass takes beside a collective of a group, and that collective's rate."""
        key = id(work), group
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._of_pass(work, group)
        return found

    def _of_pass(self, work: Pass, group: int) -> tuple[float, float]:
        alone = work.alone_s
        if alone <= 0.0:
            return 1.0, 1.0
        products_s = (1.0 + self.longer[group]) * (work.chip_s + work.moved_s) + work.wait_s
        # Copies into and out of messages come in turn with these.
        wall_s, served_s = products_s, products_s - (1.0 + self.longer[group]) * work.moved_s
        rates = self.exchange_rates[group] if self.exchange_rates else []
        for seconds, (own, other) in zip(work.exchange_s, rates, strict=False):
            wall_s += seconds / own
            served_s += seconds / own * other
        behind = zip(work.hidden_s, work.slack_s, rates, strict=False)
        for seconds, slack_s, (own, other) in behind:
            shown_s = max(seconds / own - seconds - slack_s, 0.0)
            wall_s += shown_s
            served_s += shown_s - seconds / own * (1.0 - other)
        beside = 1.0 - min(self.program.apart_share, 0.95)
        return wall_s / alone / beside, beside * served_s / wall_s

    def of_send(self, group: int) -> tuple[float, float]:
        """The same for a send to another rank."""
        own, other = self.send_rates[group] if self.send_rates else (1.0, 1.0)
        return 1.0 / own, other
