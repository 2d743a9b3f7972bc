"""Points at which parts of a step are tabulated, and how tables are read between them.

Points are where engines capture graphs, and further apart above. Between them and beyond the last one a table
goes straight on along every axis.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array

TOKENS = np.unique(
    np.rint(
        np.concatenate(
            [
                [1, 2, 4],
                np.arange(8, 128, 8),
                np.arange(128, 512, 32),
                512 * 2 ** np.arange(0, 9.26, 0.25),
            ]
        )
    )
).astype(float)
"""Tokens of a step, to 314 thousand; beyond, times go on straight."""


SEQUENCES = np.unique(np.rint(2.0 ** np.arange(0.0, 13.1, 0.5))).astype(float)
"""Decoding sequences."""


CONTEXTS = np.concatenate([[1.0], 2.0 ** np.arange(5.0, 21.0)])
"""Tokens in a sequence's cache."""


PROMPTS = 2.0 ** np.arange(0.0, 11.0)
"""Prompts of a step."""


LENGTHS = np.concatenate([[1.0, 16.0], 2.0 ** np.arange(5.0, 20.1, 0.5)])
"""New tokens of one prompt."""


PASTS = np.concatenate([[0.0], 4.0 ** np.arange(4.0, 11.0)])
"""Tokens of one prompt that are in the cache already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePoints:
    """Points of the axes that are tabulated: all of them, or those around the loads that will be asked."""

    tokens: Array
    """Tokens of a step."""
    sequences: Array
    """Decoding sequences."""
    contexts: Array
    """Tokens in a sequence's cache."""
    prompts: Array
    """Prompts of a step."""
    lengths: Array
    """New tokens of one prompt."""
    pasts: Array
    """Tokens of one prompt that are in the cache already."""


WHOLE = TablePoints(
    tokens=TOKENS,
    sequences=SEQUENCES,
    contexts=CONTEXTS,
    prompts=PROMPTS,
    lengths=LENGTHS,
    pasts=PASTS,
)


def points_near(points: Array, *values: float) -> Array:
    """The points of an axis between which, or at which, all of some values are."""
    first = int(np.searchsorted(points, min(values) * (1.0 - 1e-9), side="right")) - 1
    last = int(np.searchsorted(points, max(values) * (1.0 + 1e-9), side="right")) + 1
    first = min(max(first, 0), len(points) - 2)
    return points[first : max(last, first + 2)]


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
