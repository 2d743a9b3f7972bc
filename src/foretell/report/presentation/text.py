"""What is shown of an answer, on a terminal with its colours and width, or in full where it is none."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretell.report.presentation.numbers import Presentation, ShownTable, Told
from foretell.report.presentation.verbs import presentation

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

BAR = 20
"""Characters of the bar that stands for the whole."""
LEAST_WORDS = 6
"""Characters that a column of words is left where numbers are kept whole."""
UNBOUNDED = 10_000
"""Columns where nobody says how wide the page is: nothing is cut or folded."""


def console() -> "Console":
    """A console for standard output; rich honours COLUMNS and NO_COLOR."""
    from rich.console import Console

    told = os.environ.get("COLUMNS", "").isdecimal()
    width = None if sys.stdout.isatty() or told else UNBOUNDED
    return Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)


def show(part: "RenderableType") -> None:
    """Print, without the blanks that tables leave at the ends of lines."""
    out = console()
    _keep_numbers(part, out.width)
    with out.capture() as captured:
        out.print(part)
    lines = captured.get().splitlines()
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in lines))


def _keep_numbers(part: "RenderableType", width: int) -> None:
    """Let words fold before numbers, in tables where words have room left: "39,393." over "6" misleads."""
    from rich.cells import cell_len
    from rich.console import Group
    from rich.table import Table

    if isinstance(part, Group):
        for inner in part.renderables:
            _keep_numbers(inner, width)
    elif isinstance(part, Table):
        numbers = [column for column in part.columns if column.justify == "right"]
        others = len(part.columns) - len(numbers)
        cells = ((column.header, *column.cells) for column in numbers)
        need = sum(max(cell_len(str(cell)) for cell in column) for column in cells)
        room = need + LEAST_WORDS * others + 2 * len(part.columns) <= width
        for column in numbers:
            column.no_wrap = room


def bar(share: float) -> "Text":
    """A bar as long as a share of the whole."""
    from rich.text import Text

    told = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    return Text(("█" if "utf" in told else "#") * round(BAR * share), "cyan")


def table(*headers: str, right: tuple[str, ...] = ()) -> "Table":
    """A table without frame: cells fold where the page is narrow, and are never cut."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for header in headers:
        side = "right" if header in right else "left"
        made.add_column(header, justify=side, overflow="fold")  # type: ignore[arg-type]
    return made


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
