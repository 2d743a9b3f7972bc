"""Yields: identities between the models, and harvesting against throwing defects at dies."""

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.economics.silicon import (
    defect_shares,
    good_share,
    hit_shares,
    perfect_share,
)
from foretell.specs.package import Die, Process, YieldModel

MODELS: tuple[YieldModel, ...] = (
    "negative-binomial", "poisson", "murphy", "seeds", "bose-einstein",
)  # fmt: skip
FEW = st.floats(0.0, 3.0)


@given(FEW, st.sampled_from(MODELS), st.floats(1.0, 12.0))
def test_shares_of_counts(x: float, model: YieldModel, alpha: float) -> None:
    x = x / 5.0 if model == "bose-einstein" else x
    shares = defect_shares(x, model, alpha)
    assert shares[0] == pytest.approx(float(perfect_share(x, model, alpha)), rel=1e-9)
    assert shares.sum() == pytest.approx(1.0, abs=1e-4)
    mean = float((shares * np.arange(len(shares))).sum())
    assert mean == pytest.approx(x * alpha if model == "bose-einstein" else x, rel=2e-2, abs=1e-9)


@given(FEW)
def test_models_meet(x: float) -> None:
    assert perfect_share(x, "negative-binomial", 1.0) == pytest.approx(perfect_share(x, "seeds"))
    poisson = perfect_share(x, "poisson")
    assert perfect_share(x, "negative-binomial", 1e9) == pytest.approx(poisson, rel=1e-6)
    assert perfect_share(x, "bose-einstein", 1.0) == pytest.approx(perfect_share(x, "seeds"))
    # Clusters leave more dies free of defects.
    assert poisson <= perfect_share(x, "murphy") <= perfect_share(x, "seeds") * (1 + 1e-12)


@given(FEW, FEW, st.sampled_from(MODELS), st.integers(1, 40), st.integers(0, 8))
def test_more_defects_and_fewer_spares_are_never_better(
    x: float, more: float, model: YieldModel, units: int, spare: int
) -> None:
    def share(defects: float, needed: int) -> float:
        die = Die(node="", area_mm2=100.0, units=units, units_needed=needed, units_share=0.6)
        process = Process(wafer_usd=1.0, defects_per_cm2=defects)
        return float(good_share(die, process, model))

    needed = max(units - spare, 0)
    assert share(x + more, needed) <= share(x, needed) * (1 + 1e-9)
    assert share(x, units) <= share(x, needed) * (1 + 1e-9)
    assert share(x, units) == pytest.approx(
        float(perfect_share(x, model)), rel=1e-9
    )  # nothing spare


def test_harvesting_against_throwing_defects() -> None:
    """Gamma-distributed densities, Poisson counts, defects at random: what the closed form sums."""
    draw = np.random.default_rng(7)
    dies, units, spare, inside, x, alpha = 200_000, 20, 2, 0.6, 0.9, 3.0
    counts = draw.poisson(x * draw.gamma(alpha, 1.0 / alpha, dies))
    good = 0
    for count in range(counts.max() + 1):
        many = int((counts == count).sum())
        places = draw.random((many, count))
        hit = np.floor(places / inside * units)
        touched = np.array([len(set(row)) for row in hit]) if count else np.zeros(many)
        good += int(((places < inside).all(1) & (touched <= spare)).sum())
    die = Die(node="", area_mm2=100.0, units=units, units_needed=units - spare, units_share=inside)
    process = Process(wafer_usd=1.0, defects_per_cm2=x, clustering=alpha)
    assert float(good_share(die, process)) == pytest.approx(good / dies, abs=0.004)


def test_hits() -> None:
    assert hit_shares(4, 4)[5] == 1.0
    assert hit_shares(4, 1)[2] == pytest.approx(1 / 4)
    assert hit_shares(4, 0)[:2] == (1.0, 0.0)


def test_repair_takes_its_share_off() -> None:
    half = Die(node="", area_mm2=800.0, repairable_share=0.5)
    process = Process(wafer_usd=1.0, defects_per_cm2=0.1)
    assert good_share(half, process) == good_share(Die(node="", area_mm2=400.0), process)


def test_independent_units_are_the_limit_of_no_clustering() -> None:
    """Poisson defects: units are bad independently, so that both ways of counting agree."""
    die = Die(node="", area_mm2=100.0, units=12, units_needed=10, units_share=0.6)
    x = 0.8
    counted = good_share(die, Process(wafer_usd=1.0, defects_per_cm2=x), "poisson")
    bad = 1 - np.exp(-0.6 * x / 12)
    few = sum(comb(12, k) * bad**k * (1.0 - bad) ** (12 - k) for k in range(3))
    assert float(counted) == pytest.approx(np.exp(-0.4 * x) * few)
