"""Builders that the schedule tests share."""

import numpy as np
from hypothesis import strategies as st

from foretell.schedules import Schedule, schedule_named
from foretell.schedules.base import Pipe, RankTimes
from foretell.simulation.events import ChunkTimes
from foretell.specs.arrays import Array

NAMES = ("1f1b", "interleaved", "gpipe", "zb-h1", "zb-v", "dualpipe")
SECONDS = st.floats(0.01, 3.0)


@st.composite
def sizes(draw: st.DrawFn, name: str, most: int = 7) -> tuple[int, int, int]:
    """(pp, vpp, micro_batches) that the schedule has an order for."""
    pp = draw(st.integers(1, most))
    match name:
        case "interleaved":
            pp = max(pp, 2)
            return pp, draw(st.integers(2, 4)), pp * draw(st.integers(1, 5))
        case "zb-v":
            return pp, 2, draw(st.integers(2 * pp - 1, 5 * pp + 3))
        case "dualpipe":
            pp = 2 * (pp // 2 + 1)
            return pp, 1, 2 * draw(st.integers(pp, 3 * pp))
        case _:
            return pp, 1, draw(st.integers(1, 5 * pp + 3))


def pipe(pp: int, vpp: int, micro_batches: int) -> Pipe:
    """One plan's sizes."""
    return Pipe(
        micro_batches=np.array([float(micro_batches)]),
        pp=np.array([float(pp)]),
        vpp=np.array([float(vpp)]),
    )


def rank_times(forward_s: Array, input_s: Array, weight_s: Array) -> RankTimes:
    """One plan whose ranks are listed one by one."""
    whole = forward_s + input_s + weight_s
    return RankTimes(
        whole_s=whole[None],
        multiplicity=np.ones((1, len(whole))),
        slowest=np.array([int(whole.argmax())]),
        forward_s=forward_s[None],
        weight_s=weight_s[None],
    )


def equal_times(pp: int, f: float, b: float, w: float) -> RankTimes:
    """Equal ranks as one row with its multiplicity."""
    return RankTimes(
        whole_s=np.array([[f + b + w]]),
        multiplicity=np.array([[float(pp)]]),
        slowest=np.array([0]),
        forward_s=np.array([[f]]),
        weight_s=np.array([[w]]),
    )


def on_chunks(schedule: Schedule, along: Array, pp: int, vpp: int) -> Array:
    """Values of the model's chunks, first to last, where the schedule's layout puts them."""
    if schedule.layout == "both":
        return np.stack((along, along[::-1]), axis=1)
    if schedule.layout == "v":
        return np.stack((along[:pp], along[: pp - 1 : -1]), axis=1)
    return along.reshape(vpp, pp).T


def on_ranks(schedule: Schedule, chunks: Array) -> Array:
    """What one micro-batch takes on a rank: the sum of its chunks, the mean of DualPipe's copies."""
    return chunks.mean(axis=1) if schedule.layout == "both" else chunks.sum(axis=1)


def chunk_times(f: Array, b: Array, w: Array, **more: float) -> ChunkTimes:
    """Times of chunks."""
    return ChunkTimes(forward_s=f, input_s=b, weight_s=w, **more)


def closed_s(name: str, times: RankTimes, sizes_: Pipe, saved_s: float = 0.0) -> float:
    """A step by the closed form."""
    schedule = schedule_named(name)
    busy = sizes_.micro_batches * times.own(times.whole_s)
    saved = schedule.pairs(sizes_) * saved_s
    return float((busy + schedule.bubble_s(times, sizes_) - saved)[0])
