"""Fronts are exact: equal to what comparing every pair finds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from foretell.errors import BadInput
from foretell.search import pareto as module
from foretell.search.pareto import beaten_by_tree, pareto_front


def by_pairs(table: np.ndarray) -> np.ndarray:
    """Every row against every other."""
    worse = (table[:, :, None] <= table[:, None, :]).all(axis=0)
    better = (table[:, :, None] < table[:, None, :]).any(axis=0)
    return ~(worse & better).any(axis=0)


@given(st.integers(1, 4), st.integers(1, 60), st.integers(1, 6), st.data())
def test_small_fronts(columns: int, rows: int, most: int, data: st.DataObject) -> None:
    table = data.draw(arrays(float, (columns, rows), elements=st.integers(0, most)))
    assert np.array_equal(pareto_front(list(table)), by_pairs(table))


@pytest.mark.parametrize("columns", [2, 3, 4, 5])
@pytest.mark.parametrize("shape", ["random", "sphere", "coarse"])
def test_larger_fronts(columns: int, shape: str) -> None:
    table = np.random.default_rng(columns).random((columns, 700))
    if shape == "sphere":  # nearly all rows are on the front
        table = 1.0 - table / np.sqrt((table**2).sum(axis=0))
    if shape == "coarse":
        table = np.floor(table * 8)
    assert np.array_equal(pareto_front(list(table)), by_pairs(table))


def test_directions_and_unknown_values() -> None:
    time_s, rate = [1.0, 2.0, 3.0, np.nan, 1.0], [5.0, 9.0, 9.0, 99.0, 5.0]
    found = pareto_front([time_s, rate], ["min", "max"])
    assert found.tolist() == [True, True, False, False, True]
    assert pareto_front([[], []]).tolist() == []
    with pytest.raises(BadInput):
        pareto_front([time_s], ["least"])


def test_many_rows_of_two_columns() -> None:
    table = np.random.default_rng(0).random((2, 200_000))
    front = pareto_front(list(table))
    order = np.flatnonzero(front)[np.argsort(table[0][front])]
    assert (np.diff(table[1][order]) < 0).all()


@pytest.mark.parametrize("columns", [4, 5])
@pytest.mark.parametrize("width", [0.001, 0.1, 1.0])
def test_tree_and_merge_agree(columns: int, width: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shells, thin to filled: the tree says the same as the merge, or leaves it to the merge."""
    chance = np.random.default_rng(columns)
    shell = np.abs(chance.normal(size=(columns, 3000)))
    shell = 1.0 - shell / np.linalg.norm(shell, axis=0) * (1.0 - width * chance.random(3000))
    found = pareto_front(list(shell))
    monkeypatch.setattr(module, "beaten_by_tree", lambda values: None)
    assert np.array_equal(found, pareto_front(list(shell)))
    told = beaten_by_tree(shell)
    if width == 0.001:
        assert told is not None
    assert told is None or np.array_equal(~told, found)
