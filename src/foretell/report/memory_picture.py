"""Memory over one step as a picture: stacked areas, one panel a stage, in an SVG that needs nothing else."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from foretell.memory_answer import MemoryAnswer, of_stage, thinned
from foretell.timeline import StageLine

Array = NDArray[np.float64]

GIB = 2.0**30
WIDTH, PANEL, TOP, LEGEND = 1040.0, 230.0, 74.0, 200.0
"""Pixels of the picture, of one stage's panel, of the title, of the legend on the right."""
LEFT, GAP, BOTTOM = 70.0, 46.0, 34.0
"""Margins of a panel: axis, title above, times below."""
LEAST = 0.2
"""Pixels of the smallest step that is drawn."""
MOST_STAGES = 6
"""Panels of one picture: the first stages, the fullest and the last."""
FONT = "font-family='Helvetica, Arial, sans-serif'"
COLOURS: Mapping[str, str] = {
    "weights": "#24527a",
    "gradients": "#3f7fb0",
    "states": "#7fb0d6",
    "gathered weights": "#b9d3ea",
    "gradient placeholders": "#9aa7b4",
    "messages": "#c9ced4",
    "workspaces": "#e0e3e7",
    "layer entries": "#1d6b45",
    "attention": "#3f9a68",
    "mixer": "#5fae7f",
    "feed-forward": "#8fca9f",
    "experts": "#bfe0c4",
    "backward pass": "#d9822b",
    "scores": "#b8433f",
}
"""From what is always there (blue, grey) over what is kept (green) to what passes (orange, red)."""


def svg(found: MemoryAnswer) -> str:
    """The picture."""
    stages = chosen(found.step.stages, found.step.fullest)
    height = TOP + len(stages) * (PANEL + GAP + BOTTOM) + 10.0
    size = f"width='{WIDTH:g}' height='{height:g}'"
    told = found.estimate
    title = f"Memory of one step: {told.model} on {told.gpus} x {told.system}"
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' {size} viewBox='0 0 {WIDTH:g} {height:g}'>",
        f"<title>{escape(title)}</title>",
        f"<rect {size} fill='#ffffff'/>",
        _text(LEFT, 28, title, size=17, weight="bold"),
        _text(LEFT, 50, str(told.plan), size=12, colour="#555555"),
    ]
    names = [n for n in COLOURS if any(n in stage.line.held_bytes for stage in stages)]
    parts += _legend(names)
    need = [_total(found, stage) for stage in stages]
    most = max(*need, found.step.capacity_bytes if _near(need, found) else 0.0)
    for row, stage in enumerate(stages):
        top = TOP + row * (PANEL + GAP + BOTTOM) + GAP - 20.0
        parts += _panel(found, stage, top, most)
    return "\n".join([*parts, "</svg>", ""])


def html(found: MemoryAnswer) -> str:
    """The picture on a page of its own."""
    name = escape(f"Memory of one step: {found.estimate.model}")
    return (
        f"<!doctype html>\n<html lang='en'>\n<head><meta charset='utf-8'><title>{name}</title></head>\n"
        f"<body style='margin:24px'>\n{svg(found)}</body>\n</html>\n"
    )


def chosen(stages: Sequence[StageLine], fullest: StageLine) -> list[StageLine]:
    """The stages that are shown, in order."""
    if len(stages) <= MOST_STAGES:
        return list(stages)
    few = {*range(MOST_STAGES - 2), stages.index(fullest), len(stages) - 1}
    return [stages[i] for i in sorted(few)]


def _near(need: Sequence[float], found: MemoryAnswer) -> bool:
    """Whether the chip's memory is near enough to be shown on the same scale."""
    return found.step.capacity_bytes < 2.0 * max(need)


def _total(found: MemoryAnswer, stage: StageLine) -> float:
    return stage.closed_bytes + of_stage(found.estimate, stage.stage).get("lost", 0.0)


