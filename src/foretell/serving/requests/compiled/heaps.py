"""Heaps of (key, id), and trees that know the smallest of some keys, on arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.serving.requests.compiled.jit import jit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@jit
def before(key: float, id: int, other_key: float, other_id: int) -> bool:
    """Whether (key, id) comes before another pair."""
    return key < other_key or (key == other_key and id < other_id)


@jit
def push(keys: Any, ids: Any, size: int, key: float, id: int) -> None:
    """Put a pair into a heap of `size` pairs."""
    at = size
    while at > 0:
        above = (at - 1) // 2
        if before(keys[above], ids[above], key, id):
            break
        keys[at], ids[at] = keys[above], ids[above]
        at = above
    keys[at], ids[at] = key, id


@jit
def sink(keys: Any, ids: Any, size: int, at: int) -> None:
    """Let the pair at a place go down to where it belongs."""
    key, id = keys[at], ids[at]
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and before(keys[below + 1], ids[below + 1], keys[below], ids[below]):
            below += 1
        if not before(keys[below], ids[below], key, id):
            break
        keys[at], ids[at] = keys[below], ids[below]
        at = below
    keys[at], ids[at] = key, id


@jit
def pop(keys: Any, ids: Any, size: int) -> None:
    """Take the smallest pair out of a heap of `size` pairs."""
    keys[0], ids[0] = keys[size - 1], ids[size - 1]
    sink(keys, ids, size - 1, 0)


@jit
def remove(keys: Any, ids: Any, size: int, id: int) -> None:
    """Take one pair out, wherever it is."""
    for at in range(size):
        if ids[at] == id:
            keys[at], ids[at] = keys[size - 1], ids[size - 1]
            break
    for at in range((size - 1) // 2, -1, -1):
        if at < size - 1:
            sink(keys, ids, size - 1, at)


@jit
def tree_set(tree: Any, keys: Any, at: int, key: float) -> None:
    """Give a leaf another key; `tree[1]` is the first leaf with the smallest."""
    keys[at] = key
    half = len(keys)
    node = (at + half) // 2
    while node >= 1:
        low, high = tree[2 * node], tree[2 * node + 1]
        tree[node] = high if keys[high] < keys[low] else low
        node //= 2


def leaves(many: int) -> int:
    """Leaves of a tree for so many keys: a power of two."""
    found = 1
    while found < max(many, 2):
        found *= 2
    return found


def first_leaves(wide: int) -> Ints:
    """The tree of equal keys: of each node its first leaf."""
    found = np.zeros(2 * wide, np.int64)
    found[wide:] = np.arange(wide)
    for node in range(wide - 1, 0, -1):
        found[node] = found[2 * node]
    return found
