"""arXiv 2507.02456 (imec, 2025): performance and cost of training and inference, on both sides.

Only the abstract and second-hand descriptions were at hand. What is published here are the predictions of its
predecessor for Megatron-LM (as a public repository stores them), those of other tools for Llama-2, and the
additive form of its flash-attention term; everything else is the same question put to our model.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

from foretell.api.serving import serve
from foretell.api.training import estimate
from foretell.catalog.files import read_table
from foretell.errors import BadInput, Infeasible
from foretell.lab.reproduce.imec_designs import (
    LOGIC_MM2,
    collective_rows,
    cost_rows,
    front_rows,
    node_rows,
    study_of,
)
from foretell.lab.reproduce.records import (
    FOLDER,
    Ladder,
    PaperFigure,
    Row,
    errors,
    inside_words,
    ladder_of,
    ladder_rows,
    mean_ladder,
    ours,
    plain_estimate,
    read_work,
    shared_width,
    verdict,
    widest,
)
from foretell.search.explain import ends

FILE = read_table(FOLDER / "imec_validation.toml")
"""Published iterations of Megatron-LM on A100, with the predecessor's predictions, and latencies of requests
with those of other tools."""
PEERS = ("genz_s", "llmcompass_s", "vidur_s")
"""Columns of other models' predictions of a request's latency."""


def training_rows() -> list[dict[str, Any]]:
    """Every run on three sides."""
    rows = []
    for run in FILE["run"]:
        words = run["words"]
        gpus = prod(int(degree) for degree in re.findall(r"\b(?:tp|pp|dp)(\d+)", words))
        words = f"{words} framework=megatron@{'2022-05' if gpus < 1000 else '2021-04'}"
        asked = {"gpus": gpus, "global_batch": run["batch"], "seq_len": 2048, "plan": words}
        found = plain_estimate(run["model"], system="dgx-a100", **asked)
        published = {name: run[name] for name in ("measured_s", "published_s")}
        rows.append({"run": run["name"], "gpus": gpus, "plan": words, **published, **ours(found)})
    return rows


def inference_rows() -> list[dict[str, Any]]:
    """End-to-end latency of one request at a time, by the engine that was measured."""
    rows = []
    for cell in FILE["latency"]:
        model, tp = cell["model"], cell["tp"]
        system = cell.get("system", "dgx-a100")
        load: dict[str, Any] = {"isl": 200, "osl": 200, "concurrency": 1, "engine": "nemo@2023"}
        found = serve(model, system=system, gpus=tp, plan=f"tp{tp}", **load).to_dict()
        span = (found.get("intervals") or {}).get("e2e_ms") or {}
        low, high = span.get("p90") or (found["e2e_ms"]["mean"], found["e2e_ms"]["mean"])
        rows.append(
            {
                "run": f"{system[-4:].upper()}, {model} tp{tp}",
                "chip": system[-4:].upper(),
                "model": model,
                "tp": tp,
                "measured_s": cell["measured_s"],
                **{name: cell.get(name) for name in PEERS},
                "ours_s": found["e2e_ms"]["mean"] / 1e3,
                "ours_low_s": low / 1e3,
                "ours_high_s": high / 1e3,
            }
        )
    return rows


A100_MATRIX, A100_BANDWIDTH, A100_VECTOR = 312e12, 2.039e12, 78e12
"""Peaks of the A100 80 GB in fp16 (NVIDIA's datasheet), for the additive form."""
UNITS_SHARE = 0.25
"""Share of the units that the open equivalent's inner products reach (RAPID-LLM, train_timing.py)."""
SOFTMAX_FLOP = 10.0
"""Vector operations for each score: scale, exponential, maximum, sum."""
LAYERS = 32.0
"""Of Llama-2-7B."""


def attention_rows() -> list[dict[str, Any]]:
    """Attention of one layer of Llama-2-7B, forward and backward, over lengths, in three ways."""
    rows = []
    for seq_len in (1024, 2048, 4096, 8192, 16384, 32768):
        heads, dim = 32, 128
        pairs = seq_len * (seq_len + 1) / 2.0
        product_s = 3.5 * 4.0 * heads * dim * pairs / (UNITS_SHARE * A100_MATRIX)
        vector_s = 2.5 * SOFTMAX_FLOP * heads * pairs / A100_VECTOR
        memory_s = 3.0 * 8.0 * seq_len * heads * dim * 2.0 / A100_BANDWIDTH
        row: dict[str, Any] = {
            "seq_len": seq_len,
            "additive_ms": 1e3 * (product_s + vector_s + memory_s),
            "overlapped_ms": 1e3 * max(product_s, vector_s, memory_s),
        }
        for name, word in (("flash", "flash"), ("stored", "no-flash")):
            try:
                found = estimate(
                    "llama-2-7b",
                    system="dgx-a100",
                    gpus=1,
                    global_batch=1,
                    seq_len=seq_len,
                    plan=f"mbs1 {word} no-fused",
                    set=("chip.memory_bytes=1e13", "model.max_positions=65536"),
                )
            except (BadInput, Infeasible):
                continue
            assert found.breakdown is not None
            leaves = [
                one for path, one in ends(found.breakdown).items() if path.endswith("attention")
            ]
            spans = [one.interval["p90"] for one in leaves if one.interval]
            row[f"{name}_ms"] = 1e3 * sum(one.value for one in leaves) / LAYERS
            for column, edges in zip(("low", "high"), zip(*spans, strict=True), strict=True):
                row[f"{name}_{column}_ms"] = 1e3 * sum(edges) / LAYERS
        rows.append(row)
    return rows


def flash_ladder(row: Mapping[str, Any]) -> Ladder:
    """Milliseconds of attention from the additive form to ours."""
    return ladder_of(
        {
            "published": row["additive_ms"],
            "overlap of GEMMs, exponentials and loads": row["overlapped_ms"],
            "kernels' measured rates": row["flash_ms"],
        }
    )


def expert_rows() -> list[dict[str, Any]]:
    """Mixtral-8x22B on 512 H100: plans with and without each kind of parallelism."""
    rows = []
    for words in (
        "tp8 pp4 dp16 zero1",
        "tp4 pp8 dp16 zero1",
        "tp2 pp8 dp32 ep8 zero1",
        "tp4 pp4 dp32 ep8 zero1",
        "tp1 pp8 dp64 ep8 zero1",
        "tp2 cp2 pp8 dp16 ep8 zero1",
        "tp2 cp4 pp4 dp16 ep8 zero1",
    ):
        row: dict[str, Any] = {"plan": words, "ep": 8 if "ep8" in words else 1, "days": None}
        asked = {"gpus": 512, "global_batch": 1024, "seq_len": 8192, "plan": f"{words} mbs1"}
        found = plain_estimate("mixtral-8x22b", system="dgx-h100", **asked)
        if found is None:
            continue
        answer = found.to_dict()
        low, high = answer["interval"]["p90"]
        row |= {
            "days": answer["step_s"] * 1e12 / (1024 * 8192) / 86400.0,
            "fits": answer["fits"],
            "step_s": answer["step_s"],
            "low_s": low,
            "high_s": high,
        }
        row |= {leaf["name"]: leaf["value"] for leaf in answer["breakdown"]["children"]}
        rows.append(row)
    return rows


WORK = read_work("imec-2025")
TOOLS = ("genz", "llmcompass", "vidur")
"""Other models of a request's latency."""


def mean_and_most(rows: Sequence[Row], column: str) -> tuple[float, float]:
    """Mean and largest error of a column, in percent."""
    off = [100 * abs(error) for error in errors(rows, column)]
    return sum(off) / len(off), max(off)


def training() -> PaperFigure:
    """Eleven runs."""
    rows = training_rows()
    theirs, ours = (mean_and_most(rows, column) for column in ("published_s", "ours_s"))
    held = verdict(ours[1] < 10.0, widest(rows, "ours_low_s", "ours_high_s"))
    found = WORK.finding("training", held, theirs=theirs, ours=ours, inside=inside_words(rows))
    return WORK.figure("training", rows, found)


def inference() -> PaperFigure:
    """Latencies on two chips: the engine's profile is fitted on the A100's."""
    rows = inference_rows()
    ours = []
    for chip, how in (("A100", "in sample"), ("H100", "no row of which the profile has seen")):
        own = [r for r in rows if r["chip"] == chip]
        mean, most = mean_and_most(own, "ours_s")
        ours.append(f"{chip}, {how}: mean {mean:.0f} %, at most {most:.0f} %, {inside_words(own)}")
    others = {name: mean_and_most(rows, f"{name}_s") for name in TOOLS}
    held = mean_and_most(rows, "ours_s")[1] < 20.0
    found = WORK.finding(
        "inference",
        verdict(held, widest(rows, "ours_low_s", "ours_high_s")),
        others=", ".join(f"{k} mean {a:.0f} %, at most {b:.0f} %" for k, (a, b) in others.items()),
        ours="; ".join(ours),
    )
    return WORK.figure("inference", rows, found)


def flash() -> PaperFigure:
    """Attention over the sequence."""
    rows = attention_rows()
    ladders = {f"{r['seq_len']:,} tokens": flash_ladder(r) for r in rows}
    whole, width = (
        mean_ladder(list(ladders.values())),
        widest(rows, "flash_low_ms", "flash_high_ms"),
    )
    held = verdict(abs(whole.whole - 1.0) < 0.25, width)
    found = WORK.finding("flash", held, whole, first=rows[0], last=rows[-1])
    steps = ladder_rows(found.statement, ladders)
    return WORK.figure("flash", rows, found, more={"flash-ladder": steps})


def experts() -> PaperFigure:
    """Five kinds of parallelism."""
    rows = expert_rows()
    fitting = [r for r in rows if r["fits"] != "no"]
    best = min(fitting, key=lambda r: float(r["days"]))
    flat = min((r for r in fitting if r["ep"] == 1), key=lambda r: float(r["days"]))
    held = verdict(best["ep"] > 1, shared_width(flat, best, "low_s", "high_s"))
    gain = flat["days"] / best["days"]
    return WORK.figure("experts", rows, WORK.finding("experts", held, plan=best["plan"], gain=gain))


def topologies() -> PaperFigure:
    """Collectives by topology."""
    rows = collective_rows()
    large = {(r["topology"], r["collective"]): r for r in rows if r["size"] == "1 GiB"}
    times: dict[str, list[float]] = {"all-reduce": [], "all-to-all": []}
    width = 1.0
    for (_, kind), row in large.items():
        if kind in times:
            switch = large["switch", kind]
            times[kind].append(row["seconds"] / switch["seconds"])
            width = max(width, shared_width(row, switch, "low_s", "high_s"))
    sums, swaps = ((min(one), max(one)) for one in times.values())
    held = verdict(max(sums[1], swaps[1]) > 1.25, width)
    return WORK.figure("topologies", rows, WORK.finding("topologies", held, sums=sums, swaps=swaps))


def front(name: str) -> PaperFigure:
    """One of the fronts."""
    rows = front_rows(study_of(name))
    on = [str(r["label"]) for r in rows if r["front"]]
    what = WORK.figures[name].split(":")[0].lower()
    numbers: dict[str, Any] = {
        "what": what,
        "on": len(on),
        "many": len(rows),
        "first": "; ".join(on[:4]),
    }
    return WORK.figure(name, rows, WORK.finding("front", "not comparable", **numbers))


def chiplet_cost() -> PaperFigure:
    """Cost against dies."""
    rows = cost_rows()
    gains, cheapest, width = [], [], 1.0
    for node in dict.fromkeys(r["node"] for r in rows):
        own = [r for r in rows if r["node"] == node and r["logic_mm2"] == min(LOGIC_MM2)]
        best = min(own, key=lambda r: float(r["usd"]))
        gains.append(float(own[0]["usd"]) / float(best["usd"]))
        width = max(width, shared_width(own[0], best, "low_usd", "high_usd"))
        cheapest.append(f"{node} {best['dies']} (x{gains[-1]:.2f})")
    held = verdict(gains[0] > 1.0 and gains == sorted(gains), width)
    numbers: dict[str, Any] = {"logic": min(LOGIC_MM2), "cheapest": ", ".join(cheapest)}
    return WORK.figure("chiplet-cost", rows, WORK.finding("chiplet-cost", held, **numbers))


def nodes() -> PaperFigure:
    """Nodes."""
    rows = node_rows()
    known = [r for r in rows if r["tokens_per_s_per_gpu"]]
    first, last = known[0], known[-1]
    gain = last["tokens_per_s_per_gpu"] / first["tokens_per_s_per_gpu"]
    more = last["tflop_per_s"] / first["tflop_per_s"]
    ends = ("low_tokens_per_s_per_gpu", "high_tokens_per_s_per_gpu")
    held = verdict(gain < 0.8 * more, shared_width(last, first, *ends))
    numbers = {"first": first["node"], "last": last["node"], "more": more, "gain": gain}
    return WORK.figure("nodes", rows, WORK.finding("nodes", held, **numbers))


def makers(figures: Sequence[str], workers: int) -> Mapping[str, Callable[[], PaperFigure]]:
    """What makes each figure."""
    del figures, workers
    found = {
        "training": training,
        "inference": inference,
        "flash": flash,
        "experts": experts,
        "topologies": topologies,
        "chiplet-cost": chiplet_cost,
        "nodes": nodes,
    }
    return found | {name: partial(front, name) for name in WORK.figures if name.endswith("-front")}
