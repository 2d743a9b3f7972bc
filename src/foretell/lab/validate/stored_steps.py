"""Published runs beside ours as they were last rendered, for who must not wait for 300 predictions.

`python -m foretell.lab.validate.published` writes published_steps.csv with its pages, and a test holds the
file to what is predicted today; published.py is where the predictions are made.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretell.lab.validate.published import PublishedRun

FILE = Path(__file__).parent / "published_steps.csv"
DIGITS = 6
"""Significant digits of a step that are kept: fewer than machines differ in, more than anyone reads."""
NUMBERS = ("gpus", "global_batch", "seq_len", "measured_s", "predicted_s")
"""Columns of numbers; the others are text."""


def kept_rows() -> list[dict[str, Any]]:
    """Every run of the file with its signed error, in the order of the tables."""
    with FILE.open(encoding="ascii", newline="") as file:
        rows = [
            {name: _value(name, cell) for name, cell in row.items()} for row in csv.DictReader(file)
        ]
    return [{**row, "error": _error(row)} for row in rows]


def kept_text(runs: Iterable["PublishedRun"]) -> str:
    """What the file says of runs, a line for each."""
    return rows_text([asdict(run) for run in runs])


def rows_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV, floats in a few digits."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _short(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _value(name: str, cell: str) -> str | float | None:
    """A cell of the file."""
    if name not in NUMBERS:
        return cell
    return None if not cell else int(cell) if cell.isdigit() else float(cell)


def _error(row: dict[str, Any]) -> float | None:
    """As Run.error."""
    return None if row["predicted_s"] is None else row["predicted_s"] / row["measured_s"] - 1.0


def _short(value: object) -> object:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
