"""Sums of money as trees while they are computed: values are numbers or arrays, parents are sums."""

from collections.abc import Iterable

import numpy as np

from foretell.records import dataclass
from foretell.specs._base import Num


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One part of a sum; with children its value is theirs together."""

    name: str
    """What it is paid for."""
    usd: Num
    """How much."""
    note: str = ""
    """How many of what, or which formula."""
    children: tuple["Branch", ...] = ()
    """What it is made of."""


def central(value: Num) -> float:
    """The first of a batch: the value with all figures at theirs."""
    return float(np.asarray(value, float).ravel()[0])


def leaf(name: str, usd: Num, note: str = "") -> Branch:
    """A part that is not divided further."""
    return Branch(name=name, usd=usd, note=note)


def total(name: str, parts: Iterable[Branch], note: str = "") -> Branch:
    """The sum of some parts; those that are zero throughout are left out."""
    kept = tuple(part for part in parts if np.any(np.asarray(part.usd) != 0.0))
    usd: Num = 0.0
    for part in kept:
        usd = usd + part.usd
    return Branch(name=name, usd=usd, note=note, children=kept)


def times(branch: Branch, factor: Num, note: str | None = None) -> Branch:
    """The same tree, every part multiplied."""
    return Branch(
        name=branch.name,
        usd=branch.usd * factor,
        note=branch.note if note is None else note,
        children=tuple(times(child, factor) for child in branch.children),
    )


def rename_branch(branch: Branch, name: str) -> Branch:
    """The same tree under another name."""
    return Branch(name=name, usd=branch.usd, note=branch.note, children=branch.children)
