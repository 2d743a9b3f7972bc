"""Text of pages: tables in Markdown and CSV, sections between marks, and published steps as last rendered.

`python -m foretell.lab.validate.published` writes published_steps.csv with its pages, for who must not wait
for 300 predictions; a test holds the file to what is predicted today.
"""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "published_steps.csv"
DIGITS = 6
"""Significant digits of a step that are kept: fewer than machines differ in, more than anyone reads."""
NUMBERS = ("gpus", "global_batch", "seq_len", "measured_s", "predicted_s")
"""Columns of numbers; the others are text."""
END = "<!-- end -->"
"""Mark in a page at which a generated table ends."""
Sections = Sequence[tuple[str, str, Callable[[Path], str]]]
"""Pages of a repository, names of their sections, and what writes them."""


def markdown(head: str, rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown; `head` has the names of the columns, with | between them."""
    columns = head.count("|") + 1
    lines = [f"| {head} |", "|" + "---|" * columns]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def rows_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV, floats in a few digits."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _short(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _short(value: object) -> object:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def kept_rows() -> list[dict[str, Any]]:
    """Every published run as last rendered, with its signed error, in the order of the tables."""
    with FILE.open(encoding="ascii", newline="") as file:
        rows = [{n: _value(n, cell) for n, cell in row.items()} for row in csv.DictReader(file)]
    for row in rows:
        predicted = row["predicted_s"]
        row["error"] = None if predicted is None else predicted / row["measured_s"] - 1.0
    return rows


def _value(name: str, cell: str) -> Any:
    """A cell of the file."""
    if name not in NUMBERS:
        return cell
    return None if not cell else int(cell) if cell.isdigit() else float(cell)


def replace_between(page: str, start: str, text: str) -> str:
    """The page with a text between a mark and the end that follows it; as it is where the mark is not."""
    if start not in page:
        return page
    before, _, rest = page.partition(start)
    _, _, after = rest.partition(END)
    return f"{before}{start}\n{text}\n{END}{after}"


def with_written(root: Path, sections: Sections, given: Path) -> dict[Path, str]:
    """The pages with what their sections say of `given` today; a page may have several sections, and a file
    without any is written whole."""
    pages: dict[Path, str] = {}
    for name, section, write in sections:
        path = root / name
        page = pages.get(path) or (path.read_text() if section else "")
        mark = f"<!-- generated: {section} -->"
        pages[path] = replace_between(page, mark, write(given)) if section else write(given)
    return pages
