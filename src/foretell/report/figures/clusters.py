"""Figures of clusters beside each other, and of strategies over numbers of GPUs, from the JSON of answers."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.report.figures.look import (
    GREY,
    Figure,
    counts_axis,
    error_bars,
    figure,
    gap_of,
    nth_colour,
    on_lines,
    title_of,
    words_of,
)

Answers = Sequence[Mapping[str, Any]]


def clusters(answer: Mapping[str, Any], column: str) -> Figure:
    """A bar for each system of `compare`, in its order; error bars are its 90 % interval."""
    rows = [row for row in answer.get("systems", ()) if row[column] is not None]
    values = [row[column] for row in rows]
    trace = {
        "type": "bar",
        "name": words_of(column),
        "x": on_lines([row["system"] for row in rows]),
        "y": values,
        "text": [f"{row['gpus']:,} GPUs" for row in rows],
        "textposition": "none",
        "marker": {"color": [nth_colour(i) for i in range(len(rows))]},
        "error_y": {
            **error_bars(values, [(row["interval"] or {}).get(column) for row in rows]),
            "color": GREY,
        },
        "hovertemplate": "%{y:,.4g}, %{text}<extra></extra>",
    }
    return figure(
        [trace] if rows else [], words_of(column), {"text": "", "type": "category"},
        {"text": title_of(column), "rangemode": "tozero"}, bargap=gap_of(len(rows)),
    )  # fmt: skip


def curves(answers: Answers, names: Sequence[str], column: str) -> Figure:
    """A column of `scaling` over GPUs that it fits on, a line a strategy; 90 % intervals where it
    has them, and of efficiencies the floor."""
    percent = column == "efficiency"
    factor = 100.0 if percent else 1.0
    traces: list[dict[str, Any]] = []
    for name, answer in zip(names, answers, strict=True):
        models = {curve["model"] for curve in answer.get("curves", ())}
        for curve in answer.get("curves", ()):
            known = [point for point in curve["points"] if point[column] is not None]
            points = [point for point in known if point["fits"] != "no"]
            words = [
                name if len(answers) > 1 else "",
                curve["model"] if len(models) > 1 else "",
                curve["strategy"],
            ]
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": " ".join(word for word in words if word),
                    "x": [point["gpus"] for point in points],
                    "y": [factor * point[column] for point in points],
                    "text": [point["plan"] for point in points],
                    "line": {"color": nth_colour(len(traces))},
                    "error_y": error_bars(
                        [factor * point[column] for point in points],
                        [point["intervals"].get(column) for point in points],
                        factor,
                    ),
                    "hovertemplate": "%{x} GPUs: %{y:,.4g}<br>%{text}",
                }
            )
    at = [value for trace in traces for value in trace["x"]]
    floors = {answer["floor"] for answer in answers if "floor" in answer}
    if percent and at and len(floors) == 1:
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "floor",
                "x": [min(at), max(at)],
                "y": [factor * min(floors)] * 2,
                "line": {"color": GREY, "dash": "dash", "width": 1.5},
                "hoverinfo": "skip",
            }
        )
    title = "efficiency (%)" if percent else title_of(column)
    across = counts_axis("GPUs", at) if at else "GPUs"
    up = {"text": title, "rangemode": "tozero"}
    return figure(traces if at else [], title, across, up, showlegend=bool(at))
