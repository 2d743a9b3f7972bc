"""The points of a study, by number: which values each of them has, without a list of all of them."""

from collections.abc import Sequence
from math import log, prod

import numpy as np
from numpy.typing import NDArray

from foretell.specs.study import Axis, Study

Index = NDArray[np.int64]
Column = NDArray[np.int64] | NDArray[np.float64]
"""Of one axis: places in its list of values (whole numbers), or the values drawn (floats)."""

BLOCK = 1 << 16
"""Points that are drawn together: any of them can be drawn without those before."""


def point_count(study: Study) -> int:
    """How many points the study has."""
    if study.mode == "sample":
        return study.samples
    lengths = [len(axis.values) for axis in study.axes]
    if study.mode == "list":
        return max(lengths, default=1)
    return prod(lengths)


def columns(study: Study, order: Sequence[int], points: Index) -> list[Column]:
    """Of each axis (in the order of the study), what the points have.

    In a product, the axis that `order` names first changes slowest.
    """
    if study.mode == "list":
        return [points for _ in study.axes]
    if study.mode == "sample":
        return [_drawn(study.seed, place, axis, points) for place, axis in enumerate(study.axes)]
    found: list[Column] = [points for _ in study.axes]
    rest = points
    for place in reversed(order):
        rest, found[place] = np.divmod(rest, len(study.axes[place].values))
    return found


def _drawn(seed: int, place: int, axis: Axis, points: Index) -> Column:
    """What an axis has at some points, drawn block by block so that a point is the same in any shard."""
    blocks = np.arange(points.min() // BLOCK, points.max() // BLOCK + 1)
    draws = np.concatenate(
        [np.random.default_rng([seed, place, int(b)]).random(BLOCK) for b in blocks]
    )
    share = draws[points - blocks[0] * BLOCK]
    if axis.values:
        return np.asarray(np.minimum(share * len(axis.values), len(axis.values) - 1), np.int64)
    if axis.log:
        ends = log(axis.low), log(axis.high)
        found = np.exp(ends[0] + share * (ends[1] - ends[0]))
    else:
        found = axis.low + share * (axis.high - axis.low)
    return np.asarray(np.rint(found) if axis.whole else found, np.float64)
