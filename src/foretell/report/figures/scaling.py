"""Work over numbers of GPUs: efficiency of strategies, parts of a step, throughput, strong scaling."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretell.report.figures.look import (
    COLOURS,
    NAMES,
    Figure,
    Trace,
    bars,
    counts_axis,
    error_bars,
    figure,
    ideal,
    log_axis,
    nth_colour,
    points,
    title_of,
    unit_of_seconds,
)
from foretell.report.figures.multiples import panels

if TYPE_CHECKING:
    from foretell.studies.scaling.records import Curve, Scaling
    from foretell.studies.scaling.study import ScalingStudy

Rows = Sequence[Mapping[str, Any]]

PARTS = (
    ("compute", "compute_s"),
    ("exposed communication", "exposed_communication_s"),
    ("bubble", "bubble_s"),
    ("other", "other_s"),
)
"""Of a bar, from the left."""
HIGH = 320
"""Pixels of a row of panels."""


def scaling_figure(found: "Scaling") -> Figure:
    """Two panels for each model: efficiency, and the parts of a step."""
    title = f"{found.mode} scaling on {found.system}, sequences of {found.seq_len} tokens"
    return _rows(title, [(model, found.of(model)) for model in found.models])


def study_figure(found: "ScalingStudy") -> Figure:
    """Rows of the six sizes, then of the systems."""
    data, systems = found.data_parallel, found.model_parallel
    rows = [(f"{model}, {data.system}", data.of(model)) for model in data.models]
    rows += [(f"{one.curves[0].model}, {one.system}", one.curves) for one in systems]
    return _rows("Efficiency and the parts of a step", rows)


def _rows(title: str, rows: Sequence[tuple[str, Sequence["Curve"]]]) -> Figure:
    # The first figure's bars are stacked, and so are all others.
    parts = [
        one for name, curves in rows for one in (step_parts(name, curves), efficiency(name, curves))
    ]
    return panels(parts, title, 2, HIGH)


def efficiency(name: str, curves: Sequence["Curve"]) -> Figure:
    """Lines over numbers of GPUs; strategies with equal curves are seen both, the first wider."""
    traces: list[Trace] = []
    for i, curve in enumerate(curves):
        known = [point for point in curve.points if point.efficiency is not None]
        if not known:  # a key without a line says nothing
            continue
        values = [100.0 * (point.efficiency or 0.0) for point in known]
        line = {"color": nth_colour(i), "width": 2.0 + 1.2 * (len(curves) - 1 - i)}
        gpus = [point.gpus for point in known]
        traces.append(points(curve.strategy, gpus, values, "%{x} GPUs: %{y:.1f} %", line=line))
    counts = [float(point.gpus) for point in curves[0].points]
    y = {"text": "efficiency (%)", "rangemode": "tozero"}
    return figure(traces, name, counts_axis("GPUs", counts), y, showlegend=True)


def step_parts(name: str, curves: Sequence["Curve"]) -> Figure:
    """Lying bars of a step's parts, one for each strategy that fits."""
    last = [(curve, point) for curve in curves if (point := curve.largest) is not None]
    factor, unit = unit_of_seconds([point.step_s or 0.0 for _, point in last])
    traces = [
        bars(
            word, [factor * float(getattr(point, field) or 0.0) for _, point in last],
            [curve.strategy for curve, _ in last], COLOURS[i], f"%{{x:.4g}} {unit}", orientation="h",
        )
        for i, (word, field) in enumerate(PARTS)
    ]  # fmt: skip
    most = max((point.gpus for _, point in last), default=0)
    y = {**NAMES, "autorange": "reversed"}
    title = f"{name}: a step on {most:,} GPUs"
    return figure(traces, title, f"time ({unit})", y, barmode="stack", showlegend=True)


def curves(answers: Rows, names: Sequence[str], column: str) -> Figure:
    """A column of `scaling` over GPUs that it fits on, a line a strategy; 90 % intervals where it
    has them, and of efficiencies the floor."""
    percent = column == "efficiency"
    factor = 100.0 if percent else 1.0
    traces: list[Trace] = []
    for name, answer in zip(names, answers, strict=True):
        models = {curve["model"] for curve in answer.get("curves", ())}
        for curve in answer.get("curves", ()):
            some = [p for p in curve["points"] if p[column] is not None and p["fits"] != "no"]
            values = [factor * point[column] for point in some]
            words = [
                name if len(answers) > 1 else "",
                curve["model"] if len(models) > 1 else "",
                curve["strategy"],
            ]
            spans = [point["intervals"].get(column) for point in some]
            traces.append(points(
                " ".join(word for word in words if word), [point["gpus"] for point in some], values,
                "%{x} GPUs: %{y:,.4g}<br>%{text}", text=[point["plan"] for point in some],
                line={"color": nth_colour(len(traces))}, error_y=error_bars(values, spans, factor),
            ))  # fmt: skip
    at = [value for trace in traces for value in trace["x"]]
    floors = {answer["floor"] for answer in answers if "floor" in answer}
    if percent and at and len(floors) == 1:
        traces.append(ideal("floor", [min(at), max(at)], [factor * min(floors)] * 2, "dash"))
    title = "efficiency (%)" if percent else title_of(column)
    across = counts_axis("GPUs", at) if at else "GPUs"
    up = {"text": title, "rangemode": "tozero"}
    return figure(traces if at else [], title, across, up, showlegend=bool(at))


def strong_scaling(series: Mapping[str, Rows], title: str = "Strong scaling") -> Figure:
    """Time of a step over GPUs, the work held (JSON of estimates); dotted what an even share of the first
    would take."""
    ordered = {
        name: sorted(answers, key=lambda answer: float(answer["gpus"]))
        for name, answers in series.items()
        if answers
    }
    every = [answer for answers in ordered.values() for answer in answers]
    factor, unit = unit_of_seconds([answer["step_s"] for answer in every])
    traces: list[Trace] = []
    for i, (name, answers) in enumerate(ordered.items()):
        gpus = [answer["gpus"] for answer in answers]
        values = [answer["step_s"] * factor for answer in answers]
        spread = error_bars(values, [answer.get("interval") for answer in answers], factor)
        traces.append(points(
            name, gpus, values, "%{x:,} GPUs: %{y:.4g}<br>%{text}", error_y=spread,
            text=[str(answer.get("plan") or "") for answer in answers], line={"color": nth_colour(i)},
        ))  # fmt: skip
        even = [values[0] * gpus[0] / many for many in gpus]
        traces.append(ideal(f"{name}, linear", gpus, even, showlegend=False))
    across = counts_axis("GPUs", [float(answer["gpus"]) for answer in every])
    y = log_axis(f"step time ({unit})", [answer["step_s"] * factor for answer in every])
    return figure(traces, title, across, y, showlegend=True)
