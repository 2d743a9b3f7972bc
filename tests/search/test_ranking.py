"""Errors that systems share cancel; those of their own do not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.search.ranking import Contender, SystemWorkload, beats, doubts, draw, spread_of

PART = SystemWorkload(
    workload="w", share=1.0, seconds=1e-3, usd=1e-6, less=-0.2, more=0.3,
    figures={"finance.rate": (-0.1, 0.2), "system.node_price_usd": (-0.1, 0.1)},
)  # fmt: skip


def system(name: str, architecture: str = "x", **changes: Any) -> Contender:
    """A contender with one workload."""
    return Contender(name=name, architecture=architecture, parts=(replace(PART, **changes),))


def won(a: Contender, b: Contender, *, money: bool = False) -> float:
    """How often the first is better."""
    cases = draw([a, b], many=4000)
    return float(beats(cases.usd if money else cases.seconds)[0, 1])


@settings(max_examples=30, deadline=None)
@given(st.floats(0.3, 3.0), st.floats(0.0, 0.8), st.floats(0.0, 0.8), st.integers(0, 5))
def test_probabilities_are_probabilities(by: float, less: float, more: float, seed: int) -> None:
    a, b = system("a", less=-less, more=more), system("b", "y", seconds=by * PART.seconds)
    cases = draw([a, b], seed, many=1000)
    table = beats(cases.seconds)
    assert table + table.T == pytest.approx(np.ones((2, 2)))
    assert np.all((table >= 0) & (table <= 1))
    again = draw([b, a], seed, many=1000)  # whoever comes first
    assert np.array_equal(again.seconds[::-1], cases.seconds)
    assert np.array_equal(again.usd[::-1], cases.usd)


def test_equals_are_even() -> None:
    assert won(system("a"), system("b")) == pytest.approx(0.5, abs=0.03)
    assert won(system("a"), system("b", "y"), money=True) == pytest.approx(0.5, abs=0.03)
    sure = {"less": 0.0, "more": 0.0, "figures": {}}
    assert won(system("a", **sure), system("b", **sure)) == 0.5


def test_what_is_shared_cancels() -> None:
    """A tenth faster: surer between chips of one architecture, surer still where nothing is in doubt."""
    fast = {"seconds": 0.9 * PART.seconds}
    kin = won(system("a", **fast), system("b"))
    apart = won(system("a", **fast), system("b", "y"))
    wide = won(system("a", **fast), system("b", "y", less=-0.8, more=0.8))
    assert 0.5 < wide < apart < kin < 1.0
    assert won(system("a", less=0.0, more=0.0, **fast), system("b", less=0.0, more=0.0)) == 1.0
    # A figure of all systems moves both alike, however wide; a price of one's own does not.
    cheap = {"usd": 0.9 * PART.usd, "less": 0.0, "more": 0.0}
    rate = {"finance.rate": (-0.5, 0.9)}
    own = {"system.node_price_usd": (-0.5, 0.9)}
    rest = {"less": 0.0, "more": 0.0}
    assert (
        won(system("a", figures=rate, **cheap), system("b", figures=rate, **rest), money=True)
        == 1.0
    )
    assert (
        won(system("a", figures=own, **cheap), system("b", figures=own, **rest), money=True) < 0.75
    )


def test_a_system_alone_has_its_own_interval() -> None:
    """Whoever it is compared with: nine cases in ten lie between the ends that it was given."""
    for others in ([], [system("b")], [system("b", "y", less=-0.01, more=0.01)]):
        cases = draw([system("a"), *others])
        low, high = spread_of(cases.seconds[0], PART.seconds)["p90"]
        assert low == pytest.approx(PART.seconds * np.exp(PART.less), rel=0.02)
        assert high == pytest.approx(PART.seconds * np.exp(PART.more), rel=0.02)


def test_a_figure_goes_its_own_way() -> None:
    """A low end that makes things dearer does: more use of chips is cheaper."""
    part = system("a", less=0.0, more=0.0, figures={"finance.utilisation": (0.4, -0.1)})
    usd = draw([part]).usd[0] / PART.usd
    assert np.percentile(usd, 95) == pytest.approx(1.4, rel=0.03)
    assert np.percentile(usd, 5) == pytest.approx(0.9, rel=0.03)


def test_doubts_name_what_differs() -> None:
    found = dict(doubts(system("a"), system("b", "y"), money=True))
    assert found["speed of w on a"] == found["speed of w on b"] > 0
    assert found["system.node_price_usd of a"] == pytest.approx(0.1, rel=0.01)
    assert "finance.rate" not in found  # the same in both
    assert not [
        name for name in dict(doubts(system("a"), system("b"), money=False)) if "usd" in name
    ]
