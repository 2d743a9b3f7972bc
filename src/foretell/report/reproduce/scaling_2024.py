"""Figures of the scaling study of 2024, from the tables of lab/reproduce/scaling_2024.py."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from foretell.lab.reproduce.records import PaperFigure
from foretell.report.figures.look import COLOURS, GREY, Figure, counts_axis, log_axis
from foretell.report.figures.multiples import SmallPanel, small_multiples
from foretell.report.reproduce.traces import NAMED, Rows, bars, gpus_axis, line, span

SHARES = {"compute": COLOURS[0], "communication": COLOURS[5], "idle": GREY}
SYSTEM_WORDS = {
    "polaris-ss10": "Slingshot-10 (9.8 GB/s)",
    "polaris-ss11": "Slingshot-11 (36 GB/s)",
    "perlmutter": "Perlmutter (70 GB/s)",
    "thetagpu-sophia": "HDR InfiniBand (178 GB/s)",
}


OPEN_WORDS = "and what the runs leave open"
SPAN = ("measured", "predicted", "open_low", "open_high")
"""Columns that a panel of measured runs spans."""
SHORT = {"HDR InfiniBand": "HDR IB", "Slingshot-11": "SS-11", "Slingshot-10": "SS-10"}
"""Names of systems that fit below a bar."""


def throughput(found: PaperFigure) -> Figure:
    """Rates of six sizes."""
    return _lines(
        found, "tokens_per_s_per_gpu", "tokens/s per GPU", "Throughput on Slingshot-10", log=True
    )


def efficiency(found: PaperFigure) -> Figure:
    """What is kept."""
    return _lines(found, "efficiency", "efficiency", "Efficiency on Slingshot-10", log=False)


def _lines(found: PaperFigure, column: str, y_title: str, title: str, *, log: bool) -> Figure:
    rows = [r for r in found.tables[found.name] if r[column] is not None and r["fits"] != "no"]
    places = _places(found.tables[found.name], "strategy")
    parts = []
    for model in dict.fromkeys(r["model"] for r in rows):
        own = [r for r in rows if r["model"] == model]
        traces = [
            line(strategy, [(r["gpus"], r[column]) for r in own if r["strategy"] == strategy], i)
            for strategy, i in places.items()
        ]
        y: Any = (
            log_axis(y_title, [r[column] for r in own])
            if log
            else {"text": y_title, "range": [0, 1.1]}
        )
        parts.append(
            SmallPanel(title=str(model), traces=traces, x=gpus_axis([r["gpus"] for r in own]), y=y)
        )
    return small_multiples(parts, title, 3, key=90, height=250)


def _places(rows: Rows, column: str) -> dict[str, int]:
    """Name -> its place among all of a table: one colour in every panel."""
    return {name: i for i, name in enumerate(dict.fromkeys(str(r[column]) for r in rows))}


def shares(found: PaperFigure) -> Figure:
    """Stacked shares of ZeRO-3 on both systems at a few counts."""
    rows = [
        r
        for r in found.tables[found.name]
        if r["strategy"] == "zero3" and r["gpus"] in (4, 32, 128)
    ]
    parts = []
    for system in dict.fromkeys(r["system"] for r in rows):
        own = [r for r in rows if r["system"] == system]
        names = [f"{r['model']}<br>{r['gpus']}" for r in own]
        parts.append(_stack(f"ZeRO-3 on {SYSTEM_WORDS.get(system, system)}", names, own))
    return small_multiples(
        parts,
        "Where a step goes: six sizes on 4, 32 and 128 GPUs",
        1,
        key=130,
        height=240,
        gap=112,
        barmode="stack",
    )


def _stack(title: str, names: Sequence[str], rows: Rows) -> SmallPanel:
    traces = [
        bars(part, names, [100 * r[part] for r in rows], colour) for part, colour in SHARES.items()
    ]
    return SmallPanel(
        title=title,
        traces=traces,
        x=NAMED,
        y={"text": "share of the step (%)", "range": [0, 100]},
    )


def mixes(found: PaperFigure) -> Figure:
    """Rates and shares of three mixes on four systems."""
    rows = [r for r in found.tables[found.name] if r["gpus"] == 128]
    systems = {name: words.split(" (")[0] for name, words in SYSTEM_WORDS.items()}
    short = {name: SHORT.get(words, words) for name, words in systems.items()}
    names = [f"{r['strategy']}<br>{short[r['system']]}" for r in rows]
    rate = SmallPanel(
        title="tokens/s per GPU",
        traces=[
            {
                "type": "bar",
                "name": "tokens/s",
                "showlegend": False,
                "x": names,
                "y": [r["tokens_per_s_per_gpu"] for r in rows],
                "marker": {"color": COLOURS[2]},
            }
        ],
        x=NAMED,
        y={"text": "tokens/s per GPU", "rangemode": "tozero"},
    )
    return small_multiples(
        [rate, _stack("where a step goes", names, rows)],
        "OPT-13B over eight GPUs in three ways, 128 GPUs",
        1,
        key=130,
        height=240,
        gap=112,
        barmode="stack",
    )


def volume(found: PaperFigure) -> Figure:
    """Ours over the rule of volumes."""
    rows = found.tables[found.name]
    places = _places(rows, "model")
    parts = []
    for system in dict.fromkeys(r["system"] for r in rows):
        for strategy in ("zero1", "zero3"):
            own = [r for r in rows if r["system"] == system and r["strategy"] == strategy]
            traces = [
                line(
                    model,
                    [
                        (r["gpus"], r["ours_s"] / r["volume_rule_s"])
                        for r in own
                        if r["model"] == model
                    ],
                    i,
                )
                for model, i in places.items()
            ]
            parts.append(
                SmallPanel(
                    title=f"{strategy}, {SYSTEM_WORDS[system]}",
                    traces=traces,
                    x=gpus_axis([r["gpus"] for r in own]),
                    y=log_axis(
                        "communication over the rule's",
                        [r["ours_s"] / r["volume_rule_s"] for r in own],
                    ),
                )
            )
    return small_multiples(
        parts, "Communication: ours over volume / bus bandwidth", 2, key=120, height=260
    )


def bandwidth(found: PaperFigure) -> Figure:
    """Gain against bandwidth."""
    rows = found.tables[found.name]
    places = _places(rows, "model")
    parts = []
    for strategy in dict.fromkeys(r["strategy"] for r in rows):
        own = [r for r in rows if r["strategy"] == strategy]
        traces = [
            line(model, [(r["factor"], r["gain"]) for r in own if r["model"] == model], i)
            for model, i in places.items()
        ]
        parts.append(
            SmallPanel(
                title=str(strategy),
                traces=traces,
                x=counts_axis(
                    "bandwidth between nodes over Slingshot-10's", [r["factor"] for r in own]
                ),
                y={"text": "throughput over now", "rangemode": "tozero"},
            )
        )
    return small_multiples(
        parts, "512 GPUs: what more bandwidth between nodes is worth", 3, key=110, height=280
    )


def measured_runs(found: PaperFigure) -> Figure:
    """Predicted over measured, with the interval."""
    rows = found.tables[found.name]
    parts = []
    for run in dict.fromkeys(r["run"] for r in rows if r["quantity"] == "samples/s"):
        own = [r for r in rows if r["run"] == run]
        middle = [(r["gpus"], r["predicted"]) for r in own]
        ours = line("predicted, 90 % interval", middle, 0)
        ours["error_y"] = span((r["low"], r["predicted"], r["high"]) for r in own)
        points = line("measured", [(r["gpus"], r["measured"]) for r in own], 5)
        open_ones = line(OPEN_WORDS, middle, 0)
        open_ones |= {"mode": "markers", "marker": {"color": GREY, "size": 1}}
        ends = ((r["open_low"], r["predicted"], r["open_high"]) for r in own)
        open_ones["error_y"] = span(ends, color=GREY)
        parts.append(
            SmallPanel(
                title=str(run),
                traces=[open_ones, ours, points],
                x=gpus_axis([r["gpus"] for r in own]),
                y=log_axis("samples/s", [r[k] for r in own for k in SPAN if r[k]]),
            )
        )
    return small_multiples(
        parts, "GenSLM's runs, measured and predicted", 3, key=240, width=1400, height=230
    )


FIGURES: Mapping[str, Callable[[PaperFigure], Figure]] = {
    "throughput": throughput,
    "efficiency": efficiency,
    "shares": shares,
    "mixes": mixes,
    "volume": volume,
    "bandwidth": bandwidth,
    "measured": measured_runs,
}
"""Name -> figure."""
