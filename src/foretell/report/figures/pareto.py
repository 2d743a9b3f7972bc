"""What cannot be had better in one wish without being worse in the other."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.report.figures.look import (
    GREY,
    Figure,
    figure,
    nth_colour,
    sentence,
    shown_in,
    shown_value,
    title_of,
    value_axis,
    words_of,
)
from foretell.search.pareto import pareto_front

MOST = 5000
"""Points that are drawn beside the front; with more, every so many of them."""


def pareto(
    rows: Sequence[Mapping[str, Any]],
    x: str,
    y: str,
    directions: tuple[str, str],
    *,
    label: str = "plan",
    group: str | None = None,
    title: str = "",
) -> Figure:
    """Rows as points, full those of the exact front, which a line joins; `directions` are min or max."""
    known = [row for row in rows if row.get(x) is not None and row.get(y) is not None]
    columns = [[float(row[name]) for row in known] for name in (x, y)]
    front = list(pareto_front(columns, directions)) if known else []
    by_x, by_y = shown_in(x)[0], shown_in(y)[0]
    known = [{**row, x: row[x] * by_x, y: row[y] * by_y} for row in known]
    best = sorted(
        (row for row, on in zip(known, front, strict=True) if on), key=lambda row: float(row[x])
    )
    rest = [row for row, on in zip(known, front, strict=True) if not on]
    rest = rest[:: max(1, -(-len(rest) // MOST))]
    traces: list[dict[str, Any]] = []
    if best:
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "front",
                "x": [row[x] for row in best],
                "y": [row[y] for row in best],
                "line": {"color": GREY, "dash": "dot", "width": 1.5},
                "hoverinfo": "skip",
                "showlegend": False,
            }
        )
    groups = list(dict.fromkeys(_group(row, group) for row in known))
    for i, name in enumerate(groups):
        colour = nth_colour(i)
        for own, on in ((rest, False), (best, True)):
            chosen = [row for row in own if _group(row, group) == name]
            if chosen:
                traces.append(_points(chosen, (x, y, label), name, colour, on))
    heading = title or sentence(f"{words_of(y)} against {words_of(x)}")
    across, up = (_axis(name, [row[name] for row in known]) for name in (x, y))
    return figure(traces, heading, across, up, showlegend=True)


def _axis(name: str, values: Sequence[float]) -> str | dict[str, Any]:
    """A plain axis, or a logarithmic one where the values span decades."""
    found = value_axis(title_of(name), values)
    return found if found.get("type") == "log" else title_of(name)


def _group(row: Mapping[str, Any], group: str | None) -> str:
    if group is None:
        return ""
    value = shown_value(group, row.get(group))
    return f"{words_of(group)} {value}" if isinstance(row.get(group), int | float) else value


def _points(
    rows: Sequence[Mapping[str, Any]],
    fields: tuple[str, str, str],
    name: str,
    colour: str,
    on: bool,
) -> dict[str, Any]:
    x, y, label = fields
    words = "on the front" if on else "dominated"
    marker: dict[str, Any] = {"color": colour, "size": 9 if on else 6}
    marker |= {} if on else {"symbol": "circle-open", "opacity": 0.6}
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{name}, {words}" if name else words,
        "x": [row[x] for row in rows],
        "y": [row[y] for row in rows],
        "text": [str(row.get(label) or "") for row in rows],
        "marker": marker,
        "hovertemplate": "%{text}<br>%{x:.4g}, %{y:.4g}<extra></extra>",
    }
