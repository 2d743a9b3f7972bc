"""Costs: the parts of one answer, or a sweep as lines, bars or a front (JSON of `cost`)."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.report.figures.lines import lines
from foretell.report.figures.look import (
    GREY,
    Figure,
    error_bars,
    figure,
    gap_of,
    nth_colour,
    shown_value,
    words_of,
)
from foretell.report.figures.pareto import pareto

DRAWN = (("usd_per_million_tokens", "USD per million tokens"),
         ("usd_per_gpu_hour", "USD per GPU-hour"), ("usd", "cost (USD)"))  # fmt: skip
"""What is drawn over a swept number, by what rows have, and what it is called."""


def cost_figure(found: Mapping[str, Any]) -> Figure:
    """One answer by its parts; a sweep over numbers as lines, over words as bars, over systems as a front."""
    if "sweep" not in found:
        return _parts(found)
    first, *others = found["sweep"]
    rows = [row for row in found["rows"] if row["usd"] is not None]
    given = ", ".join(f"{name} {value}" for name, value in found["given"].items())
    title = f"Cost of a {found['what']}" + (f" ({given})" if given else "")
    if rows and "pareto" in rows[0] and "system" in (first, *others):
        user = "tokens_per_s_per_user"
        speed = user if user in rows[0] else "tokens_per_s"
        return pareto(
            rows, speed, "usd_per_million_tokens", ("max", "min"), group="system",
            label=next((name for name in (first, *others) if name != "system"), "system"),
            title=title,
        )  # fmt: skip
    if rows and all(_number(row[first]) is not None for row in rows):
        rows = [{**row, first: _number(row[first])} for row in rows]
        key, words = next((key, words) for key, words in DRAWN if key in rows[0])
        spans = f"low_{key}", f"high_{key}"
        return lines(rows, first, key, group=others, ends=spans, title=title, y_title=words)
    names = [", ".join(shown_value(n, row[n]) for n in (first, *others)) for row in rows]
    ranges = [(row["low_usd"], row["high_usd"]) for row in rows]
    axis = ", ".join(words_of(name) for name in (first, *others))
    return _stacked([row["parts_usd"] for row in rows], names, ranges, title, axis)


def _number(value: object) -> float | None:
    """The number that a swept value is, also as text; None where it is a word."""
    try:
        return float(str(value))
    except ValueError:
        return None


def _parts(found: Mapping[str, Any]) -> Figure:
    parts = {child["name"]: child["value"] for child in found["breakdown"]["children"]}
    span = found["low_usd"], found["high_usd"]
    title = f"Cost of a {found['what']}: {found['name']}"
    return _stacked([parts], [str(found["name"])], [span], title, "")


def _stacked(
    stacks: Sequence[Mapping[str, float]],
    names: Sequence[str],
    spans: Sequence[tuple[float, float]],
    title: str,
    axis: str,
) -> Figure:
    """A bar for each answer, its range as an error bar."""
    kinds = list(dict.fromkeys(kind for stack in stacks for kind in stack))
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "name": kind,
            "x": list(names),
            "y": [stack.get(kind, 0.0) for stack in stacks],
            "marker": {"color": nth_colour(i)},
            "hovertemplate": "%{y:,.4g} USD",
        }
        for i, kind in enumerate(kinds)
    ]
    wholes = [sum(stack.values()) for stack in stacks]
    spread = error_bars(wholes, [{"p90": list(span)} for span in spans])
    traces.append(
        {
            "type": "scatter",
            "mode": "markers",
            "name": "whole",
            "x": list(names),
            "y": wholes,
            "error_y": {**spread, "color": GREY},
            "marker": {"color": GREY, "size": 1},
            "showlegend": False,
            "hovertemplate": "%{y:,.4g} USD",
        }
    )
    return figure(
        traces if stacks else [], title, {"text": axis, "type": "category"}, "cost (USD)",
        barmode="stack", bargap=gap_of(len(stacks)), legend={"traceorder": "reversed"},
    )  # fmt: skip
