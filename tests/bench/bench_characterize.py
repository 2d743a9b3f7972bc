"""The loop closed with a clock: calibrate a CPU, predict a ladder, train it, print the errors.

`python tests/bench/bench_characterize.py` takes some ten minutes on a quiet machine: one thread is the chip,
two processes on two cores the system, gloo their network. `--points FILE` and `--links FILE` take
measurements that there are (`calibrate measure`, alone and under torchrun). Prints; never passes or fails.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from foretell.calibrate import fit, fit_file
from foretell.characterize.run import Row, characterize
from foretell.report.characterize import characterized_text

MEASURE = [sys.executable, "-m", "foretell.calibrate.measure"]
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


def links(path: Path) -> str:
    """The network of two processes: latency of the smallest all-reduce, bandwidth of the largest."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = sorted(
        (float(line["dims"]["bytes"]), float(line["seconds"]))
        for line in lines
        if line.get("family") == "all_reduce" and line.get("status") == "done"
    )
    (small, quick_s), (large, slow_s) = found[0], found[-1]
    # A ring of two: two steps, each with half of the bytes.
    bandwidth = (large - small) / max(slow_s - quick_s, 1e-9)
    tier = ["[network.node]", "size = 2", f"bandwidth_bytes_per_s = {bandwidth}"]
    return "\n".join([*tier, f"latency_s = {quick_s / 2.0}", "efficiency = 1.0", ""])


def matrix(chip: Path, steps: int, most: int) -> dict[str, Any]:
    """DP 1 and 2 with ZeRO 0 to 3, over the ladder."""
    points: list[dict[str, Any]] = [{"model": name, "plan": f"{WORDS} mbs4"} for name in MODELS]
    points += [
        {"model": name, "plan": f"{WORDS} zero{zero} mbs2", "processes": 2}
        for name in MODELS
        for zero in range(4)
        if most > 1
    ]
    how = {"device": "cpu", "system": str(chip), "steps": steps, "warmup": 2, "threads": 1}
    return {
        "run": {**how, "memory_share": 100.0},
        "base": {"seq_len": 128},
        "point": points,
        "model": MODELS,
    }


def main() -> None:
    """Measure where no file is given, fit, run, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", default="")
    parser.add_argument("--links", default="")
    parser.add_argument("--minutes", default="5")
    parser.add_argument("--steps", type=int, default=11)
    parser.add_argument("--most", type=int, default=2, help="1: lone processes alone")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        points = Path(given.points or folder / "points.jsonl")
        if not given.points:
            words = [*MEASURE, "--device", "cpu", "--out", str(points), "--minutes", given.minutes]
            subprocess.run(words, check=True, env=ENVIRON)
        between = Path(given.links or folder / "links.jsonl")
        if not given.links and given.most > 1:
            run = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
            run += ["--nproc-per-node", "2", *MEASURE[1:], "--device", "cpu"]
            words = [*run, "--out", str(between), "--only", "collectives", "--minutes", "1"]
            subprocess.run(words, check=True, env=ENVIRON)
        chip = folder / "cpu.toml"
        network = links(between) if given.most > 1 else ""
        chip.write_text(fit_file.chip_toml(fit.calibrate(points, "cpu")) + "\n" + network)
        found = characterize(matrix(chip, given.steps, given.most), out=folder / "out")
        print(characterized_text(found))
        for processes in range(1, given.most + 1):
            here = [r for r in found.rows if r.point.processes == processes and r.measured]
            for how, choose in (("median", median), ("fastest", min)):
                errors = [
                    abs(r.predicted.step_s / step_s(r, choose) - 1.0) for r in here if r.predicted
                ]
                print(f"{processes} processes, {how} step: median error {median(errors):.1%}")


def step_s(row: Row, choose: Callable[[list[float]], float]) -> float:
    """A step on the slowest rank: the median one, or the one that others disturbed least."""
    assert row.measured is not None
    times = [[sum(s["shares_s"].values()) for s in rank["steps"]] for rank in row.measured["ranks"]]
    return max(choose(each) for each in times)


if __name__ == "__main__":
    main()
