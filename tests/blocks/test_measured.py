"""Steps of Anthe and its baselines on one H200 (torch 2.11, 2026-11-15) beside the prediction.

`anthe_h200.csv` is what `tests/bench/bench_anthe.py` measured. Weights and gradient bytes are met to the
unit, and the allocator's peak of the recipe that is predicted (all in bf16). Times are a benchmark and
stand in docs/anthe.md.
"""

import csv
from pathlib import Path
from statistics import median

import pytest

from tests.bench.bench_anthe import Case, predict

with (Path(__file__).parent / "anthe_h200.csv").open() as file:
    ROWS = list(csv.DictReader(file))


def predicted(row: dict[str, str]) -> dict[str, float]:
    case = Case(
        model=row["model"],
        form=row["form"],
        batch=int(row["batch"]),
        precision=row["precision"],
        small=False,
    )
    return predict(case, "h200-sxm")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join([*row.values()][:4]))
def test_weights_and_gradients_to_the_unit(row: dict[str, str]) -> None:
    found = predicted(row)
    assert found["weights"] == int(row["weights"])
    assert found["gradient_bytes"] == int(row["gradient_bytes"])


def test_peak_memory() -> None:
    """All in bf16: each to 11 %, in the middle to 3 %."""
    rows = [row for row in ROWS if row["precision"] == "bf16"]
    off = [abs(predicted(row)["peak_bytes"] / int(row["peak_bytes"]) - 1.0) for row in rows]
    assert len(off) == 16
    assert max(off) < 0.11
    assert median(off) < 0.03
