"""A pipeline step simulated task by task: each rank in its own order, each task when its input is there.

    F on a place waits for F on the place before it on the route
    B, D wait for B, D on the place behind it; on the last place for its own F
    W waits for nothing but its turn, P for both of its inputs

The order is fixed, so the step is the longest path of tasks: deterministic, and never shorter when a task
gets longer. Every task is visited once.
"""

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from foretell.errors import BadInput, wrong
from foretell.records import dataclass
from foretell.schedules.base import WEIGHT_SHARE, Pipe, Schedule, Task, routes
from foretell.specs.arrays import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkTimes:
    """Seconds of one micro-batch on each chunk; arrays are (ranks, chunks), those of DualPipe its copies."""

    forward_s: Array
    """Forward pass, with sends where they hold up the rank."""
    input_s: Array
    """Backward pass to the inputs, likewise."""
    weight_s: Array
    """Backward pass to the weights."""
    saved_s: float = 0.0
    """What a forward pass and a backward pass side by side save against one after the other."""
    travel_s: float = 0.0
    """Way of an activation or gradient to another rank, beside the ranks' work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A step as it was simulated: for each rank its tasks in order, when each began and ended."""

    tasks: tuple[tuple[Task, ...], ...]
    """Tasks of each rank."""
    start_s: tuple[Array, ...]
    """When each began."""
    end_s: tuple[Array, ...]
    """When each ended."""
    chunks: int
    """Chunks on a rank that a micro-batch passes: 1 of DualPipe's two."""

    @property
    def step_s(self) -> float:
        """From the beginning of the step to the end of the last task."""
        return float(max(end[-1] for end in self.end_s))

    @property
    def busy_s(self) -> Array:
        """Work of each rank."""
        return np.array(
            [(end - start).sum() for start, end in zip(self.start_s, self.end_s, strict=True)]
        )

    @property
    def waiting_s(self) -> Array:
        """What each rank does not work of the step."""
        return self.step_s - self.busy_s

    @property
    def longest_span_s(self) -> float:
        """Longest time from a rank's first task to its last: the step where no rank waits to begin."""
        spans = [end[-1] - start[0] for start, end in zip(self.start_s, self.end_s, strict=True)]
        return float(max(spans))

    def held(self, rank: int, weight_share: float = WEIGHT_SHARE) -> tuple[Array, Array]:
        """Moments, and micro-batches (in units of the whole rank) that the rank holds from each on.

        A forward pass holds from its beginning; a backward pass frees at its end, the one to the inputs
        all but `weight_share`, which the one to the weights frees.
        """
        change = {"F": (1.0, 0.0), "B": (0.0, weight_share - 1.0), "W": (0.0, -weight_share)}
        change |= {"D": (0.0, -1.0), "P": (1.0, -1.0)}
        steps = np.array([change[task.does] for task in self.tasks[rank]])
        moments = np.stack((self.start_s[rank], self.end_s[rank]), axis=1)
        return moments.ravel(), np.cumsum(steps.ravel()) / self.chunks

    def peak_held(self, weight_share: float = WEIGHT_SHARE) -> Array:
        """The most that each rank ever holds; (ranks,)."""
        return np.array([self.held(r, weight_share)[1].max() for r in range(len(self.tasks))])


def play(schedule: Schedule, times: ChunkTimes, micro_batches: int) -> Timeline:
    """Simulate a step; the number of ranks and chunks is that of the times."""
    pp, chunks = len(times.forward_s), len(times.forward_s[0])
    # The two chunks of a DualPipe rank are copies for one half of the micro-batches each.
    vpp = 1 if schedule.layout == "both" else chunks
    check_sizes(schedule, pp, vpp, micro_batches)
    orders = [tuple(schedule.tasks(rank, pp, vpp, micro_batches)) for rank in range(pp)]
    starts, ends = Player(schedule, times, vpp, micro_batches).run(orders)
    return Timeline(
        tasks=tuple(orders),
        start_s=tuple(np.array(s) for s in starts),
        end_s=tuple(np.array(e) for e in ends),
        chunks=vpp,
    )


def even_chunks(
    schedule: Schedule, forward_s: Array, input_s: Array, weight_s: Array, vpp: int = 1
) -> ChunkTimes:
    """Times of whole ranks, (ranks,), dealt evenly to the chunks that the schedule has."""
    copies = 2 if schedule.layout == "both" else vpp
    parts = [
        np.repeat(np.asarray(x, float)[:, None] / vpp, copies, axis=1)
        for x in (forward_s, input_s, weight_s)
    ]
    return ChunkTimes(forward_s=parts[0], input_s=parts[1], weight_s=parts[2])


def check_sizes(schedule: Schedule, pp: int, vpp: int, micro_batches: int) -> None:
    """Sizes that the schedule has no order for are refused, all that is wrong at once."""
    pipe = Pipe(
        micro_batches=np.array([float(micro_batches)]),
        pp=np.array([float(pp)]),
        vpp=np.array([float(vpp)]),
    )
    problems = [
        wrong(
            "plan.schedule",
            f"{schedule.name} pp{pp} vpp{vpp}, {micro_batches} micro-batches",
            f"{schedule.name} needs {rule.says}",
        )
        for rule in schedule.rules
        if not rule.holds(pipe)[0]
    ]
    if micro_batches < 1:
        message = "a step has at least one micro-batch"
        problems.append(wrong("micro_batches", micro_batches, message))
    if problems:
        raise BadInput(problems)


