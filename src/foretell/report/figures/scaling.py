"""Strong and weak scaling: one workload, or one share of it a chip, over chip counts."""

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
        traces.append(_ideal(name, answers, ideal, "linear"))
    times = [a["step_s"] * factor for answers in lines.values() for a in answers]
    y = log_axis(f"time of a step ({unit})", times)
    return figure(traces, title, counts_axis("GPUs", _gpus(lines)), y, showlegend=True)


def weak_scaling(series: Mapping[str, Answers], title: str = "Weak scaling") -> Figure:
    """Tokens/s of a chip over chips, the work of each held; dotted the rate of the fewest chips."""
    lines = {name: _ordered(answers) for name, answers in series.items()}
    traces: list[dict[str, Any]] = []
    for i, (name, answers) in enumerate(lines.items()):
        if not answers:
            continue
        values = [answer["tokens_per_s"] / answer["gpus"] for answer in answers]
        traces.append(_line(name, answers, values, None, nth_colour(i)))
        traces.append(_ideal(name, answers, [values[0]] * len(answers), "no loss"))
    y = {"text": "tokens/s per GPU", "rangemode": "tozero"}
    return figure(traces, title, counts_axis("GPUs", _gpus(lines)), y, showlegend=True)


def _ordered(answers: Answers) -> list[Mapping[str, Any]]:
    return sorted(answers, key=lambda answer: float(answer["gpus"]))


def _gpus(lines: Mapping[str, Answers]) -> list[float]:
    return [float(answer["gpus"]) for answers in lines.values() for answer in answers]


def _line(
    name: str, answers: Answers, values: list[float], factor: float | None, colour: str
) -> dict[str, Any]:
    """The answers as a line with error bars; without a factor values are rates, which fall as times rise."""
    intervals = [answer.get("interval") for answer in answers]
    if factor is None:
        intervals = [
            _turned(one, value * answer["step_s"])
            for one, value, answer in zip(intervals, values, answers, strict=True)
        ]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": [answer["gpus"] for answer in answers],
        "y": values,
        "error_y": error_bars(values, intervals, factor or 1.0),
        "text": [str(answer.get("plan") or "") for answer in answers],
        "hovertemplate": "%{x:,} GPUs: %{y:.4g}<br>%{text}",
        "line": {"color": colour},
    }


def _turned(interval: Any, work: float) -> dict[str, list[float]] | None:
    """The interval of work / time from that of the time."""
    if not interval:
        return None
    return {name: [work / ends[1], work / ends[0]] for name, ends in interval.items() if ends[0]}


def _ideal(name: str, answers: Answers, values: list[float], word: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"{name}, {word}",
        "x": [answer["gpus"] for answer in answers],
        "y": values,
        "line": {"color": GREY, "dash": "dot", "width": 1.5},
        "hoverinfo": "skip",
        "showlegend": False,
    }
