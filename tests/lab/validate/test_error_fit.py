"""Widths of intervals by figure: rows and groups that were left out lie inside nine times in ten."""

from types import SimpleNamespace

import numpy as np
import pytest

from foretell.lab.validate.contacts import KINDS
from foretell.lab.validate.error_fit import by_figure, figure_widths
from foretell.lab.validate.error_likelihood import start_of


def held(figure, errors, group="one", end=0.3):
    """Rows left out, all with one interval."""
    return [
        SimpleNamespace(
            row=SimpleNamespace(figure=(figure,), group=f"{group} {figure}", log_error=error),
            low=-end,
            high=end,
        )
        for error in errors
    ]


@pytest.mark.parametrize("spread", [0.05, 0.2, 0.6])
def test_nine_in_ten_rows_lie_inside_afterwards(spread):
    errors = np.random.default_rng(1).normal(0.0, spread, 400)
    factor = figure_widths(held("tpot", errors))["tpot"]
    assert float(np.mean(np.abs(errors) <= 0.3 * factor)) == pytest.approx(0.9, abs=0.02)


def test_a_large_group_that_is_met_does_not_hide_small_ones_that_are_not():
    near = held("e2e", [0.01] * 90)
    far = [one for i in range(10) for one in held("e2e", [0.6], f"far {i}")]
    assert figure_widths(near)["e2e"] < 0.1 < 1.0 < figure_widths([*near, *far, *far])["e2e"]


def test_a_factor_moves_the_weight_of_its_figure_alone():
    kind = KINDS["serving"]
    before = start_of(kind)
    after = by_figure(kind, before, {"e2e": 2.0, "tpot": 3.0})
    moved = np.flatnonzero(after - before)
    assert len(moved) == 1
    assert (after - before)[moved] == pytest.approx(np.log(2.0))
