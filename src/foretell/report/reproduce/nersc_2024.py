"""Figures of the 2024 study (arXiv 2410.00273), from the tables of lab/reproduce/nersc_2024.py."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from foretell.lab.reproduce.nersc_layers import PARTS
from foretell.lab.reproduce.nersc_maps import MAPS
from foretell.lab.reproduce.records import PaperFigure
from foretell.report.figures.look import COLOURS, Figure, log_axis
from foretell.report.figures.multiples import SmallPanel, small_multiples
from foretell.report.reproduce.nersc_maps import MODELS, SIDES, heat_maps
from foretell.report.reproduce.traces import NAMED, Rows, bars, gpus_axis, line, over_measured

CHIPS = ("A100", "H200", "B200")
DOMAINS = (4, 8, 64)
STRATEGY_WORDS = {
    "1d": "1-D",
    "2d": "2-D SUMMA",
    "2d-seqp": "2-D, split sequence",
    "any": "any plan",
}
PART_COLOURS = dict(zip(PARTS, COLOURS, strict=False))
"""One colour for each part of a breakdown, on both sides."""


def days(found: PaperFigure) -> Figure:
    """Days against GPUs."""
    return _over_gpus(
        found,
        "days",
        "days of training",
        "Days of training: solid the published model, dashed ours",
    )


def throughput(found: PaperFigure) -> Figure:
    """Samples/s and GPU against GPUs."""
    title = "Samples per second and GPU: solid the published model, dashed ours"
    return _over_gpus(found, "samples_per_s_per_gpu", "samples/s per GPU", title)


def _over_gpus(found: PaperFigure, column: str, y_title: str, title: str) -> Figure:
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
            values = [row[column] for row in own]
            counts = [row["gpus"] for row in own]
            y = log_axis(y_title, values)
            parts.append(
                SmallPanel(title=f"{words}, {chip}", traces=traces, x=gpus_axis(counts), y=y)
            )
    return small_multiples(parts, title, 3, key=130)


def speedup(found: PaperFigure) -> Figure:
    """Two dimensions over one."""
    rows = found.tables[found.name]
    parts = []
    for model, words in MODELS.items():
        for side, of in SIDES.items():
            own = [
                r for r in rows if r["model"] == model and r["side"] == side and r["chip"] == "B200"
            ]
            traces = []
            for i, domain in enumerate(DOMAINS):
                for strategy, dash in (("2d", "solid"), ("2d-seqp", "dash"), ("1d", "solid")):
                    points = {
                        r["gpus"]: r["speedup"]
                        for r in own
                        if r["nvs"] == domain and r["of"] == strategy
                    }
                    if points:
                        name = f"NVS {domain}, {STRATEGY_WORDS[strategy]}"
                        traces.append(line(name, sorted(points.items()), i, dash))
            base = STRATEGY_WORDS[str(own[0]["over"])] if own else "1-D"
            parts.append(
                SmallPanel(
                    title=f"{words}: {of}",
                    traces=traces,
                    x=gpus_axis([r["gpus"] for r in own]),
                    y={"text": f"speed-up over {base}", "range": [0.85, 1.5]},
                )
            )
    return small_multiples(
        parts, "B200: speed-up of two dimensions of tensor parallelism", 2, key=210
    )


def configurations(found: PaperFigure) -> Figure:
    """Shares of the time of the fastest plan against GPUs."""
    rows = found.tables[found.name]
    parts = []
    for model, words in MODELS.items():
        for side, of in SIDES.items():
            own = _fastest([r for r in rows if r["model"] == model and r["side"] == side])
            names = [f"{r['gpus']:,}<br>{_short_plan(str(r['plan']))}" for r in own]
            parts.append(
                SmallPanel(
                    title=f"{words}: {of}",
                    traces=_shares(own, names),
                    x={"text": "GPUs and plan", "type": "category", "tickangle": 0},
                    y={"text": "share of the time (%)", "range": [0, 100]},
                )
            )
    return small_multiples(
        parts,
        "B200 in domains of eight: the fastest plan and where its time goes",
        1,
        width=1240,
        height=230,
        key=110,
        gap=116,
        barmode="stack",
    )


def _fastest(rows: Rows) -> list[Mapping[str, Any]]:
    best: dict[int, Mapping[str, Any]] = {}
    for row in rows:
        if row["gpus"] not in best or row["days"] < best[row["gpus"]]["days"]:
            best[row["gpus"]] = row
    return [best[gpus] for gpus in sorted(best)]


def _short_plan(plan: str) -> str:
    words = [
        w for w in plan.split() if not w.startswith(("recompute=none", "order=")) and w != "sp"
    ]
    half = -(-len(words) // 2) if len(words) > 3 else len(words)
    lines = [" ".join(words[:half]), " ".join(words[half:])]
    return "<br>".join(line for line in lines if line)


def _shares(rows: Rows, names: Sequence[str], scale: str = "share") -> list[dict[str, Any]]:
    traces = []
    for part in PARTS:
        values = [float(r.get(part) or 0.0) for r in rows]
        if scale == "share":
            values = [
                100.0 * v / (float(r["days"]) or 1.0) for v, r in zip(values, rows, strict=True)
            ]
        if any(value > 0.0 for value in values):
            colour = PART_COLOURS[part]
            traces.append(bars(part, names, values, colour, hovertemplate="%{x}: %{y:.3g}"))
    return traces


def fixed(found: PaperFigure) -> Figure:
    """Days of every split, stacked by part."""
    rows = found.tables[found.name]
    parts = []
    for model, words in MODELS.items():
        for side, of in SIDES.items():
            own = [r for r in rows if r["model"] == model and r["side"] == side and r["days"]]
            names = [f"{r['m1']}x{r['m2']}, pp{r['pp']}" for r in own]
            parts.append(
                SmallPanel(
                    title=f"{words}: {of}",
                    traces=_shares(own, names, "days"),
                    x={
                        "text": "tensor split and stages, one sample per micro-batch",
                        "type": "category",
                    },
                    y={"text": "days", "rangemode": "tozero"},
                )
            )
    return small_multiples(
        parts,
        "16,384 B200 in domains of eight: fixed configurations, each with its fastest placement",
        1,
        width=1240,
        height=240,
        key=110,
        gap=130,
        barmode="stack",
    )


GROUP_COLOURS = {
    "gemm": COLOURS[0],
    "attention": COLOURS[1],
    "elementwise": COLOURS[2],
    "norm": COLOURS[3],
    "communication": COLOURS[4],
    "loss": COLOURS[8],
}


def layers(found: PaperFigure) -> Figure:
    """Milliseconds of one layer by op family, on both sides."""
    sums: dict[str, dict[str, float]] = {}
    for row in found.tables["layers"]:
        name = f"{MODELS[row['model']].split(',')[0]}, {row['strategy']} {row['m1']}x{row['m2']}<br>published"
        own = sums.setdefault(name, {})
        for word in ("forward", "backward"):
            comm = row[f"{word}_comm_us"] / 1e3
            own["communication"] = own.get("communication", 0.0) + comm
            own[row["group"]] = own.get(row["group"], 0.0) + row[f"{word}_us"] / 1e3 - comm
    for row in found.tables["layers_ours"]:
        name = f"{MODELS[row['model']].split(',')[0]}, {row['strategy']} {row['m1']}x{row['m2']}<br>Foretell"
        group = "communication" if "parallel" in row["group"] else row["group"]
        own = sums.setdefault(name, {})
        own[group] = own.get(group, 0.0) + row["ours_us"] / 1e3
    names = sorted(sums, key=lambda name: (name.partition("<br>")[0], name.endswith("Foretell")))
    parts = []
    for word in ("GPT", "ViT"):
        some = [name for name in names if name.startswith(word)]
        traces = [
            bars(group, some, [sums[name].get(group, 0.0) for name in some], colour)
            for group, colour in GROUP_COLOURS.items()
        ]
        parts.append(
            SmallPanel(
                title=f"{word}: one layer, one sample, forward and backward",
                traces=traces,
                x=NAMED,
                y={"text": "ms", "rangemode": "tozero"},
            )
        )
    return small_multiples(
        parts, "One layer on B200, by op family", 1, height=260, key=130, barmode="stack"
    )


def factor(found: PaperFigure) -> Figure:
    """Ours over published, and the difference by part."""
    rows = [r for r in found.tables[found.name] if r["chip"] == "B200" and r["nvs"] == 8]
    parts = []
    for model, words in MODELS.items():
        own = [r for r in rows if r["model"] == model]
        names = [f"{r['gpus']:,} GPUs<br>x{r['factor']:.2f}" for r in own]
        traces = []
        for part in PARTS:
            more = [(r[f"our_{part}"] - r[f"published_{part}"]) / r["published_days"] for r in own]
            traces.append(bars(part, names, more, PART_COLOURS[part]))
        parts.append(
            SmallPanel(
                title=words,
                traces=traces,
                x=NAMED,
                y={"text": "(ours - published) / published days", "rangemode": "tozero"},
            )
        )
    title = "B200 in domains of eight: what the factor between our days and the published ones is made of"
    return small_multiples(parts, title, 2, height=360, key=110, barmode="relative")


def measured_runs(found: PaperFigure) -> Figure:
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
    part = SmallPanel(
        title="Megatron-LM, A100 80 GB, eight to a node (Korthikanti et al. 2022, Table 5)",
        traces=traces,
        x={"text": "", "type": "category"},
        y={"text": "time over measured time", "rangemode": "tozero"},
    )
    return small_multiples(
        [part],
        "Real iterations at a fixed plan",
        1,
        width=1000,
        height=340,
        key=210,
        barmode="group",
    )


def collectives(found: PaperFigure) -> Figure:
    """Seconds against bytes on some numbers of nodes: marks are measured."""
    rows = found.tables[found.name]
    parts = []
    for kind in dict.fromkeys(r["collective"] for r in rows):
        own = [r for r in rows if r["collective"] == kind]
        traces = []
        for i, nodes in enumerate(SHOWN_NODES):
            some = [r for r in own if r["nodes"] == nodes]
            for side, column, dash in (
                ("measured", "measured_s", ""),
                ("published", "published_s", "dash"),
                ("Foretell", "ours_s", "solid"),
            ):
                points = sorted((r["bytes"], 1e3 * r[column]) for r in some)
                name = f"{nodes} {'node' if nodes == 1 else 'nodes'}, {side}"
                drawn = line(name, points, i, dash or "solid")
                traces.append({**drawn, "mode": "lines" if dash else "markers"})
        times = [1e3 * r[c] for r in own for c in ("measured_s", "published_s", "ours_s")]
        parts.append(
            SmallPanel(
                title=str(kind),
                traces=traces,
                x=log_axis("bytes", [r["bytes"] for r in own]),
                y=log_axis("ms", times),
            )
        )
    return small_multiples(parts, "NCCL on Perlmutter, four A100 in a node", 3, key=170, height=340)


SHOWN_NODES = (1, 8, 128)
"""Nodes of the measured collectives that are drawn."""

FIGURES: Mapping[str, Callable[[PaperFigure], Figure]] = {
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
