"""collect.py of a bundle: the log of a benchmark as a row that `foretell validate training` reads.

It runs where the benchmark ran, with nothing but Python's standard library, and writes measured.csv: the
columns of the run as it was planned, and the median step of its log, the first steps left out.
"""

import json
from collections.abc import Mapping

COLLECT = '''"""Reads the log of the benchmark and writes measured.csv, a row for `foretell validate
training`."""

import csv
import json
import re
import statistics
import sys

ROW = json.loads(r"""__ROW__""")
WARM_UP = 5
PATTERNS = (
    r"elapsed time per iteration \\(ms\\):\\s*([0-9.]+)",  # Megatron-LM
    r"step_time[^0-9]{1,4}([0-9.]+)\\s*ms",
)
RATES = (r"tps:\\s*([0-9,]+)",)  # torchtitan: tokens per second and GPU
SAMPLES = (r"(?:SamplesPerSec|samples/sec)[=:]\\s*([0-9.]+)",)  # DeepSpeed


def numbers(pattern, text):
    return [float(found.replace(",", "")) for found in re.findall(pattern, text)]


def steps(text):
    tokens = float(ROW["global_batch"]) * float(ROW["seq_len"])
    for pattern in PATTERNS:
        if found := numbers(pattern, text):
            return [one / 1e3 for one in found]
    for pattern in RATES:
        if found := numbers(pattern, text):
            return [tokens / (one * float(ROW["n_gpus"])) for one in found if one]
    for pattern in SAMPLES:
        if found := numbers(pattern, text):
            return [float(ROW["global_batch"]) / one for one in found if one]
    return []


def main():
    with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
        text = log.read()
    found = steps(text)
    if len(found) <= WARM_UP:
        sys.exit(f"{len(found)} steps in the log: more than {WARM_UP} are needed")
    step = statistics.median(found[WARM_UP:])
    row = dict(ROW, score_step_time_s=f"{step:.6f}")
    rate = float(row["global_batch"]) * float(row["seq_len"]) / step / float(row["n_gpus"])
    row["score_tokens_per_s_per_gpu"] = f"{rate:.4f}"
    memory = re.findall(r"max allocated: ([0-9.]+)", text)
    if memory:
        row["peak_mem_gb"] = f"{max(map(float, memory)) / 1024:.3f}"
    with open("measured.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow(row)
    print(f"median step {step:.4f} s of {len(found) - WARM_UP} steps: measured.csv")


main()
'''
"""The script, a row in its place."""


def collect_script(row: Mapping[str, object]) -> str:
    """The script for one run."""
    cells = {name: "" if value is None else str(value) for name, value in row.items()}
    return COLLECT.replace("__ROW__", json.dumps(cells))
