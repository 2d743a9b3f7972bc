"""The posterior of measured runs: exact where it can be checked, sharper with more runs, robust to one."""

from dataclasses import replace

import numpy as np
import pytest

from foretell.catalog.measured_priors import measured_prior
from foretell.specs.corrections import SERVING, TRAINING
from foretell.uncertainty.causes import causes_of
from foretell.uncertainty.posterior import MeasuredRun, condition, quantile

PRIOR = measured_prior("training")
SURE = replace(
    PRIOR,
    outliers=((0.1, 1e-9), (0.3, 1e-9)),
    wide_share=1e-12,
    part_share=1e-12,
    interval_scale=1.0,
    place_scales=((1.0, 1.0),),
)


def run(ratio: float, *, gemm: float = 0.8, tensor: float = 0.2, tp: float = 3.0) -> MeasuredRun:
    slopes = np.zeros(len(TRAINING))
    slopes[TRAINING.index("gemm")] = gemm
    slopes[TRAINING.index("tensor_parallel")] = tensor
    features: dict[str, float | str] = {"tp": tp, "model": "a", "chip": "b", "format": "bf16"}
    return MeasuredRun(slopes=slopes, log_ratio=ratio, features=features, traits={})


def width(runs: list[MeasuredRun]) -> float:
    low, high = condition(PRIOR, TRAINING, runs).of(run(0.0)).interval["p90"]
    return high - low


def test_one_run_without_outliers_is_the_closed_form() -> None:
    one = run(0.2)
    spread = np.array([SURE.spread[name] for name in TRAINING])
    own = np.array([SURE.row_spread[name] for name in TRAINING])
    common = (one.slopes**2 * spread**2).sum() + SURE.shared**2 + SURE.likeness**2
    noise = SURE.noise**2 + (one.slopes**2 * own**2).sum()
    said = condition(SURE, TRAINING, [one]).of(one)
    assert said.median == pytest.approx(
        SURE.mean + common / (common + noise) * (0.2 - SURE.mean), rel=1e-4
    )


def test_a_scale_of_all_places_is_a_factor_on_all_spreads() -> None:
    """Twice the scale with twice the residual is the same posterior, twice as wide."""
    wide = replace(SURE, place_scales=((2.0, 1.0),), mean=0.0)
    said = condition(replace(SURE, mean=0.0), TRAINING, [run(0.1)]).of(run(0.0, tp=5.0))
    twice = condition(wide, TRAINING, [run(0.2)]).of(run(0.0, tp=5.0))
    assert twice.median == pytest.approx(2.0 * said.median, rel=1e-6)
    assert twice.interval["p90"] == pytest.approx([2.0 * v for v in said.interval["p90"]], rel=1e-6)
    assert twice.deviations == pytest.approx(2.0 * said.deviations, rel=1e-6)


def test_runs_as_predicted_make_a_tidy_place_and_a_narrow_interval() -> None:
    """What one run is off by says how far the next may be: not only where it is."""
    prior = replace(SURE, place_scales=((0.4, 0.5), (1.0, 0.3), (2.5, 0.2)))
    widths = []
    for ratio in (prior.mean, 0.08, 0.2):
        low, high = condition(prior, TRAINING, [run(ratio)]).of(run(0.0)).interval["p90"]
        widths.append(high - low)
    assert widths[0] < widths[1] < widths[2]
    one = condition(replace(SURE, place_scales=((1.0, 1.0),)), TRAINING, [run(0.0)])
    assert widths[0] < np.subtract(*one.of(run(0.0)).interval["p90"][::-1])


def test_nothing_measured_leaves_the_prior() -> None:
    said = condition(PRIOR, TRAINING, []).of(run(0.0))
    assert said.median == pytest.approx(PRIOR.mean, abs=1e-6)
    assert said.factors == pytest.approx(np.full(len(TRAINING), PRIOR.mean))


def test_more_runs_narrow_the_interval() -> None:
    assert width([run(0.05)] * 4) < width([run(0.05)]) < width([])


