"""Figures of the work on performance and cost (arXiv 2507.02456), from lab/reproduce/imec_2025.py."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from foretell.lab.reproduce.records import PaperFigure, described
from foretell.report.figures.look import COLOURS, GREY, counts_axis, log_axis, nth_colour
from foretell.report.figures.multiples import SmallPanel
from foretell.report.reproduce.traces import (
    CATEGORIES,
    NAMED,
    Panels,
    Rows,
    bars,
    from_zero,
    line,
    lines,
    names_of,
    over_measured,
    panel,
    span,
)

OVER_MEASURED = from_zero("over measured")
"""The axis of times over measured times."""
LEAVES: Sequence[str] = described("imec-2025")["leaves"]
"""Parts of a step that are drawn."""
SIZES = {"64 KiB": 2**16, "1 MiB": 2**20, "16 MiB": 2**24, "256 MiB": 2**28, "1 GiB": 2**30}
"""Bytes of messages."""
RATE, PRICE = "work_tokens_per_s_per_gpu", "usd_per_million_work_tokens"
"""Columns of a front."""


def training(found: PaperFigure) -> Panels:
    """Time over measured time."""
    sides = {
        "measured": "measured_s",
        "arXiv 2407.14645 (stored)": "published_s",
        "Foretell, 90 % interval": "ours_s",
    }
    rows = found.tables[found.name]
    names = [str(r["run"]).replace(", ", "<br>") for r in rows]
    part = panel("", over_measured(rows, names, sides), NAMED, OVER_MEASURED)
    return [part]


def inference(found: PaperFigure) -> Panels:
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
        parts.append(panel(f"Llama-2, {chip}", traces, NAMED, OVER_MEASURED))
    return parts


def flash(found: PaperFigure) -> Panels:
    """Attention of a layer over the sequence."""
    rows = found.tables[found.name]
    columns = {
        "additive_ms": "additive form (arXiv 2507.02456)",
        "flash_ms": "Foretell, flash kernel",
        "stored_ms": "Foretell, scores stored",
    }
    traces = [
        line(name, [(r["seq_len"], r[column]) for r in rows if r[column] is not None], i)
        for i, (column, name) in enumerate(columns.items())
    ]
    x = counts_axis("tokens", [r["seq_len"] for r in rows])
    y = log_axis("ms, forward and backward", [r[k] for r in rows for k in columns if r[k]])
    return [panel("", traces, x, y)]


def experts(found: PaperFigure) -> Panels:
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
    part = panel("", traces, NAMED, from_zero("seconds of a step"))
    return [part]


def topologies(found: PaperFigure) -> Panels:
    """Bus bandwidth against size."""
    rows = found.tables[found.name]
    ticks = {"tickvals": list(SIZES.values()), "ticktext": list(SIZES)}
    parts = []
    for kind in names_of(rows, "collective"):
        own = [r for r in rows if r["collective"] == kind]
        traces = lines(
            own, "topology", lambda r: SIZES[r["size"]], lambda r: float(r["seconds"] * 1e3)
        )
        y = log_axis("ms", [r["seconds"] * 1e3 for r in own])
        parts.append(panel(kind, traces, {"text": "bytes", "type": "log", **ticks}, y))
    return parts


def front(found: PaperFigure) -> Panels:
    """Cost against speed; full marks are dominated by none, and have interval and name in the legend."""
    rows = found.tables[found.name]
    best = sorted((r for r in rows if r["front"]), key=lambda r: float(r[RATE] or 0))
    beaten = [r for r in rows if not r["front"]]
    dotted = {"mode": "lines", "line": {"color": GREY, "dash": "dot"}}
    traces = [
        _points("dominated", beaten, GREY, symbol="circle-open"),
        {**_points("the front", best, GREY), **dotted},
    ]
    for i, row in enumerate(best):
        ends = span([(row["usd_low"], row[PRICE], row["usd_high"])])
        traces.append({**_points(str(row["label"]), [row], nth_colour(i)), "error_y": ends})
    xs = [float(r[RATE]) for r in rows]
    ys = [float(r[k]) for r in rows for k in (PRICE, "usd_low", "usd_high") if r[k] is not None]
    wide, tall = max(xs) - min(xs), max(ys) - min(ys)
    across, up = "work tokens/s per GPU", "USD per million work tokens (90 % interval)"
    x = {"text": across, "range": [min(xs) - 0.1 * wide, max(xs) + 0.05 * wide]}
    y = {"text": up, "range": [min(ys) - 0.05 * tall, max(ys) + 0.05 * tall]}
    part = panel("", traces, x, y)
    return [part]


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


def chiplet_cost(found: PaperFigure) -> Panels:
    """USD against dies, for each silicon."""
    rows = found.tables[found.name]
    parts = []
    for area in dict.fromkeys(r["logic_mm2"] for r in rows):
        some = [r for r in rows if r["logic_mm2"] == area]
        traces = []
        for i, node in enumerate(names_of(some, "node")):
            own = [r for r in some if r["node"] == node]
            drawn = line(node, [(r["dies"], r["usd"]) for r in own], i)
            drawn["error_y"] = span((r["low_usd"], r["usd"], r["high_usd"]) for r in own)
            traces.append(drawn)
        x = counts_axis("dies", [r["dies"] for r in some])
        y = log_axis("USD a package", [r[k] for r in some for k in ("low_usd", "high_usd")])
        parts.append(panel(f"{area:,.0f} mm2 of logic", traces, x, y))
    return parts


def nodes(found: PaperFigure) -> Panels:
    """Arithmetic, training and cost by node."""
    rows = [r for r in found.tables[found.name] if r.get("tokens_per_s_per_gpu")]
    names = names_of(rows, "node")
    rate, usd = "tokens_per_s_per_gpu", "usd"
    parts: list[SmallPanel] = []
    for title, column, ends in (
        ("matrix arithmetic of a die (TFLOP/s)", "tflop_per_s", None),
        (
            "Llama-3.1-70B on 64 chips (tokens/s per chip)",
            rate,
            (f"low_{rate}", f"high_{rate}"),
        ),
        ("a good die of 800 mm2 (USD)", f"die_{usd}", (f"die_low_{usd}", f"die_high_{usd}")),
    ):
        colour = COLOURS[len(parts)]
        trace = bars(title, names, [r[column] for r in rows], colour, showlegend=False)
        if ends is not None:
            trace["error_y"] = span((r[ends[0]], r[column], r[ends[1]]) for r in rows)
        parts.append(panel(title, [trace], CATEGORIES, from_zero("")))
    return parts


FIGURES: Mapping[str, Callable[[PaperFigure], Panels]] = {
    "training": training,
    "inference": inference,
    "flash": flash,
    "experts": experts,
    "topologies": topologies,
    **dict.fromkeys(("topology-front", "chiplet-front", "memory-front"), front),
    "chiplet-cost": chiplet_cost,
    "nodes": nodes,
}
"""Name -> figure."""
