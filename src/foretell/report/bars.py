"""Level bars, largest first, in panels below each other."""

from collections.abc import Iterator, Sequence

from foretell.records import dataclass
from foretell.report.svg import COLOURS, Picture, bar, text

WIDTH, ROW, HEAD, EDGE = 900.0, 22.0, 34.0, 16.0
"""Pixels: of the picture, of one bar, of a panel's title, of the margins."""
LABEL, NUMBER = 330.0, 230.0
"""Pixels for the names on the left and the numbers on the right."""
MORE, LESS = COLOURS[:2]
"""Of bars above zero, and below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar."""

    name: str
    """On its left."""
    value: float
    """How long; below zero it is of another colour."""
    text: str
    """On its right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Bars on one scale."""

    title: str
    """Above them."""
    bars: tuple[Bar, ...]
    """From the top."""


def bar_panels(title: str, panels: Sequence[Panel]) -> Picture:
    """The picture; panels without bars are left out."""
    parts = [text(EDGE, EDGE + 14.0, title, size=15)]
    y = EDGE + HEAD
    for panel in panels:
        if not panel.bars:
            continue
        parts.append(text(EDGE, y + 18.0, panel.title, size=13, bold=True))
        y += HEAD - 6.0
        most = max(abs(one.value) for one in panel.bars) or 1.0
        for one in panel.bars:
            parts += _bar(one, y, most)
            y += ROW
        y += 6.0
    return Picture(title=title, width=WIDTH, height=y + EDGE, parts=tuple(parts))


def _bar(one: Bar, y: float, most: float) -> Iterator[str]:
    room = WIDTH - 2.0 * EDGE - LABEL - NUMBER
    length = max(abs(one.value) / most * room, 0.5)
    x = EDGE + LABEL
    colour = MORE if one.value >= 0.0 else LESS
    yield text(x - 8.0, y + 15.0, one.name, anchor="end")
    yield bar(x, y + 3.0, length, ROW - 6.0, colour, hint=f"{one.name}: {one.text}")
    yield text(x + length + 8.0, y + 15.0, one.text)
