"""Bandwidths over sizes, and published runs beside ours, from the JSON of answers."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.report.figures.look import COLOURS, GREY, Figure, figure, log_axis, note

Rows = Sequence[Mapping[str, Any]]

KIB = 1024.0


def bandwidths(answers: Rows, names: Sequence[str]) -> Figure:
    """Bus bandwidth over the size of a message, a line for each collective; a ring marks the size asked."""
    traces: list[dict[str, Any]] = []
    for i, (name, answer) in enumerate(zip(names, answers, strict=True)):
        rows = [row for row in answer.get("sizes", ()) if row["bus_bytes_per_s"] > 0.0]
        colour = COLOURS[i % len(COLOURS)]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": [row["size_bytes"] for row in rows],
                "y": [row["bus_bytes_per_s"] / 1e9 for row in rows],
                "text": [row["algorithm"] for row in rows],
                "line": {"color": colour},
                "hovertemplate": "%{y:.4g} GB/s, %{text}",
            }
        )
        if answer.get("bus_bytes_per_s"):
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": f"{name}, as asked",
                    "x": [answer["size_bytes"]],
                    "y": [answer["bus_bytes_per_s"] / 1e9],
                    "text": [answer["algorithm"]],
                    "marker": {"color": colour, "size": 14, "symbol": "circle-open"},
                    "hovertemplate": "%{y:.4g} GB/s, %{text}",
                    "showlegend": False,
                }
            )
    at = [KIB * 4.0**k for k in range(12)]
    across = {
        "text": "size of the message (bytes)",
        "type": "log",
        "tickvals": at,
        "ticktext": [_size(value) for value in at],
    }
    up = log_axis("bus bandwidth (GB/s)", [v for trace in traces for v in trace["y"]])
    return figure(traces, "Bus bandwidth over sizes", across, up)


def _size(value: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if value < KIB:
            return f"{value:g} {unit}"
        value /= KIB
    return f"{value:g} GiB"


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
