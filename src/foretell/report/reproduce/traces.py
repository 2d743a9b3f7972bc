"""Traces, axes and panels that the figures of reproductions share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from foretell.report.figures.look import GREY, counts_axis, nth_colour
from foretell.report.figures.multiples import SmallPanel

Row = Mapping[str, Any]
Rows = Sequence[Row]
Trace = dict[str, Any]
Panels = Sequence[SmallPanel]
NAMED: Mapping[str, Any] = {"text": "", "type": "category", "tickangle": 0}
"""An axis of names, each on its lines."""
CATEGORIES: Mapping[str, Any] = {"text": "", "type": "category"}
"""An axis of short names."""
THINNER = 0.82
"""Width of a line over that of the one below it."""


def from_zero(text: str) -> dict[str, Any]:
    """An axis that begins at zero."""
    return {"text": text, "rangemode": "tozero"}


def panel(
    title: str, traces: Sequence[Trace], x: Mapping[str, Any], y: Mapping[str, Any]
) -> SmallPanel:
    """Traces between two axes."""
    return SmallPanel(title=title, traces=traces, x=x, y=y)


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


def lines(
    rows: Rows,
    by: str,
    x: Callable[[Row], float],
    y: Callable[[Row], float],
    names: Sequence[str] | None = None,
) -> list[Trace]:
    """A line for each name in a column; `names` are those of all panels, so that each has one colour."""
    every = names_of(rows, by) if names is None else names
    return [
        line(name, [(x(r), y(r)) for r in rows if r[by] == name], i) for i, name in enumerate(every)
    ]


def names_of(rows: Rows, column: str) -> list[str]:
    """What a column has, each once."""
    return list(dict.fromkeys(str(r[column]) for r in rows))


def bars(name: str, names: Sequence[str], values: Sequence[Any], colour: str, **more: Any) -> Trace:
    """A bar for each name."""
    marker = {"color": colour}
    return {"type": "bar", "name": name, "x": names, "y": values, "marker": marker, **more}


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


def gpus_axis(rows: Rows) -> dict[str, Any]:
    """A logarithmic axis of the rows' GPUs with every second or third count named."""
    found = counts_axis("GPUs", [r["gpus"] for r in rows] or [1])
    step = -(-len(found["tickvals"]) // 5)
    return {**found, **{k: found[k][::-step][::-1] for k in ("tickvals", "ticktext")}}
