"""How near Foretell and its peers come to the same published training runs, in one run. Prints; never fails.

    PYTHONPATH=src:. python tests/bench/peer_accuracy.py DATA [--peers-python PYTHON] [--calculon FOLDER]

DATA is the folder with `training/measured_runs*.csv.gz`, or one table. Every peer is asked for the rows that
it can express, at most FEW of a source, evenly taken; ours are the answers to the commands of the same rows.
How the cells of a row become a peer's words:

    llm-analysis  plain and gated dense models on A100 and H100 in 16 bits, no context parallelism: sizes, tp,
                  pp, dp, micro-batch, accumulation, ZeRO stage, recomputation, flash attention; half of
                  the peak (its default, all of it, is twice as far off); `latency_per_iter`
    Calculon      dense models with a plain feed-forward part and as many key as query heads, on A100-80 and
                  H100 in 16 bits, no context parallelism: sizes, tp, pp, vpp, dp, micro-batch, ZeRO 1,
                  recomputation, sequence parallelism, no overlap; its own systems a100_80g and
                  h100_80g_nvl8; `total_time`
    SimuMax       the step that its own table prints beside each measured one
"""

import argparse
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from foretell.lab.validate.training import RunPrediction, prediction_of
from foretell.lab.validate.training_rows import TrainingRow, read_rows

FEW = 15
"""Most rows of a source."""
PRINTED = re.compile(r"SimuMax predicted ([\d.]+) ms")
HALF = ("bf16", "fp16")
LLM_ANALYSIS = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from llm_analysis.analysis import ActivationRecomputation as Again, DSZeRO, LLMAnalysis
from llm_analysis.config import (
    ModelConfig, ParallelismConfig, get_dtype_config_by_name, get_gpu_config_by_name,
)
for line in sys.stdin:
    row = json.loads(line)
    try:
        model = ModelConfig(name=row["id"], num_layers=row["layers"], n_head=row["heads"],
            hidden_dim=row["hidden"], vocab_size=row["vocab"], max_seq_len=row["seq"],
            num_key_value_heads=row["kv"], ffn_embed_dim=row["ffn"],
            expansion_ratio=row["ffn"] / row["hidden"])
        layout = ParallelismConfig(tp_size=row["tp"], pp_size=row["pp"], dp_size=row["dp"])
        found = LLMAnalysis(model, get_gpu_config_by_name(row["gpu"]),
            get_dtype_config_by_name("w16a16e16"), layout, flops_efficiency=0.5).training(
            batch_size_per_gpu=row["mbs"], gradient_accumulation_steps=row["ga"], seq_len=row["seq"],
            total_num_tokens=1e12, activation_recomputation=Again[row["again"].upper()],
            ds_zero=DSZeRO(row["zero"]), flash_attn=row["flash"], mlp_gated_linear_units=row["gated"])
        print("FOUND", row["id"], found["latency_per_iter"])
    except Exception:
        pass
"""
CALCULON = """
import json, logging, sys
import calculon
from calculon.llm import Llm
from calculon.system import System
for line in sys.stdin:
    row = json.loads(line)
    try:
        model = Llm(Llm.Application(row["application"]), logging.getLogger())
        system = System(calculon.io.read_json_file(row["system"]))
        model.compile(system, Llm.Execution.from_json(row["execution"]))
        model.run(system)
        print("FOUND", row["id"], model.get_total_time())
    except (Llm.Error, AssertionError, KeyError):
        pass
