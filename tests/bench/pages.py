"""Tables of measured times in the documentation, written by the benchmark that measured them."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path


def measured_on() -> str:
    """When and how busy: what times of a shared machine are worth."""
    load = os.getloadavg()[0]
    return (
        f"Measured on {datetime.now(UTC).date()}, {os.cpu_count()} cores with a load of {load:.0f}."
    )


def write_table(page: Path, heading: str, rows: Sequence[Sequence[str]], said: str = "") -> None:
    """Put rows into the first table after a heading, in the place of those that are there.

    `said` replaces the line after the table that begins with "Measured on", and is added where none does.
    """
    lines = page.read_text(encoding="utf-8").split("\n")
    if f"## {heading}" not in lines:  # a table that the page leaves to who runs the benchmark
        return
    at = lines.index(f"## {heading}")
    first = next(i for i in range(at, len(lines)) if lines[i].startswith("|---")) + 1
    last = next(
        i for i in range(first, len(lines) + 1) if not lines[i : i + 1] or lines[i][:1] != "|"
    )
    lines[first:last] = ["| " + " | ".join(row) + " |" for row in rows]
    end = first + len(rows)
    if said:
        there = end + 1 < len(lines) and lines[end + 1].startswith("Measured on")
        lines[end : end + 2 if there else end] = ["", said]
    page.write_text("\n".join(lines), encoding="utf-8")
