"""Figures of the 2024 study (arXiv 2410.00273), from the tables of lab/reproduce/nersc_2024.py."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from foretell.lab.reproduce.nersc_layers import PARTS
from foretell.lab.reproduce.nersc_maps import MAPS
from foretell.lab.reproduce.records import PaperFigure, described
from foretell.report.figures.look import COLOURS, SCALE, log_axis
from foretell.report.reproduce.traces import (
    CATEGORIES,
    NAMED,
    Panels,
    Row,
    Rows,
    bars,
    from_zero,
    gpus_axis,
    line,
    names_of,
    over_measured,
    panel,
)

WORDS = described("nersc-2024")["words"]
MODELS: Mapping[str, str] = WORDS["models"]
"""Models as titles have them."""
SIDES: Mapping[str, str] = WORDS["sides"]
STRATEGY_WORDS: Mapping[str, str] = WORDS["strategies"]
CHIPS = ("A100", "H200", "B200")
DOMAINS = (4, 8, 64)
PART_COLOURS = dict(zip(PARTS, COLOURS, strict=False))
"""One colour for each part of a breakdown, on both sides."""
GROUP_COLOURS = {
    "gemm": COLOURS[0],
    "attention": COLOURS[1],
    "elementwise": COLOURS[2],
    "norm": COLOURS[3],
    "communication": COLOURS[4],
    "loss": COLOURS[8],
}
SHOWN_NODES = (1, 8, 128)
"""Nodes of the measured collectives that are drawn."""
MAP_TICKS = (0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0)
"""Values at a map's colours, which follow logarithms."""


def sides_of(rows: Rows) -> Iterator[tuple[str, str, list[Row]]]:
    """Model, side and rows of each panel of figures that have one for each model and side."""
    for model in MODELS:
        for side in SIDES:
            yield model, side, [r for r in rows if r["model"] == model and r["side"] == side]


def days(found: PaperFigure) -> Panels:
    """Days against GPUs."""
    return _over_gpus(found, "days", "days of training")


def throughput(found: PaperFigure) -> Panels:
    """Samples/s and GPU against GPUs."""
    return _over_gpus(found, "samples_per_s_per_gpu", "samples/s per GPU")


def _over_gpus(found: PaperFigure, column: str, y_title: str) -> Panels:
    rows = found.tables[found.name]
    better = min if column == "days" else max
    parts = []
    for model, words in MODELS.items():
        for chip in CHIPS:
            own = [r for r in rows if r["model"] == model and r["chip"] == chip]
            traces = []
            for i, domain in enumerate(DOMAINS):
                for side, dash in (("published", "solid"), ("ours", "dash")):
                    best: dict[int, float] = {}
                    for row in own:
                        if row["nvs"] == domain and row["side"] == side:
                            gpus, value = row["gpus"], row[column]
                            best[gpus] = better(value, best.get(gpus, value))
                    ours = " (ours)" if side == "ours" else ""
                    traces.append(line(f"NVS {domain}{ours}", sorted(best.items()), i, dash))
            y = log_axis(y_title, [row[column] for row in own])
            parts.append(panel(f"{words}, {chip}", traces, gpus_axis(own), y))
    return parts


def speedup(found: PaperFigure) -> Panels:
    """Two dimensions over one."""
    parts = []
    for model, side, every in sides_of(found.tables[found.name]):
        own = [r for r in every if r["chip"] == "B200"]
        traces = []
        for i, domain in enumerate(DOMAINS):
            for strategy, dash in (("2d", "solid"), ("2d-seqp", "dash"), ("1d", "solid")):
                some = [r for r in own if r["nvs"] == domain and r["of"] == strategy]
                points = {r["gpus"]: r["speedup"] for r in some}
                if points:
                    name = f"NVS {domain}, {WORDS['strategies'][strategy]}"
                    traces.append(line(name, sorted(points.items()), i, dash))
        base = STRATEGY_WORDS[str(own[0]["over"])] if own else "1-D"
        y = {"text": f"speed-up over {base}", "range": [0.85, 1.5]}
        parts.append(panel(f"{MODELS[model]}: {SIDES[side]}", traces, gpus_axis(own), y))
    return parts


