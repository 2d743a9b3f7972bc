"""The read-back table of an import: every value of the question, and where it comes from."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretell.interop.launch import ReadValue
from foretell.report.console import table

if TYPE_CHECKING:
    from rich.table import Table


def read_back_text(rows: Sequence[ReadValue]) -> "Table":
    """A row for each value."""
    made = table("read back", "value", "from", "argument", "line", right=("line",))
    for row in rows:
        line = "" if row.line is None else str(row.line)
        made.add_row(row.name, row.value, row.origin, row.key, line)
    return made
