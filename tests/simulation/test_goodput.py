"""Goodput: closed form against a play of it, the best interval, and what must hold of both."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.training.long_run import Interruptions, best_interval_s, goodput

CASES = [
    (300.0, Interruptions(failures_per_s=1 / 5000, restart_s=600.0, wait_s=30.0)),
    (300.0, Interruptions(failures_per_s=1 / 5000, restart_s=600.0, wait_s=5.0, write_s=120.0)),
    (2000.0, Interruptions(failures_per_s=1 / 1500, restart_s=900.0, wait_s=100.0)),
    (400.0, Interruptions(failures_per_s=1 / 1500, restart_s=0.0, wait_s=0.0, write_s=400.0)),
    (60.0, Interruptions(failures_per_s=1 / 100000, restart_s=60.0, wait_s=6.0, write_s=20.0)),
]


def played_goodput(
    interval_s: float, given: Interruptions, failures: int, seed: int = 0
) -> tuple[float, float]:
    """Goodput of a run played through so many failures, and its standard error.

    The same rules event by event, with nothing of the closed form: a failure is drawn, the run goes on
    until it strikes, and what is safe by then is counted.
    """
    random = np.random.default_rng(seed)
    rate, restart = float(given.failures_per_s), float(given.restart_s)
    period, write = interval_s + float(given.wait_s), float(given.write_s)
    kept, spent = np.zeros(failures), np.zeros(failures)
    for i in range(failures):
        while (until := random.exponential(1.0 / rate)) < restart:
            spent[i] += until  # struck while it restarted
        spent[i] += until
        clock, safe_at = restart, []
        while clock + period <= until:
            clock += period
            safe_at.append(clock + write)
        kept[i] = interval_s * sum(at <= until for at in safe_at)
    share = kept.sum() / spent.sum()
    # Ratio of means: its error by the delta method.
    error = np.std(kept - share * spent, ddof=1) / spent.mean() / np.sqrt(failures)
    return float(share), float(error)


@pytest.mark.parametrize(("every", "about"), CASES)
def test_closed_form_agrees_with_a_play(every: float, about: Interruptions) -> None:
    """Within four of the play's own standard errors, which are below one in a hundred."""
    share, error = played_goodput(every, about, failures=20000, seed=7)
    assert 0.0 < error < 0.01
    assert abs(float(goodput(every, about).goodput) - share) < 4.0 * error


def test_a_play_would_tell() -> None:
    """The play is sharp enough to refuse a formula without the write behind the steps."""
    every, about = CASES[1]
    share, error = played_goodput(every, about, failures=20000, seed=7)
    wrong = Interruptions(failures_per_s=about.failures_per_s, restart_s=600.0, wait_s=5.0)
    assert abs(float(goodput(every, wrong).goodput) - share) > 8.0 * error


rates = st.floats(1e-7, 1e-3)
seconds = st.floats(0.0, 3000.0)


@settings(max_examples=200, deadline=None)
@given(rate=rates, restart=seconds, wait=st.floats(0.1, 600.0), write=seconds)
def test_best_interval_is_the_best(rate: float, restart: float, wait: float, write: float) -> None:
    about = Interruptions(failures_per_s=rate, restart_s=restart, wait_s=wait, write_s=write)
    best = float(best_interval_s(about))
    assert best + wait >= write - 1e-9
    top = float(goodput(best, about).goodput)
    assert 0.0 <= top <= 1.0
    others = np.geomspace(max(write - wait, 1e-2), 100.0 / rate, 400)
    assert top >= goodput(others, about).goodput.max() * (1.0 - 1e-12)


@settings(max_examples=100, deadline=None)
@given(rate=rates, wait=st.floats(0.1, 600.0))
def test_best_interval_solves_its_equation(rate: float, wait: float) -> None:
    about = Interruptions(failures_per_s=rate, restart_s=0.0, wait_s=wait)
    x = rate * float(best_interval_s(about))
    assert 1.0 - x == pytest.approx(math.exp(-x - rate * wait), rel=1e-9)
    # Young's first term bounds it from above, and is met where checkpoints are cheap.
    assert x <= math.sqrt(2.0 * rate * wait) * (1.0 + 1e-9)
    if rate * wait < 1e-4:
        assert x == pytest.approx(math.sqrt(2.0 * rate * wait), rel=0.01)


@settings(max_examples=200, deadline=None)
@given(
    every=st.floats(1.0, 1e5),
    rate=rates,
    restart=seconds,
    wait=seconds,
    write=seconds,
    field=st.sampled_from(["failures_per_s", "restart_s", "wait_s", "write_s"]),
    more=st.floats(1.0, 5.0),
)
def test_worse_conditions_never_help(
    every: float, rate: float, restart: float, wait: float, write: float, field: str, more: float
) -> None:
    values = {"failures_per_s": rate, "restart_s": restart, "wait_s": wait, "write_s": write}
    now = float(goodput(every, Interruptions(**values)).goodput)
    worse = values | {field: values[field] * more}
    assert float(goodput(every, Interruptions(**worse)).goodput) <= now * (1.0 + 1e-12)


def test_limits() -> None:
    calm = Interruptions(failures_per_s=0.0, restart_s=600.0, wait_s=30.0)
    assert float(best_interval_s(calm)) == math.inf
    assert float(goodput(math.inf, calm).goodput) == 1.0
    assert float(goodput(270.0, calm).goodput) == pytest.approx(0.9)
    wild = Interruptions(failures_per_s=1.0, restart_s=600.0, wait_s=30.0)
    assert float(goodput(math.inf, wild).goodput) == 0.0
    assert float(goodput(1e6, wild).goodput) == pytest.approx(0.0, abs=1e-200)


def test_a_batch_is_its_cases() -> None:
    every = np.array([e for e, _ in CASES])
    names = ("failures_per_s", "restart_s", "wait_s", "write_s")
    arrays = {n: np.array([getattr(c, n) for _, c in CASES]) for n in names}
    found = goodput(every, Interruptions(**arrays))
    best = best_interval_s(Interruptions(**arrays))
    for i, (one, about) in enumerate(CASES):
        assert found.goodput[i] == pytest.approx(float(goodput(one, about).goodput), rel=1e-14)
        assert best[i] == pytest.approx(float(best_interval_s(about)), rel=1e-12)
