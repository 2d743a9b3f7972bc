"""Figures of Anthe (arXiv 2305.10991), from the tables of lab/reproduce/anthe_2023.py."""

from collections.abc import Callable, Mapping

from foretell.lab.reproduce.records import PaperFigure
from foretell.report.figures.look import COLOURS, counts_axis, log_axis
from foretell.report.figures.multiples import SmallPanel
from foretell.report.reproduce.traces import (
    CATEGORIES,
    NAMED,
    Panels,
    bars,
    from_zero,
    line,
    names_of,
    panel,
    span,
)


def weights(found: PaperFigure) -> Panels:
    """Counts of both sides."""
    rows = found.tables[found.name]
    traces = []
    for name, column, colour in (
        ("by the paper's code", "published", COLOURS[1]),
        ("Foretell", "ours", COLOURS[0]),
    ):
        millions = [r[column] / 1e6 for r in rows]
        text = {"text": [f"{value:.1f} M" for value in millions], "textposition": "outside"}
        traces.append(bars(name, names_of(rows, "model"), millions, colour, **text))
    part = panel("", traces, NAMED, from_zero("million weights"))
    return [part]


def chains(found: PaperFigure) -> Panels:
    """Operations and weights over the bond."""
    rows = found.tables[found.name]
    parts = []
    for title, column in (
        ("multiply-adds over the dense map's", "macs_over_dense"),
        ("weights over the dense map's", "weights_over_dense"),
    ):
        traces = []
        for i, name in enumerate(names_of(rows, "map")):
            own = [r for r in rows if r["map"] == name]
            drawn = line(name, [(r["bond"], r[column]) for r in own], i)
            drawn["marker"]["size"] = [12 if r["used_by_anthe"] else 6 for r in own]
            traces.append(drawn)
        x = counts_axis("bond", [r["bond"] for r in rows])
        y = log_axis("", [r[column] for r in rows])
        parts.append(panel(f"{title} (large marks: Anthe's)", traces, x, y))
    return parts


def study(found: PaperFigure) -> Panels:
    """Loss and scores with their spread."""
    rows = found.tables[found.name]
    columns = {"held_out_loss": "held-out loss (nats a token)", "bleu": "BLEU", "chrf": "chrF2"}
    parts: list[SmallPanel] = []
    for corpus in names_of(rows, "corpus"):
        for column, title in columns.items():
            known = [r for r in rows if r["corpus"] == corpus and r[column] is not None]
            if not known:
                continue
            colour, values = COLOURS[len(parts) % 3], [r[column] for r in known]
            trace = bars(title, [str(r["model"]) for r in known], values, colour, showlegend=False)
            least, most = f"{column}_least", f"{column}_most"
            trace["error_y"] = span((r[least], r[column], r[most]) for r in known)
            parts.append(panel(f"{title}: {corpus}", [trace], CATEGORIES, from_zero("")))
    return parts


FIGURES: Mapping[str, Callable[[PaperFigure], Panels]] = {
    "weights": weights,
    "chains": chains,
    "study": study,
}
"""Name -> figure; claims are a table alone."""
