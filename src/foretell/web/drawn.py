"""Figures that the page has and the command line does not: costs, bandwidths, published runs beside ours.

Built as all others are (report/figures): from the JSON of answers to Plotly JSON.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.report.figures.look import COLOURS, GREY, Figure, figure, gap_of, log_axis, note

Answer = Mapping[str, Any]
Rows = Sequence[Mapping[str, Any]]


def cost_bars(answers: Rows, names: Sequence[str], tree: str = "breakdown") -> Figure:
    """A bar for each cost, of the parts of one of its trees; error bars are the range of the whole."""
    known = [(name, a) for name, a in zip(names, answers, strict=True) if a.get(tree)]
    stacks = [{part["name"]: part["value"] for part in _parts(a[tree])} for _, a in known]
    places = [name for name, _ in known]
    kinds = list(dict.fromkeys(kind for stack in stacks for kind in stack))
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "name": kind,
            "x": places,
            "y": [stack.get(kind, 0.0) for stack in stacks],
            "marker": {"color": COLOURS[i % len(COLOURS)]},
            "hovertemplate": "%{y:,.4g}",
        }
        for i, kind in enumerate(kinds)
    ]
    wholes = [a[tree]["value"] for _, a in known]
    ends = [(a[tree].get("low") or 0.0, a[tree].get("high") or 0.0) for _, a in known]
    traces.append(
        {
            "type": "scatter",
            "mode": "markers",
            "name": "whole",
            "x": places,
            "y": wholes,
            "marker": {"color": GREY, "size": 1},
            "showlegend": False,
            "error_y": {
                "type": "data",
                "symmetric": False,
                "array": [max(high - v, 0.0) for v, (_, high) in zip(wholes, ends, strict=True)],
                "arrayminus": [max(v - low, 0.0) for v, (low, _) in zip(wholes, ends, strict=True)],
                "color": GREY,
                "thickness": 1.2,
            },
            "hovertemplate": "%{y:,.4g}",
        }
    )
    unit = known[0][1][tree]["unit"] if known else ""
    return figure(
        traces if known else [], f"Cost ({unit})", {"text": "", "type": "category"}, unit,
        barmode="stack", bargap=gap_of(len(known)), legend={"traceorder": "reversed"},
    )  # fmt: skip


def _parts(tree: Answer) -> list[Answer]:
    """The first level of a tree that has more than one part; a level with one says nothing."""
    held = tree
    while len(held.get("children") or ()) == 1:
        held = held["children"][0]
    return list(held.get("children") or [held])


def beside(rows: Rows) -> Figure:
    """Published steps on the one axis, ours on the other; a point on the line is right."""
    known = [row for row in rows if row["predicted_s"] is not None]
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in known:
        groups.setdefault(row["chip"].split(":")[0], []).append(row)
    values = [row[key] for row in known for key in ("measured_s", "predicted_s")]
    ends = [min(values, default=1.0) / 1.5, max(values, default=1.0) * 1.5]
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "as in print",
            "x": ends,
            "y": ends,
            "line": {"color": GREY, "width": 1.5},
            "hoverinfo": "skip",
        }
    ]
    for i, (name, own) in enumerate(groups.items()):
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [row["measured_s"] for row in own],
                "y": [row["predicted_s"] for row in own],
                "text": [f"{row['model']} on {row['gpus']}: {row['error']:+.1%}" for row in own],
                "marker": {"color": COLOURS[i % len(COLOURS)], "size": 7, "opacity": 0.75},
                "hovertemplate": "%{text}<br>in print %{x:.4g} s, ours %{y:.4g} s<extra></extra>",
            }
        )
    made = figure(
        traces, "Published steps beside ours",
        log_axis("step time in print (s)", ends), log_axis("step time of ours (s)", ends),
        showlegend=True,
    )  # fmt: skip
    if not known:
        made["layout"]["annotations"] = [note("nothing matches", 0.5, 0.5)]
    return made