"""
"""Both read a row a line and print its seconds; rows that they refuse are left out."""

HOW_TO_GET = {
    "llm-analysis": "pip install llm-analysis beside --peers-python",
    "Calculon": "--calculon a checkout of calculon-ai/calculon, pandas and psutil beside --peers-python",
    "SimuMax, as printed": "DATA with the rows of its table",
}
"""What a peer that answers nothing needs."""
Ask = Callable[[Sequence[RunPrediction]], Mapping[str, float]]


def ask(python: str, code: str, rows: list[dict[str, Any]], folder: str = "") -> dict[str, float]:
    """Seconds of a peer by row; empty where it is not installed."""
    ran = subprocess.run(
        [python, "-c", code],
        input="\n".join(json.dumps(row) for row in rows),
        capture_output=True,
        text=True,
        check=False,
        cwd=folder or None,
        env={"PYTHONPATH": folder},
    )
    found = [line.split() for line in ran.stdout.splitlines() if line.startswith("FOUND")]
    return {id: float(seconds) for _, id, seconds in found}


def dense(told: RunPrediction) -> bool:
    """Whether a run is of a dense model in 16 bits with a known layout, which closed forms express."""
    row, plan = told.row, told.plan
    plain = row.layers and row.hidden and row.heads and row.ffn and row.vocab and row.seq_len
    return bool(
        plain and not row.experts and plan.precision in HALF and plan.cp == 1 and not plan.lora
    )


def layout(told: RunPrediction) -> dict[str, Any]:
    """The numbers that both peers take."""
    row, plan, job = told.row, told.plan, told.scenario.job
    return {
        "id": row.id,
        "seq": row.seq_len,
        "tp": plan.tp,
        "pp": plan.pp,
        "dp": plan.dp,
        "mbs": plan.micro_batch,
        "ga": max(job.global_batch // (plan.dp * plan.micro_batch), 1),
        "zero": plan.zero,
        "again": plan.recompute if plan.recompute in ("none", "selective", "full") else "none",
    }


def llm_analysis_rows(runs: Sequence[RunPrediction]) -> list[dict[str, Any]]:
    """Rows as llm-analysis takes them."""
    gpus = {
        "a100-sxm-80gb": "a100-sxm-80gb",
        "a100-sxm-40gb": "a100-sxm-40gb",
        "h100-sxm": "h100-sxm-80gb",
    }
    return [
        {
            **layout(told),
            "gpu": gpus[told.scenario.system.chip.id],
            "layers": told.row.layers,
            "heads": told.row.heads,
            "hidden": told.row.hidden,
            "kv": told.row.kv_heads or told.row.heads,
            "ffn": told.row.ffn,
            "vocab": told.row.vocab,
            "flash": told.plan.flash,
            "gated": gated(told),
        }
        for told in runs
        if dense(told) and told.scenario.system.chip.id in gpus
    ]


def calculon_rows(runs: Sequence[RunPrediction]) -> list[dict[str, Any]]:
    """Rows as Calculon takes them."""
    systems = {"a100-sxm-80gb": "a100_80g", "h100-sxm": "h100_80g_nvl8"}
    found = []
    for told in runs:
        row, chip = told.row, told.scenario.system.chip.id
        if not dense(told) or chip not in systems or gated(told):
            continue
        if (row.kv_heads or row.heads) != row.heads:
            continue
        assert row.hidden
        assert row.heads
        numbers, plan = layout(told), told.plan
        found.append(
            {
                "id": row.id,
                "system": f"systems/{systems[chip]}.json",
                "application": {
                    "hidden": row.hidden,
                    "feedforward": row.ffn,
                    "seq_size": row.seq_len,
                    "attn_heads": row.heads,
                    "attn_size": row.hidden // row.heads,
                    "num_blocks": row.layers,
                },
                "execution": {
                    "num_procs": plan.tp * plan.pp * plan.dp,
                    "tensor_par": plan.tp,
                    "pipeline_par": plan.pp,
                    "data_par": plan.dp,
                    "tensor_par_net": 0,
                    "pipeline_par_net": 1,
                    "data_par_net": 1,
                    "batch_size": numbers["ga"] * plan.dp * plan.micro_batch,
                    "microbatch_size": plan.micro_batch,
                    "datatype": "float16",
                    "fused_activation": True,
                    "attention_type": "multihead",
                    "activation_recompute": {"selective": "attn_only"}.get(
                        numbers["again"], numbers["again"]
                    ),
                    "pipeline_interleaving": plan.vpp,
                    "optimizer_sharding": plan.zero > 0,
                    "tensor_par_comm_type": "rs_ag" if plan.sp and plan.tp > 1 else "ar",
                    "tensor_par_overlap": "none",
                    "seq_par_ag_redo": False,
                    "data_par_overlap": False,
                    "weight_offload": False,
                    "activations_offload": False,
                    "optimizer_offload": False,
                    "training": True,
                },
            }
        )
    return found


def gated(told: RunPrediction) -> bool:
    """Whether the feed-forward part has a gate."""
    return bool(getattr(told.scenario.model.stack.layers[0].ffn, "gated", False))


def printed_simumax(runs: Sequence[RunPrediction]) -> dict[str, float]:
    """What SimuMax's own table predicts."""
    said = {told.row.id: PRINTED.search(told.row.notes) for told in runs}
    return {id: 1e-3 * float(found[1]) for id, found in said.items() if found}


