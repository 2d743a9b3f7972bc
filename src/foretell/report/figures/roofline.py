"""Rooflines: rates against operations per byte, under what a chip can do."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.report.figures.look import GREY, Figure, Trace, figure, log_axis, nth_colour, points

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