class Result(NamedTuple):
    """What a task makes for another."""

    number: int
    """Its number among all results."""
    to: int
    """The place that needs it; negative: none."""
    backward: bool
    """Whether it is a gradient."""
    micro_batch: int
    """Its micro-batch."""


class Player:
    """Longest paths, rank by rank as far as their inputs are there.

    A place is numbered rank x chunks + chunk; a result (place, micro-batch, forward or backward) by one
    number, so that a list holds when it was there.
    """

    def __init__(self, schedule: Schedule, times: ChunkTimes, vpp: int, micro_batches: int) -> None:
        """Neighbours of every place, and its times."""
        pp, self.chunks = len(times.forward_s), len(times.forward_s[0])
        self.many = micro_batches
        places = pp * self.chunks
        self.before, self.behind = [-1] * places, [-1] * places
        for route in routes(schedule.layout, pp, vpp):
            numbers = [rank * self.chunks + chunk for rank, chunk in route]
            for a, b in pairwise(numbers):
                self.before[b], self.behind[a] = a, b
        self.forward: list[float] = times.forward_s.ravel().tolist()
        self.input: list[float] = times.input_s.ravel().tolist()
        self.weight: list[float] = times.weight_s.ravel().tolist()
        self.saved, self.travel = times.saved_s, times.travel_s
        self.there = [-1.0] * (2 * places * micro_batches)
        """When each result was there; backward ones behind all forward ones; negative: not yet."""
        self.second_half = places * micro_batches
        self.free = [0.0] * pp
        """When each rank has done its last task."""
        self.waits: dict[int, int] = {}
        """The rank that waits for a result; no result goes to two ranks."""

    def run(self, orders: Sequence[Sequence[Task]]) -> tuple[list[list[float]], list[list[float]]]:
        """Beginning and end of every task of every rank."""
        starts: list[list[float]] = [[] for _ in orders]
        ends: list[list[float]] = [[] for _ in orders]
        ready = deque(range(len(orders)))
        while ready:
            rank = ready.popleft()
            order = orders[rank]
            for at in range(len(ends[rank]), len(order)):
                there = self.inputs(rank, order[at])
                if there < 0.0:
                    break
                start, end = self.perform(rank, order, at, there)
                starts[rank].append(start)
                ends[rank].append(end)
                ready.extend(self.pass_on(rank, order, at))
        if any(len(end) < len(order) for end, order in zip(ends, orders, strict=True)):
            raise RuntimeError("the ranks wait for each other: an order of tasks is wrong")
        return starts, ends

    def perform(
        self, rank: int, order: Sequence[Task], at: int, there: float
    ) -> tuple[float, float]:
        """Beginning and end of a task whose inputs are there."""
        start = max(there, self.free[rank])
        self.free[rank] = start + self._seconds(rank, order[at])
        return start, self.free[rank]

    def inputs(self, rank: int, task: Task) -> float:
        """When a task's inputs are there; negative, and remembered, when one is not yet."""
        does, chunk, micro_batch, other_chunk, other_micro_batch = task
        place = rank * self.chunks + chunk
        if does == "W":
            return 0.0
        latest = 0.0
        if does in "FP" and self.before[place] >= 0:
            latest = self._one(
                rank, self.before[place] * self.many + micro_batch, self.before[place]
            )
        if does == "F" or latest < 0.0:
            return latest
        if does == "P":
            place, micro_batch = rank * self.chunks + other_chunk, other_micro_batch
        behind = self.behind[place]
        if behind < 0:
            return max(latest, self.there[place * self.many + micro_batch])
        seconds = self._one(rank, self.second_half + behind * self.many + micro_batch, behind)
        return seconds if seconds < 0.0 else max(latest, seconds)

    def _one(self, rank: int, result: int, place: int) -> float:
        """When one result is there, with its way; negative, and remembered, when it is not yet."""
        seconds = self.there[result]
        if seconds < 0.0:
            self.waits[result] = rank
            return -1.0
        return seconds + self.travel if place // self.chunks != rank else seconds

    def _seconds(self, rank: int, task: Task) -> float:
        """How long a task takes."""
        place = rank * self.chunks + task.chunk
        if task.does == "F":
            return self.forward[place]
        if task.does == "B":
            return self.input[place]
        if task.does == "W":
            return self.weight[place]
        if task.does == "D":
            return self.input[place] + self.weight[place]
        other = rank * self.chunks + task.other_chunk
        return self.forward[place] + self.input[other] + self.weight[other] - self.saved

    def results(self, rank: int, task: Task) -> list[Result]:
        """What a task makes."""
        first, made = rank * self.chunks, list[Result]()
        if task.does in "FP":
            place = first + task.chunk
            number = place * self.many + task.micro_batch
            made.append(
                Result(number, self.behind[place], backward=False, micro_batch=task.micro_batch)
            )
        if task.does in "BDP":
            pair = task.does == "P"
            place = first + (task.other_chunk if pair else task.chunk)
            micro_batch = task.other_micro_batch if pair else task.micro_batch
            number = self.second_half + place * self.many + micro_batch
            made.append(Result(number, self.before[place], backward=True, micro_batch=micro_batch))
        return made

    def pass_on(self, rank: int, order: Sequence[Task], at: int) -> list[int]:
        """Note what a task has made; the ranks that waited for it."""
        made = self.results(rank, order[at])
        for result in made:
            self.there[result.number] = self.free[rank]
        return self.waiting(made)

    def waiting(self, made: Sequence[Result]) -> list[int]:
        """The ranks that waited for some results."""
        return [self.waits.pop(one.number) for one in made if one.number in self.waits]
