"""One layer op by op, fixed configurations with the best placement of each, and real runs, on both sides."""

from dataclasses import replace
from typing import Any, get_args

import numpy as np

from foretell.api.training import estimate
from foretell.lab.calibrate.collectives_rows import read_rows
from foretell.lab.reference.iteration import collective_s, links_of, memory_of, op_times, times_of
from foretell.lab.reference.ops import LayerBatch, layer_ops
from foretell.lab.reference.records import CHIPS, MODELS, Kind, Quirks, StudyModel
from foretell.lab.reference.search import evaluate as published_evaluate
from foretell.lab.reference.space import enumerate_space, expand, panel_counts
from foretell.lab.reference.study import STUDY_GLOBAL_BATCH
from foretell.lab.reproduce.nersc_maps import question_of
from foretell.lab.reproduce.nersc_ours import OUR_MODELS, OurTask, breakdown, days_of, settings
from foretell.lab.reproduce.records import FOLDER, described, ours
from foretell.lab.validate.hardware import score_collectives

TABLE = described("nersc-2024")
STAGE_LAYERS, MICRO_BATCHES = 8, 16
"""Layers of a stage and microbatches of the step that our layer is read from; a stage's share of the head
is in it, which is small beside eight layers."""
FIXED_GPUS = 16384
"""GPUs of the fixed configurations."""
PARTS = ("compute", "memory", "tensor", "data", "pipeline", "bubble", "recompute", "other")
"""Columns of a breakdown, on both sides."""
PUBLISHED_PARTS = {part: column for part, (column, _) in TABLE["parts"].items()}
"""The published table's columns of the same parts."""


