"""A ladder of decoders trained by the runner on one H200 beside what is predicted of it today.

h200_measured.csv: examples/characterize_h200.toml on one NVIDIA H200 (700 W, driver 580.159.04) with PyTorch
2.11.0 (CUDA 13.0), eager, 2026-11-15; medians of two seconds of steps at the clock of the power limit. The
run also printed what autograd kept and what the allocator held at most.
"""

import csv
from pathlib import Path
from statistics import median

import pytest

from foretell.characterize.config import read_config
from foretell.characterize.predict import Prediction, predict

Rows = list[tuple[dict[str, str], Prediction]]


@pytest.fixture(scope="module")
def rows(root: Path) -> Rows:
    """Measured and predicted, in the order of the example."""
    points = read_config(root / "examples" / "characterize_h200.toml").points
    with (Path(__file__).parent / "h200_measured.csv").open() as file:
        measured = list(csv.DictReader(file))
    for row, point in zip(measured, points, strict=True):
        told = (row["model"], int(row["micro_batch"]), int(row["micro_batches"]), row["seq_len"])
        plan = point.plan
        assert told == (
            point.model, plan.micro_batch, point.micro_batches, str(point.seq_len),
        )  # fmt: skip
        assert set(row["plan"].split()) <= set(str(plan).split())
    return [(row, predict(point, "h200-sxm")) for row, point in zip(measured, points, strict=True)]


def test_steps_are_met(rows: Rows) -> None:
    errors = [guess.step_s / float(row["step_s"]) - 1.0 for row, guess in rows]
    print([f"{error:+.1%}" for error in errors])
    assert median(abs(error) for error in errors) <= 0.07
    assert max(abs(error) for error in errors) < 0.10


def test_shares_are_met(rows: Rows) -> None:
    for name in ("forward", "backward", "optimizer"):
        errors = [guess.shares_s[name] / float(row[f"{name}_s"]) - 1.0 for row, guess in rows]
        assert median(abs(error) for error in errors) <= 0.07, name


def test_kept_activations_and_peaks_are_met(rows: Rows, root: Path) -> None:
    points = read_config(root / "examples" / "characterize_h200.toml").points
    vocab = {point.model: point.sizes.vocab for point in points}
    for row, guess in rows:
        kept = guess.stages[0].held_bytes["activations"]
        assert kept == pytest.approx(float(row["activations_bytes"]), rel=0.005)
        # The runner gives scores in 16 bits up before their gradient is made; most loops hold on to them.
        tokens = int(row["micro_batch"]) * int(row["seq_len"])
        held = 2.0 * tokens * vocab[row["model"]] if "master=none" in row["plan"] else 0.0
        measured = float(row["max_allocated_bytes"])
        assert guess.allocated_bytes / measured > 0.99
        assert (guess.allocated_bytes - held) / measured < 1.02
