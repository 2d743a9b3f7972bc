"""What would move a result: bars to the left and right of no change, the strongest on top."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.report.figures.look import COLOURS, NAMES, Figure, Trace, bars, figure

BETTER, WORSE = COLOURS[0], COLOURS[5]
"""Of a number twice as good, and half as good."""
MOST = 18
"""Bars that are drawn."""
LEAST = 5e-4
"""Changes below this are left out."""


def tornado(
    rows: Sequence[Mapping[str, Any]],
    title: str = "What would move it",
    of: str = "the result",
    *,
    factor: float = 2.0,
) -> Figure:
    """Change of a result with each number better by a factor, and worse.

    `rows` have `words`, and the result over what it is now as `better_ratio` and `worse_ratio` (either may be
    missing).
    """
    better, worse = "better_ratio", "worse_ratio"
    good, bad = f"{factor:g} times as good", f"1/{factor:g} as good"
    known = [row for row in rows if _size(row, better, worse) >= LEAST]
    known = sorted(known, key=lambda row: _size(row, better, worse))[-MOST:]
    names = [str(row["words"]) for row in known]
    traces: list[Trace] = []
    for key, word, colour in ((better, good, BETTER), (worse, bad, WORSE)):
        values = [None if row.get(key) is None else 100.0 * (row[key] - 1.0) for row in known]
        if any(value is not None for value in values):
            words = ["" if abs(value or 0.0) < 0.05 else f"{value:+.1f} %" for value in values]
            traces.append(bars(
                word, values, names, colour, "%{y}: %{x:+.2f} %", orientation="h", text=words,
                textposition="outside", cliponaxis=False,
            ))  # fmt: skip
    ends = [value for trace in traces for value in trace["x"] if value is not None]
    low, high = min([*ends, 0.0]), max([*ends, 0.0])
    room = 0.16 * ((high - low) or 1.0)
    return figure(
        traces, title,
        {
            "text": f"change of {of} (%)", "zeroline": True, "zerolinewidth": 2,
            "range": [low - room * (low < 0.0), high + room * (high > 0.0)],
        },
        NAMES, barmode="overlay", bargap=0.3, showlegend=True,
    )  # fmt: skip


def elasticity_rows(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows for `tornado` from the JSON of `sensitivity` or `explain`, several numbers at once left out."""
    return [
        {**row, "better_ratio": row["what_if_ratio"], "worse_ratio": row.get("worse_ratio")}
        for row in found["elasticities"]
        if row["kind"] != "joint"
    ]


def result_rows(found: Mapping[str, Any], result: str) -> list[dict[str, Any]]:
    """Rows for `tornado` from the JSON of `sensitivity`: one of its results."""
    rows = []
    for number in found["numbers"]:
        sides = {side: (number[side] or {}).get("ratios") for side in ("better", "worse")}
        ratios = {f"{side}_ratio": told[result] if told else None for side, told in sides.items()}
        if number["kind"] != "joint":
            rows.append({"words": number["words"], **ratios})
    return rows


def _size(row: Mapping[str, Any], better: str, worse: str) -> float:
    changes = [abs(row[key] - 1.0) for key in (better, worse) if row.get(key) is not None]
    return max(changes, default=0.0)
