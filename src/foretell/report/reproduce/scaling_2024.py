"""Figures of the scaling study of 2024, from the tables of lab/reproduce/scaling_2024.py."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from foretell.lab.reproduce.records import PaperFigure, described
from foretell.report.figures.look import COLOURS, GREY, counts_axis, log_axis
from foretell.report.figures.multiples import SmallPanel
from foretell.report.reproduce.traces import (
    NAMED,
    Panels,
    Rows,
    bars,
    from_zero,
    gpus_axis,
    line,
    lines,
    names_of,
    panel,
    span,
)

SHARES = {"compute": COLOURS[0], "communication": COLOURS[5], "idle": GREY}
WORDS = described("scaling-2024")["words"]
SYSTEM_WORDS: Mapping[str, str] = WORDS["systems"]
OPEN_WORDS = "and what the runs leave open"
SPAN = ("measured", "predicted", "open_low", "open_high")
"""Columns that a panel of measured runs spans."""


def throughput(found: PaperFigure) -> Panels:
    """Rates of six sizes."""
    column = "tokens_per_s_per_gpu"
    return _lines(found, column, lambda own: log_axis("tokens/s per GPU", [r[column] for r in own]))


def efficiency(found: PaperFigure) -> Panels:
    """What is kept."""
    axis = {"text": "efficiency", "range": [0, 1.1]}
    return _lines(found, "efficiency", lambda _: axis)


def _lines(found: PaperFigure, column: str, y: Callable[[Rows], Mapping[str, Any]]) -> Panels:
    """A panel for each model, and a line for each way of sharing."""
    rows = [r for r in found.tables[found.name] if r[column] is not None and r["fits"] != "no"]
    names = names_of(found.tables[found.name], "strategy")
    parts = []
    for model in names_of(rows, "model"):
        own = [r for r in rows if r["model"] == model]
        traces = lines(own, "strategy", lambda r: r["gpus"], lambda r: r[column], names)
        parts.append(panel(model, traces, gpus_axis(own), y(own)))
    return parts


def shares(found: PaperFigure) -> Panels:
    """Stacked shares of ZeRO-3 on both systems at a few counts."""
    rows = found.tables[found.name]
    rows = [r for r in rows if r["strategy"] == "zero3" and r["gpus"] in (4, 32, 128)]
    parts = []
    for system in names_of(rows, "system"):
        own = [r for r in rows if r["system"] == system]
        names = [f"{r['model']}<br>{r['gpus']}" for r in own]
        parts.append(_stack(f"ZeRO-3 on {WORDS['systems'].get(system, system)}", names, own))
    return parts


def _stack(title: str, names: Sequence[str], rows: Rows) -> SmallPanel:
    traces = [
        bars(part, names, [100 * r[part] for r in rows], colour) for part, colour in SHARES.items()
    ]
    return panel(title, traces, NAMED, {"text": "share of the step (%)", "range": [0, 100]})


def mixes(found: PaperFigure) -> Panels:
    """Rates and shares of three mixes on four systems."""
    rows = [r for r in found.tables[found.name] if r["gpus"] == 128]
    systems = {name: words.split(" (")[0] for name, words in SYSTEM_WORDS.items()}
    short = {name: WORDS["short"].get(words, words) for name, words in systems.items()}
    names = [f"{r['strategy']}<br>{short[r['system']]}" for r in rows]
    values = [r["tokens_per_s_per_gpu"] for r in rows]
    trace = bars("tokens/s", names, values, COLOURS[2], showlegend=False)
    rate = panel("tokens/s per GPU", [trace], NAMED, from_zero("tokens/s per GPU"))
    return [rate, _stack("where a step goes", names, rows)]


def volume(found: PaperFigure) -> Panels:
    """Ours over the rule of volumes."""
    rows = [{**r, "over": r["ours_s"] / r["volume_rule_s"]} for r in found.tables[found.name]]
    parts = []
    for system in names_of(rows, "system"):
        for strategy in ("zero1", "zero3"):
            own = [r for r in rows if r["system"] == system and r["strategy"] == strategy]
            traces = lines(
                own, "model", lambda r: r["gpus"], lambda r: r["over"], names_of(rows, "model")
            )
            y = log_axis("communication over the rule's", [r["over"] for r in own])
            title = f"{strategy}, {WORDS['systems'][system]}"
            parts.append(panel(title, traces, gpus_axis(own), y))
    return parts


def bandwidth(found: PaperFigure) -> Panels:
    """Gain against bandwidth."""
    rows = found.tables[found.name]
    words = "bandwidth between nodes over Slingshot-10's"
    parts = []
    for strategy in names_of(rows, "strategy"):
        own = [r for r in rows if r["strategy"] == strategy]
        traces = lines(
            own, "model", lambda r: r["factor"], lambda r: r["gain"], names_of(rows, "model")
        )
        x = counts_axis(words, [r["factor"] for r in own])
        parts.append(panel(strategy, traces, x, from_zero("throughput over now")))
    return parts


def measured_runs(found: PaperFigure) -> Panels:
    """Predicted over measured, with the interval."""
    rows = found.tables[found.name]
    parts = []
    for run in names_of([r for r in rows if r["quantity"] == "samples/s"], "run"):
        own = [r for r in rows if r["run"] == run]
        middle = [(r["gpus"], r["predicted"]) for r in own]
        ours = line("predicted, 90 % interval", middle, 0)
        ours["error_y"] = span((r["low"], r["predicted"], r["high"]) for r in own)
        points = line("measured", [(r["gpus"], r["measured"]) for r in own], 5)
        open_ones = line(OPEN_WORDS, middle, 0)
        open_ones |= {"mode": "markers", "marker": {"color": GREY, "size": 1}}
        ends = ((r["open_low"], r["predicted"], r["open_high"]) for r in own)
        open_ones["error_y"] = span(ends, color=GREY)
        y = log_axis("samples/s", [r[k] for r in own for k in SPAN if r[k]])
        parts.append(panel(run, [open_ones, ours, points], gpus_axis(own), y))
    return parts


FIGURES: Mapping[str, Callable[[PaperFigure], Panels]] = {
    "throughput": throughput,
    "efficiency": efficiency,
    "shares": shares,
    "mixes": mixes,
    "volume": volume,
    "bandwidth": bandwidth,
    "measured": measured_runs,
}
"""Name -> figure."""
