"""Figures of Anthe (arXiv 2305.10991), from the tables of lab/reproduce/anthe_2023.py."""

from collections.abc import Callable, Mapping

from foretell.lab.reproduce.records import PaperFigure
from foretell.report.figures.look import COLOURS, Figure, counts_axis, log_axis
from foretell.report.figures.multiples import SmallPanel, small_multiples
from foretell.report.reproduce.traces import NAMED, bars, line, span


def weights(found: PaperFigure) -> Figure:
    """Counts of both sides."""
    rows = found.tables[found.name]
    names = [str(r["model"]) for r in rows]
    traces = []
    for name, column, colour in (
        ("by the paper's code", "published", COLOURS[1]),
        ("Foretell", "ours", COLOURS[0]),
    ):
        millions = [r[column] / 1e6 for r in rows]
        text = {"text": [f"{value:.1f} M" for value in millions], "textposition": "outside"}
        traces.append(bars(name, names, millions, colour, **text))
    part = SmallPanel(
        title="",
        traces=traces,
        x=NAMED,
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
            drawn = line(name, [(r["bond"], r[column]) for r in own], i)
            drawn["marker"]["size"] = [12 if r["used_by_anthe"] else 6 for r in own]
            traces.append(drawn)
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
            colour, values = COLOURS[len(parts) % 3], [r[column] for r in known]
            trace = bars(title, [str(r["model"]) for r in known], values, colour, showlegend=False)
            least, most = f"{column}_least", f"{column}_most"
            trace["error_y"] = span((r[least], r[column], r[most]) for r in known)
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
