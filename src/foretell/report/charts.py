"""Lines over a number, and bars made of parts."""

from collections.abc import Iterator, Sequence

from foretell.records import dataclass
from foretell.report.svg import (
    COLOURS,
    FRAME,
    PALE,
    Box,
    Picture,
    Scale,
    area,
    axis_titles,
    bar,
    dot,
    legend,
    line,
    log_ticks,
    polyline,
    ring,
    text,
    tick_text,
    ticks,
    x_ticks,
    y_ticks,
)

WIDTH, HEIGHT = 820.0, 520.0
"""Pixels of a picture."""
BOX = Box(left=84.0, top=52.0, right=644.0, bottom=458.0)
"""Of the axes; the legend is on their right."""
PAD = 18.0
"""Pixels between the axes' ends and the first and last points."""
FAINT = 0.005
"""Parts below this share of the highest bar are shown together."""
MOST_BANDS = 1
"""With more lines than this, ranges, which the lines mostly share, would hide each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line with its range."""

    name: str
    """What the legend calls it."""
    points: tuple[tuple[float, float, float, float], ...]
    """x, value, low, high."""


def line_chart(title: str, x_title: str, y_title: str, lines: Sequence[Line]) -> Picture:
    """Values over a number, ranges as bands."""
    xs = [x for one in lines for x, *_ in one.points]
    first, last = min(xs), max(xs)
    bands = len(lines) <= MOST_BANDS
    tops = [high if bands else value for one in lines for _, value, _, high in one.points]
    log = first > 0 and last / first > 50
    across = Scale(low=first, high=last, start=BOX.left + PAD, end=BOX.right - PAD, log=log)
    round_xs = log_ticks(first, last) if log else ticks(first, last)
    inside = [x for x in round_xs if first * 0.999 <= x <= last * 1.001] or [first]
    up, y_axis = _from_zero(max(tops))
    parts = [
        *axis_titles(BOX, x_title, y_title),
        *x_ticks(BOX, across, [(x, tick_text(x)) for x in inside]),
        *y_axis,
    ]
    for i, one in enumerate(lines):
        colour = COLOURS[i % len(COLOURS)]
        if bands:
            above = [(across(x), up(high)) for x, _, _, high in one.points]
            below = [(across(x), up(low)) for x, _, low, _ in reversed(one.points)]
            parts.append(area([*above, *below], colour, opacity=0.13))
        middle = [(across(x), up(value)) for x, value, *_ in one.points]
        parts += [polyline(middle, colour), *(dot(x, y, 3.0, colour) for x, y in middle)]
    return _picture(title, parts, [one.name for one in lines])


def stacked_bars(
    title: str, x_title: str, y_title: str, names: Sequence[str], stacks: Sequence[dict[str, float]]
) -> Picture:
    """One bar for each name, made of parts."""
    highest = max(sum(stack.values()) for stack in stacks)
    stacks = [_gathered(stack, stacks, FAINT * highest) for stack in stacks]
    kinds = list(dict.fromkeys(part for stack in stacks for part in stack))
    slot = (BOX.right - BOX.left) / len(names)
    up, y_axis = _from_zero(highest)
    parts = [*axis_titles(BOX, x_title, y_title), *y_axis]
    for i, (name, stack) in enumerate(zip(names, stacks, strict=True)):
        middle = BOX.left + (i + 0.5) * slot
        parts += _stack(stack, kinds, middle, min(slot * 0.7, 90.0), up)
        parts.append(text(middle, BOX.bottom + 18, name, anchor="middle"))
    return _picture(title, parts, kinds)


def _stack(
    stack: dict[str, float], kinds: Sequence[str], middle: float, width: float, up: Scale
) -> Iterator[str]:
    """One bar from the bottom, its sum above it."""
    base = 0.0
    for i, kind in enumerate(kinds):
        top = base + stack.get(kind, 0.0)
        height = max(up(base) - up(top), 0.0)
        yield bar(middle - width / 2, up(top), width, height, COLOURS[i % len(COLOURS)])
        if 0.0 < top < sum(stack.values()):
            yield line((middle - width / 2, up(top)), (middle + width / 2, up(top)), "#ffffff")
        base = top
    yield text(middle, up(base) - 6, tick_text(base), size=11, anchor="middle")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One point of a choice between two wishes."""

    group: str
    """What the legend calls those of its colour."""
    label: str
    """What stands beside it."""
    x: float
    """What should be large."""
    y: float
    """What should be small."""
    front: bool
    """Whether no other is better in both."""


def pareto_chart(title: str, x_title: str, y_title: str, marks: Sequence[Mark]) -> Picture:
    """Marks with those joined that no other beats: full the front, hollow the rest."""
    round_xs = ticks(0.0, max(mark.x for mark in marks))
    across = Scale(low=0.0, high=round_xs[-1], start=BOX.left, end=BOX.right)
    up, y_axis = _from_zero(max(mark.y for mark in marks))
    front = sorted((mark.x, mark.y) for mark in marks if mark.front)
    groups = list(dict.fromkeys(mark.group for mark in marks))
    parts = [
        *axis_titles(BOX, x_title, y_title),
        *x_ticks(BOX, across, [(x, tick_text(x)) for x in round_xs]),
        *y_axis,
        polyline([(across(x), up(y)) for x, y in front], PALE, width=1.0, dash="5 4"),
    ]
    for mark in marks:
        colour = COLOURS[groups.index(mark.group) % len(COLOURS)]
        x, y, fill = across(mark.x), up(mark.y), colour if mark.front else "#ffffff"
        parts += [ring(x, y, 5.0, colour, fill=fill), text(x + 8, y - 7, mark.label, size=11)]
    return _picture(title, parts, groups)


def _gathered(
    stack: dict[str, float], stacks: Sequence[dict[str, float]], least: float
) -> dict[str, float]:
    """A bar whose parts are large enough to be seen in one of the bars, the others as one."""
    seen = {part for one in stacks for part, value in one.items() if value >= least}
    kept = {part: value for part, value in stack.items() if part in seen}
    rest = sum(value for part, value in stack.items() if part not in seen)
    return {**kept, "other": rest} if rest else kept


def _from_zero(most: float) -> tuple[Scale, list[str]]:
    """An upward axis from zero to a round number above `most`, and its ticks."""
    at = ticks(0.0, most)
    up = Scale(low=0.0, high=at[-1], start=BOX.bottom, end=BOX.top)
    return up, list(y_ticks(BOX, up, [(y, tick_text(y)) for y in at]))


def _picture(title: str, parts: Sequence[str], names: Sequence[str]) -> Picture:
    """The parts under a title, with the axis and the legend."""
    coloured = [(name, COLOURS[i % len(COLOURS)]) for i, name in enumerate(names)]
    every = (
        text(BOX.left, 28, title, size=15),
        *parts,
        line((BOX.left, BOX.bottom), (BOX.right, BOX.bottom), FRAME),
        *legend(BOX.right + 16, BOX.top + 5, coloured),
    )
    return Picture(title=title, width=WIDTH, height=HEIGHT, parts=every)
