"""The table of the README is what the published runs give today."""

from pathlib import Path

import pytest

from foretell.validate.published import Run, runs, with_table


def test_the_readme_has_the_table_of_today(root: Path) -> None:
    page = (root / "README.md").read_text()
    assert page == with_table(page), "run `python -m foretell.validate.published`"


def test_every_run_names_its_source_and_is_positive() -> None:
    assert len(runs()) >= 15
    for run in runs():
        assert run.source
        assert run.measured_s > 0
        assert run.predicted_s > 0


@pytest.mark.parametrize("run", runs(), ids=lambda run: f"{run.model}-{run.gpus}-{run.plan}")
def test_no_prediction_is_off_by_half(run: Run) -> None:
    """A first version on datasheets alone: a sanity bound, not the accuracy (that is in the README)."""
    assert abs(run.error) < 0.5
