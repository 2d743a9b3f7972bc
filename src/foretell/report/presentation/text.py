"""What is shown of an answer, on a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretell.report.presentation.numbers import Presentation

if TYPE_CHECKING:
    from rich.table import Table


def numbers_grid(shown: Presentation, *more: tuple[str, str], but: Sequence[str] = ()) -> "Table":
    """A line for each number with its 90 % interval, what bears on them, and further lines; `but` are the
    names of numbers that are shown elsewhere."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    for fact in shown.facts:
        if fact.name not in but:
            sure = f"   90%: {fact.low} to {fact.high}" if fact.ends else ""
            grid.add_row(fact.label, f"{fact.text}{sure}")
    for note in shown.notes:
        grid.add_row(*note.split(": ", 1))
    for label, text in more:
        grid.add_row(label, text)
    return grid
