"""Bandwidth of collectives over the sizes of their messages, from the JSON of answers."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.report.figures.look import Figure, figure, log_axis, nth_colour

KIB = 1024.0


def bandwidths(answers: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Figure:
    """Bus bandwidth over the size of a message, a line for each collective; a ring marks the size asked."""
    traces: list[dict[str, Any]] = []
    for i, (name, answer) in enumerate(zip(names, answers, strict=True)):
        rows = [row for row in answer.get("sizes", ()) if row["bus_bytes_per_s"] > 0.0]
        colour = nth_colour(i)
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
