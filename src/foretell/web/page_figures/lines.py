"""Published runs beside ours, from the JSON of answers."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.report.figures.look import GREY, Figure, distinct_colours, figure, log_axis, note

Rows = Sequence[Mapping[str, Any]]


def published_beside_ours(rows: Rows) -> Figure:
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
            "name": "equal",
            "x": ends,
            "y": ends,
            "line": {"color": GREY, "width": 1.5},
            "hoverinfo": "skip",
        }
    ]
    colours = distinct_colours([GREY, *groups], {GREY: GREY})
    for name, own in groups.items():
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [row["measured_s"] for row in own],
                "y": [row["predicted_s"] for row in own],
                "text": [f"{row['model']} on {row['gpus']}: {row['error']:+.1%}" for row in own],
                "marker": {"color": colours[name], "size": 7, "opacity": 0.75},
                "hovertemplate": "%{text}<br>published %{x:.4g} s, predicted %{y:.4g} s<extra></extra>",
            }
        )
    made = figure(
        traces, "Published and predicted step times",
        log_axis("published step time (s)", ends), log_axis("predicted step time (s)", ends),
        showlegend=True,
    )  # fmt: skip
    if not known:
        made["layout"]["annotations"] = [note("nothing matches", 0.5, 0.5)]
    return made
