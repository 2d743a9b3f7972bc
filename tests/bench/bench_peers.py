"""How fast Foretell is beside its peers, each pair in one run on one core. Prints; never passes or fails.

Processor seconds, the least of several runs. Peers that are not installed are left out; an earlier checkout
of Foretell (`--before FOLDER`, its `src`) is asked in a process of its own, right after this one.

    PYTHONPATH=src:. OMP_NUM_THREADS=1 python tests/bench/bench_peers.py [--before ../earlier/src]

llm-analysis (github.com/cli99/llm-analysis) is a closed form of one training step; it is asked where it can
be imported, or with the Python of another environment (`--peers-python`).
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import foretell

PLACE: dict[str, Any] = {"system": "h100-sxm", "gpus": 512, "seq_len": 8192}
PLAN = "tp8 pp4 zero1 mbs1"
LLM_ANALYSIS = """
import time
from llm_analysis.analysis import LLMAnalysis
from llm_analysis.config import (
    ParallelismConfig, get_dtype_config_by_name, get_gpu_config_by_name, get_model_config_by_name,
)
model = get_model_config_by_name("upstage_Llama-2-70b-instruct-v2")
gpu = get_gpu_config_by_name("h100-sxm-80gb")
dtype = get_dtype_config_by_name("w16a16e16")
best = 1e9
for k in range(30):
    start = time.process_time()
    layout = ParallelismConfig(tp_size=8, pp_size=4, dp_size=16, sp_size=8)
    LLMAnalysis(model, gpu, dtype, layout).training(
        batch_size_per_gpu=1, gradient_accumulation_steps=64 + k, seq_len=4096, total_num_tokens=1e12,
    )
    best = min(best, time.process_time() - start)
print(best)
"""
"""One step of a model of 70 billion weights, by its public call."""


def least_s(ask: Callable[[int], object], runs: int) -> float:
    """Processor seconds of the quickest of some runs, each with a number of its own."""
    ask(-1)
    found = []
    for run in range(runs):
        start = time.process_time()
        ask(run)
        found.append(time.process_time() - start)
    return min(found)


def figures() -> dict[str, float]:
    """Every figure of this Foretell, in seconds."""

    def estimate(batch: int, **more: Any) -> object:
        return foretell.estimate("llama-3.1-70b", **PLACE, global_batch=batch, plan=PLAN, **more)

    def deep(layers: int) -> Callable[[int], object]:
        sizes = {"set": [f"model.n_layer={layers}"], "plan": "zero3 recompute=full"}
        place = {"system": "h100-sxm", "gpus": 64, "seq_len": 1024}
        return lambda run: foretell.estimate("gpt2", **place, global_batch=64 * (run + 2), **sizes)

    return {
        "estimate, asked before": least_s(lambda _: estimate(1024), 200),
        "estimate, new": least_s(lambda run: estimate(2048 + 16 * run), 60),
        "search, llama-3.1-70b on 512 H100": least_s(
            lambda _: foretell.search("llama-3.1-70b", **PLACE, global_batch=1024), 3
        ),
        "search, kimi-k2 on 2,304 GB300": least_s(
            lambda _: foretell.search(
                "kimi-k2", system="gb300-nvl72", gpus=2304, global_batch=9216, seq_len=4096
            ),
            2,
        ),
        "estimate, 80 layers": least_s(deep(80), 20),
        "estimate, 8,000 layers": least_s(deep(8000), 20),
    }


def systems_per_s(kind: str, many: int) -> float:
    """Points a second of a whole sweep over five numbers of a system, its files written."""
    ends = {
        "chip.memory_bandwidth_bytes_per_s": (1e12, 8e12),
        "chip.matrix_flop_per_s.bf16": (3e14, 3e15),
        "chip.memory_bytes": (8.1e10, 2e11),
        "chip.tdp_watts": (400.0, 1400.0),
        "network.node.bandwidth_bytes_per_s": (2e11, 2e12),
    }
    base: dict[str, Any] = {"model": "llama-3.1-70b", "system": "h100-sxm"}
    if kind == "training":
        base |= {"gpus": 512, "global_batch": 1024, "seq_len": 8192}
    else:
        base |= {"gpus": 8, "isl": 2048, "osl": 256, "concurrency": 32}
    study = {
        "study": {"kind": kind, "plan": PLAN if kind == "training" else "tp8", "mode": "sample",
                  "samples": many, "seed": 1},
        "base": base,
        "vary": {path: {"low": low, "high": high} for path, (low, high) in ends.items()},
    }  # fmt: skip

    def sweep(_: int) -> object:
        with tempfile.TemporaryDirectory() as folder:
            return foretell.sweep(study, out=folder, yes=True)

    return many / least_s(sweep, 2)


def peer_s(python: str) -> float | None:
    """One step by llm-analysis; None where it is not installed."""
    ran = subprocess.run([python, "-c", LLM_ANALYSIS], capture_output=True, text=True, check=False)
    return float(ran.stdout.split()[-1]) if ran.returncode == 0 else None


def before_figures(source: str) -> dict[str, float]:
    """The same figures of an earlier checkout, in a process of its own."""
    code = "from tests.bench.bench_peers import figures\nprint(figures())"
    path = os.pathsep.join((source, str(Path.cwd())))
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    found: dict[str, float] = eval(ran.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    """Every figure, beside its peer's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", default="", help="src folder of an earlier checkout")
    parser.add_argument("--peers-python", default=sys.executable, help="Python that has the peers")
    parser.add_argument("--points", type=int, default=10_000, help="systems of a sweep")
    asked = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    ours = figures()
    earlier = before_figures(asked.before) if asked.before else {}
    for name, seconds in ours.items():
        beside = f", earlier checkout {1e3 * earlier[name]:,.2f} ms" if name in earlier else ""
        print(f"{name}: {1e3 * seconds:,.2f} ms{beside}", flush=True)
    peer = peer_s(asked.peers_python)
    told = "not installed" if peer is None else f"{1e3 * peer:.2f} ms"
    print(f"llm-analysis, one training step: {told}", flush=True)
    for kind in ("training", "serving"):
        rate = systems_per_s(kind, asked.points)
        print(f"systems of a sweep, {kind}: {rate:,.0f} a second", flush=True)
    small = "examples/codesign_small.toml"
    first = time.process_time()
    foretell.codesign(small)
    print(f"codesign_small: {time.process_time() - first:.2f} s", flush=True)


if __name__ == "__main__":
    main()
