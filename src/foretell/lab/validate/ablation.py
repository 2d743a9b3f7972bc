"""What every value of software earns on published runs: `python -m foretell.lab.validate.ablation FILE ...`,
which writes its table into docs/accuracy.md.

Each field is set back, for the families that have a value of their own, to what is known of software in
general (the record's default, or what the generic family has), and the runs of these families are predicted
again. What the error grows by is what the field earns. A run's own source is held out, so that a value that
was chosen with it in sight earns nothing by it. Sources count alike: their median errors, of a few rows each.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path

import numpy as np

from foretell.catalog.software import MADE, software
from foretell.lab.validate.held_out import LeftOut
from foretell.lab.validate.page_text import markdown, replace_between
from foretell.lab.validate.training import prediction_of, source_label
from foretell.lab.validate.training_rows import TrainingRow, read_rows
from foretell.records import dataclass
from foretell.specs.software import Software

MOST_ROWS = 15
"""Rows of a source that count: every so many of its table."""
MARK = "<!-- generated: software -->"
"""Where the table is in its page."""
MOVED = 0.002
"""Change of a source's median error from which it counts as moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Earned:
    """What one field earns."""

    field: str
    """The field."""
    owners: tuple[str, ...]
    """Families whose runs have another value than software in general."""
    sources: int
    """Sources with such runs."""
    worse: int
    """Of them, how many are predicted worse without the value, by 0.2 points or more."""
    better: int
    """Of them, how many are predicted better without it."""
    mean_change: float
    """Mean change of these sources' median errors without the value; positive: the value earns it."""


def general_values() -> dict[str, object]:
    """Field -> what is known of software in general."""
    generic = software("generic")
    return {
        f.name: getattr(generic, f.name) if f.default is MISSING else f.default
        for f in fields(Software)
        if f.name not in (*MADE, "allocator")
    }


def few_rows(rows: Sequence[TrainingRow]) -> list[TrainingRow]:
    """Rows that have a target and count for their source, at most MOST_ROWS of each, spread over it."""
    groups: dict[str, list[TrainingRow]] = {}
    for row in rows:
        if (row.step_s or row.rate) and source_label(row) == row.source:
            groups.setdefault(row.source, []).append(row)
    found = []
    for some in groups.values():
        picked = np.unique(np.linspace(0, len(some) - 1, min(MOST_ROWS, len(some))).astype(int))
        found += [some[i] for i in picked]
    return found


def ablated(rows: Sequence[TrainingRow]) -> list[Earned]:
    """What every field earns on some rows, the most first; fields that no run has a value of are left out."""
    kept, errors, records = [], [], []
    for row in rows:
        error, record = _error(row, ())
        if record is not None:
            kept.append(row)
            errors.append(error)
            records.append(record)
    base = _medians(kept, dict(enumerate(errors)))
    found = []
    for name, value in general_values().items():
        mine = [i for i, r in enumerate(records) if getattr(r, name) != value]
        if not mine:
            continue
        again = {i: _error(kept[i], (f"software.{name}={_text(value)}",))[0] for i in mine}
        touched = {kept[i].source for i in mine}
        without = _medians(kept, {**dict(enumerate(errors)), **again})
        change = [without[s] - base[s] for s in touched]
        found.append(
            Earned(
                field=name,
                owners=tuple(sorted({records[i].family for i in mine})),
                sources=len(touched),
                worse=sum(c >= MOVED for c in change),
                better=sum(c <= -MOVED for c in change),
                mean_change=float(np.mean(change)),
            )
        )
    return sorted(found, key=lambda e: -e.mean_change * e.sources)


def ablation_text(found: Sequence[Earned]) -> str:
    """The table of what fields earn, for a page."""
    rows = [
        (f"`{e.field}`", len(e.owners), e.sources, e.worse, e.better, f"{100 * e.mean_change:+.2f}")
        for e in found
    ]
    head = "field | families | sources | worse without | better without | mean change, points"
    return markdown(head, rows)


def _error(row: TrainingRow, settings: tuple[str, ...]) -> tuple[float, Software | None]:
    """Error of a row's step time with some settings, its source left out, and its software; without the
    software where it cannot be predicted."""
    told = prediction_of(row, LeftOut(sources=(row.source,)), settings=settings)
    if isinstance(told, str) or not told.measured_s:
        return 1.0, None
    return abs(told.answer.step_s / told.measured_s - 1.0), told.scenario.software


def _medians(rows: Sequence[TrainingRow], errors: Mapping[int, float]) -> dict[str, float]:
    """Median error of each source."""
    groups: dict[str, list[float]] = {}
    for i, row in enumerate(rows):
        groups.setdefault(row.source, []).append(errors[i])
    return {source: float(np.median(some)) for source, some in groups.items()}


def _text(value: object) -> str:
    """A value as a setting has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def main(files: Sequence[str]) -> None:
    """Write the table for some tables of published runs into its page."""
    rows = few_rows([row for file in files for row in read_rows(Path(file))])
    page = Path(__file__).parents[4] / "docs" / "accuracy.md"
    text = replace_between(page.read_text(), MARK, ablation_text(ablated(rows)))
    page.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
