"""DualPipe: micro-batches from both ends at once, forward beside backward (DeepSeek-V3, arXiv 2412.19437).

Rank r holds stage r for one half of the micro-batches and stage p - 1 - r for the other half: two copies of
the weights. In the middle of the step the forward pass of one runs beside the backward pass of another (a
pair), and hides its exchanges behind it. With n = p / 2 - 1, for equal ranks exactly:

    bubble = max(2 n f, n (2 f + b - w), (n - 1) f + n (2 b - w), (n - 1) f + n b)
    pairs  = mu - p / 2 - 2
    held   = p + 1 micro-batches

The report's n (F&B + D - 3 w), with D = b + w and nothing saved in F&B, is n (f + 2 b - w): equal for
f = b = w, and between zero and one f above for w <= f <= b.
"""

import numpy as np

from foretell.schedules.base import (
    ONE_CHUNK,
    Pipe,
    RankTimes,
    Schedule,
    ScheduleRule,
    Task,
    largest_form,
)
from foretell.specs.arrays import Array

FORMS = (
    (0, 2, 0, 0, 0, 0),
    (0, 2, 0, 1, 0, -1),
    (-1, 1, 0, 2, 0, -1),
    (-1, 1, 0, 1, 0, 0),
)
"""Longest paths with n = p / 2 - 1, as `largest_form` reads them."""
FILLED = 3.0
"""Times n: how much of the bubble a rank fills that is longer than the others, by what it is longer. From
simulating uneven ranks: 1.5 for the middle ranks, 4.5 for the ends, where embedding and head stay in
place."""


def bubble_s(times: RankTimes, pipe: Pipe) -> Array:
    """Exact for equal ranks; a longer rank's own tasks fill what it would wait."""
    parts = (times.forward_s, times.input_s, times.weight_s)
    n = 0.5 * pipe.pp - 1.0
    longest = largest_form(FORMS, n, *(times.typical(part) for part in parts))
    longer = times.own(times.whole_s) - times.typical(times.whole_s)
    return np.asarray(np.maximum(longest - FILLED * n * longer, 0.0))


def longest_pairs(pipe: Pipe) -> Array:
    """Pairs along the longest path."""
    return np.asarray(pipe.micro_batches - 0.5 * pipe.pp - 2.0)


def in_flight(pipe: Pipe, position: Array) -> Array:
    """p of the fill, and the one whose forward pass runs beside a backward pass."""
    return np.broadcast_to(pipe.columns[1] + 1.0, position.shape)


class _Order:
    """The tasks of a rank as they are written down; `near` is the direction whose first half it is in."""

    def __init__(self, near: int) -> None:
        """Nothing yet."""
        self.near = near
        self.tasks: list[Task] = []
        self.forwards, self.backwards = [0, 0], [0, 0]
        self.put_off: list[tuple[int, int]] = []

    def _next(self, counts: list[int], far: int) -> tuple[int, int]:
        chunk = self.near ^ far
        counts[chunk] += 1
        return chunk, counts[chunk] - 1

    def forward(self, far: int) -> None:
        """A forward pass of the near (0) or far (1) direction."""
        self.tasks.append(Task("F", *self._next(self.forwards, far)))

    def backward(self, far: int, split: bool) -> None:
        """A backward pass, whole or with its weights put off."""
        chunk, micro_batch = self._next(self.backwards, far)
        self.tasks.append(Task("B" if split else "D", chunk, micro_batch))
        self.put_off += [(chunk, micro_batch)] if split else []

    def weights(self) -> None:
        """The oldest pass to the weights that was put off."""
        self.tasks.append(Task("W", *self.put_off.pop(0)))

    def pair(self, far: int) -> None:
        """A forward pass of one direction beside a backward pass of the other."""
        forward = self._next(self.forwards, far)
        self.tasks.append(Task("P", *forward, *self._next(self.backwards, 1 - far)))


def tasks(rank: int, pp: int, vpp: int, micro_batches: int) -> list[Task]:
    """The eight phases of DeepSeek's published order; `depth` counts ranks from the nearer end."""
    half, depth = pp // 2, min(rank, pp - 1 - rank)
    inner = half - depth - 1
    order = _Order(near=int(rank >= half))
    for _ in range(2 * inner):
        order.forward(0)
    for _ in range(depth + 1):
        order.forward(0)
        order.forward(1)
    for _ in range(inner):
        order.backward(1, split=True)
        order.weights()
        order.forward(1)
    for i in range(micro_batches // 2 - pp + depth + 1):
        if i == 0 and inner == 0:
            # The middle ranks keep the first two apart: the backward pass would wait for the pair.
            order.forward(0)
            order.backward(1, split=False)
        else:
            order.pair(0)
        order.pair(1)
    for _ in range(inner):
        order.backward(1, split=False)
        order.pair(1)
    # Of the last 2 (depth + 1) backward passes the second half puts its weights off.
    for i in range(2 * (depth + 1)):
        order.backward(1 - i % 2, split=i > depth)
    for _ in range(inner):
        order.weights()
        order.backward(0, split=True)
    for _ in range(depth + 1):
        order.weights()
    return order.tasks


SCHEDULE = Schedule(
    name="dualpipe",
    layout="both",
    weight_copies=2.0,
    splits_backward=True,
    bubble_s=bubble_s,
    apart_s=bubble_s,
    pairs=longest_pairs,
    in_flight=in_flight,
    tasks=tasks,
    rules=(
        ONE_CHUNK,
        ScheduleRule(holds=lambda pipe: np.mod(pipe.pp, 2) == 0, says="an even pp"),
        ScheduleRule(
            holds=lambda pipe: (
                (np.mod(pipe.micro_batches, 2) == 0) & (pipe.micro_batches >= 2.0 * pipe.pp)
            ),
            says="an even number of micro-batches, at least 2 pp",
        ),
    ),
    sends_beside=True,
)