def test_a_run_that_was_measured_itself_is_known() -> None:
    one = replace(run(0.4), key="this plan")
    found = condition(PRIOR, TRAINING, [one])
    said, other = found.of(replace(one, log_ratio=0.0)), found.of(run(0.0))
    assert said.median == pytest.approx(0.4, abs=0.02)
    assert other.median < said.median
    low, high = said.interval["p90"]
    assert high - low < 0.1


def test_a_mechanism_carries_over_less_to_an_unlike_run() -> None:
    prior = replace(SURE, carry=0.5, likeness=1e-6)
    found = condition(prior, TRAINING, [run(0.2)])
    assert found.of(run(0.0)).median > found.of(run(0.0, tp=9.0)).median > 0.05
    whole = condition(replace(prior, carry=1.0), TRAINING, [run(0.2)])
    assert whole.of(run(0.0)).median == pytest.approx(whole.of(run(0.0, tp=9.0)).median)


def test_a_slow_fabric_is_told_from_the_rest() -> None:
    def wired(ratio: float, share: float) -> MeasuredRun:
        one = run(ratio, gemm=1.0 - share, tensor=0.0)
        one.slopes[TRAINING.index("between_nodes")] = share
        return one

    runs = [wired(0.01, 0.02), wired(0.6, 0.6), wired(0.52, 0.5), wired(0.45, 0.42)]
    alike = replace(PRIOR, place_scales=((1.0, 1.0),))  # a rough place would explain it as well
    for prior, least in ((alike, 0.8), (PRIOR, 0.4)):
        found = condition(prior, TRAINING, runs)
        slow = sum(
            weight
            for case, weight in zip(found.cases, found.weights, strict=True)
            if case.place is found.places[-1]
        )
        assert slow > least > prior.part_share
        factors = dict(zip(TRAINING, found.of(runs[1]).factors, strict=True))
        assert factors["between_nodes"] > 0.3 > 0.1 > abs(factors["gemm"])


def test_an_unlike_run_says_less() -> None:
    near = condition(SURE, TRAINING, [run(0.2)]).of(run(0.0)).median
    far = condition(SURE, TRAINING, [run(0.2, gemm=0.0, tensor=0.0, tp=8.0)]).of(run(0.0)).median
    assert near > far


def test_a_run_that_contradicts_the_rest_is_flagged_and_hardly_moves_it() -> None:
    calm = [run(0.02), run(0.03), run(0.025)]
    found = condition(PRIOR, TRAINING, [*calm, run(1.2)])
    assert found.outlier_shares[-1] > 0.9
    assert max(found.outlier_shares[:-1]) < 0.3
    before = condition(PRIOR, TRAINING, calm).of(run(0.0)).median
    assert found.of(run(0.0)).median == pytest.approx(before, abs=0.03)


def test_many_runs_are_judged_by_each_other() -> None:
    found = condition(PRIOR, TRAINING, [*[run(0.1 + 0.001 * i) for i in range(12)], run(-1.0)])
    assert found.outlier_shares[-1] > 0.5
    assert found.of(run(0.0)).median == pytest.approx(0.1, abs=0.03)


def test_every_source_has_a_prior_without_it() -> None:
    assert measured_prior("training", "no such source") == PRIOR
    left = measured_prior("training", "Korthikanti et al. 2022 Table 5")
    assert left.spread.keys() == PRIOR.spread.keys() == set(TRAINING)
    assert measured_prior("serving").spread.keys() == set(SERVING)


def test_quantiles_of_a_mixture() -> None:
    one = np.array([1.0]), np.array([0.3]), np.array([0.1])
    assert quantile(*one, 0.5) == pytest.approx(0.3, abs=1e-6)
    assert quantile(*one, 0.95) == pytest.approx(0.3 + 0.16449, abs=1e-4)


def test_causes_sum_to_one_and_follow_the_slopes() -> None:
    found = causes_of(condition(SURE, TRAINING, [run(0.3, gemm=0.1, tensor=0.9)]), 0)
    assert found.probability.sum() == pytest.approx(1.0)
    assert found.names[int(found.probability.argmax())] == "tensor_parallel"
    assert found.share.sum() == pytest.approx(0.3, abs=0.05)
