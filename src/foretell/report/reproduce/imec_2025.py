"""Figures of the work on performance and cost (arXiv 2507.02456), from lab/reproduce/imec_2025.py."""

from collections.abc import Callable, Mapping
from typing import Any

from foretell.lab.reproduce.records import PaperFigure
from foretell.report.figures.look import COLOURS, GREY, Figure, counts_axis, log_axis, nth_colour
from foretell.report.figures.multiples import SmallPanel, small_multiples
from foretell.report.reproduce.traces import NAMED, Rows, bars, line, over_measured, span


def training(found: PaperFigure) -> Figure:
    """Time over measured time."""
    sides = {
        "measured": "measured_s",
        "arXiv 2407.14645 (stored)": "published_s",
        "Foretell, 90 % interval": "ours_s",
    }
    rows = found.tables[found.name]
    names = [str(r["run"]).replace(", ", "<br>") for r in rows]
    part = SmallPanel(title="", traces=over_measured(rows, names, sides), x=NAMED, y=OVER_MEASURED)
    title = "Megatron-LM on A100 80 GB: time over measured time"
    return small_multiples([part], title, 1, height=320, key=200, gap=130, barmode="group")


def inference(found: PaperFigure) -> Figure:
    """Latency over measured latency, a panel for each chip."""
    sides = {
        "measured": "measured_s",
        "GenZ": "genz_s",
        "LLMCompass": "llmcompass_s",
        "Vidur": "vidur_s",
        "Foretell, 90 % interval": "ours_s",
    }
    parts = []
    for chip in ("A100", "H100"):
        rows = [r for r in found.tables[found.name] if r["chip"] == chip]
        names = [str(r["run"]).rpartition("llama-2-")[2].replace(" ", "<br>") for r in rows]
        traces = over_measured(rows, names, sides)
        parts.append(SmallPanel(title=f"Llama-2, {chip}", traces=traces, x=NAMED, y=OVER_MEASURED))
    title = "200 tokens in and out at batch 1: latency over measured latency"
    return small_multiples(parts, title, 1, height=260, key=200, gap=120, barmode="group")


OVER_MEASURED = {"text": "over measured", "rangemode": "tozero"}
"""The axis of times over measured times."""


def flash(found: PaperFigure) -> Figure:
    """Attention of a layer over the sequence."""
    rows = found.tables[found.name]
    traces = [
        line(name, [(r["seq_len"], r[column]) for r in rows if r[column] is not None], i)
        for i, (name, column) in enumerate(
            (
                ("additive form (arXiv 2507.02456)", "additive_ms"),
                ("Foretell, flash kernel", "flash_ms"),
                ("Foretell, scores stored", "stored_ms"),
            )
        )
    ]
    values = [r[k] for r in rows for k in ("additive_ms", "flash_ms", "stored_ms") if r[k]]
    part = SmallPanel(
        title="",
        traces=traces,
        x=counts_axis("tokens", [r["seq_len"] for r in rows]),
        y=log_axis("ms, forward and backward", values),
    )
    return small_multiples(
        [part], "Attention of one layer of Llama-2-7B on A100", 1, width=1000, height=340, key=240
    )


LEAVES = (
    "compute",
    "memory_bound",
    "recompute",
    "tensor_parallel",
    "context_parallel",
    "expert_parallel",
    "pipeline_parallel",
    "data_parallel",
    "bubble",
    "gradient_sums",
)


def experts(found: PaperFigure) -> Figure:
    """Steps of plans of a mixture."""
    rows = found.tables[found.name]
    names = [
        f"{str(r['plan']).replace(' dp', '<br>dp')}{'' if r.get('fits') != 'no' else '<br>does not fit'}"
        for r in rows
    ]
    traces = [
        bars(leaf.replace("_", " "), names, [float(r.get(leaf) or 0.0) for r in rows], COLOURS[i])
        for i, leaf in enumerate(LEAVES)
        if any(r.get(leaf) for r in rows)
    ]
    tops = [sum(float(r.get(leaf) or 0.0) for leaf in LEAVES) for r in rows]
    ends = zip(rows, tops, strict=True)
    traces[-1]["error_y"] = span((r["low_s"], top, r["high_s"]) for r, top in ends)
    part = SmallPanel(
        title="",
        traces=traces,
        x=NAMED,
        y={"text": "seconds of a step", "rangemode": "tozero"},
    )
    return small_multiples(
        [part],
        "Mixtral-8x22B on 512 H100, 1,024 sequences of 8,192 tokens",
        1,
        height=340,
        key=160,
        gap=130,
        barmode="stack",
    )


