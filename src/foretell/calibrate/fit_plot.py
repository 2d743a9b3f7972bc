"""Predicted against measured seconds as one SVG file that needs nothing else."""

import math
from collections.abc import Iterator
from html import escape

import numpy as np

from foretell.calibrate.fit import Calibration

WIDTH, HEIGHT = 760.0, 640.0
"""Pixels of the picture."""
LEFT, RIGHT, TOP, BOTTOM = 74.0, 24.0, 48.0, 58.0
"""Margins of the square of the axes."""
COLOURS = ("#1f6fb4", "#d1622b", "#2e8b57", "#8e4bb0", "#b8860b", "#c23b5a", "#4a5a6a")
"""One a family, told apart by who sees few colours too."""
NEAR = 0.10
"""Distance of the two lines beside the diagonal."""
FONT = "font-family='Helvetica, Arial, sans-serif'"


class _Axes:
    """From seconds to pixels, the same on both axes."""

    def __init__(self, least_s: float, most_s: float) -> None:
        self.low, self.high = math.floor(math.log10(least_s)), math.ceil(math.log10(most_s))
        self.high = max(self.high, self.low + 1)

    def x(self, seconds: float) -> float:
        return LEFT + self._share(seconds) * (WIDTH - LEFT - RIGHT)

    def y(self, seconds: float) -> float:
        return HEIGHT - BOTTOM - self._share(seconds) * (HEIGHT - TOP - BOTTOM)

    def _share(self, seconds: float) -> float:
        return (math.log10(seconds) - self.low) / (self.high - self.low)

    def inside(self, seconds: float) -> float:
        return min(max(seconds, 10.0**self.low), 10.0**self.high)


def svg(found: Calibration) -> str:
    """The picture: log-log, a colour for each family, the diagonal and a tenth to either side."""
    points = _points(found)
    everything = [value for _, pairs in points for pair in pairs for value in pair]
    axes = _Axes(min(everything), max(everything))
    size = f"width='{WIDTH:g}' height='{HEIGHT:g}'"
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' {size} viewBox='0 0 {WIDTH:g} {HEIGHT:g}'>",
        f"<title>{escape(_title(found))}</title>",
        f"<rect {size} fill='#ffffff'/>",
        _text(WIDTH / 2, 26, _title(found), size=15, anchor="middle"),
        *_grid(axes),
        *_lines(axes),
    ]
    for i, (_, pairs) in enumerate(points):
        dots = "".join(
            f"<circle cx='{axes.x(measured):.1f}' cy='{axes.y(predicted):.1f}' r='2.6'/>"
            for measured, predicted in pairs
        )
        parts.append(f"<g fill='{COLOURS[i % len(COLOURS)]}' fill-opacity='0.6'>{dots}</g>")
    parts += _legend([(name, len(pairs)) for name, pairs in points])
    return "\n".join([*parts, "</svg>", ""])


def _title(found: Calibration) -> str:
    return f"{found.facts.chip.id}: kernels predicted by fits without their site, and measured"


def _points(found: Calibration) -> list[tuple[str, list[tuple[float, float]]]]:
    """(measured, predicted) seconds of each family."""
    by_family: dict[str, list[tuple[float, float]]] = {}
    for each in found.fits:
        rows = each.group.rows
        blind = np.where(np.isfinite(each.blind_s), each.blind_s, each.inside_s)
        pairs = zip(rows.measured_s.tolist(), blind.tolist(), strict=True)
        by_family.setdefault(rows.family, []).extend(pairs)
    return list(by_family.items())


def _grid(axes: _Axes) -> Iterator[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for power in range(axes.low, axes.high + 1):
        x, y, word = axes.x(10.0**power), axes.y(10.0**power), _tick(power)
        yield _line((x, TOP), (x, bottom), "#e3e6ea", 1.0)
        yield _line((LEFT, y), (right, y), "#e3e6ea", 1.0)
        yield _text(x, bottom + 18, word, size=12, anchor="middle")
        yield _text(LEFT - 8, y + 4, word, size=12, anchor="end")
    yield (
        f"<rect x='{LEFT:g}' y='{TOP:g}' width='{right - LEFT:g}' height='{bottom - TOP:g}' "
        "fill='none' stroke='#59636e'/>"
    )
    yield _text((LEFT + right) / 2, HEIGHT - 14, "measured time", size=13, anchor="middle")
    middle = (TOP + bottom) / 2
    yield (
        f"<text x='18' y='{middle:g}' {FONT} font-size='13' fill='#1c2530' text-anchor='middle' "
        f"transform='rotate(-90 18 {middle:g})'>predicted time</text>"
    )


def _tick(power: int) -> str:
    """1e-6 s as `1 us`."""
    unit, name = next(
        ((u, n) for u, n in ((0, "s"), (-3, "ms"), (-6, "us")) if power >= u), (-9, "ns")
    )
    return f"{10.0 ** (power - unit):g} {name}"


def _lines(axes: _Axes) -> Iterator[str]:
    """The diagonal, and a tenth above and below it."""
    low, high = 10.0**axes.low, 10.0**axes.high
    for factor, dash in ((1.0, ""), (1.0 + NEAR, "5 4"), (1.0 - NEAR, "5 4")):
        first = max(low, low / factor)
        last = min(high, high / factor)
        ends = [(axes.x(s), axes.y(axes.inside(s * factor))) for s in (first, last)]
        yield _line(ends[0], ends[1], "#59636e", 1.2 if factor == 1.0 else 1.0, dash)


def _legend(names: list[tuple[str, int]]) -> Iterator[str]:
    rows = [*[f"{name} ({count})" for name, count in names], f"predicted = measured, ±{NEAR:.0%}"]
    height, width = 20.0 * len(rows) + 10.0, 218.0
    x, y = LEFT + 12.0, TOP + 12.0
    yield (
        f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{height:g}' fill='#ffffff' "
        "fill-opacity='0.88' stroke='#c9ced4'/>"
    )
    for i, row in enumerate(rows):
        line = y + 20.0 * i + 15.0
        if i < len(names):
            colour = COLOURS[i % len(COLOURS)]
            yield f"<circle cx='{x + 14:g}' cy='{line:g}' r='4' fill='{colour}'/>"
        else:
            yield _line((x + 6, line), (x + 22, line), "#59636e", 1.2, "5 4")
        yield _text(x + 30, line + 4, row, size=12, anchor="start")


def _line(
    first: tuple[float, float],
    second: tuple[float, float],
    colour: str,
    width: float,
    dash: str = "",
) -> str:
    dashed = f" stroke-dasharray='{dash}'" if dash else ""
    return (
        f"<line x1='{first[0]:.1f}' y1='{first[1]:.1f}' x2='{second[0]:.1f}' y2='{second[1]:.1f}' "
        f"stroke='{colour}' stroke-width='{width:g}'{dashed}/>"
    )


def _text(x: float, y: float, words: str, *, size: int, anchor: str) -> str:
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' {FONT} font-size='{size}' fill='#1c2530' "
        f"text-anchor='{anchor}'>{escape(words)}</text>"
    )
