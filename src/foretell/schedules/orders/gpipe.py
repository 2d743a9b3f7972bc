"""GPipe: all forward passes, then all backward passes (Huang et al. 2019).

Each half is a flow of equal jobs over the ranks, so also uneven ranks have an exact time:

    T = sum(f) + (mu - 1) max(f) + sum(b + w) + (mu - 1) max(b + w)

Equal ranks: (mu + p - 1)(f + b + w), the time of 1F1B; every micro-batch is held.
"""

import numpy as np

from foretell.schedules.base import ONE_CHUNK, Pipe, RankTimes, Schedule, Task
from foretell.specs.arrays import Array


def bubble_s(times: RankTimes, pipe: Pipe) -> Array:
    """Exact for any ranks."""
    backward_s = times.whole_s - times.forward_s
    more = pipe.micro_batches - 1.0
    waits = [
        times.others(part) + more * (times.largest(part) - times.own(part))
        for part in (times.forward_s, backward_s)
    ]
    return np.asarray(waits[0] + waits[1])


def in_flight(pipe: Pipe, position: Array) -> Array:
    """All of them."""
    return np.broadcast_to(pipe.columns[0], position.shape)


def tasks(rank: int, pp: int, vpp: int, micro_batches: int) -> list[Task]:
    """The same on every rank."""
    forward = [Task("F", 0, i) for i in range(micro_batches)]
    return forward + [Task("D", 0, i) for i in range(micro_batches)]


SCHEDULE = Schedule(
    name="gpipe",
    layout="loop",
    bubble_s=bubble_s,
    apart_s=bubble_s,
    in_flight=in_flight,
    tasks=tasks,
    rules=(ONE_CHUNK,),
    scores_wait=True,
    host_waits=True,
)
