"""Figures of Anthe (arXiv 2305.10991), from the tables of lab/reproduce/anthe_2023.py."""

from collections.abc import Callable, Mapping
from typing import Any

from foretell.lab.reproduce.records import PaperFigure
from foretell.report.figures.look import COLOURS, Figure, counts_axis, log_axis
from foretell.report.figures.multiples import SmallPanel, small_multiples


def weights(found: PaperFigure) -> Figure:
    """Counts of both sides."""
    rows = found.tables[found.name]
    names = [str(r["model"]) for r in rows]
    traces = [
        {
            "type": "bar",
            "name": name,
            "x": names,
            "y": [r[column] / 1e6 for r in rows],
            "marker": {"color": colour},
            "text": [f"{r[column] / 1e6:.1f} M" for r in rows],
            "textposition": "outside",
        }
        for name, column, colour in (
            ("by the paper's code", "published", COLOURS[1]),
            ("Foretell", "ours", COLOURS[0]),
        )
    ]
    part = SmallPanel(
        title="",
        traces=traces,
        x={"text": "", "type": "category", "tickangle": 0},
        y={"text": "million weights", "rangemode": "tozero"},
    )
    return small_multiples([part], found.title, 1, width=1100, height=320, key=160, barmode="group")


def chains(found: PaperFigure) -> Figure:
    """Operations and weights over the bond."""
    rows = found.tables[found.name]
    parts = []
    for title, column in (
        ("multiply-adds over the dense map's", "macs_over_dense"),
        ("weights over the dense map's", "weights_over_dense"),
    ):
        traces = []
        for i, name in enumerate(dict.fromkeys(str(r["map"]) for r in rows)):
            own = [r for r in rows if r["map"] == name]
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": name,
                    "x": [r["bond"] for r in own],
                    "y": [r[column] for r in own],
                    "line": {"color": COLOURS[i]},
                    "marker": {
                        "color": COLOURS[i],
                        "size": [12 if r["used_by_anthe"] else 6 for r in own],
                    },
                }
            )
        parts.append(
            SmallPanel(
                title=f"{title} (large marks: Anthe's)",
                traces=traces,
                x=counts_axis("bond", [r["bond"] for r in rows]),
                y=log_axis("", [r[column] for r in rows]),
            )
        )
    return small_multiples(parts, found.title, 2, width=1200, height=320, key=170)


def study(found: PaperFigure) -> Figure:
    """Loss and scores with their spread."""
    rows = found.tables[found.name]
    parts: list[SmallPanel] = []
    for corpus in dict.fromkeys(str(r["corpus"]) for r in rows):
        own = [r for r in rows if r["corpus"] == corpus]
        for title, column in (
            ("held-out loss (nats a token)", "held_out_loss"),
            ("BLEU", "bleu"),
            ("chrF2", "chrf"),
        ):
            known = [r for r in own if r[column] is not None]
            if not known:
                continue
            trace: dict[str, Any] = {
                "type": "bar",
                "name": title,
                "showlegend": False,
                "x": [str(r["model"]) for r in known],
                "y": [r[column] for r in known],
                "marker": {"color": COLOURS[len(parts) % 3]},
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [r[f"{column}_most"] - r[column] for r in known],
                    "arrayminus": [r[column] - r[f"{column}_least"] for r in known],
                },
            }
            parts.append(
                SmallPanel(
                    title=f"{title}: {corpus}",
                    traces=[trace],
                    x={"text": "", "type": "category"},
                    y={"text": "", "rangemode": "tozero"},
                )
            )
    return small_multiples(
        parts,
        found.title,
        min(len(parts), 3),
        width=420 * min(len(parts), 3) + 100,
        height=280,
        gap=190,
    )


FIGURES: Mapping[str, Callable[[PaperFigure], Figure]] = {
    "weights": weights,
    "chains": chains,
    "study": study,
}
"""Name -> figure; claims are a table alone."""
