"""What is shown of an answer, on a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretell.report.console import bar, table
from foretell.report.presentation.numbers import Presentation, ShownTable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text


def card_text(
    shown: Presentation, *more: tuple[str, str], beside: Sequence["RenderableType"] = ()
) -> "RenderableType":
    """Headline, conclusions, why the answer is no, numbers and `more` lines, tables, what is `beside`,
    assumptions."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(shown.title, "bold"), *map(Text, shown.lines)]
    parts += [Text(reason, "red") for reason in shown.reasons]
    if shown.facts or more:
        parts += [Text(), numbers_grid(shown, *more)]
    for one in (*map(draw_table, shown.tables), *beside):
        parts += [Text(), one]
    if shown.assumptions:
        parts += [Text(), bullets("Assumed", shown.assumptions)]
    return Group(*parts)


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


def draw_table(shown: ShownTable) -> "Table":
    """Rows under their labels; shares of a whole have a bar beside them."""
    shares = [place for place, head in enumerate(shown.headers) if head == "share"]
    right = tuple(head for head, number in zip(shown.headers, shown.right, strict=True) if number)
    made = table(*shown.headers, *("" for _ in shares), right=right)
    made.title, made.title_justify, made.title_style = shown.title or None, "left", "bold"
    for row in shown.rows:
        made.add_row(*row, *(bar(float(row[place].rstrip(" %")) / 100.0) for place in shares))
    return made


def bullets(title: str, lines: Sequence[str]) -> "Text":
    """A titled list."""
    from rich.text import Text

    return Text.assemble((title, "bold"), *(f"\n- {line}" for line in lines))
