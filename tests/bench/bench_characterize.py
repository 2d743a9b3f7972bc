"""The loop closed with a clock: calibrate a CPU, predict a ladder, train it, print the errors.

`python tests/bench/bench_characterize.py` takes some ten minutes on a quiet machine: one thread is the chip,
two processes on two cores the system, gloo their network. Kernels are measured twice, by one process alone
and by two side by side: cores of one machine share caches, memory and, as virtual ones, units. `--alone FILE`
and `--shared FILE` take measurements that there are. Prints; never passes or fails.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from foretell.lab.calibrate import fit, fit_report
from foretell.lab.characterize.run import PointRow, characterize
from foretell.report.characterize import characterized_text

ENVIRON = {**os.environ, "OMP_NUM_THREADS": "1"}
WORDS = "weights=fp32 master=none"
"""What CPUs train in."""
MODELS: dict[str, dict[str, Any]] = {
    "gpt-4m": {"style": "gpt", "hidden": 192, "layers": 4, "heads": 4, "ffn": 768, "vocab": 4096},
    "llama-5m": {"hidden": 256, "layers": 4, "heads": 4, "kv_heads": 2, "ffn": 704, "vocab": 4096},
    "llama-12m": {
        "hidden": 384,
        "layers": 6,
        "heads": 6,
        "kv_heads": 6,
        "ffn": 1024,
        "vocab": 4096,
    },
    "gpt-28m": {"style": "gpt", "hidden": 512, "layers": 8, "heads": 8, "ffn": 2048, "vocab": 4096},
}


def matrix(chip: Path, steps: int, processes: int) -> dict[str, Any]:
    """One process, or two with ZeRO 0 to 3, over the ladder."""
    plans = ["mbs4"] if processes == 1 else [f"zero{zero} mbs2" for zero in range(4)]
    points = [
        {"model": name, "plan": f"{WORDS} {plan}", "processes": processes}
        for name in MODELS
        for plan in plans
    ]
    how = {"device": "cpu", "system": str(chip), "steps": steps, "warmup": 2, "threads": 1}
    return {
        "run": {**how, "memory_share": 100.0},
        "base": {"seq_len": 128},
        "point": points,
        "model": MODELS,
    }


def measured(path: Path, processes: int, minutes: str) -> Path:
    """Kernels by one process, or by two at the same time with what they send each other."""
    words = ["-m", "foretell.lab.calibrate.measure", "--device", "cpu", "--out", str(path)]
    if processes > 1:
        run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        words = [*run, *words, "--only", "launch,copies,gemm,attention,pointwise,collectives"]
    words = [sys.executable, *words, "--minutes", minutes]
    subprocess.run(words, check=True, env=ENVIRON, stdout=subprocess.DEVNULL)
    return path


def main() -> None:
    """Measure where no file is given, fit, run, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--alone", default="")
    parser.add_argument("--shared", default="")
    parser.add_argument("--out", default="", help="keep measurements and results in this folder")
    parser.add_argument("--minutes", default="4")
    parser.add_argument("--steps", type=int, default=11)
    given = parser.parse_args()
    errors: dict[str, list[float]] = {"median": [], "fastest": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(given.out or name)
        for processes, file in ((1, given.alone), (2, given.shared)):
            there = Path(file) if file else folder / f"points{processes}.jsonl"
            points = there if file else measured(there, processes, given.minutes)
            chip = folder / f"cpu{processes}.toml"
            chip.write_text(fit_report.chip_toml(fit.calibrate(points, "cpu")))
            ladder = matrix(chip, given.steps, processes)
            found = characterize(ladder, out=folder / f"out{processes}")
            print(characterized_text(found))
            rows = [r for r in found.rows if r.measured]
            for how, choose in (("median", median), ("fastest", min)):
                off = [r.predicted.step_s / step_s(r, choose) - 1.0 for r in rows if r.predicted]
                errors[how] += off
                print(f"{processes} processes, {how} step: {middle(off)}")
    for how, off in errors.items():
        print(f"all, {how} step: {middle(off)}")


def middle(off: list[float]) -> str:
    """The median error, and every one."""
    each = ", ".join(f"{x:+.1%}" for x in off)
    return f"median error {median(abs(x) for x in off):.1%} ({each})"


def step_s(row: PointRow, choose: Callable[[list[float]], float]) -> float:
    """A step on the slowest rank: the median one, or the one that others disturbed least."""
    assert row.measured is not None
    times = [[sum(s["shares_s"].values()) for s in rank["steps"]] for rank in row.measured["ranks"]]
    return max(choose(each) for each in times)


if __name__ == "__main__":
    main()
