"""How fast and how near Foretell is beside its peers, each pair in one run. Prints; never passes or fails.

Processor seconds, the least of several runs. Peers that are not installed are left out; an earlier checkout
of Foretell (`--before FOLDER`, its `src`) is asked in a process of its own, right after this one.

    PYTHONPATH=src:. OMP_NUM_THREADS=1 python tests/bench/bench_peers.py [--before ../earlier/src]

`--write docs/performance.md` puts the figures into the tables of that page.

`--data FOLDER` asks the peers for published runs first (peer_accuracy.py has how a row becomes their words).

llm-analysis (github.com/cli99/llm-analysis) is a closed form of one training step; it is asked where it can
be imported, or with the Python of another environment (`--peers-python`). `--serving-python` is one with
aiconfigurator (bench_serving_peers.py has how a row of a service becomes its words). BLIS publishes its
predictions beside measured services of its own (inference-sim/sim-to-real-accuracy-validation), none of
which is among the rows here: it is named, and not compared.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import foretell
from tests.bench.pages import measured_on, write_table
from tests.bench.peer_accuracy import report

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


PLANS = [
    f"tp{tp} pp{pp} zero{zero} mbs{size} recompute={kept}"
    for tp in (2, 4, 8)
    for pp in (2, 4, 8)
    for zero in (1, 2)
    for size in (1, 2)
    for kept in ("none", "full", "selective")
]
COLD = ["estimate", "llama-3.1-70b", "--system", "h100-sxm", "--gpus", "512", "--plan", PLAN]
SERVED = ["serve", "llama-3.1-70b", "--system", "h100-sxm", "--gpus", "8", "--plan", "tp8"]
SEARCHES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-3.1-70b on 512 H100": ("llama-3.1-70b", {**PLACE, "global_batch": 1024}),
    "deepseek-v3 on 512 H100": ("deepseek-v3", {**PLACE, "seq_len": 4096, "global_batch": 1024}),
    "kimi-k2 on 2,304 GB300, global batch 9,216": (
        "kimi-k2",
        {"system": "gb300-nvl72", "gpus": 2304, "global_batch": 9216, "seq_len": 4096},
    ),
    "kimi-k2 on 2,304 GB300, global batch 16,128, length 8,192": (
        "kimi-k2",
        {"system": "gb300-nvl72", "gpus": 2304, "global_batch": 16128, "seq_len": 8192},
    ),
    "qwen3-32b on 96 H200, every structural choice": (
        "qwen3-32b",
        {"system": "dgx-h200", "gpus": 96, "global_batch": 768, "seq_len": 4096, "over": "all"},
    ),
}
SERVED_BY = ("hgx-h100", "dgx-b200", "dgx-h200", "dgx-a100")
STUDIES: dict[str, Callable[[], object]] = {
    "`codesign examples/codesign_small.toml`: nine designs, three workloads": lambda: (
        foretell.codesign("examples/codesign_small.toml")
    ),
    "`compare` of four systems for a service, the load not given": lambda: foretell.compare(
        SERVED_BY, model="llama-3.1-70b", gpus=8, isl=2000, osl=500, tpot=50
    ),
    "`compare` of four systems for training, 10 million USD": lambda: foretell.compare(
        SERVED_BY, model="llama-3.1-70b", budget="10M", seq_len=8192
    ),
}
"""Studies over systems, each asked again in a process that has its modules loaded."""
MEMORY = {
    "1f1b": "tp8 pp8 zero1 mbs1",
    "interleaved": "tp8 pp4 vpp5 zero1 mbs1",
    "zb-h1": "tp8 pp8 zero1 mbs1 schedule=zb-h1",
    "dualpipe": "tp8 pp8 zero1 mbs1 schedule=dualpipe",
}
"""Plans of a step of 4,096 micro-batches, by their schedule."""


def process_s(words: list[str]) -> float:
    """Processor seconds of the command line in a process of its own, the least of five.

    The first run compiles the package's files, as an installer does; the others load them.
    """
    found = []
    with tempfile.TemporaryDirectory() as folder:
        kept = {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        command = [sys.executable, "-m", "foretell", *words]
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, capture_output=True, check=True, env={**os.environ, **kept})
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


def plans_of(model: str, place: dict[str, Any]) -> tuple[int, int]:
    """Plans of a search, and how many of them are evaluated; an earlier release evaluates them all."""
    found = foretell.search(model, **place)
    return found.plans_evaluated + getattr(found, "plans_pruned", 0), found.plans_evaluated


def figures(*, estimates_only: bool = False) -> dict[str, float]:
    """Every figure of this Foretell, in seconds; or those of single estimates alone."""

    def estimate(batch: int, **more: Any) -> object:
        return foretell.estimate("llama-3.1-70b", **PLACE, global_batch=batch, plan=PLAN, **more)

    def deep(layers: int) -> Callable[[int], object]:
        sizes = {"set": [f"model.n_layer={layers}"], "plan": "zero3 recompute=full"}
        place = {"system": "h100-sxm", "gpus": 64, "seq_len": 1024}
        return lambda run: foretell.estimate("gpt2", **place, global_batch=64 * (run + 2), **sizes)

    def planned(run: int) -> object:
        roomy = {"set": ["chip.memory_bytes=900 GB"], "seq_len": 4096}
        place = {**PLACE, **roomy, "global_batch": 3072}
        return foretell.estimate("llama-3.1-70b", **place, plan=PLANS[run + 1])

    def long(run: int) -> object:
        place = {**PLACE, "seq_len": 512 + 64 * (run + 2), "global_batch": 1024}
        return foretell.estimate("llama-3.1-70b", **place, plan=PLAN)

    found = {
        "llama-3.1-70b on 512 H100, asked before": least_s(lambda _: estimate(1024), 200),
        "the same with another global batch": least_s(lambda run: estimate(2048 + 16 * run), 60),
        "the same, every number and tree read (`to_dict`)": least_s(
            lambda run: estimate(8192 + 16 * run).to_dict(), 40
        ),
        "the same with a plan not asked before": least_s(planned, len(PLANS) - 2),
        "the same with another sequence length": least_s(long, 60),
        "gpt2 with 80 layers, another global batch": least_s(deep(80), 20),
        "gpt2 with 8,000 layers, another global batch": least_s(deep(8000), 20),
        "`foretell estimate` in a new process": process_s(COLD),
        "`foretell serve` in a new process": process_s(SERVED),
    }
    if estimates_only:
        return found
    for name, (model, place) in SEARCHES.items():
        found[f"search, {name}"] = least_s(lambda _, m=model, p=place: foretell.search(m, **p), 2)
    for name, ask in STUDIES.items():
        found[f"study, {name}"] = least_s(lambda _, a=ask: a(), 3)
    return found


def memory_s(words: str) -> float:
    """Seconds of the memory of a step of 4,096 micro-batches."""
    replicas = 64 // 8 // (4 if "pp4" in words else 8)
    place = {"system": "h100-sxm", "gpus": 64, "seq_len": 4096, "global_batch": 4096 * replicas}
    return least_s(lambda _: foretell.memory("llama-3.1-70b", **place, plan=words), 3)


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


def one_by_one_per_s(kind: str, many: int = 40) -> float:
    """Systems a second of questions asked one after the other, none of them twice."""

    def ask(run: int) -> object:
        settings = {
            "chip.memory_bandwidth_bytes_per_s": 3e12 + 1e9 * run,
            "chip.tdp_watts": 700 - run,
        }
        if kind == "training":
            place = {**PLACE, "global_batch": 1024, "plan": PLAN, "set": settings}
            return foretell.estimate("llama-3.1-70b", **place).to_dict()
        load = {"isl": 2048, "osl": 256, "concurrency": 32, "plan": "tp8"}
        place = {"system": "h100-sxm", "gpus": 8, "set": settings}
        return foretell.serve("llama-3.1-70b", **place, **load).to_dict()

    return 1.0 / least_s(ask, many)


def peer_s(python: str) -> float | None:
    """One step by llm-analysis; None where it is not installed."""
    ran = subprocess.run([python, "-c", LLM_ANALYSIS], capture_output=True, text=True, check=False)
    return float(ran.stdout.split()[-1]) if ran.returncode == 0 else None


def report_serving(python: str, every: int = 12) -> None:
    """Services by aiconfigurator and by Foretell, one row of so many; or what is not there."""
    if python:
        script = Path(__file__).with_name("bench_serving_peers.py")
        words = [sys.executable, str(script), "--peers-python", python, "--every", str(every)]
        subprocess.run(words, check=False)
    else:
        print("aiconfigurator: not installed (pip install aiconfigurator beside --serving-python)")
    print("BLIS: not compared (none of the services that it publishes predictions of is here)")


def before_figures(source: str, *, estimates_only: bool) -> dict[str, float]:
    """The same figures of an earlier checkout, in a process of its own."""
    code = f"from tests.bench.bench_peers import figures\nprint(figures({estimates_only=}))"
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
    parser.add_argument("--write", help="a page whose tables are replaced: docs/performance.md")
    parser.add_argument("--estimates-only", action="store_true", help="no searches and no studies")
    parser.add_argument("--points", type=int, default=10_000, help="systems of a sweep")
    parser.add_argument("--data", type=Path, help="measured runs: how near all come to them, first")
    parser.add_argument("--calculon", default="", help="a checkout of calculon-ai/calculon")
    parser.add_argument("--serving-python", default="", help="Python that has aiconfigurator")
    asked = parser.parse_args()
    if asked.data:
        report(asked.data, asked.peers_python, asked.calculon)
        report_serving(asked.serving_python)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    few = {"estimates_only": asked.estimates_only}
    ours = figures(**few)
    earlier = before_figures(asked.before, **few) if asked.before else {}
    for name, seconds in ours.items():
        beside = f", earlier checkout {1e3 * earlier[name]:,.2f} ms" if name in earlier else ""
        print(f"{name}: {1e3 * seconds:,.2f} ms{beside}", flush=True)
    if asked.estimates_only:
        if asked.write:
            write_estimates(Path(asked.write), ours, earlier)
        return
    peer = peer_s(asked.peers_python)
    told = "not installed" if peer is None else f"{1e3 * peer:.2f} ms"
    print(f"llm-analysis, one training step: {told}", flush=True)
    rates, alone = {}, {}
    for kind in ("training", "serving"):
        rates[kind] = systems_per_s(kind, asked.points)
        print(f"systems of a sweep, {kind}: {rates[kind]:,.0f} a second", flush=True)
        alone[kind] = one_by_one_per_s(kind)
        print(f"  asked one by one: {alone[kind]:,.0f} a second", flush=True)
    held = {name: memory_s(words) for name, words in MEMORY.items()}
    for name, seconds in held.items():
        print(f"memory of 4,096 micro-batches, {name}: {1e3 * seconds:.0f} ms", flush=True)
    if asked.write:
        page = Path(asked.write)
        write_page(page, ours, earlier)
        rows = [[SYSTEMS[k], f"{rate:,.0f}", f"{alone[k]:,.0f}"] for k, rate in rates.items()]
        write_table(page, "Systems as a batch", rows, measured_on())
        rows = [[name, f"{1e3 * seconds:.0f}"] for name, seconds in held.items()]
        write_table(page, "Memory of long steps", rows, measured_on())
        new_ms = f"{1e3 * ours['the same with another global batch']:.2f}"
        if peer is not None:
            write_table(
                page, "Peers", [["llm-analysis", f"{1e3 * peer:.2f}", new_ms]], measured_on()
            )


SYSTEMS = {
    "training": "training, llama-3.1-70b on 512 H100, one plan",
    "serving": "serving, llama-3.1-70b on 8 H100, tp8, concurrency 32",
}
"""What a study over five numbers of a system is called on the page."""


def before_text(earlier: dict[str, float], name: str, scale: float) -> str:
    """What an earlier release took; empty where it was not asked."""
    return f"{scale * earlier[name]:,.2f}" if name in earlier else ""


def write_estimates(page: Path, ours: dict[str, float], earlier: dict[str, float]) -> None:
    """The table of single estimates."""
    one = [name for name in ours if not name.startswith(("search", "study"))]
    rows = [[name, f"{1e3 * ours[name]:,.2f}", before_text(earlier, name, 1e3)] for name in one]
    write_table(page, "One estimate", rows, measured_on())


def write_page(page: Path, ours: dict[str, float], earlier: dict[str, float]) -> None:
    """The tables of docs/performance.md that an earlier release is beside."""
    write_estimates(page, ours, earlier)
    rows = []
    for name, (model, place) in SEARCHES.items():
        counts = [f"{many:,}" for many in plans_of(model, place)]
        key = f"search, {name}"
        rows.append([name, *counts, f"{ours[key]:.2f}", before_text(earlier, key, 1.0)])
    write_table(page, "Search", rows, measured_on())
    rows = [
        [name, f"{ours[f'study, {name}']:.2f}", before_text(earlier, f"study, {name}", 1.0)]
        for name in STUDIES
    ]
    write_table(page, "Studies over systems", rows, measured_on())


if __name__ == "__main__":
    main()
