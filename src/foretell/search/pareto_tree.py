"""Which rows are beaten, by a tree of boxes held against itself.

Rows are halved at medians of one column after the other, down to a few in each leaf. A box can beat another
only if its low corner is nowhere above the other's high corner, and surely does if its high corner is nowhere
above the other's low one. Pairs of boxes are followed from the root down, all of a level at once; what is
neither ruled out nor sure at the leaves is compared row by row. Where most rows are on the front, boxes have
few others below them, and n rows take some n log(n) operations: the case in which pareto.py's merge is slow.
"""

import numpy as np

from foretell.specs.arrays import Array, Ints, Mask

LEAF = 8
"""Rows of a leaf."""
MOST_PER_BOX = 48
"""Boxes that may beat one, on average over a level; with more of them the merge is quicker. Measured: shells
have up to 37 at any size; thick ones, most of whose rows are beaten, pass 50 early."""
CHUNK = 1 << 15
"""Pairs of leaves that are compared at once."""


def beaten_by_tree(values: Array) -> Mask | None:
    """Of distinct rows, (columns, rows), those that another one is nowhere above; None: too many pairs."""
    columns, rows = values.shape
    levels = max(0, int(np.ceil(np.log2(max(rows / LEAF, 1.0)))))
    leaves = _leaves(values, levels)
    # What fills the last leaves up is above everything, and its row is thrown away at the end.
    filled = np.concatenate([values, np.full((columns, 1), np.inf)], axis=1)[:, leaves]
    low, high = [filled.min(axis=2)], [filled.max(axis=2)]
    for _ in range(levels):
        low.append(np.minimum(low[-1][:, ::2], low[-1][:, 1::2]))
        high.append(np.maximum(high[-1][:, ::2], high[-1][:, 1::2]))
    dead = np.zeros(1, bool)
    first = second = np.zeros(1, np.int64)
    for level in range(levels - 1, -1, -1):
        dead = np.repeat(dead, 2)
        first, second = _children(first, second, dead, low[level], high[level])
        sure = first != second
        for above, below in zip(high[level], low[level], strict=True):
            sure &= above[first] <= below[second]
        dead[second[sure]] = True
        left = ~dead[second]
        first, second = first[left], second[left]
        if len(first) > MOST_PER_BOX * len(dead):
            return None
    beaten = np.zeros(rows + 1, bool)
    beaten[leaves[dead]] = True
    for start in range(0, len(first), CHUNK):
        part = slice(start, start + CHUNK)
        _compare(filled, leaves, first[part], second[part], beaten)
    return beaten[:rows]


def _leaves(values: Array, levels: int) -> Ints:
    """Rows of each leaf, (leaves, LEAF); the number of rows stands for none."""
    columns, rows = values.shape
    size = LEAF << levels
    order = np.concatenate([np.arange(rows), np.full(size - rows, rows)]).reshape(1, size)
    filled = np.concatenate([values, np.full((columns, 1), np.inf)], axis=1)
    for level in range(levels):
        half = order.shape[1] // 2
        place = np.argpartition(filled[level % columns][order], half, axis=1)
        order = np.take_along_axis(order, place, axis=1).reshape(-1, half)
    return order


def _children(first: Ints, second: Ints, dead: Mask, low: Array, high: Array) -> tuple[Ints, Ints]:
    """Pairs of halves of which the first may hold a row that beats one of the second."""
    ones, others = [], []
    for i in (0, 1):
        for j in (0, 1):
            one, other = 2 * first + i, 2 * second + j
            kept = ~dead[other]
            one, other = one[kept], other[kept]
            for below, above in zip(low, high, strict=True):
                kept = below[one] <= above[other]
                one, other = one[kept], other[kept]
            ones.append(one)
            others.append(other)
    return np.concatenate(ones), np.concatenate(others)


def _compare(filled: Array, leaves: Ints, first: Ints, second: Ints, beaten: Mask) -> None:
    """Hold every row of the first leaf of each pair against every row of the second; marks `beaten`."""
    below = np.ones((len(first), LEAF, LEAF), bool)
    for column in filled:
        below &= column[first][:, :, None] <= column[second][:, None, :]
    below[first == second] &= ~np.eye(LEAF, dtype=bool)
    beaten[leaves[second][below.any(axis=1)]] = True
