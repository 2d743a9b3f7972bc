"""ZB-V: no rank waits between its first task and its last (Qi et al. 2024, arXiv 2401.10241).

Two chunks are on a rank, on the way down and on the way up of a V, and every rank holds p micro-batches.
With f = b = w no rank ever waits; as ranks begin one after the other, a step that all begin together still
takes (p - 1) b of a chunk longer. For other times the order stays as it is and the bubble is the longest of
eight paths, found and tested by simulating it.
"""

import numpy as np

from foretell.schedules.base import (
    Does,
    Pipe,
    RankTimes,
    Schedule,
    ScheduleRule,
    Task,
    largest_form,
)
from foretell.specs.arrays import Array

V_TOGETHER = (
    (0, 0, 0, 1, 0, 0),
    (0, 0, 1, 0, -1, 1),
    (0, 0, 0, 2, 0, -2),
    (0, 2, 0, -1, -1, 0),
    (-1, 2, 1, -1, 0, 0),
    (0, 2, 0, 0, -1, -2),
    (1, 0, 0, 0, -1, 1),
    (-1, 2, 1, 0, 0, -2),
)
"""Paths of ZB-V with n = p - 1: the first is n b, the second b + (n - 1) w, and so on."""
V_APART = (
    (0, 0, 0, 2, 0, -2),
    (0, 2, 0, -1, 0, -1),
    (0, -1, 1, 0, -1, 1),
    (1, -1, 0, 0, -1, 1),
    (0, 2, 0, 0, -1, -2),
    (0, -1, 0, 1, 0, 0),
    (-1, 1, 1, -1, 0, 0),
    (-1, 2, 1, 0, 0, -2),
)
"""The same from a rank's own first task to its last: none is above zero for f = b = w."""


def _longest_s(forms: tuple[tuple[int, ...], ...], times: RankTimes, pipe: Pipe) -> Array:
    """The longest path, with the times of the ranks that the slowest waits for."""
    parts = (times.forward_s, times.input_s, times.weight_s)
    f, b, w = (0.5 * times.typical(part) for part in parts)
    longest = largest_form(forms, pipe.pp - 1.0, f, b, w)
    return np.asarray(np.where(pipe.pp > 1, np.maximum(longest, 0.0), 0.0))


def bubble_s(times: RankTimes, pipe: Pipe) -> Array:
    """Exact for equal chunks."""
    return _longest_s(V_TOGETHER, times, pipe)


def apart_s(times: RankTimes, pipe: Pipe) -> Array:
    """Exact for equal chunks; zero for f = b = w."""
    return _longest_s(V_APART, times, pipe)


def in_flight(pipe: Pipe, position: Array) -> Array:
    """2 p chunks on every rank."""
    return np.broadcast_to(pipe.columns[1], position.shape)


def tasks(rank: int, pp: int, vpp: int, micro_batches: int) -> list[Task]:
    """Fill the way down, then both ways, then one of each in turn; weights wait in the drain alone."""
    order: list[Task] = []
    done = dict.fromkeys(("F0", "F1", "B0", "B1", "W0", "W1"), 0)

    def run(*names: str) -> None:
        for name in names:
            does: Does = "F" if name[0] == "F" else "B" if name[0] == "B" else "W"
            order.append(Task(does, int(name[1]), done[name]))
            done[name] += 1

    up, down = pp - rank, rank
    run(*["F0"] * (2 * up - 1))
    run(*["F1", "F0"] * down)
    run(*["F1", "B1", "W1"] * up)
    steady = micro_batches - done["F1"]
    for i in range(steady):
        run(*["F0"] * (i < micro_batches - (2 * up - 1 + down)))
        run("B0", "W0", "F1", "B1", "W1")
    run(*["B0", "B1"] * down)
    run(*["B0", "W0"] * up)
    run(*["W1"] * down, *["W0"] * down)
    return order


SCHEDULE = Schedule(
    name="zb-v",
    layout="v",
    splits_backward=True,
    bubble_s=bubble_s,
    apart_s=apart_s,
    in_flight=in_flight,
    tasks=tasks,
    rules=(
        ScheduleRule(holds=lambda pipe: pipe.vpp == 2, says="two chunks on each rank: vpp2"),
        ScheduleRule(
            holds=lambda pipe: pipe.micro_batches >= 2.0 * pipe.pp - 1.0,
            says="at least 2 pp - 1 micro-batches",
        ),
    ),
)
