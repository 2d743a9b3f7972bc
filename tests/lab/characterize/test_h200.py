"""A ladder of decoders trained by the runner on one H200 beside what is predicted of it today.

Where the figures come from: foretell/validate/own_runs.py.
"""

from pathlib import Path
from statistics import median

import pytest

from foretell.lab.characterize.config import read_config
from foretell.lab.characterize.predict import PointPrediction
from foretell.lab.validate.own_runs import ladder

Rows = list[tuple[dict[str, str], PointPrediction]]


@pytest.fixture(scope="module")
def rows(root: Path) -> Rows:
    """Measured and predicted, in the order of the example."""
    points = read_config(root / "examples" / "characterize_h200.toml").points
    both = ladder(root)
    for (row, _), point in zip(both, points, strict=True):
        told = (row["model"], int(row["micro_batch"]), int(row["micro_batches"]), row["seq_len"])
        plan = point.plan
        assert told == (
            point.model, plan.micro_batch, point.micro_batches, str(point.seq_len),
        )  # fmt: skip
        assert set(row["plan"].split()) <= set(str(plan).split())
    return both


def test_steps_are_met(rows: Rows, root: Path) -> None:
    errors = [guess.step_s / float(row["step_s"]) - 1.0 for row, guess in rows]
    print([f"{error:+.1%}" for error in errors])
    middle = median(abs(error) for error in errors)
    assert middle <= 0.07
    page = (root / "docs" / "characterize.md").read_text()
    assert f"the step of {len(rows)} points is met to {100.0 * middle:.1f} % in the median" in page
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


def test_training_in_32_bits_is_met(root: Path) -> None:
    for row, guess in ladder(root, "wide"):
        assert guess.step_s / float(row["step_s"]) == pytest.approx(1.0, abs=0.10), row["plan"]
        kept = guess.stages[0].held_bytes["activations"]
        assert kept == pytest.approx(float(row["activations_bytes"]), rel=0.005)
        assert guess.allocated_bytes / float(row["max_allocated_bytes"]) == pytest.approx(
            1.0, abs=0.10
        )
