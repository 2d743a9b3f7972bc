"""Chance: draws as their distributions say, equal for equal seeds, and the slowest of many counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.simulation.chance import (
    Chance,
    SyncGroups,
    chance_problems,
    draw,
    job_steps,
    largest_normal,
    slow_stages,
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("of", [1, 8, 64])
def test_the_largest_of_many_draws(of: int) -> None:
    """As many draws and their largest, within the error of twenty thousand."""
    direct = rng(1).standard_normal((20_000, of)).max(axis=1)
    drawn = largest_normal(rng(2), of, 20_000)
    for q in (5, 50, 95):
        assert np.percentile(drawn, q) == pytest.approx(np.percentile(direct, q), abs=0.05)


def test_jitter_has_its_mean_and_spread() -> None:
    found = draw(Chance(jitter=0.1), SyncGroups(ranks=1, replicas=1), (40_000,), rng()).factors[0]
    assert found.mean() == pytest.approx(1.0, abs=0.002)
    assert found.std() == pytest.approx(0.1, rel=0.03)


@given(st.integers(0, 99), st.floats(0.0, 0.3), st.integers(1, 64))
def test_more_ranks_that_meet_take_longer(seed: int, jitter: float, ranks: int) -> None:
    """The same draws: the largest of more is never smaller."""
    few = draw(Chance(jitter=jitter), SyncGroups(ranks=1, replicas=1), (50, 50), rng(seed))
    many = draw(Chance(jitter=jitter), SyncGroups(ranks=ranks, replicas=1), (50, 50), rng(seed))
    for a, b in zip(few.factors, many.factors, strict=True):
        assert (b >= a - 1e-3).all()
    if jitter == 0.0:
        assert (many.factors[0] == 1.0).all()


def test_stragglers_come_as_often_as_they_should() -> None:
    """A stage of 16 ranks at one in a hundred: 1 - 0.99^16; of many replicas the worst is played."""
    chance, source = Chance(stragglers=0.01), rng(3)
    alone = [slow_stages(chance, SyncGroups(ranks=16, replicas=1), 8, source) for _ in range(2000)]
    assert np.mean(alone) == pytest.approx(1.0 - 0.99**16, rel=0.05)
    worst = [slow_stages(chance, SyncGroups(ranks=16, replicas=32), 8, source) for _ in range(50)]
    assert np.mean(worst) > 2.0 * np.mean(alone)
    slow = draw(Chance(stragglers=1.0, slowdown=1.5), SyncGroups(ranks=1, replicas=1), (3,), source)
    assert slow.factors[0].tolist() == [1.5, 1.5, 1.5]


def test_a_job_waits_for_the_slowest_of_its_replicas() -> None:
    """Against as many pipelines played at once: mean and ninetieth percentile of their largest."""
    steps = rng(4).normal(10.0, 0.2, 400)
    direct = rng(5).normal(10.0, 0.2, (20_000, 64)).max(axis=1)
    found = job_steps(steps, np.zeros(400, np.int64), 64, rng(6))
    assert found.mean() == pytest.approx(direct.mean(), abs=0.05)
    assert np.percentile(found, 90) == pytest.approx(np.percentile(direct, 90), abs=0.05)
    alone = job_steps(steps, np.zeros(400, np.int64), 1, rng(6))
    assert alone.mean() == pytest.approx(steps.mean(), abs=0.01)


def test_stragglers_are_no_jitter() -> None:
    """Steps with and without a slow stage are two values, not a spread that replicas widen."""
    steps = np.array([10.0] * 30 + [13.0] * 10)
    found = job_steps(steps, (steps > 11).astype(np.int64), 1000, rng(7))
    assert set(np.round(found, 9)) == {10.0, 13.0}


def test_all_that_is_wrong_is_said() -> None:
    found = chance_problems(
        {"jitter": -1.0, "stragglers": "x", "slowdown": float("nan")}, {"repeats": 0, "seed": 1.5}
    )
    assert [p.path for p in found] == ["jitter", "stragglers", "slowdown", "repeats", "seed"]
    assert not chance_problems({"jitter": 0, "slowdown": 2.0}, {"repeats": 1, "seed": 0})