def runs_of(data: Path) -> list[RunPrediction]:
    """Every graded row that has a step time, at most FEW of a source."""
    sources: dict[str, list[TrainingRow]] = defaultdict(list)
    found = sorted((data / "training").glob("measured_runs*.csv.gz")) if data.is_dir() else [data]
    for path in found:
        for row in read_rows(path):
            if (row.step_s or row.rate) and row.quality != "C":
                sources[row.source].append(row)
    few = [rows[int(i * max(len(rows) / FEW, 1.0))]
           for rows in sources.values() for i in range(min(len(rows), FEW))]  # fmt: skip
    told = [prediction_of(row) for row in few]
    return [one for one in told if not isinstance(one, str)]


def compared(
    runs: Sequence[RunPrediction], theirs: Mapping[str, float]
) -> tuple[int, int, float, float, float, float] | None:
    """Rows, sources, and medians of the error over rows and over sources: the peer's, then ours."""
    errors: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for told in runs:
        measured = told.measured_s
        if measured and told.row.id in theirs:
            both = theirs[told.row.id], told.answer.step_s
            errors[told.row.source].append(
                (abs(both[0] / measured - 1), abs(both[1] / measured - 1))
            )
    if not errors:
        return None
    rows = [pair for pairs in errors.values() for pair in pairs]
    of = [median(pair[i] for pair in rows) for i in (0, 1)]
    by = [median(median(p[i] for p in pairs) for pairs in errors.values()) for i in (0, 1)]
    return len(rows), len(errors), of[0], by[0], of[1], by[1]


def report(data: Path, python: str, calculon: str) -> None:
    """A line for each peer."""
    runs = runs_of(data)
    print(f"{len(runs)} runs, at most {FEW} of a source")
    peers = {
        "llm-analysis": ask(python, LLM_ANALYSIS, llm_analysis_rows(runs)),
        "Calculon": ask(python, CALCULON, calculon_rows(runs), calculon) if calculon else {},
        "SimuMax, as printed": printed_simumax(runs),
    }
    for name, theirs in peers.items():
        found = compared(runs, theirs)
        if found is None:
            print(f"{name}: not installed ({HOW_TO_GET[name]})")
            continue
        rows, sources, row, source, our_row, our_source = found
        print(
            f"{name}: {rows} rows of {sources} sources; median row {row:.1%}, source {source:.1%};"
            f" Foretell {our_row:.1%}, {our_source:.1%}"
        )


def main() -> None:
    """The same from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--peers-python", default=sys.executable, help="Python that has the peers")
    parser.add_argument("--calculon", default="", help="a checkout of calculon-ai/calculon")
    asked = parser.parse_args()
    report(asked.data, asked.peers_python, asked.calculon)


if __name__ == "__main__":
    main()
