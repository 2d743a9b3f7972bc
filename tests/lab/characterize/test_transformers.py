"""Training steps of Hugging Face transformers on one H200 beside what is predicted of them today.

Where the figures come from: foretell/lab/validate/own_runs.py.
"""

from collections.abc import Sequence
from statistics import median

import pytest

from foretell.lab.validate.own_runs import MODES, Point, is_held_out, points

TIME_BAR, MEMORY_BAR = 0.08, 0.07
"""Bars on the median error of a group: of the step, and of the peak that tensors take."""


@pytest.fixture(scope="module")
def every() -> list[Point]:
    """Measured and predicted."""
    return points()


def test_all_points_are_there(every: Sequence[Point]) -> None:
    assert len(every) == 108
    assert {point.mode for point in every} == set(MODES)


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_is_met(every: Sequence[Point], mode: str) -> None:
    some = [point for point in every if point.mode == mode]
    time = [point.time_error for point in some]
    memory = [point.memory_error for point in some]
    print(mode, [f"{error:+.1%}" for error in time], [f"{error:+.1%}" for error in memory])
    assert median(map(abs, time)) <= 0.05
    assert median(map(abs, memory)) <= 0.02
    assert max(map(abs, memory)) <= MEMORY_BAR


def test_every_model_is_met(every: Sequence[Point]) -> None:
    for model in dict.fromkeys(point.row["model"] for point in every):
        some = [point for point in every if point.row["model"] == model]
        assert median(abs(point.time_error) for point in some) <= TIME_BAR, model
        assert median(abs(point.memory_error) for point in some) <= MEMORY_BAR, model


def test_models_that_no_number_was_read_from_are_met(every: Sequence[Point]) -> None:
    some = [point for point in every if is_held_out(point)]
    assert len(some) == 26
    assert median(abs(point.time_error) for point in some) <= 0.03
    assert sum(abs(point.time_error) > TIME_BAR for point in some) <= 2
    assert median(abs(point.memory_error) for point in some) <= 0.01


def test_few_points_are_beyond_the_bar(every: Sequence[Point]) -> None:
    beyond = [point for point in every if abs(point.time_error) > TIME_BAR]
    assert len(beyond) <= 7, [(p.row["model"], p.row["plan"], p.time_error) for p in beyond]
    assert max(abs(point.time_error) for point in every) <= 0.25


def test_passes_are_met_one_by_one(every: Sequence[Point]) -> None:
    """Clipping, update and what stands still around them, with a millisecond for the batch and the loss."""
    errors = []
    for point in every:
        tree = point.told.breakdown
        if point.row["update_ms"] and not point.row["variant"] and tree is not None:
            leaves = [c.value for c in tree.children if c.name in ("optimizer", "fixed")]
            taken = 1.0 + float(point.row["clip_ms"]) + float(point.row["update_ms"])
            errors.append(1e3 * sum(leaves) / taken - 1.0)
    assert median(map(abs, errors)) <= 0.10
