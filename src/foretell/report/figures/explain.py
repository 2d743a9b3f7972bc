"""What bounds a step, and what would move it: operations under the roofs of a chip, and bars to the left and
right of no change, the strongest on top."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.report.figures.look import (
    COLOURS,
    GREY,
    NAMES,
    Figure,
    Trace,
    bars,
    figure,
    log_axis,
    nth_colour,
    points,
)

Roof = Mapping[str, Any]
"""`name`, `flop_per_s` and `bytes_per_s`."""
Point = Mapping[str, Any]
"""`name`, `flop_per_byte` and `flop_per_s`; `group` (a colour) and `share` (of the time) where known."""
UNITS = {"chip.matrix_flop_per_s": "matrix units", "chip.vector_flop_per_s": "vector units"}
"""Numbers of a chip that are roofs, and what they are called."""
ROOM = 3.0
"""How far the axis goes beyond the points and the ridges, as a factor."""


def roofline(roofs: Sequence[Roof], operations: Sequence[Point], title: str = "Roofline") -> Figure:
    """Points under roofs, both axes by logarithms; a point's size is its share of the time."""
    ridges = [roof["flop_per_s"] / roof["bytes_per_s"] for roof in roofs]
    across = [
        *ridges,
        *(point["flop_per_byte"] for point in operations if point["flop_per_byte"] > 0),
    ]
    low, high = min(across, default=1.0) / ROOM, max(across, default=1.0) * ROOM
    traces: list[Trace] = []
    for i, (roof, ridge) in enumerate(zip(roofs, ridges, strict=True)):
        at = [low, ridge, high]
        rates = [min(x * roof["bytes_per_s"], roof["flop_per_s"]) / 1e12 for x in at]
        line = {"color": GREY, "width": 2, "dash": ("solid", "dash", "dot")[i % 3]}
        hover = "%{y:.4g} TFLOP/s at %{x:.4g} FLOP/B"
        traces.append(points(roof["name"], at, rates, hover, "lines", line=line))
    groups = list(dict.fromkeys(str(point.get("group") or "operations") for point in operations))
    for i, group in enumerate(groups):
        own = [p for p in operations if str(p.get("group") or "operations") == group]
        own = [p for p in own if p["flop_per_byte"] > 0 and p["flop_per_s"] > 0]
        sizes = [8.0 + 32.0 * float(p.get("share") or 0.0) ** 0.5 for p in own]
        marker = {
            "color": nth_colour(i), "size": sizes, "opacity": 0.8,
            "line": {"width": 1, "color": "rgba(128,128,128,0.6)"},
        }  # fmt: skip
        hover = "%{text}<br>%{y:.4g} TFLOP/s at %{x:.4g} FLOP/B<extra></extra>"
        traces.append(points(
            group, [p["flop_per_byte"] for p in own], [p["flop_per_s"] / 1e12 for p in own], hover,
            "markers", text=[_told(p) for p in own], marker=marker,
        ))  # fmt: skip
    y = log_axis("rate (TFLOP/s)", [value for trace in traces for value in trace["y"]])
    x = log_axis("operations per byte of device memory (FLOP/B)", [low, high])
    return figure(traces, title, x, y, showlegend=True, legend={"itemsizing": "constant"})


def op_roofline(explained: Mapping[str, Any], title: str = "") -> Figure:
    """The operations of one step (JSON of `explain`) under the roofs of its chip."""
    numbers = {row["path"]: float(row["value"]) for row in explained["elasticities"]}
    bytes_per_s = numbers["chip.memory_bandwidth_bytes_per_s"]
    roofs = [
        {"name": words, "flop_per_s": numbers[path], "bytes_per_s": bytes_per_s}
        for path, words in UNITS.items()
        if path in numbers
    ]
    shown = [
        {
            "name": f"{op['op']}, {op['phase']}",
            "group": op["family"],
            "flop_per_byte": op["flop"] / op["moved_bytes"],
            "flop_per_s": op["flop"] * op["count"] / op["seconds"],
            "share": op["share"],
        }
        for op in explained["ops"]
        if op["flop"] > 0.0 and op["moved_bytes"] > 0.0
    ]
    place = f"{explained['model']} on {explained['gpus']:,} x {explained['system']}"
    return roofline(roofs, shown, title or f"Operations of one step: {place}")


def _told(point: Point) -> str:
    share = point.get("share")
    return str(point["name"]) + (f", {share:.1%} of the time" if share is not None else "")


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
