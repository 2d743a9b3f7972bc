"""Strategies over numbers of GPUs: efficiency, and the parts of a step on the most GPUs that fit."""

from collections.abc import Sequence
from typing import Any

from foretell.report.figures.look import (
    COLOURS,
    Figure,
    counts_axis,
    figure,
    nth_colour,
    unit_of_seconds,
)
from foretell.report.figures.panels import panels
from foretell.studies.scaling.records import Curve, Scaling
from foretell.studies.scaling.study import ScalingStudy

PARTS = (
    ("compute", "compute_s"),
    ("exposed communication", "exposed_communication_s"),
    ("bubble", "bubble_s"),
    ("other", "other_s"),
)
"""Of a bar, from the left."""
HIGH = 320
"""Pixels of a row of panels."""


def scaling_figure(found: Scaling) -> Figure:
    """Two panels for each model: efficiency, and the parts of a step."""
    title = f"{found.mode} scaling on {found.system}, sequences of {found.seq_len} tokens"
    return _rows(title, [(model, found.of(model)) for model in found.models])


def study_figure(found: ScalingStudy) -> Figure:
    """Rows of the six sizes, then of the systems."""
    data, systems = found.data_parallel, found.model_parallel
    rows = [(f"{model}, {data.system}", data.of(model)) for model in data.models]
    rows += [(f"{one.curves[0].model}, {one.system}", one.curves) for one in systems]
    return _rows("Efficiency and the parts of a step", rows)


def _rows(title: str, rows: Sequence[tuple[str, Sequence[Curve]]]) -> Figure:
    # The first figure's bars are stacked, and so are all others.
    parts = [
        one for name, curves in rows for one in (step_parts(name, curves), efficiency(name, curves))
    ]
    return panels(parts, title, 2, HIGH)


def efficiency(name: str, curves: Sequence[Curve]) -> Figure:
    """Lines over numbers of GPUs; strategies with equal curves are seen both, the first wider."""
    traces: list[dict[str, Any]] = []
    for i, curve in enumerate(curves):
        known = [point for point in curve.points if point.efficiency is not None]
        if not known:  # a key without a line says nothing
            continue
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": curve.strategy,
                "x": [point.gpus for point in known],
                "y": [100.0 * (point.efficiency or 0.0) for point in known],
                "line": {
                    "color": nth_colour(i),
                    "width": 2.0 + 1.2 * (len(curves) - 1 - i),
                },
            }
        )
    counts = [float(point.gpus) for point in curves[0].points]
    y = {"text": "efficiency (%)", "rangemode": "tozero"}
    return figure(traces, name, counts_axis("GPUs", counts), y, showlegend=True)


def step_parts(name: str, curves: Sequence[Curve]) -> Figure:
    """Lying bars of a step's parts, one for each strategy that fits."""
    last = [(curve, point) for curve in curves if (point := curve.largest) is not None]
    factor, unit = unit_of_seconds([point.step_s or 0.0 for _, point in last])
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": word,
            "y": [curve.strategy for curve, _ in last],
            "x": [factor * float(getattr(point, field) or 0.0) for _, point in last],
            "marker": {"color": COLOURS[i]},
        }
        for i, (word, field) in enumerate(PARTS)
    ]
    most = max((point.gpus for _, point in last), default=0)
    y = {"text": "", "type": "category", "autorange": "reversed"}
    title = f"{name}: a step on {most:,} GPUs"
    return figure(traces, title, f"time ({unit})", y, barmode="stack", showlegend=True)
