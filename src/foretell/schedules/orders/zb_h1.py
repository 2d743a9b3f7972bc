"""ZB-H1: 1F1B with the backward passes to the weights put off (Qi et al. 2024, arXiv 2401.10241).

Those on rank s come s micro-batches later and fill what 1F1B waits:

    bubble = (p - 1)(f + b) - (min(mu, p) - 1) min(f, b, w)      equal ranks, exactly
    held   = min(mu, p - s) whole micro-batches on rank s, and up to s of which the weights' part is left

The paper's (p - 1)(f + b - w) is the case w <= f, b with mu >= p.
"""

import numpy as np

from foretell.schedules.base import ONE_CHUNK, WEIGHT_SHARE, Pipe, RankTimes, Schedule, Task
from foretell.specs.arrays import Array


def bubble_s(times: RankTimes, pipe: Pipe) -> Array:
    """Exact for equal ranks; else the others' passes less what the slowest rank's own tasks fill."""
    own = [times.own(part) for part in (times.forward_s, times.input_s, times.weight_s)]
    filled = (np.minimum(pipe.micro_batches, pipe.pp) - 1.0) * np.minimum.reduce(own)
    return np.asarray(np.maximum(times.others(times.forward_s + times.input_s) - filled, 0.0))


def apart_s(times: RankTimes, pipe: Pipe) -> Array:
    """As `bubble_s` without the late beginning of the last rank; exact for equal ranks and mu >= p."""
    own = [times.own(part) for part in (times.forward_s, times.weight_s)]
    filled = (np.minimum(pipe.micro_batches, pipe.pp) - 1.0) * np.minimum(*own)
    return np.asarray(np.maximum(times.others(times.forward_s + times.input_s) - filled, 0.0))


def in_flight(pipe: Pipe, position: Array) -> Array:
    """Whole micro-batches as with 1F1B, and the weights' part of those put off."""
    micro_batches, pp, _ = pipe.columns
    behind = pp - position
    put_off = np.clip(micro_batches - behind, 0.0, position)
    return np.asarray(np.minimum(micro_batches, behind) + WEIGHT_SHARE * put_off)


def tasks(rank: int, pp: int, vpp: int, micro_batches: int) -> list[Task]:
    """1F1B; the weights' pass of a micro-batch comes `rank` backward passes after its own."""
    fill = min(micro_batches, pp - rank - 1)
    order = [Task("F", 0, i) for i in range(fill)]
    for i in range(micro_batches):
        order += [Task("F", 0, fill + i)] if fill + i < micro_batches else []
        order.append(Task("B", 0, i))
        order += [Task("W", 0, i - rank)] if i >= rank else []
    return order + [Task("W", 0, i) for i in range(max(micro_batches - rank, 0), micro_batches)]


SCHEDULE = Schedule(
    name="zb-h1",
    layout="loop",
    splits_backward=True,
    bubble_s=bubble_s,
    apart_s=apart_s,
    in_flight=in_flight,
    tasks=tasks,
    rules=(ONE_CHUNK,),
)
