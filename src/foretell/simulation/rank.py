"""One rank while a step is simulated: where it is, what runs beside it, and what its time went to."""

from collections import deque
from typing import NamedTuple

from foretell.simulation.program import EXCHANGES, DataCollective

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
