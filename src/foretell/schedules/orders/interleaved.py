"""Interleaved 1F1B: v chunks on every rank, visited in turn (Narayanan et al. 2021).

    bubble = sum of (f + b + w) over the other ranks, over v     equal chunks: (p - 1)(f + b + w) / v, exactly
    held   = min(mu v, 2 (p - s - 1) + (v - 1) p + 1) chunks on rank s

Unequal chunks wait for each other: `sharding.pipeline.chunk_waiting`.
"""

import numpy as np

from foretell.schedules.base import Schedule, ScheduleRule, Task
from foretell.schedules.orders._1f1b import bubble_s, in_flight


def tasks(rank: int, pp: int, vpp: int, micro_batches: int) -> list[Task]:
    """1F1B over micro-batches taken pp at a time through one chunk after the other."""

    def step(k: int) -> tuple[int, int]:
        return (k // pp) % vpp, (k // (pp * vpp)) * pp + k % pp

    def forward(k: int) -> Task:
        chunk, micro_batch = step(k)
        return Task("F", chunk, micro_batch)

    def backward(k: int) -> Task:
        chunk, micro_batch = step(k)
        return Task("D", vpp - 1 - chunk, micro_batch)

    many = micro_batches * vpp
    fill = min(many, 2 * (pp - rank - 1) + (vpp - 1) * pp)
    order = [forward(k) for k in range(fill)]
    for k in range(fill, many):
        order += [forward(k), backward(k - fill)]
    return order + [backward(k) for k in range(many - fill, many)]


SCHEDULE = Schedule(
    name="interleaved",
    layout="loop",
    bubble_s=bubble_s,
    apart_s=bubble_s,
    in_flight=in_flight,
    tasks=tasks,
    rules=(
        ScheduleRule(holds=lambda pipe: pipe.vpp > 1, says="chunks on each rank: vpp2 or more"),
        ScheduleRule(
            holds=lambda pipe: (pipe.pp > 1) & (np.mod(pipe.micro_batches, pipe.pp) == 0),
            says="pp > 1 and micro-batches that pp divides",
        ),
    ),
)
