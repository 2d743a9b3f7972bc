"""Total cost over the years as a waterfall: each part from where the one before ended, and the total."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.economics.total_cost import waterfall_steps
from foretell.report.figures.look import COLOURS, GREY, Figure, figure, gap_of, nth_colour, on_lines

UP, DOWN, WHOLE = COLOURS[0], COLOURS[2], GREY
"""What is paid, what comes back, and the sum."""
APART = 3
"""Most systems whose costs are waterfalls of their own."""


def waterfall(parts: Mapping[str, float], title: str, top_usd: float | None = None) -> Figure:
    """Steps of `parts` (name -> USD, negative where money comes back), the last one the total; `top_usd` is
    the highest point of the axis, for several that are compared."""
    steps = [step for step in waterfall_steps(parts) if step[2] or step[0] == "total"]
    names = [name for name, _, _ in steps]
    trace = {
        "type": "bar",
        "name": "M USD",
        "x": names,
        "y": [change / 1e6 for _, _, change in steps],
        "base": [start / 1e6 for _, start, _ in steps],
        "text": [_label(change) for _, _, change in steps],
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": [_colour(name, change) for name, _, change in steps]},
        "hovertemplate": "%{x}: %{text} M USD<extra></extra>",
    }
    top = (highest_usd(parts) if top_usd is None else top_usd) / 1e6
    return figure(
        [trace] if steps else [], title, {"text": "", "type": "category"},
        {"text": "total cost (M USD)", "range": [0.0, 1.12 * top]}, bargap=gap_of(len(steps)),
    )  # fmt: skip


def total_cost_figures(answer: Mapping[str, Any]) -> list[Figure]:
    """A waterfall for each system of `compare` that has a price, in its order; one figure with a bar for each
    where they are more than `APART`."""
    rows = [row for row in answer.get("systems", ()) if row.get("total_cost")]
    if len(rows) > APART:
        return [_stacked(rows)]
    top = max((highest_usd(row["total_cost"]) for row in rows), default=1.0)
    return [
        waterfall(
            row["total_cost"],
            f"Total cost of {row['system']}: {row['gpus']:,} GPUs, {row['years']:g} years, "
            f"{row['paid']}",
            top,
        )
        for row in rows
    ]


def _stacked(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """A bar for each system, made of the parts of its total cost; what comes back is below zero."""
    names = on_lines([row["system"] for row in rows])
    parts = dict.fromkeys(name for row in rows for name in row["total_cost"] if name != "total")
    traces = [
        {
            "type": "bar",
            "name": part,
            "x": names,
            "y": [row["total_cost"].get(part, 0.0) / 1e6 for row in rows],
            "marker": {"color": nth_colour(place)},
            "hovertemplate": "%{y:,.3g} M USD",
        }
        for place, part in enumerate(parts)
    ]
    across, up = {"text": "", "type": "category"}, {"text": "total cost (M USD)"}
    return figure(traces, "Total cost", across, up, bargap=gap_of(len(rows)), barmode="relative")


def highest_usd(parts: Mapping[str, float]) -> float:
    """The highest point that a waterfall reaches."""
    return max(max(start, start + change) for _, start, change in waterfall_steps(parts))


def _colour(name: str, change: float) -> str:
    return WHOLE if name == "total" else UP if change >= 0.0 else DOWN


def _label(usd: float) -> str:
    value = usd / 1e6
    return f"{value:,.2f}" if abs(value) >= 0.01 else f"{value:.2g}"
