"""Days against GPUs by the published model: a panel for each model and chip, a line for each fast domain."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.lab.reference.study import days
from foretell.report.figures.look import COLOURS, Figure, counts_axis, log_axis
from foretell.report.figures.multiples import SmallPanel, small_multiples

DASHES = {"1d": "dot", "2d": "solid", "2d-seqp": "dash"}
"""How the lines of the strategies are drawn."""


def days_figure(plans: Sequence[Mapping[str, Any]]) -> Figure:
    """The fastest plan of every search, from the rows of a study."""
    best = [row for row in plans if row["rank"] == 1]
    models = list(dict.fromkeys(str(row["model"]) for row in best))
    chips = list(dict.fromkeys(str(row["system"]) for row in best))
    domains = sorted({int(row["nvs"]) for row in best})
    parts = []
    for model in models:
        for chip in chips:
            own = [r for r in best if r["model"] == model and r["system"] == chip]
            traces = [
                _line(own, strategy, domain, COLOURS[i])
                for i, domain in enumerate(domains)
                for strategy in DASHES
            ]
            values = [value for row in own if (value := days(dict(row))) is not None]
            counts = counts_axis("GPUs", [row["n_gpus"] for row in own] or [1])
            step = -(-len(counts["tickvals"]) // 5)
            counts |= {k: counts[k][::-step][::-1] for k in ("tickvals", "ticktext")}
            parts.append(
                SmallPanel(
                    title=f"{model}, {chip}",
                    traces=[t for t in traces if t["x"]],
                    x=counts,
                    y=log_axis("days", values),
                )
            )
    return small_multiples(parts, "Days of training by the published model", len(chips), key=170)


def _line(
    rows: Sequence[Mapping[str, Any]], strategy: str, domain: int, colour: str
) -> dict[str, Any]:
    own = sorted(
        (row for row in rows if row["strategy"] == strategy and row["nvs"] == domain),
        key=lambda row: int(row["n_gpus"]),
    )
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": f"NVS {domain}, {strategy}",
        "x": [row["n_gpus"] for row in own],
        "y": [days(dict(row)) for row in own],
        "line": {"color": colour, "dash": DASHES[strategy], "width": 2},
        "marker": {"color": colour, "size": 5},
        "hovertemplate": "%{x:,} GPUs: %{y:.4g} days",
    }
