"""Predicted against measured seconds of kernels."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from foretell.lab.calibrate.fit import Calibration
from foretell.report.svg import (
    COLOURS,
    FRAME,
    LEGEND_ROW,
    Box,
    Picture,
    Scale,
    axis_titles,
    dot,
    frame,
    legend,
    line,
    text,
    x_ticks,
    y_ticks,
)

WIDTH, HEIGHT = 760.0, 640.0
"""Pixels of the picture."""
BOX = Box(left=74.0, top=48.0, right=736.0, bottom=582.0)
"""Of the axes."""
NEAR = 0.10
"""Distance of the two lines beside the diagonal."""

Points = list[tuple[str, list[tuple[float, float]]]]
"""(measured, predicted) seconds of each family."""


def fit_picture(found: Calibration) -> Picture:
    """The picture: log-log, a colour for each family, the diagonal and a tenth to either side."""
    points = _points(found)
    seconds = [value for _, pairs in points for pair in pairs for value in pair]
    low = math.floor(math.log10(min(seconds)))
    high = max(math.ceil(math.log10(max(seconds))), low + 1)
    least, most = 10.0**low, 10.0**high
    across = Scale(low=least, high=most, start=BOX.left, end=BOX.right, log=True)
    up = Scale(low=least, high=most, start=BOX.bottom, end=BOX.top, log=True)
    at = [(10.0**power, _tick(power)) for power in range(low, high + 1)]
    title = f"{found.facts.chip.id}: kernels predicted by fits without their site, and measured"
    parts = [
        text(BOX.left, 28, title, size=15),
        *x_ticks(BOX, across, at),
        *y_ticks(BOX, up, at),
        frame(BOX),
        *axis_titles(BOX, "measured time", "predicted time"),
        *_diagonals(across, up),
    ]
    for i, (_, pairs) in enumerate(points):
        dots = "".join(dot(across(measured), up(predicted), 2.6) for measured, predicted in pairs)
        parts.append(f"<g fill='{COLOURS[i % len(COLOURS)]}' fill-opacity='0.6'>{dots}</g>")
    parts += _legend([f"{name} ({len(pairs)})" for name, pairs in points])
    return Picture(title=title, width=WIDTH, height=HEIGHT, parts=tuple(parts))


def _points(found: Calibration) -> Points:
    by_family: dict[str, list[tuple[float, float]]] = {}
    for each in found.fits:
        rows = each.group.rows
        blind = np.where(np.isfinite(each.blind_s), each.blind_s, each.inside_s)
        pairs = zip(rows.measured_s.tolist(), blind.tolist(), strict=True)
        by_family.setdefault(rows.family, []).extend(pairs)
    return list(by_family.items())


def _tick(power: int) -> str:
    """1e-6 s as `1 us`."""
    unit, name = next(
        ((u, n) for u, n in ((0, "s"), (-3, "ms"), (-6, "us")) if power >= u), (-9, "ns")
    )
    return f"{10.0 ** (power - unit):g} {name}"


def _diagonals(across: Scale, up: Scale) -> Iterator[str]:
    """Where both are the same, and a tenth above and below it."""
    least, most = across.low, across.high
    for factor, dash in ((1.0, ""), (1.0 + NEAR, "5 4"), (1.0 - NEAR, "5 4")):
        ends = max(least, least / factor), min(most, most / factor)
        first, last = ((across(s), up(min(max(s * factor, least), most))) for s in ends)
        yield line(first, last, FRAME, width=1.2 if factor == 1.0 else 1.0, dash=dash)


def _legend(names: Sequence[str]) -> Iterator[str]:
    """Families and the dashed lines, on a ground that hides the grid."""
    x, y, height = BOX.left + 12.0, BOX.top + 12.0, LEGEND_ROW * (len(names) + 1) + 10.0
    yield (
        f"<rect x='{x:g}' y='{y:g}' width='218' height='{height:g}' fill='#ffffff' "
        "fill-opacity='0.88' stroke='#c9ced4'/>"
    )
    yield from legend(x + 8, y + 8, [(n, COLOURS[i % len(COLOURS)]) for i, n in enumerate(names)])
    last = y + 8 + LEGEND_ROW * len(names)
    yield line((x + 6, last + 6), (x + 23, last + 6), FRAME, width=1.2, dash="5 4")
    yield text(x + 28, last + 11, f"predicted = measured, ±{NEAR:.0%}")