def layer_rows() -> list[dict[str, Any]]:
    """FLOP, bytes and microseconds of every op of one layer by the published model."""
    rows = []
    chip = CHIPS["B200"]
    for case in TABLE["layer"]:
        model, strategy, (m1, m2) = case["model"], case["strategy"], case["split"]
        one = np.ones(1, np.int64)
        panels = one * (
            max(panel_counts(MODELS[model].embed, max(m1, m2))) if strategy == "2d" else 1
        )
        batch = LayerBatch(
            b=one, m1=one * m1, m2=one * m2, t1=one * m1, t2=one * min(m2, 8 // m1), nb=panels
        )
        links = links_of(chip, 8, Quirks())
        ratio = chip.matrix_flop_per_s / chip.vector_flop_per_s
        for place, op in enumerate(layer_ops(MODELS[model], strategy, batch, ratio, Quirks())):
            row: dict[str, Any] = {
                "model": model,
                "strategy": strategy,
                "m1": m1,
                "m2": m2,
                "place": place + 1,
                "op": op.name,
                "group": TABLE["op_families"].get(op.name, "elementwise"),
                "weight_mb": _one(op.weight_bytes) / 1e6,
                "stored_mb": _one(op.stored_bytes) / 1e6,
            }
            for word, work in (("forward", op.forward), ("backward", op.backward)):
                comp_s, mem_s, comm_s = op_times(op, work, batch, links)
                row |= {
                    f"{word}_gflop": _one(work.flop) / 1e9,
                    f"{word}_mb": _one(work.moved_bytes) / 1e6,
                    f"{word}_compute_us": 1e6 * _one(comp_s),
                    f"{word}_memory_us": 1e6 * _one(mem_s),
                    f"{word}_comm_us": 1e6 * _one(comm_s),
                    f"{word}_us": 1e6 * (max(_one(comp_s), _one(mem_s)) + _one(comm_s)),
                }
            rows.append(row)
    return rows


def our_layer_rows() -> list[dict[str, Any]]:
    """Microseconds of one layer and microbatch by our model, by op family, at the same splits."""
    rows = []
    for case in TABLE["layer"]:
        model, strategy, (m1, m2) = case["model"], case["strategy"], case["split"]
        if strategy == "2d":
            continue
        stages = MODELS[model].layers // STAGE_LAYERS
        answer = estimate(
            OUR_MODELS[model],
            system="dgx-b200",
            gpus=m1 * m2 * stages,
            global_batch=MICRO_BATCHES,
            seq_len=MODELS[model].seq_len,
            plan=f"tp{m1} cp{m2} pp{stages} dp1 mbs1",
            # A layer's time does not depend on the memory's size; the stage must only fit.
            set=settings(replace(CHIPS["B200"], hbm_bytes=1e13), 8),
        )
        found: dict[str, float] = {}
        for leaf in answer.to_dict()["breakdown"]["children"]:
            for one in leaf["children"] or [leaf]:
                by_op = leaf["name"] in ("compute", "memory_bound")
                name = str(one["name"] if by_op else leaf["name"])
                if by_op or name in ("tensor_parallel", "context_parallel"):
                    us = 1e6 * float(one["value"]) / (MICRO_BATCHES * STAGE_LAYERS)
                    found[name] = found.get(name, 0.0) + us
        rows += [
            {"model": model, "strategy": strategy, "m1": m1, "m2": m2, "group": name, "ours_us": us}
            for name, us in found.items()
            if us > 0.0
        ]
    return rows


def _one(value: Any) -> float:
    return float(np.ravel(np.asarray(value, float))[0])


def fixed_rows() -> list[dict[str, Any]]:
    """Every split of the GPUs at one sample per microbatch, each with the placement that is fastest."""
    rows: list[dict[str, Any]] = []
    for model, strategy in (("gpt3_1T", "1d"), ("vit_era5", "2d-seqp")):
        question = question_of(model, strategy, CHIPS["B200"], 8)
        space = enumerate_space(MODELS[model], question.strategy, FIXED_GPUS, 8, STUDY_GLOBAL_BATCH)
        bases = np.nonzero(
            (space.b == 1) & (memory_of(question, space).total_bytes <= question.chip.hbm_bytes)
        )[0]
        plans = expand(space, bases)
        times = times_of(question, plans, memory_of(question, plans))
        best: dict[tuple[int, ...], int] = {}
        for i in np.argsort(times.total_s, kind="stable").tolist():
            best.setdefault((int(plans.m1[i]), int(plans.m2[i]), int(plans.pp[i])), i)
        held = memory_of(question, plans).total_bytes
        fastest = sorted(best.items(), key=lambda item: float(times.total_s[item[1]]))[:24]
        for (m1, m2, pp), i in sorted(fastest):
            dp = int(plans.dp[i])
            name = {"model": model, "strategy": strategy, "gpus": FIXED_GPUS}
            name |= {"m1": m1, "m2": m2, "pp": pp, "dp": dp}
            place = f"tp{int(plans.t1[i])}x{int(plans.t2[i])} dp{int(plans.nv_dp[i])} pp{int(plans.nv_pp[i])}"
            theirs = {
                "days": days_of(model, float(times.total_s[i])),
                "memory_gb": float(held[i]) / 1e9,
                **{
                    part: days_of(model, float(getattr(times, field)[i]))
                    for part, (_, field) in TABLE["parts"].items()
                },
            }
            rows.append({"side": "published", **name, "placement": place, **theirs})
            mine = breakdown(
                OurTask(model=model, chip="B200", domain=8, gpus=FIXED_GPUS),
                f"tp{m1} cp{m2} pp{pp} dp{dp} zero1 mbs1",
            )
            told = {"days": sum(mine.values()) if mine else None, "memory_gb": None}
            told |= {part: mine.get(part) for part in PARTS}
            place = "tp, cp, dp, pp from the inside"
            rows.append({"side": "ours", **name, "placement": place, **told})
    return rows


def measured_rows() -> list[dict[str, Any]]:
    """Megatron-LM on A100 as it was configured (Korthikanti et al. 2022, Table 5), by both models."""
    rows = []
    for run in TABLE["run"]:
        pp, mbs, batch, pieces = (run[n] for n in ("pp", "micro_batch", "batch", "pieces"))
        shape = {name: run[name] for name in ("name", "embed", "heads", "layers")}
        model = StudyModel(seq_len=2048, causal=True, samples=0.0, **shape)
        plan = {"tp": 8, "nv_tp": 8, "pp": pp, "dp": 1, "mbs": mbs, "nv_dp": 1, "nv_pp": 1}
        [theirs] = published_evaluate(
            [plan], model=model, strategy="1d", chip="A100", fast_domain=8, global_batch=batch
        )
        stages = f"pp{pp} vpp{pieces}" if pieces > 1 else f"pp{pp}"
        found = estimate(
            run["ours"],
            system="dgx-a100",
            gpus=8 * pp,
            global_batch=batch,
            seq_len=2048,
            plan=f"tp8 {stages} dp1 mbs{mbs} sp recompute=selective no-flash "
            "framework=megatron@2022-05",
        )
        rows.append(
            {
                "run": model.name,
                "gpus": 8 * pp,
                "measured_s": run["measured_s"],
                "published_s": theirs["t"],
                "published_memory_gb": theirs["mem"],
                **ours(found),
                "ours_memory_gb": found.peak_memory_bytes / 1e9,
            }
        )
    return rows


FILE = FOLDER / "nersc_collectives.csv"
"""NCCL on Perlmutter, of the public code (transformer-perf-estimates, comm_validation): four A100 in a
node, 1 to 128 nodes, from 1 MiB on."""
NODE = 4
"""GPUs of a node of Perlmutter, each with a network card."""


def collective_rows() -> list[dict[str, Any]]:
    """Measured seconds and those of both models, ours with a 90 % interval."""
    measured, links = read_rows(FILE), links_of(CHIPS["A100"], NODE, Quirks())
    kinds: dict[str, Kind] = {kind.replace("_", "-"): kind for kind in get_args(Kind)}
    found = []
    for row, own in zip(measured, score_collectives(FILE).predictions, strict=True):
        gpus = np.array([row.nodes * row.per_node])
        size = np.array([row.size_bytes])
        published = collective_s(links, kinds[str(row.kind)], size, gpus, np.minimum(gpus, NODE))
        found.append(
            {
                "collective": row.kind,
                "nodes": row.nodes,
                "gpus": int(gpus[0]),
                "bytes": round(row.size_bytes),
                "measured_s": row.measured_s,
                "published_s": float(published[0]),
                "ours_s": own.predicted,
                "ours_low_s": own.low,
                "ours_high_s": own.high,
            }
        )
    return found
