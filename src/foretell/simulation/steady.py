"""Long steps in short: memory of a step of many micro-batches from a simulation of a few.

Once the pipeline is full a rank does over and over what it did a few tasks before, and holds what it held
then. What it holds depends on the order of its own tasks alone, so a simulation of a few has every
state of the whole step: those between its halves are not simulated again, and the second half comes later.
"""

import numpy as np

from foretell.schedules.base import Pipe, Schedule
from foretell.simulation.memory import Changes, MemoryLine

FILLS = 4
"""Times the pipeline's depth that are simulated: two to fill it, as zero-bubble and DualPipe do, and
as many to empty it."""
SHOWN = 200
"""Moments that stand for what is not simulated."""


def few_micro_batches(schedule: Schedule, pp: int, vpp: int, many: int) -> int:
    """How many of a step's micro-batches are simulated: all, where more of them are more in flight."""
    period = 2 * pp
    few = many - max(many - FILLS * pp - period, 0) // period * period
    ranks = np.arange(pp, dtype=float)[None, :]
    short, whole = (schedule.in_flight(_pipe(pp, vpp, count), ranks) for count in (few, many))
    return few if np.array_equal(short, whole) else many


def _pipe(pp: int, vpp: int, many: int) -> Pipe:
    sizes = (np.array([float(x)]) for x in (many, pp, vpp))
    return Pipe(**dict(zip(("micro_batches", "pp", "vpp"), sizes, strict=True)))


def delay_half(found: Changes, gap_s: float) -> Changes:
    """The changes with those of the second half of the tasks later by the time of what is not simulated."""
    late = found.turn >= middle(found)
    return Changes(
        at_s=found.at_s + gap_s * late,
        turn=found.turn,
        tensor=found.tensor,
        change_bytes=found.change_bytes,
        tensors=found.tensors,
    )


def middle(found: Changes) -> int:
    """The task before which the second half begins."""
    return (int(found.turn[-1]) + 1) // 2


def fill_gap(line: MemoryLine, found: Changes) -> MemoryLine:
    """The line of delayed changes with what is not simulated: all along, the most that earlier tasks held."""
    cut, begun = middle(found), 3 * middle(found) // 4
    start_s, end_s = (float(found.at_s[np.searchsorted(found.turn, turn)]) for turn in (begun, cut))
    first = int(np.searchsorted(line.moments_s, start_s))
    last = int(np.searchsorted(line.moments_s, end_s))
    fullest = first + int(np.argmax(line.allocated_bytes[first:last]))
    moments = np.linspace(line.moments_s[last - 1], end_s, SHOWN, endpoint=False)
    again = np.append(np.full(SHOWN - 1, fullest), last - 1)
    order = np.concatenate([np.arange(last), again, np.arange(last, len(line.moments_s))])
    return MemoryLine(
        moments_s=np.concatenate([line.moments_s[:last], moments, line.moments_s[last:]]),
        held_bytes={name: values[order] for name, values in line.held_bytes.items()},
    )
