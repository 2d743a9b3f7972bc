"""Errors of every kernel table: as fitted, with each fifth of its sites left out, with its chip left out.

python tests/bench/bench_kernels.py [DATA_DIR]
"""

import os
import sys
from pathlib import Path

import numpy as np

from foretell.lab.calibrate.kernel_files import read_kernels
from foretell.lab.calibrate.surfaces import KernelRows
from foretell.lab.validate.hardware import predict, shapes

ROWS = 6000
"""Rows of a group that are looked at, evenly picked."""
TABLES = (
    "*_gemm_*",
    "*_attention_*",
    "*_mla*",
    "*_moe*",
    "vidur_*_linear_ops*",
    "llmcompass_measured*",
)


def error(rows: KernelRows, predicted: np.ndarray, keep: np.ndarray) -> str:
    gap = np.abs(predicted / rows.measured_s - 1.0)[keep]
    gap = gap[np.isfinite(gap)]
    return (
        f"{100 * np.median(gap):5.1f}/{100 * np.quantile(gap, 0.9):5.1f}"
        if len(gap)
        else "    -    "
    )


def main(folder: Path) -> None:
    print("median / 90th percentile of the absolute error, %")
    print(f"{'table':52} {'family':16} {'dtype':11} {'rows':>6} {'fitted':>11} {'site out':>11} "
          f"{'LLM shapes':>11} {'chip out':>11}")  # fmt: skip
    for path in sorted(p for pattern in TABLES for p in folder.glob(f"{pattern}.csv.gz")):
        for rows in read_kernels(path).groups:
            count = len(rows.ids)
            few = rows.take(np.unique(np.linspace(0, count - 1, min(count, ROWS)).astype(int)))
            every = np.ones(len(few.ids), bool)
            columns = [error(few, predict(few, left)[0], every) for left in (None, "site", "chip")]
            llm = shapes(few) != "other"
            blind = error(few, predict(few, "site")[0], llm) if not llm.all() else columns[1]
            name = path.name.removesuffix(".csv.gz")[:52]
            print(f"{name:52} {rows.family:16} {rows.dtype:11} {count:6} {columns[0]:>11} "
                  f"{columns[1]:>11} {blind:>11} {columns[2]:>11}", flush=True)  # fmt: skip


if __name__ == "__main__":
    default = os.environ.get("FORETELL_DATA") or Path(__file__).parents[3] / "shared" / "data"
    main(Path(sys.argv[1] if len(sys.argv) > 1 else default) / "kernels")
