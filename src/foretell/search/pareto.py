"""Exact Pareto fronts: the rows that no other row beats.

A row beats another where it is nowhere worse and somewhere better; rows that are equal everywhere are or
fall together. Distinct rows in lexicographic order can only be beaten by rows before them, which takes the
first column out of the question: two columns are one running minimum. Each further column halves the rows
at every level of a merge, and asks of the right half what the left half beats in one column less (Kung,
Luccio and Preparata, J. ACM 22, 1975), here for all halves of a level at once. n rows of d columns take some
n log(n)^(d-1) operations, fewer where early rows beat most of the others. From four columns on a tree of
boxes is tried first, which is quicker where most rows are on the front: rows are halved at medians of one
column after the other, down to a few in each leaf. A box can beat another only if its low corner is nowhere
above the other's high corner, and surely does if its high corner is nowhere above the other's low one. Pairs
of boxes are followed from the root down, all of a level at once; what is neither ruled out nor sure at the
leaves is compared row by row.
"""

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from foretell.errors import bad_input
from foretell.specs.arrays import Array, Ints, Mask

STRONG = 200
"""Rows of the smallest ranks that all others are held against first."""
SMALL = 32
"""Rows of a block whose pairs are compared one by one."""


def pareto_front(columns: Sequence[ArrayLike], directions: Sequence[str] = ()) -> Mask:
    """Which rows are on the front; `directions` has min or max for each column (all min where left out).

    A row with an unknown value (NaN) is never on it.
    """
    ways = list(directions) or ["min"] * len(columns)
    if not columns or len(ways) != len(columns) or not set(ways) <= {"min", "max"}:
        raise bad_input("directions", ways, "not one of min and max for each column")
    table = np.array(columns, float)
    known = ~np.isnan(table).any(axis=0)
    signs = np.where(np.array(ways) == "max", -1.0, 1.0)[:, None]
    rows = np.flatnonzero(known)
    front = np.zeros(table.shape[1], bool)
    if not len(rows):
        return front
    values = table[:, rows] * signs
    order = np.lexsort(values[::-1])
    values = values[:, order]
    new = np.concatenate([[True], (values[:, 1:] != values[:, :-1]).any(axis=0)])
    kept = _unbeaten(values[:, new])
    front[rows[order]] = kept[np.cumsum(new) - 1]
    return front


def _ranks(column: Array) -> Ints:
    """Values as whole numbers in the same order, equal where they are equal."""
    return np.unique(column, return_inverse=True)[1].astype(np.int64)


def _unbeaten(values: Array) -> Mask:
    """Of distinct rows in lexicographic order, those that none before beats; (columns, rows)."""
    columns, many = values.shape
    if columns == 1:
        return np.asarray(np.arange(many) == 0)
    if columns == 2:
        before = np.concatenate([[np.inf], np.minimum.accumulate(values[1])[:-1]])
        return np.asarray((before > values[1]) | (np.arange(many) == 0))
    ranks = np.stack([_ranks(column) for column in values[1:]])
    alive = np.ones(many, bool)
    for row in np.argsort(ranks.sum(axis=0) + np.arange(many), kind="stable")[:STRONG]:
        if alive[row]:
            worse = np.asarray((ranks >= ranks[:, row, None]).all(axis=0))
            worse[: row + 1] = False
            alive &= ~worse
    left = np.flatnonzero(alive)
    if columns == 3:
        beaten = _under_stairs(ranks[0][left].tolist(), ranks[1][left].tolist())
    else:
        found = beaten_by_tree(values[:, left])
        if found is None:
            alone, every = np.zeros(len(left), np.int64), np.ones(len(left), bool)
            found = _beaten(alone, every, every, [column[left] for column in ranks])
        beaten = found
    alive[left[beaten]] = False
    return alive


def _under_stairs(second: list[int], third: list[int]) -> Mask:
    """Of three columns, which rows one before is as small as: the rows so far leave a staircase."""
    steps: list[int] = []
    depths: list[int] = []
    beaten = np.zeros(len(second), bool)
    for row, (y, z) in enumerate(zip(second, third, strict=True)):
        place = bisect_right(steps, y)
        if place and depths[place - 1] <= z:
            beaten[row] = True
            continue
        end = place
        while end < len(steps) and depths[end] >= z:
            end += 1
        steps[place:end], depths[place:end] = [y], [z]
    return beaten


def _beaten(group: Ints, gives: Mask, takes: Mask, columns: list[Ints]) -> Mask:
    """Takers with a giver of their group before them that is as small in every column; groups are sorted."""
    if len(columns) == 1:
        return _below(group, gives, takes, columns[0])
    many = len(group)
    beaten = np.zeros(many, bool)
    starts = np.concatenate([[True], group[1:] != group[:-1]])
    place = np.arange(many) - np.maximum.accumulate(np.where(starts, np.arange(many), 0))
    largest = int(place.max(initial=0))
    for shift in range(1, SMALL):
        _compare(group, gives, takes, columns, beaten, place, shift)
    size = SMALL
    while size <= largest:
        right = (place // size) % 2 == 1
        giver, taker = gives & ~right, takes & right & ~beaten
        rows = np.flatnonzero(giver | taker)
        half = (group * (largest // size + 2) + place // (2 * size))[rows]
        # Within a pair of halves by the first column; of equals, givers first.
        order = np.lexsort((taker[rows], columns[0][rows], half))
        rows, half = rows[order], half[order]
        named = np.cumsum(np.concatenate([[0], half[1:] != half[:-1]])) if len(half) else half
        inner = _beaten(named, giver[rows], taker[rows], [column[rows] for column in columns[1:]])
        beaten[rows[inner]] = True
        size *= 2
    return beaten


def _compare(
    group: Ints,
    gives: Mask,
    takes: Mask,
    columns: list[Ints],
    beaten: Mask,
    place: Ints,
    shift: int,
) -> None:
    """Hold every row against the one `shift` rows before it, within blocks of SMALL; marks `beaten`."""
    later = slice(shift, None)
    before = slice(None, -shift)
    if shift >= len(group):
        return
    same = (group[later] == group[before]) & (place[later] // SMALL == place[before] // SMALL)
    found = same & takes[later] & gives[before]
    for column in columns:
        found &= column[before] <= column[later]
    beaten[later] |= found


def _below(group: Ints, gives: Mask, takes: Mask, column: Ints) -> Mask:
    """The same in one column: a running minimum over the givers of each group."""
    if not len(group):
        return np.zeros(0, bool)
    most = int(column.max()) + 2
    # Later groups lie lower, so that a group's first giver puts the minimum below all earlier ones.
    shifted = column + (int(group[-1]) - group) * most
    least = np.minimum.accumulate(np.where(gives, shifted, np.iinfo(np.int64).max))
    before = np.concatenate([[np.iinfo(np.int64).max], least[:-1]])
    return np.asarray(takes & (before <= shifted))


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
        _compare_leaves(filled, leaves, first[part], second[part], beaten)
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


def _compare_leaves(filled: Array, leaves: Ints, first: Ints, second: Ints, beaten: Mask) -> None:
    """Hold every row of the first leaf of each pair against every row of the second; marks `beaten`."""
    below = np.ones((len(first), LEAF, LEAF), bool)
    for column in filled:
        below &= column[first][:, :, None] <= column[second][:, None, :]
    below[first == second] &= ~np.eye(LEAF, dtype=bool)
    beaten[leaves[second][below.any(axis=1)]] = True
