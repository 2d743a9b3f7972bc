"""Lines and bars as one SVG file that needs nothing else."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 820.0, 520.0
"""Pixels of a picture."""
LEFT, RIGHT, TOP, BOTTOM = 84.0, 176.0, 52.0, 62.0
"""Margins of the axes; the right one has the legend."""
COLOURS = (
    "#1f6fb4", "#d1622b", "#2e8b57", "#8e4bb0", "#b8860b", "#c23b5a", "#4a5a6a", "#3aa6a0",
    "#8c6d4f", "#e08fb0",
)  # fmt: skip
"""One a line, told apart by who sees few colours too."""
FONT = "font-family='Helvetica, Arial, sans-serif'"
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


def line_chart(title: str, x_title: str, y_title: str, lines: Sequence[Line]) -> str:
    """Values over a number, ranges as bands."""
    xs = [x for line in lines for x, *_ in line.points]
    first, last = min(xs), max(xs)
    bands = len(lines) <= MOST_BANDS
    tops = [high if bands else value for line in lines for _, value, _, high in line.points]
    y_ticks = ticks(0.0, max(tops))
    log_x = first > 0 and last / first > 50
    x_ticks = log_ticks(first, last) if log_x else ticks(first, last)
    x_ticks = [tick for tick in x_ticks if first * 0.999 <= tick <= last * 1.001] or [first]

    def across(x: float) -> float:
        low, high = first, last
        if log_x:
            x, low, high = math.log(x), math.log(low), math.log(high)
        inside = WIDTH - LEFT - RIGHT - 2 * PAD
        return LEFT + PAD + (x - low) / ((high - low) or 1.0) * inside

    def up(y: float) -> float:
        return HEIGHT - BOTTOM - y / (y_ticks[-1] or 1.0) * (HEIGHT - TOP - BOTTOM)

    parts = [*_frame(title), *_axis_titles(x_title, y_title)]
    for tick in x_ticks:
        parts.append(_line(across(tick), TOP, across(tick), HEIGHT - BOTTOM, "#eeeeee"))
        parts.append(_text(across(tick), HEIGHT - BOTTOM + 18, shown(tick), anchor="middle"))
    parts += _y_grid(y_ticks, up)
    for i, line in enumerate(lines):
        colour = COLOURS[i % len(COLOURS)]
        if bands:
            above = [f"{across(x):.1f},{up(high):.1f}" for x, _, _, high in line.points]
            below = [f"{across(x):.1f},{up(low):.1f}" for x, _, low, _ in reversed(line.points)]
            shape = " ".join([*above, *below])
            parts.append(f"<polygon points='{shape}' fill='{colour}' fill-opacity='0.13'/>")
        path = " ".join(f"{across(x):.1f},{up(value):.1f}" for x, value, *_ in line.points)
        parts.append(
            f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2.2'/>"
        )
        parts += [
            f"<circle cx='{across(x):.1f}' cy='{up(value):.1f}' r='3' fill='{colour}'/>"
            for x, value, *_ in line.points
        ]
    parts += _legend([line.name for line in lines])
    return "\n".join([*parts, "</svg>", ""])


def stacked_bars(
    title: str, x_title: str, y_title: str, names: Sequence[str], stacks: Sequence[dict[str, float]]
) -> str:
    """One bar for each name, made of parts."""
    highest = max(sum(stack.values()) for stack in stacks)
    stacks = [_gathered(stack, stacks, FAINT * highest) for stack in stacks]
    kinds = list(dict.fromkeys(part for stack in stacks for part in stack))
    y_ticks = ticks(0.0, highest)
    slot = (WIDTH - LEFT - RIGHT) / len(names)

    def up(y: float) -> float:
        return HEIGHT - BOTTOM - y / (y_ticks[-1] or 1.0) * (HEIGHT - TOP - BOTTOM)

    parts = [*_frame(title), *_axis_titles(x_title, y_title), *_y_grid(y_ticks, up)]
    for i, (name, stack) in enumerate(zip(names, stacks, strict=True)):
        middle, base = LEFT + (i + 0.5) * slot, 0.0
        for kind in kinds:
            value = stack.get(kind, 0.0)
            colour = COLOURS[kinds.index(kind) % len(COLOURS)]
            wide = min(slot * 0.7, 90.0)
            parts.append(
                f"<rect x='{middle - wide / 2:.1f}' y='{up(base + value):.1f}' width='{wide:.1f}' "
                f"height='{max(up(base) - up(base + value), 0):.1f}' fill='{colour}' "
                "stroke='#ffffff' stroke-width='1'/>"
            )
            base += value
        parts.append(_text(middle, up(base) - 6, shown(base), anchor="middle", size=11))
        parts.append(_text(middle, HEIGHT - BOTTOM + 18, name, anchor="middle"))
    parts += _legend(kinds)
    return "\n".join([*parts, "</svg>", ""])


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


def pareto_chart(title: str, x_title: str, y_title: str, marks: Sequence[Mark]) -> str:
    """Marks with those joined that no other beats: full the front, hollow the rest."""
    x_ticks = ticks(0.0, max(mark.x for mark in marks))
    y_ticks = ticks(0.0, max(mark.y for mark in marks))

    def across(x: float) -> float:
        return LEFT + x / x_ticks[-1] * (WIDTH - LEFT - RIGHT)

    def up(y: float) -> float:
        return HEIGHT - BOTTOM - y / y_ticks[-1] * (HEIGHT - TOP - BOTTOM)

    parts = [*_frame(title), *_axis_titles(x_title, y_title)]
    for tick in x_ticks:
        parts.append(_line(across(tick), TOP, across(tick), HEIGHT - BOTTOM, "#eeeeee"))
        parts.append(_text(across(tick), HEIGHT - BOTTOM + 18, shown(tick), anchor="middle"))
    parts += _y_grid(y_ticks, up)
    front = sorted((mark.x, mark.y) for mark in marks if mark.front)
    path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in front)
    parts.append(f"<polyline points='{path}' fill='none' stroke='#888888' stroke-dasharray='5 4'/>")
    groups = list(dict.fromkeys(mark.group for mark in marks))
    for mark in marks:
        colour = COLOURS[groups.index(mark.group) % len(COLOURS)]
        place = f"cx='{across(mark.x):.1f}' cy='{up(mark.y):.1f}' r='5'"
        fill = colour if mark.front else "#ffffff"
        parts.append(f"<circle {place} fill='{fill}' stroke='{colour}' stroke-width='2'/>")
        parts.append(_text(across(mark.x) + 8, up(mark.y) - 7, mark.label, size=11))
    parts += _legend(groups)
    return "\n".join([*parts, "</svg>", ""])


def _gathered(
    stack: dict[str, float], stacks: Sequence[dict[str, float]], least: float
) -> dict[str, float]:
    """A bar whose parts are large enough to be seen in one of the bars, the others as one."""
    seen = {part for one in stacks for part, value in one.items() if value >= least}
    kept = {part: value for part, value in stack.items() if part in seen}
    rest = sum(value for part, value in stack.items() if part not in seen)
    return {**kept, "other": rest} if rest else kept


def ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round numbers from at or below the low end to at or above the high one."""
    span = (high - low) or abs(high) or 1.0
    rough = span / (most - 1)
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(m * size for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * size >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * k for k in range(first, max(last, first + 1) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of two or of ten around a range."""
    base = 2.0 if high / low < 2000 else 10.0
    first = math.floor(math.log(low, base) + 1e-9)
    last = math.ceil(math.log(high, base) - 1e-9)
    return [base**k for k in range(first, max(last, first + 1) + 1)]


def shown(value: float) -> str:
    """A tick in few characters."""
    for size, sign in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * (10 if sign == "k" else 1):
            return f"{value / size:.3g}{sign}"
    return f"{value:.4g}"


def _frame(title: str) -> list[str]:
    size = f"width='{WIDTH:g}' height='{HEIGHT:g}'"
    return [
        f"<svg xmlns='http://www.w3.org/2000/svg' {size} viewBox='0 0 {WIDTH:g} {HEIGHT:g}'>",
        f"<title>{escape(title)}</title>",
        f"<rect {size} fill='#ffffff'/>",
        _text(LEFT, 28, title, size=15),
    ]


def _axis_titles(x_title: str, y_title: str) -> list[str]:
    middle = (LEFT + WIDTH - RIGHT) / 2
    turned = f"transform='rotate(-90 22 {(TOP + HEIGHT - BOTTOM) / 2:g})'"
    return [
        _text(middle, HEIGHT - 16, x_title, anchor="middle", size=13),
        _text(22, (TOP + HEIGHT - BOTTOM) / 2, y_title, anchor="middle", size=13, more=turned),
    ]


def _y_grid(y_ticks: Sequence[float], up: Callable[[float], float]) -> list[str]:
    parts = []
    for tick in y_ticks:
        y = up(tick)
        parts.append(_line(LEFT, y, WIDTH - RIGHT, y, "#dddddd"))
        parts.append(_text(LEFT - 8, y + 4, shown(tick), anchor="end"))
    return parts


def _legend(names: Sequence[str]) -> list[str]:
    parts = []
    for i, name in enumerate(names):
        y = TOP + 14 + 22 * i
        x = WIDTH - RIGHT + 16
        colour = COLOURS[i % len(COLOURS)]
        parts.append(f"<rect x='{x}' y='{y - 9}' width='12' height='12' fill='{colour}'/>")
        parts.append(_text(x + 18, y + 1, name))
    return parts


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    ends = f"x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}'"
    return f"<line {ends} stroke='{colour}' stroke-width='1'/>"


def _text(
    x: float, y: float, text: str, *, size: int = 12, anchor: str = "start", more: str = ""
) -> str:
    place = f"x='{x:.1f}' y='{y:.1f}' font-size='{size}' text-anchor='{anchor}' fill='#222222'"
    return f"<text {place} {FONT} {more}>{escape(text)}</text>"
