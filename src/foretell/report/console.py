"""Where text is shown: colours and width of a terminal, and everything in full elsewhere."""

import os
import sys
from typing import TYPE_CHECKING

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
