"""Traces and axes that the figures of reproductions share."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from foretell.report.figures.look import GREY, counts_axis, nth_colour

Rows = Sequence[Mapping[str, Any]]
Trace = dict[str, Any]
NAMED: Mapping[str, Any] = {"text": "", "type": "category", "tickangle": 0}
"""An axis of names, each on its lines."""
THINNER = 0.82
"""Width of a line over that of the one below it."""


def line(
    name: str, points: Iterable[tuple[float, float]], place: int, dash: str = "solid"
) -> Trace:
    """A line with marks; later ones are thinner, so that those below them show where they coincide."""
    xs, ys = zip(*points, strict=True) if (points := list(points)) else ((), ())
    colour = nth_colour(place)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": list(xs),
        "y": list(ys),
        "line": {"color": colour, "dash": dash, "width": round(6.0 * THINNER**place, 1)},
        "marker": {"color": colour, "size": round(10.0 * THINNER**place, 1)},
    }


def bars(name: str, names: Sequence[str], values: Sequence[Any], colour: str, **more: Any) -> Trace:
    """A bar for each name."""
    return {
        "type": "bar",
        "name": name,
        "x": names,
        "y": values,
        "marker": {"color": colour},
        **more,
    }


def span(ends: Iterable[tuple[float | None, float, float | None]], **more: Any) -> Trace:
    """Intervals of values: low, value, high; none on a side where it is not known."""
    known = [(middle if low is None else low, middle, high or middle) for low, middle, high in ends]
    return {
        "type": "data",
        "symmetric": False,
        "array": [max(high - middle, 0.0) for _, middle, high in known],
        "arrayminus": [max(middle - low, 0.0) for low, middle, _ in known],
        **more,
    }


def over_measured(rows: Rows, names: Sequence[str], sides: Mapping[str, str]) -> list[Trace]:
    """Times over the measured time: a side's column by its name, measured first and ours last."""
    colours = (GREY, *(nth_colour(i) for i in range(1, len(sides) - 1)), nth_colour(0))
    traces = []
    for (name, column), colour in zip(sides.items(), colours, strict=True):
        values = [None if r[column] is None else r[column] / r["measured_s"] for r in rows]
        traces.append(bars(name, names, values, colour))
    own = ("ours_low_s", "ours_s", "ours_high_s")
    low, middle, high = ([r[column] / r["measured_s"] for r in rows] for column in own)
    traces[-1]["error_y"] = span(zip(low, middle, high, strict=True))
    return traces


def gpus_axis(counts: Sequence[int]) -> dict[str, Any]:
    """A logarithmic axis of GPUs with every second or third count named."""
    found = counts_axis("GPUs", counts or [1])
    step = -(-len(found["tickvals"]) // 5)
    return {**found, **{k: found[k][::-step][::-1] for k in ("tickvals", "ticktext")}}
