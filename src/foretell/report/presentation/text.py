"""What is shown of an answer, on a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretell.report.console import bar, table
from foretell.report.presentation.numbers import Presentation, ShownTable, Told
from foretell.report.presentation.verbs import presentation

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

SHARE = "share"
"""The label of shares of a whole."""


def verb_text(verb: str, told: Told) -> "RenderableType":
    """The answer of a verb, on a terminal."""
    return card_text(presentation(verb, told))


def card_text(shown: Presentation) -> "RenderableType":
    """Headline, conclusions, why the answer is no, numbers, tables, lists, what labels mean, assumptions."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(shown.title, "bold"), *map(Text, shown.lines)]
    parts += [Text(reason, "red") for reason in shown.reasons]
    if shown.facts or shown.notes:
        parts += [Text(), numbers_grid(shown)]
    lists = [*shown.lists, *([("Assumed", shown.assumptions)] if shown.assumptions else [])]
    for one in shown.tables:
        parts += [Text(), *([Text(one.title, "bold")] if one.title else []), draw_table(one)]
    if shown.meaning:
        parts += [Text(), Text("\n".join(shown.meaning), "dim")]
    for title, lines in lists:
        parts += [Text(), bullets(title, lines)]
    return Group(*parts)


def numbers_grid(shown: Presentation) -> "Table":
    """A line for each number with its 90 % interval, and what bears on them."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    for fact in shown.facts:
        sure = f"   90%: {fact.low} to {fact.high}" if fact.ends else ""
        grid.add_row(fact.label, f"{fact.text}{sure}")
    for note in shown.notes:
        grid.add_row(*note.split(": ", 1))
    return grid


def draw_table(shown: ShownTable) -> "Table":
    """Rows under their labels; a share of a whole has a bar behind it."""
    right = tuple(head for head, number in zip(shown.headers, shown.right, strict=True) if number)
    heads = [name for head in shown.headers for name in ((head, "") if head == SHARE else (head,))]
    made = table(*heads, right=right)
    made.show_header = any(shown.headers)
    for row in shown.rows:
        cells: list[str | Text] = []
        for head, cell in zip(shown.headers, row, strict=True):
            cells += [cell, bar(float(cell.rstrip(" %")) / 100.0)] if head == SHARE else [cell]
        made.add_row(*cells)
    return made


def bullets(title: str, lines: Sequence[str]) -> "Text":
    """A titled list."""
    from rich.text import Text

    return Text.assemble((title, "bold"), *(f"\n- {line}" for line in lines))
