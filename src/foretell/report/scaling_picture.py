"""Efficiency over numbers of GPUs and the parts of a step, a panel for each model or system."""

from collections.abc import Iterator, Sequence

from foretell.report.svg import (
    COLOURS,
    FRAME,
    PALE,
    Box,
    Picture,
    Scale,
    bar,
    dot,
    frame,
    legend,
    line,
    polyline,
    text,
    tick_text,
    x_ticks,
    y_ticks,
)
from foretell.studies.scaling.records import Curve, Scaling, ScalingPoint
from foretell.studies.scaling.study import ScalingStudy

WIDE, HIGH, BAR = 300.0, 210.0, 22.0
"""Pixels of a panel: across, of its curves, of one of its bars."""
MOST_BARS = 6
"""Bars of a panel; tables have the rest."""
GAP, EDGE, HEAD = 62.0, 56.0, 56.0
"""Pixels between panels, at the left and at the top."""
ACROSS = 3
"""Panels beside each other."""
PARTS = (
    ("compute", "compute_s"),
    ("exposed communication", "exposed_communication_s"),
    ("bubble", "bubble_s"),
    ("other", "other_s"),
)
"""Of a bar, from below."""
GREYS = ("#1f6fb4", "#d1622b", "#b8860b", "#9aa3ad")
"""Of those parts."""


def scaling_picture(found: Scaling) -> Picture:
    """A panel for each model."""
    title = f"{found.mode} scaling on {found.system}, sequences of {found.seq_len} tokens"
    return _panels(title, [(model, found.of(model)) for model in found.models])


def study_picture(found: ScalingStudy) -> Picture:
    """Panels of the six sizes, then of the systems."""
    data, systems = found.data_parallel, found.model_parallel
    panels = [(f"{model}, {data.system}", data.of(model)) for model in data.models]
    panels += [(f"{one.curves[0].model}, {one.system}", one.curves) for one in systems]
    return _panels("Efficiency and the parts of a step", panels)


def _panels(title: str, panels: Sequence[tuple[str, Sequence[Curve]]]) -> Picture:
    """Rows of panels, with one legend for all."""
    names = list(dict.fromkeys(c.strategy for _, curves in panels for c in curves))
    columns = min(ACROSS, len(panels))
    bars = min(max(len(curves) for _, curves in panels), MOST_BARS)
    tall = HIGH + BAR * bars + 116.0
    parts = [text(EDGE, 28, title, size=15)]
    for i, (name, curves) in enumerate(panels):
        x = EDGE + (i % columns) * (WIDE + GAP)
        y = HEAD + (i // columns) * tall
        parts += _panel(name, curves, names, x, y)
    right = EDGE + columns * (WIDE + GAP) - GAP + 24.0
    coloured = [(name, COLOURS[i % len(COLOURS)]) for i, name in enumerate(names)]
    parts += legend(right, HEAD + 24.0, coloured)
    shares = [(name, colour) for (name, _), colour in zip(PARTS, GREYS, strict=True)]
    parts += legend(right, HEAD + 24.0 + HIGH + 46.0, shares)
    rows = -(-len(panels) // columns)
    height = HEAD + rows * tall
    return Picture(title=title, width=right + 190.0, height=height, parts=tuple(parts))


def _panel(
    name: str, curves: Sequence[Curve], names: Sequence[str], x: float, y: float
) -> Iterator[str]:
    """Curves of efficiency, and below them the parts of a step on the most GPUs that fit."""
    box = Box(left=x, top=y + 22.0, right=x + WIDE, bottom=y + 22.0 + HIGH)
    counts = [point.gpus for point in curves[0].points]
    most = max([p.efficiency or 0.0 for c in curves for p in c.points] + [1.0])
    up = Scale(low=0.0, high=1.0 if most <= 1.0 else most + 0.02, start=box.bottom, end=box.top)
    across = Scale(
        low=float(counts[0]),
        high=float(max(counts[-1], counts[0] + 1)),
        start=box.left + 10.0,
        end=box.right - 10.0,
        log=True,
    )
    yield text(box.left, y + 14.0, name, size=13, bold=True)
    step = max(len(counts) // 6, 1)
    yield from x_ticks(box, across, [(float(c), str(c)) for c in counts[::step]])
    yield from y_ticks(box, up, [(v / 5, f"{20 * v} %") for v in range(6)])
    yield frame(box)
    yield text(box.right, box.bottom + 32.0, "GPUs", size=11, anchor="end", colour=PALE)
    for i, curve in enumerate(curves):
        colour = COLOURS[names.index(curve.strategy) % len(COLOURS)]
        # Strategies with equal curves are seen both: those asked first have wider lines.
        width = 2.0 + 1.6 * (len(curves) - 1 - i)
        there = [
            (across(float(p.gpus)), up(p.efficiency))
            for p in curve.points
            if p.efficiency is not None
        ]
        if there:
            yield polyline(there, colour, width=width)
            yield from (dot(a, b, 2.0 + 0.5 * width, colour) for a, b in there)
    yield from _bars(curves, x, box.bottom + 46.0)


def _bars(curves: Sequence[Curve], x: float, y: float) -> Iterator[str]:
    """Level bars of a step's parts, one for each strategy that fits."""
    last = [(c, p) for c in curves if (p := _largest(c)) is not None]
    longest = max((p.step_s or 0.0 for _, p in last), default=0.0)
    for i, (curve, point) in enumerate(last[:MOST_BARS]):
        row, start = y + BAR * i, x + 84.0
        room = WIDE - 84.0 - 66.0
        yield text(start - 6.0, row + 12.0, curve.strategy, size=11, anchor="end")
        for (name, field), colour in zip(PARTS, GREYS, strict=True):
            seconds = float(getattr(point, field) or 0.0)
            wide = room * seconds / (longest or 1.0)
            hint = f"{name}: {1e3 * seconds:,.1f} ms"
            yield bar(start, row, wide, 15.0, colour, hint=hint)
            start += wide
        told = f"{tick_text(1e3 * (point.step_s or 0.0))} ms"
        yield text(start + 4.0, row + 12.0, told, size=11)
    if last:
        words = f"parts of a step on {max(p.gpus for _, p in last)} GPUs"
        yield text(x, y + BAR * min(len(last), MOST_BARS) + 12.0, words, size=11, colour=PALE)
    yield line((x, y - 6.0), (x + WIDE, y - 6.0), FRAME, width=0.3)


def _largest(curve: Curve) -> ScalingPoint | None:
    return next((p for p in reversed(curve.points) if p.fits != "no"), None)
