"""Published runs by closed form and by events: as near, source by source and all together."""

from pathlib import Path

import pytest

from foretell.lab.validate.training import (
    RunPrediction,
    prediction_of,
    score_rows,
    score_training,
    simulated,
)
from foretell.lab.validate.training_rows import TrainingRow, read_rows
from foretell.simulation.answer import overlaps, with_step
from tests.lab.validate.test_training import make_row
from tests.surfaces.command import foretell

EACH = 2
"""Rows of a source in the short form."""


def some(path: Path) -> list[TrainingRow]:
    """The first few rows of every source that have a pipeline or replicas."""
    found: dict[str, list[TrainingRow]] = {}
    for row in read_rows(path):
        mine = found.setdefault(row.source, [])
        if len(mine) < EACH and (row.step_s or row.rate):
            told = prediction_of(row)
            mine += [row] if isinstance(told, RunPrediction) and overlaps(told.plan) else []
    return [row for rows in found.values() for row in rows]


@pytest.fixture(scope="module")
def table(data_dir: Path) -> Path:
    return data_dir / "training" / "measured_runs.csv.gz"


def test_events_are_as_good_as_the_closed_form_on_some_runs(table: Path) -> None:
    """Some hundred runs: no score is more than half a point worse."""
    facts = score_rows(some(table), simulate=True).facts
    closed, events = facts["simulated"]["closed"], facts["simulated"]["events"]
    assert facts["simulated_rows"] > 40
    for score in ("median_ape", "median_of_sources", "mean_of_sources"):
        assert events[score] <= closed[score] + 0.005


@pytest.mark.full
def test_events_are_as_good_as_the_closed_form(table: Path) -> None:
    facts = score_training(table, simulate=True).facts
    closed, events = facts["simulated"]["closed"], facts["simulated"]["events"]
    assert events["median_ape"] <= closed["median_ape"] + 0.001
    assert events["median_of_sources"] <= closed["median_of_sources"] + 0.001


def test_a_row_without_pipeline_or_replicas_stays_as_it_is() -> None:
    told = prediction_of(make_row(n_gpus=8, tp=8))
    assert isinstance(told, RunPrediction)
    assert simulated(told) is told
    told = prediction_of(make_row(n_gpus=8))
    assert isinstance(told, RunPrediction)
    found = simulated(told)
    assert found.answer.step_s != told.answer.step_s
    assert found.answer.step_s == pytest.approx(told.answer.step_s, rel=0.1)


def test_another_step_time_changes_the_rates_with_it() -> None:
    told = prediction_of(make_row())
    assert isinstance(told, RunPrediction)
    slower = with_step(told.answer, 2.0 * told.answer.step_s)
    assert slower.mfu == pytest.approx(0.5 * told.answer.mfu)
    assert slower.tokens_per_s == pytest.approx(0.5 * told.answer.tokens_per_s)
    low, high = (told.answer.interval or {})["p90"]
    assert (slower.interval or {})["p90"] == pytest.approx((2.0 * low, 2.0 * high))


def test_the_verb_tells_both_scores(tmp_path: Path, table: Path) -> None:
    import csv
    import gzip

    with gzip.open(table, "rt", encoding="utf-8", newline="") as lines:
        rows = list(csv.reader(lines))
    path = tmp_path / "runs.csv"
    with path.open("w", newline="") as out:
        csv.writer(out).writerows(rows[:9])
    told = foretell("validate", "training", str(path), "--simulate", "--json").json
    assert set(told["simulated"]) == {"closed", "events"}
    text = foretell("validate", "training", str(path), "--simulate").out
    assert "by events: median error" in text
    assert "simulated" not in foretell("validate", "training", str(path), "--json").json
