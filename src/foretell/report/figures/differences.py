"""Two plans side by side: what the step and the fullest stage of each are made of, and their differences."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.report.figures.breakdown import two_bars
from foretell.report.figures.look import COLOURS, Figure, figure, unit_of_seconds
from foretell.report.figures.panels import panels

MOST = 12
"""Differences that are drawn, the largest."""
GIB = 2.0**-30
LESS, MORE = COLOURS[0], COLOURS[5]
"""Where B has less of something than A, and more."""

Leaves = Sequence[Mapping[str, Any]]


def plans_figure(answer: Mapping[str, Any]) -> Figure:
    """Time of both plans, then B less A by leaf; the same of memory."""
    a, b = answer["a"], answer["b"]
    seconds, unit = unit_of_seconds([a["step_s"], b["step_s"]])
    told = (
        ("time", "Time of a step", "time", unit, seconds),
        ("memory", "Memory of the fullest stage", "memory", "GiB", GIB),
    )
    names = [f"A: {a['plan']}", f"B: {b['plan']}"]
    parts: list[Figure] = []
    for key, title, word, in_, factor in told:
        parts.append(two_bars(answer[key], names, title, f"{word} ({in_})", factor))
        parts.append(difference_bars(answer[key], f"{title}, B less A", f"{word} ({in_})", factor))
    return panels(parts, f"{a['model']} on {a['gpus']:,} x {a['system']}", 1, 420)


def difference_bars(leaves: Leaves, title: str, x_title: str, factor: float) -> Figure:
    """B less A of each leaf, the largest on top; those of no difference left out."""
    kept = sorted(
        (leaf for leaf in leaves if leaf["difference"]), key=lambda leaf: abs(leaf["difference"])
    )[-MOST:]
    values = [leaf["difference"] * factor for leaf in kept]
    low, high = min([*values, 0.0]), max([*values, 0.0])
    room = 0.2 * ((high - low) or 1.0)
    bars = {
        "type": "bar",
        "orientation": "h",
        "name": "B - A",
        "showlegend": False,
        "x": values,
        "y": [leaf["name"].replace("_", " ") for leaf in kept],
        "marker": {"color": [LESS if value < 0.0 else MORE for value in values]},
        "text": [f"{value:+.3g}" for value in values],
        "textposition": "outside",
        "cliponaxis": False,
        "hovertemplate": "%{y}: %{x:+.4g}<extra></extra>",
    }
    reach = [low - room * (low < 0.0), high + room * (high > 0.0)]
    return figure(
        [bars] if kept else [], title,
        {"text": x_title, "zeroline": True, "zerolinewidth": 2, "range": reach},
        {"text": "", "type": "category"},
    )  # fmt: skip
