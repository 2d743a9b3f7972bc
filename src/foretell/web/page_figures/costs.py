"""Costs beside each other, from the JSON of answers."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.report.figures.look import (
    GREY,
    PERCENTILE,
    Figure,
    distinct_colours,
    error_bars,
    figure,
    gap_of,
)

Answer = Mapping[str, Any]


def cost_bars(answers: Sequence[Answer], names: Sequence[str], tree: str = "breakdown") -> Figure:
    """A bar for each cost, of the parts of one of its trees; error bars are the range of the whole."""
    known = [(name, a) for name, a in zip(names, answers, strict=True) if a.get(tree)]
    stacks = [{part["name"]: part["value"] for part in _parts(a[tree])} for _, a in known]
    places = [name for name, _ in known]
    kinds = list(dict.fromkeys(kind for stack in stacks for kind in stack))
    colours = distinct_colours(kinds)
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "name": kind,
            "x": places,
            "y": [stack.get(kind, 0.0) for stack in stacks],
            "marker": {"color": colours[kind]},
            "hovertemplate": "%{y:,.4g}",
        }
        for kind in kinds
    ]
    wholes = [a[tree]["value"] for _, a in known]
    ends = [{PERCENTILE: [a[tree].get(end) or 0.0 for end in ("low", "high")]} for _, a in known]
    traces.append(
        {
            "type": "scatter",
            "mode": "markers",
            "name": "whole",
            "x": places,
            "y": wholes,
            "marker": {"color": GREY, "size": 1},
            "showlegend": False,
            "error_y": {**error_bars(wholes, ends), "color": GREY},
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
