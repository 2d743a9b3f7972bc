"""Reading tables between their points: straight along every axis, and straight on beyond the last point."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foretell.specs._base import Num

Array = NDArray[np.float64]
Axis = tuple[NDArray[np.intp], Array]
"""Lower point of each value, and how far it is on the way to the next."""


def axis_of(value: Num, points: Array) -> Axis:
    """Places of values among the points of an axis; below the first point they are at it."""
    x = np.maximum(np.asarray(value, float), points[0])
    # Minimum rather than clip, which takes several times as long on few values.
    low = np.minimum(np.searchsorted(points, x, side="right") - 1, len(points) - 2)
    first, second = points[low], points[low + 1]
    return low, (x - first) / (second - first)


def read(table: Array, axes: Sequence[Axis]) -> Array:
    """A table of as many dims as axes, at the places that broadcast together.

    One dim more is of systems: places are then one for each of them, or one for all.
    """
    if not axes:
        return table
    low, share = axes[0]
    if len(axes) == 1 and table.ndim == 1:
        return np.asarray(table[low] * (1.0 - share) + table[low + 1] * share)
    return corners(table, axes)


def corners(table: Array, axes: Sequence[Axis]) -> Array:
    """The weighted sum of the corners around each place."""
    own = (np.arange(table.shape[-1]),) if table.ndim > len(axes) else ()
    total: Array | float = 0.0
    for corner in range(2 ** len(axes)):
        weight: Array | float = 1.0
        where = []
        for i, (low, share) in enumerate(axes):
            up = corner >> i & 1
            where.append(low + up)
            weight = weight * (share if up else 1.0 - share)
        total = total + weight * table[(*where, *own)]
    return np.asarray(total)
