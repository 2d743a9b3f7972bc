"""Memory over one step as a picture: stacked areas, one panel a stage."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from foretell.report.figures.look import HELD
from foretell.report.svg import (
    FRAME,
    INK,
    PALE,
    Box,
    Picture,
    Point,
    Scale,
    area,
    legend,
    line,
    ring,
    text,
    ticks,
    y_ticks,
)
from foretell.simulation.memory_answer import MemoryAnswer, of_stage, thin_line
from foretell.simulation.memory_timeline import StageLine

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
ROOM = 1.06
"""The upper end of the axis over the highest line."""
LIMIT = "#b8433f"
"""Colour of what the chip has."""


def memory_picture(found: MemoryAnswer) -> Picture:
    """The picture."""
    stages = shown_stages(found.step.stages, found.step.fullest)
    told = found.estimate
    title = f"Memory of one step: {told.model} on {told.gpus} x {told.system}"
    names = [n for n in HELD if any(n in stage.line.held_bytes for stage in stages)]
    parts = [
        text(LEFT, 28, title, size=15),
        text(LEFT, 50, str(told.plan), colour=PALE),
        # From the top as they are stacked.
        *legend(WIDTH - LEGEND + 18.0, TOP + 16.0, [(n, HELD[n]) for n in reversed(names)]),
    ]
    need = [_total(found, stage) for stage in stages]
    most = max(*need, found.step.capacity_bytes if _near(need, found) else 0.0)
    pitch = PANEL + GAP + BOTTOM
    for row, stage in enumerate(stages):
        top = TOP + row * pitch + GAP - 20.0
        box = Box(left=LEFT, top=top, right=WIDTH - LEGEND, bottom=top + PANEL)
        parts += _panel(found, stage, box, ROOM * most)
    height = TOP + len(stages) * pitch + 10.0
    return Picture(title=title, width=WIDTH, height=height, parts=tuple(parts))


def shown_stages(stages: Sequence[StageLine], fullest: StageLine) -> list[StageLine]:
    """The stages that are shown, in order."""
    if len(stages) <= MOST_STAGES:
        return list(stages)
    few = {*range(MOST_STAGES - 2), stages.index(fullest), len(stages) - 1}
    return [stages[i] for i in sorted(few)]


def _near(need: Sequence[float], found: MemoryAnswer) -> bool:
    """Whether the chip's memory is near enough to be shown on the same scale."""
    return found.step.capacity_bytes < 2.0 * max(need)


def _total(found: MemoryAnswer, stage: StageLine) -> float:
    return stage.closed_bytes + of_stage(found, stage).get("lost", 0.0)


def _panel(found: MemoryAnswer, stage: StageLine, box: Box, most: float) -> Iterator[str]:
    """One stage: axes, areas, the peak, what the device must have, what it has."""
    step_s, have = found.step.step_s, found.step.capacity_bytes
    x = Scale(low=0.0, high=step_s, start=box.left, end=box.right)
    y = Scale(low=0.0, high=most, start=box.bottom, end=box.top)
    peak, when = stage.line.peak
    alike = f" and {stage.alike - 1} alike" if stage.alike > 1 else ""
    said = f"stage {stage.stage}{alike}: tensors take {peak / GIB:.1f} GiB at {when:.3g} s"
    yield text(box.left, box.top - 10, said, size=13, bold=True)
    yield from y_ticks(
        box, y, [(t * GIB, f"{t:g}") for t in ticks(0.0, most / GIB) if t * GIB <= most]
    )
    held = thin_line(stage.line)
    yield from _areas(held.moments_s, held.held_bytes, x, y)
    for at in np.linspace(0.0, step_s, 6).tolist():
        yield text(x(at), box.bottom + 18, f"{at:.3g} s", anchor="middle")
    yield text(16, box.top + 4, "GiB")
    need, lost = _total(found, stage), of_stage(found, stage).get("lost", 0.0)
    yield line((box.left, y(need)), (box.right, y(need)), INK, dash="5 4")
    words = f"{need / GIB:.1f} GiB with allocator and framework (+{lost / GIB:.1f})"
    yield text(box.right - 4, y(need) - 5, words, size=11, anchor="end")
    if have <= most:
        yield line((box.left, y(have)), (box.right, y(have)), LIMIT, dash="2 3")
        words = f"the chip has {have / GIB:.1f} GiB"
        yield text(box.left + 4, y(have) - 5, words, size=11, colour=LIMIT)
    yield ring(x(when), y(peak), 4.0, INK)
    yield line((box.left, box.bottom), (box.right, box.bottom), FRAME)


def _areas(moments: Array, held: Mapping[str, Array], x: Scale, y: Scale) -> Iterator[str]:
    """Stacked staircases, from what is always there to what passes."""
    base = np.zeros(len(moments))
    for name, colour in HELD.items():
        if name in held:
            top = base + held[name]
            yield area(
                [*_stairs(moments, top, x, y), *reversed(_stairs(moments, base, x, y))], colour
            )
            base = top


def _stairs(moments: Array, values: Array, x: Scale, y: Scale) -> list[Point]:
    """Corners of a staircase, each value until the next moment; steps too small to see are left out."""
    across = [x(at) for at in moments.tolist()]
    up = [y(size) for size in values.tolist()]
    corners, now = [(across[0], up[0])], up[0]
    for at, here in zip(across, up, strict=True):
        if abs(here - now) >= LEAST:
            corners += [(at, now), (at, here)]
            now = here
    return [*corners, (across[-1], now)]