def topologies(found: PaperFigure) -> Figure:
    """Bus bandwidth against size."""
    rows = found.tables[found.name]
    parts = []
    bytes_of = {"64 KiB": 2**16, "1 MiB": 2**20, "16 MiB": 2**24, "256 MiB": 2**28, "1 GiB": 2**30}
    for kind in dict.fromkeys(r["collective"] for r in rows):
        own = [r for r in rows if r["collective"] == kind]
        traces = [
            line(
                name,
                [(bytes_of[r["size"]], r["seconds"] * 1e3) for r in own if r["topology"] == name],
                i,
            )
            for i, name in enumerate(dict.fromkeys(r["topology"] for r in own))
        ]
        x = {
            "text": "bytes",
            "type": "log",
            "tickvals": list(bytes_of.values()),
            "ticktext": list(bytes_of),
        }
        parts.append(
            SmallPanel(
                title=str(kind),
                traces=traces,
                x=x,
                y=log_axis("ms", [r["seconds"] * 1e3 for r in own]),
            )
        )
    return small_multiples(
        parts, "64 chips, 900 GB/s each: time of collectives by topology", 3, key=130, height=320
    )


def front(found: PaperFigure) -> Figure:
    """Cost against speed; full marks are dominated by none, and have interval and name in the legend."""
    rows = found.tables[found.name]
    best = sorted((r for r in rows if r["front"]), key=lambda r: float(r[RATE] or 0))
    beaten = [r for r in rows if not r["front"]]
    traces = [
        _points("dominated", beaten, GREY, symbol="circle-open"),
        {
            **_points("the front", best, GREY),
            "mode": "lines",
            "line": {"color": GREY, "dash": "dot"},
        },
    ]
    for i, row in enumerate(best):
        ends = span([(row["usd_low"], row[PRICE], row["usd_high"])])
        traces.append({**_points(str(row["label"]), [row], nth_colour(i)), "error_y": ends})
    xs = [float(r[RATE]) for r in rows]
    ys = [float(r[k]) for r in rows for k in (PRICE, "usd_low", "usd_high") if r[k] is not None]
    wide, tall = max(xs) - min(xs), max(ys) - min(ys)
    part = SmallPanel(
        title="",
        traces=traces,
        x={"text": "work tokens/s per GPU", "range": [min(xs) - 0.1 * wide, max(xs) + 0.05 * wide]},
        y={
            "text": "USD per million work tokens (90 % interval)",
            "range": [min(ys) - 0.05 * tall, max(ys) + 0.05 * tall],
        },
    )
    return small_multiples([part], found.title, 1, width=1240, height=420, key=330)


RATE, PRICE = "work_tokens_per_s_per_gpu", "usd_per_million_work_tokens"
"""Columns of a front."""


def _points(name: str, rows: Rows, colour: str, **marker: Any) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [r[RATE] for r in rows],
        "y": [r[PRICE] for r in rows],
        "text": [str(r["label"]) for r in rows],
        "marker": {"color": colour, "size": 9, **marker},
    }


def chiplet_cost(found: PaperFigure) -> Figure:
    """USD against dies, for each silicon."""
    rows = found.tables[found.name]
    parts = []
    for area in dict.fromkeys(r["logic_mm2"] for r in rows):
        some = [r for r in rows if r["logic_mm2"] == area]
        traces = []
        for i, node in enumerate(dict.fromkeys(r["node"] for r in some)):
            own = [r for r in some if r["node"] == node]
            drawn = line(node, [(r["dies"], r["usd"]) for r in own], i)
            drawn["error_y"] = span((r["low_usd"], r["usd"], r["high_usd"]) for r in own)
            traces.append(drawn)
        parts.append(
            SmallPanel(
                title=f"{area:,.0f} mm2 of logic",
                traces=traces,
                x=counts_axis("dies", [r["dies"] for r in some]),
                y=log_axis("USD a package", [r[k] for r in some for k in ("low_usd", "high_usd")]),
            )
        )
    return small_multiples(
        parts, "Logic on an interposer, divided over dies", 2, width=1100, height=340, key=90
    )


def nodes(found: PaperFigure) -> Figure:
    """Arithmetic, training and cost by node."""
    rows = [r for r in found.tables[found.name] if r.get("tokens_per_s_per_gpu")]
    names = [str(r["node"]) for r in rows]
    parts: list[SmallPanel] = []
    for title, column, low, high in (
        ("matrix arithmetic of a die (TFLOP/s)", "tflop_per_s", None, None),
        (
            "Llama-3.1-70B on 64 chips (tokens/s per chip)",
            "tokens_per_s_per_gpu",
            "low_tokens_per_s_per_gpu",
            "high_tokens_per_s_per_gpu",
        ),
        ("a good die of 800 mm2 (USD)", "die_usd", "die_low_usd", "die_high_usd"),
    ):
        colour = COLOURS[len(parts)]
        trace = bars(title, names, [r[column] for r in rows], colour, showlegend=False)
        if low and high:
            trace["error_y"] = span((r[low], r[column], r[high]) for r in rows)
        parts.append(
            SmallPanel(
                title=title,
                traces=[trace],
                x={"text": "", "type": "category"},
                y={"text": "", "rangemode": "tozero"},
            )
        )
    return small_multiples(
        parts, "From N16 to A14 with the same memory and links", 3, width=1300, height=280
    )


FIGURES: Mapping[str, Callable[[PaperFigure], Figure]] = {
    "training": training,
    "inference": inference,
    "flash": flash,
    "experts": experts,
    "topologies": topologies,
    "topology-front": front,
    "chiplet-front": front,
    "memory-front": front,
    "chiplet-cost": chiplet_cost,
    "nodes": nodes,
}
"""Name -> figure."""