def _panel(found: MemoryAnswer, stage: StageLine, top: float, most: float) -> Iterator[str]:
    """One stage: axes, areas, the peak, what the device must have, what it has."""
    right, bottom = WIDTH - LEGEND, top + PANEL
    step_s = found.step.step_s
    line = thinned(stage.line)
    closed = of_stage(found.estimate, stage.stage)

    def x(seconds: float) -> float:
        return LEFT + seconds / step_s * (right - LEFT)

    def y(size: float) -> float:
        return bottom - size / (1.06 * most) * PANEL

    peak, when = stage.line.peak
    alike = f" and {stage.alike - 1} alike" if stage.alike > 1 else ""
    said = f"stage {stage.stage}{alike}: tensors take {peak / GIB:.1f} GiB at {when:.3g} s"
    yield _text(LEFT, top - 10, said, size=13, weight="bold")
    for tick in _ticks(1.06 * most / GIB):
        yield _rule(LEFT, right, y(tick * GIB), "#e3e6ea")
        yield _text(LEFT - 8, y(tick * GIB) + 4, f"{tick:g}", size=11, anchor="end")
    yield from _areas(line.moments_s, line.held_bytes, x, y)
    for at in np.linspace(0.0, step_s, 6):
        yield _text(x(float(at)), bottom + 16, f"{at:.3g} s", size=11, anchor="middle")
    yield _text(16, top + 4, "GiB", size=11)
    need = _total(found, stage)
    yield _rule(LEFT, right, y(need), "#333333", dashes="5 4")
    lost = closed.get("lost", 0.0) / GIB
    words = f"{need / GIB:.1f} GiB with allocator and framework (+{lost:.1f})"
    yield _text(right - 4, y(need) - 5, words, size=11, anchor="end")
    if found.step.capacity_bytes <= 1.06 * most:
        have = found.step.capacity_bytes
        yield _rule(LEFT, right, y(have), "#b8433f", dashes="2 3")
        words = f"the chip has {have / GIB:.1f} GiB"
        yield _text(LEFT + 4, y(have) - 5, words, size=11, colour="#b8433f")
    yield f"<circle cx='{x(when):.1f}' cy='{y(peak):.1f}' r='4' fill='none' stroke='#000000'/>"
    yield _rule(LEFT, right, bottom, "#333333")


def _areas(
    moments: Array,
    held: Mapping[str, Array],
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> Iterator[str]:
    """Stacked staircases, from what is always there to what passes."""
    base = np.zeros(len(moments))
    for name, colour in COLOURS.items():
        if name in held:
            top = base + held[name]
            corners = [*_stairs(moments, top, x, y), *reversed(_stairs(moments, base, x, y))]
            yield f"<polygon points='{' '.join(corners)}' fill='{colour}'/>"
            base = top


def _stairs(
    moments: Array, values: Array, x: Callable[[float], float], y: Callable[[float], float]
) -> list[str]:
    """Corners of a staircase, each value until the next moment; steps too small to see are left out."""
    across = [round(x(at), 1) for at in moments.tolist()]
    up = [round(y(size), 1) for size in values.tolist()]
    corners, now = [f"{across[0]:g},{up[0]:g}"], up[0]
    for at, here in zip(across, up, strict=True):
        if abs(here - now) >= LEAST:
            corners += [f"{at:g},{now:g}", f"{at:g},{here:g}"]
            now = here
    return [*corners, f"{across[-1]:g},{now:g}"]


def _legend(names: Sequence[str]) -> Iterator[str]:
    """What the colours mean, top to bottom as they are stacked."""
    left = WIDTH - LEGEND + 18.0
    for i, name in enumerate(reversed(names)):
        at = TOP + 16.0 + 21.0 * i
        yield f"<rect x='{left:g}' y='{at:g}' width='13' height='13' fill='{COLOURS[name]}'/>"
        yield _text(left + 20, at + 11, name, size=12)


def _ticks(most: float) -> list[float]:
    """Round numbers up to `most`, some five of them."""
    step = 10.0 ** math.floor(math.log10(max(most, 1e-6) / 4.0))
    step *= next(m for m in (1.0, 2.0, 5.0, 10.0) if most / (m * step) <= 6.0)
    return [round(i * step, 9) for i in range(int(most / step) + 1)]


def _rule(left: float, right: float, y: float, colour: str, dashes: str = "") -> str:
    dashed = f" stroke-dasharray='{dashes}'" if dashes else ""
    return (
        f"<line x1='{left:g}' x2='{right:g}' y1='{y:.1f}' y2='{y:.1f}' stroke='{colour}'{dashed}/>"
    )


def _text(
    x: float,
    y: float,
    words: str,
    *,
    size: int = 12,
    anchor: str = "start",
    weight: str = "normal",
    colour: str = "#1c1c1c",
) -> str:
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' {FONT} font-size='{size}' text-anchor='{anchor}' "
        f"font-weight='{weight}' fill='{colour}'>{escape(words)}</text>"
    )
