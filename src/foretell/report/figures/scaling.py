"""Strong scaling: one workload over chip counts."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.report.figures.look import (
    GREY,
    Figure,
    counts_axis,
    error_bars,
    figure,
    log_axis,
    nth_colour,
    unit_of_seconds,
)

Answers = Sequence[Mapping[str, Any]]
"""Estimates as JSON; of each are used `gpus`, `step_s`, `tokens_per_s`, `interval` and `plan`."""


def strong_scaling(series: Mapping[str, Answers], title: str = "Strong scaling") -> Figure:
    """Time of a step over chips, the work held; dotted what an even share of the first would take."""
    lines = {name: _ordered(answers) for name, answers in series.items()}
    factor, unit = unit_of_seconds([a["step_s"] for answers in lines.values() for a in answers])
    traces: list[dict[str, Any]] = []
    for i, (name, answers) in enumerate(lines.items()):
        if not answers:
            continue
        values = [answer["step_s"] * factor for answer in answers]
        traces.append(_line(name, answers, values, factor, nth_colour(i)))
        first = answers[0]
        ideal = [values[0] * first["gpus"] / answer["gpus"] for answer in answers]
        traces.append(_ideal(name, answers, ideal))
    times = [a["step_s"] * factor for answers in lines.values() for a in answers]
    y = log_axis(f"step time ({unit})", times)
    return figure(traces, title, counts_axis("GPUs", _gpus(lines)), y, showlegend=True)


def _ordered(answers: Answers) -> list[Mapping[str, Any]]:
    return sorted(answers, key=lambda answer: float(answer["gpus"]))


def _gpus(lines: Mapping[str, Answers]) -> list[float]:
    return [float(answer["gpus"]) for answers in lines.values() for answer in answers]


def _line(
    name: str, answers: Answers, values: list[float], factor: float, colour: str
) -> dict[str, Any]:
    """The answers as a line with error bars."""
    intervals = [answer.get("interval") for answer in answers]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": [answer["gpus"] for answer in answers],
        "y": values,
        "error_y": error_bars(values, intervals, factor),
        "text": [str(answer.get("plan") or "") for answer in answers],
        "hovertemplate": "%{x:,} GPUs: %{y:.4g}<br>%{text}",
        "line": {"color": colour},
    }


def _ideal(name: str, answers: Answers, values: list[float]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"{name}, linear",
        "x": [answer["gpus"] for answer in answers],
        "y": values,
        "line": {"color": GREY, "dash": "dot", "width": 1.5},
        "hoverinfo": "skip",
        "showlegend": False,
    }
