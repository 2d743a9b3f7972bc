"""1F1B: one backward pass after each forward pass, once the pipeline is full (Narayanan et al. 2019).

Rank s runs p - s - 1 forward passes, then forward and backward in turn, then the backward passes left over:

    bubble = sum of (f + b + w) over the other ranks            equal ranks: (p - 1)(f + b + w), exactly
    held   = min(mu, p - s) micro-batches

Uneven ranks: the step is at least mu max(t) and, where the ends alone differ or every rank's backward pass is
as many times its forward pass, at most what the sum says. That is too long where the slowest rank is
early in the pipeline, since its own work fills the gaps: by 0.3 % on average where the ends differ, by 1.6 %
where all ranks differ by up to 30 % (tests/simulation/test_uneven.py).
"""

import numpy as np

from foretell.kernels.memory import in_flight as held_in_flight
from foretell.schedules.base import ONE_CHUNK, Pipe, RankTimes, Schedule, Task, fill_and_drain_s
from foretell.specs.arrays import Array


def bubble_s(times: RankTimes, pipe: Pipe) -> Array:
    """The other ranks' time of one micro-batch, over the chunks on a rank."""
    return fill_and_drain_s(times.whole_s, times.multiplicity, times.slowest, pipe.vpp)


def in_flight(pipe: Pipe, position: Array) -> Array:
    """What the ranks behind have not sent back yet."""
    return np.asarray(held_in_flight(*pipe.columns, position))


def tasks(rank: int, pp: int, vpp: int, micro_batches: int) -> list[Task]:
    """Fill, then one forward and one backward in turn, then drain."""
    fill = min(micro_batches, pp - rank - 1)
    order = [Task("F", 0, i) for i in range(fill)]
    for i in range(fill, micro_batches):
        order += [Task("F", 0, i), Task("D", 0, i - fill)]
    return order + [Task("D", 0, i) for i in range(micro_batches - fill, micro_batches)]


SCHEDULE = Schedule(
    name="1f1b",
    layout="loop",
    bubble_s=bubble_s,
    apart_s=bubble_s,
    in_flight=in_flight,
    tasks=tasks,
    rules=(ONE_CHUNK,),
    host_waits=True,
)
