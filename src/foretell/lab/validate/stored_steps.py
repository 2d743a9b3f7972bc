"""Published runs beside ours as they were last rendered, for who must not wait for 300 predictions.

`python -m foretell.lab.validate.published` writes published_steps.json with its pages, and a test holds the
file to what is predicted today; published.py is where the predictions are made.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretell.lab.validate.published import PublishedRun

FILE = Path(__file__).parent / "published_steps.json"
DIGITS = 6
"""Significant digits of a step that are kept: fewer than machines differ in, more than anyone reads."""


def kept_rows() -> list[dict[str, Any]]:
    """Every run of the file with its signed error, in the order of the tables."""
    rows: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="ascii"))
    return [{**row, "error": _error(row)} for row in rows]


def kept_text(runs: Iterable["PublishedRun"]) -> str:
    """What the file says of runs, a line for each."""
    rows = [{name: _short(value) for name, value in asdict(run).items()} for run in runs]
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"


def _error(row: dict[str, Any]) -> float | None:
    """As Run.error."""
    return None if row["predicted_s"] is None else row["predicted_s"] / row["measured_s"] - 1.0


def _short(value: object) -> object:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