def configurations(found: PaperFigure) -> Panels:
    """Shares of the time of the fastest plan against GPUs."""
    x = {"text": "GPUs and plan", "type": "category", "tickangle": 0}
    y = {"text": "share of the time (%)", "range": [0, 100]}
    parts = []
    for model, side, every in sides_of(found.tables[found.name]):
        own = _fastest(every)
        names = [f"{r['gpus']:,}<br>{_short_plan(str(r['plan']))}" for r in own]
        traces = _parts_of(own, names, lambda row, v: 100.0 * v / (float(row["days"]) or 1.0))
        parts.append(panel(f"{MODELS[model]}: {SIDES[side]}", traces, x, y))
    return parts


def _fastest(rows: Rows) -> list[Row]:
    best: dict[int, Row] = {}
    for row in rows:
        if row["gpus"] not in best or row["days"] < best[row["gpus"]]["days"]:
            best[row["gpus"]] = row
    return [best[gpus] for gpus in sorted(best)]


def _short_plan(plan: str) -> str:
    usual = ("recompute=none", "order=")
    words = [w for w in plan.split() if not w.startswith(usual) and w != "sp"]
    half = -(-len(words) // 2) if len(words) > 3 else len(words)
    lines = [" ".join(words[:half]), " ".join(words[half:])]
    return "<br>".join(line for line in lines if line)


def _parts_of(
    rows: Rows, names: Sequence[str], scaled: Callable[[Row, float], float]
) -> list[dict[str, Any]]:
    """Bars of the parts of each row, scaled as the figure has them."""
    traces = []
    for part in PARTS:
        values = [scaled(r, float(r.get(part) or 0.0)) for r in rows]
        if any(value > 0.0 for value in values):
            colour = PART_COLOURS[part]
            traces.append(bars(part, names, values, colour, hovertemplate="%{x}: %{y:.3g}"))
    return traces


def fixed(found: PaperFigure) -> Panels:
    """Days of every split, stacked by part."""
    x = {"text": "tensor split and stages, one sample per micro-batch", "type": "category"}
    parts = []
    for model, side, every in sides_of(found.tables[found.name]):
        own = [r for r in every if r["days"]]
        names = [f"{r['m1']}x{r['m2']}, pp{r['pp']}" for r in own]
        traces = _parts_of(own, names, lambda row, v: v)
        parts.append(panel(f"{MODELS[model]}: {SIDES[side]}", traces, x, from_zero("days")))
    return parts


def layers(found: PaperFigure) -> Panels:
    """Milliseconds of one layer by op family, on both sides."""
    sums: dict[str, dict[str, float]] = {}

    def add(row: Row, side: str, group: str, ms: float) -> None:
        model = MODELS[row["model"]].split(",")[0]
        own = sums.setdefault(f"{model}, {row['strategy']} {row['m1']}x{row['m2']}<br>{side}", {})
        own[group] = own.get(group, 0.0) + ms

    for row in found.tables["layers"]:
        for word in ("forward", "backward"):
            comm = row[f"{word}_comm_us"] / 1e3
            add(row, "published", "communication", comm)
            add(row, "published", row["group"], row[f"{word}_us"] / 1e3 - comm)
    for row in found.tables["layers_ours"]:
        group = "communication" if "parallel" in row["group"] else row["group"]
        add(row, "Foretell", group, row["ours_us"] / 1e3)
    names = sorted(sums, key=lambda name: (name.partition("<br>")[0], name.endswith("Foretell")))
    parts = []
    for word in ("GPT", "ViT"):
        some = [name for name in names if name.startswith(word)]
        traces = [
            bars(group, some, [sums[name].get(group, 0.0) for name in some], colour)
            for group, colour in GROUP_COLOURS.items()
        ]
        title = f"{word}: one layer, one sample, forward and backward"
        parts.append(panel(title, traces, NAMED, from_zero("ms")))
    return parts


def factor(found: PaperFigure) -> Panels:
    """Ours over published, and the difference by part."""
    rows = [r for r in found.tables[found.name] if r["chip"] == "B200" and r["nvs"] == 8]
    y = from_zero("(ours - published) / published days")
    parts = []
    for model, words in MODELS.items():
        own = [r for r in rows if r["model"] == model]
        names = [f"{r['gpus']:,} GPUs<br>x{r['factor']:.2f}" for r in own]
        traces = []
        for part in PARTS:
            more = [(r[f"our_{part}"] - r[f"published_{part}"]) / r["published_days"] for r in own]
            traces.append(bars(part, names, more, PART_COLOURS[part]))
        parts.append(panel(words, traces, NAMED, y))
    return parts


def measured_runs(found: PaperFigure) -> Panels:
    """Seconds of real iterations."""
    rows = found.tables[found.name]
    names = [f"{r['run']}, {r['gpus']} GPUs" for r in rows]
    sides = {
        "measured": "measured_s",
        "the published model": "published_s",
        "Foretell, 90 % interval": "ours_s",
    }
    traces = over_measured(rows, names, sides)
    for trace, column in zip(traces[:2], sides.values(), strict=False):
        trace |= {"text": [f"{r[column]:.3g} s" for r in rows], "textposition": "outside"}
    title = "Megatron-LM, A100 80 GB, eight to a node (Korthikanti et al. 2022, Table 5)"
    part = panel(title, traces, CATEGORIES, from_zero("time over measured time"))
    return [part]


def collectives(found: PaperFigure) -> Panels:
    """Seconds against bytes on some numbers of nodes: marks are measured."""
    rows = found.tables[found.name]
    sides = {"measured": "measured_s", "published": "published_s", "Foretell": "ours_s"}
    dashes = {"published": "dash", "Foretell": "solid"}
    parts = []
    for kind in names_of(rows, "collective"):
        own = [r for r in rows if r["collective"] == kind]
        traces = []
        for i, nodes in enumerate(SHOWN_NODES):
            some = [r for r in own if r["nodes"] == nodes]
            for side, column in sides.items():
                points = sorted((r["bytes"], 1e3 * r[column]) for r in some)
                name = f"{nodes} {'node' if nodes == 1 else 'nodes'}, {side}"
                drawn = line(name, points, i, dashes.get(side, "solid"))
                traces.append({**drawn, "mode": "lines" if side in dashes else "markers"})
        x = log_axis("bytes", [r["bytes"] for r in own])
        y = log_axis("ms", [1e3 * r[column] for r in own for column in sides.values()])
        parts.append(panel(kind, traces, x, y))
    return parts


def heat_maps(found: PaperFigure) -> Panels:
    """Days over two properties of a chip, relative to the B200's, on both sides."""
    x, y = MAPS[found.name]
    across, up = [v / x.unit for v in x.values], [v / y.unit for v in y.values]
    ticks = [math.log10(v) for v in MAP_TICKS]
    parts = []
    for model, side, own in sides_of(found.tables[found.name]):
        base = _nearest_b200(own, x.name, y.name)
        grid = {(r[x.name], r[y.name]): r["days"] for r in own}
        ratio = [[grid[a, b] / base if grid.get((a, b)) else None for a in across] for b in up]
        trace = {
            "type": "heatmap",
            "x": [_short(a) for a in across],
            "y": [_short(b) for b in up],
            "z": [[None if v is None else math.log10(v) for v in row] for row in ratio],
            "text": [["" if v is None else f"{v:.2f}" for v in row] for row in ratio],
            "colorscale": SCALE,
            "zmin": ticks[0],
            "zmax": ticks[-1],
            "showscale": side == "ours" and model == "gpt3_1T",
            "colorbar": {
                "title": {"text": "days over those of the B200"},
                "tickvals": ticks,
                "ticktext": [f"{v:g}" for v in MAP_TICKS],
            },
            "hovertemplate": "%{x}, %{y}: %{text}<extra></extra>",
        }
        axes = [{"text": p.title, "type": "category", "showgrid": False} for p in (x, y)]
        parts.append(panel(f"{MODELS[model]}: {SIDES[side]}", [trace], axes[0], axes[1]))
    return parts


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"


def _nearest_b200(rows: Rows, x: str, y: str) -> float:
    """Days of the cell that is nearest to the B200."""
    known = [r for r in rows if r["days"]]
    if not known:
        return 1.0

    def away(row: Row) -> float:
        return sum(abs(float(row[p]) / float(WORDS["b200"][p]) - 1) for p in (x, y))

    return float(min(known, key=away)["days"])


FIGURES: Mapping[str, Callable[[PaperFigure], Panels]] = {
    "days": days,
    "throughput": throughput,
    "speedup": speedup,
    "configurations": configurations,
    "fixed": fixed,
    **dict.fromkeys(MAPS, heat_maps),
    "layers": layers,
    "factor": factor,
    "measured": measured_runs,
    "collectives": collectives,
}
"""Name -> figure; what is not here is a table alone."""
