"""Sums of money as trees whose values are numbers or arrays, and the ranges of their figures.

All figures are evaluated at their ends in one batch through the same formulas: row 0 has all figures at
their values, then two rows for each figure that has a range, with its low and its high end. A part's low
end is its value less the root of the summed squares of what each figure takes off, its high end likewise:
figures are taken as independent.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from foretell.catalog.money import Sheet, kind_of
from foretell.catalog.values import field_plan
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.cost import CostLeaf, Driver


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetCases:
    """Figures of a sheet as a batch: those in `knobs` at their ends in turn."""

    sheet: Sheet
    """All figures."""
    knobs: Mapping[str, int]
    """Figures whose range counts, by path, and their places among them."""

    def number(self, path: str) -> Num:
        """A figure: one number, or a row for each case where its range counts."""
        figure = self.sheet.figures[path]
        place = self.knobs.get(path)
        if place is None:
            return figure.value
        values = np.full(1 + 2 * len(self.knobs), figure.value)
        values[1 + 2 * place : 3 + 2 * place] = figure.low, figure.high
        return values

    def entry(self, path: str) -> Any:
        """The record of a section or of one of its entries, its figures as batches."""
        kind = kind_of(path)
        held: dict[str, Any] = {}
        for name in field_plan(kind):
            here = f"{path}.{name}"
            if here in self.sheet.figures:
                held[name] = self.number(here)
            elif here in self.sheet.plain:
                held[name] = self.sheet.plain[here]
        return kind(**held)


def case_of(sheet: Sheet, sections: Iterable[str]) -> SheetCases:
    """A case in which every figure of some sections counts that has a range."""
    paths = [path for section in sections for path in sheet.fields(section)]
    knobs = [p for p in dict.fromkeys(paths) if sheet.figures[p].low < sheet.figures[p].high]
    return SheetCases(sheet=sheet, knobs={path: place for place, path in enumerate(knobs)})


def spread(values: Num, case: SheetCases) -> tuple[float, float, float]:
    """(low, value, high) of one quantity of a case."""
    if np.ndim(values) == 0:
        return float(values), float(values), float(values)
    rows = _rows(values, case)
    middle = rows[0]
    if len(rows) == 1:
        return float(middle), float(middle), float(middle)
    off = rows[1:].reshape(-1, 2) - middle
    less, more = np.minimum(off.min(1), 0.0), np.maximum(off.max(1), 0.0)
    below, above = np.sqrt(less.dot(less)), np.sqrt(more.dot(more))
    floor = 0.0 if rows.min() >= 0.0 else -np.inf  # what is never negative has no negative end
    return float(max(middle - below, floor)), float(middle), float(middle + above)


def cost_leaf(branch: Branch, case: SheetCases, unit: str = "USD") -> CostLeaf:
    """The tree with one value and range for each part."""
    low, value, high = spread(branch.usd, case)
    return CostLeaf(
        name=branch.name,
        value=value,
        low=low,
        high=high,
        unit=unit,
        evidence=_evidence(branch.usd, case),
        note=branch.note,
        children=tuple(cost_leaf(child, case, unit) for child in branch.children),
    )


def drivers(values: Num, case: SheetCases, most: int = 12) -> tuple[Driver, ...]:
    """The figures that move a quantity, most first."""
    rows = _rows(values, case)
    found = []
    for path, place in case.knobs.items():
        figure = case.sheet.figures[path]
        at_low, at_high = (float(x) for x in rows[1 + 2 * place : 3 + 2 * place])
        found.append(
            Driver(
                path=path,
                value=figure.value,
                low=figure.low,
                high=figure.high,
                usd_at_low=at_low,
                usd_at_high=at_high,
                source=figure.source,
                date=figure.date,
            )
        )
    moved = [one for one in found if one.usd_at_low != one.usd_at_high]
    return tuple(sorted(moved, key=lambda one: -abs(one.usd_at_high - one.usd_at_low))[:most])


def _rows(values: Num, case: SheetCases) -> Array:
    return np.broadcast_to(np.asarray(values, float), (1 + 2 * len(case.knobs),))


def _evidence(values: Num, case: SheetCases) -> str | None:
    """Status of the figure whose range moves a part most."""
    if np.ndim(values) == 0:
        return None
    rows = _rows(values, case)
    if len(rows) == 1 or (rows == rows[0]).all():
        return None
    swing = np.abs(np.diff(rows[1:].reshape(-1, 2), axis=1)).ravel()
    return case.sheet.figures[[*case.knobs][int(np.argmax(swing))]].status or None
