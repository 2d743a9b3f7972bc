"""The posterior of measured runs: exact where it can be checked, sharper with more runs, robust to one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.catalog.error_models import error_model
from foretell.specs.corrections import POST_TRAINING, SERVING, TRAINING, TRAINING_MEMORY
from foretell.uncertainty.posterior import MeasuredRun, condition, prior_interval, quantile
from foretell.uncertainty.words import causes_of

MODEL = error_model("training")
SURE = replace(MODEL, tails=(1.0,), own_kinds=((1.0, 1.0),), skew=0.0)


def run(ratio: float, *, gemm: float = 0.8, tensor: float = 0.2, tp: float = 3.0) -> MeasuredRun:
    slopes = np.zeros(len(TRAINING))
    slopes[TRAINING.index("gemm")] = gemm
    slopes[TRAINING.index("tensor_parallel")] = tensor
    features: dict[str, float | str] = {"tp": tp, "model": "a", "chip": "b", "format": "bf16"}
    return MeasuredRun(slopes=slopes, log_ratio=ratio, features=features)


def width(runs: list[MeasuredRun]) -> float:
    low, high = condition(MODEL, TRAINING, runs).of(run(0.0)).interval["p90"]
    return high - low


def test_one_run_is_the_closed_form() -> None:
    one = run(0.2)
    each = np.array([SURE.mechanisms[name] for name in TRAINING])
    common = ((one.slopes * each) ** 2).sum() + SURE.common**2 + SURE.alike**2
    said = condition(SURE, TRAINING, [one]).of(one)
    share = common / (common + SURE.own**2)
    assert said.median == pytest.approx(SURE.mean + share * (0.2 - SURE.mean), rel=1e-4)


@given(ratio=st.floats(-1.0, 1.0))
def test_a_lone_run_is_never_an_outlier(ratio: float) -> None:
    """There is nothing to contradict it: a step twice as slow as predicted moves the next one as far."""
    found = condition(MODEL, TRAINING, [run(ratio)])
    assert found.outlier_shares == (0.0,)
    said = found.of(run(0.0))
    assert said.median == pytest.approx(ratio, abs=0.05 + 0.1 * abs(ratio))


def test_a_larger_surprise_is_believed_more() -> None:
    """Heavy tails: what is far off is far off as a whole."""
    shares = [
        condition(MODEL, TRAINING, [run(ratio)]).of(run(0.0)).median / ratio
        for ratio in (0.1, 0.3, 0.6)
    ]
    assert shares[0] < shares[1] < shares[2] <= 1.02


def test_runs_as_predicted_make_a_narrow_interval() -> None:
    """What one run is off by says how far the next may be: not only where it is."""
    widths = [width([run(ratio)]) for ratio in (MODEL.mean, 0.15, 0.4)]
    assert widths[0] < widths[1] < widths[2]


def test_nothing_measured_is_the_prior_interval() -> None:
    """The table of quantiles gives what the mixture gives."""
    for one in (run(0.0), run(0.0, gemm=0.4, tensor=0.6)):
        said = condition(MODEL, TRAINING, []).of(one)
        table = prior_interval(MODEL, TRAINING, one)
        for key, ends in said.interval.items():
            assert table[key] == pytest.approx(ends, abs=0.01)


def test_more_runs_narrow_the_interval() -> None:
    assert width([run(0.05)] * 4) < width([run(0.05)]) < width([])
    assert width([run(0.05)]) < 0.6 * width([])


def test_novelty_widens_everything_alike() -> None:
    new = dict.fromkeys(MODEL.novelty, 1.0)
    old, wide = (prior_interval(MODEL, TRAINING, one)["p90"] for one in
                 (run(0.0), replace(run(0.0), novelty=new)))  # fmt: skip
    scale = np.exp(sum(MODEL.novelty.values()))
    centre = MODEL.mean
    assert [end - centre for end in wide] == pytest.approx([scale * (e - centre) for e in old])


def test_a_rate_is_a_time_turned_over() -> None:
    low, high = prior_interval(MODEL, TRAINING, run(0.0))["p90"]
    turned = replace(run(0.0), slopes=-run(0.0).slopes)
    assert prior_interval(MODEL, TRAINING, turned)["p90"] == pytest.approx((-high, -low))


def test_a_run_that_was_measured_itself_is_known() -> None:
    one = replace(run(0.4), key="this plan")
    found = condition(MODEL, TRAINING, [one])
    said = found.of(replace(one, log_ratio=0.0))
    assert said.median == pytest.approx(0.4, abs=0.02)
    low, high = said.interval["p90"]
    assert high - low < 0.1


def test_slow_communication_is_told_from_the_rest() -> None:
    runs = [run(r, gemm=1.0 - s, tensor=s) for r, s in ((0.01, 0.02), (0.6, 0.6), (0.5, 0.5))]
    factors = dict(zip(TRAINING, condition(MODEL, TRAINING, runs).of(runs[1]).factors, strict=True))
    assert factors["tensor_parallel"] > 0.4 > 0.15 > abs(factors["gemm"])


def test_an_unlike_run_says_less() -> None:
    near = condition(MODEL, TRAINING, [run(0.2)]).of(run(0.0))
    far = condition(MODEL, TRAINING, [run(0.2, tp=9.0)]).of(run(0.0))
    assert near.median > far.median
    assert np.subtract(*near.interval["p90"][::-1]) < np.subtract(*far.interval["p90"][::-1])


def test_a_run_that_contradicts_the_rest_is_flagged_and_hardly_moves_it() -> None:
    calm = [run(0.02), run(0.03), run(0.025)]
    found = condition(MODEL, TRAINING, [*calm, run(1.2)])
    assert found.outlier_shares[-1] > 0.9
    assert max(found.outlier_shares[:-1]) < 0.3
    before = condition(MODEL, TRAINING, calm).of(run(0.0)).median
    assert found.of(run(0.0)).median == pytest.approx(before, abs=0.1)


def test_two_runs_that_contradict_each_other_are_said_to() -> None:
    found = condition(MODEL, TRAINING, [run(0.0), run(0.6)])
    assert max(found.outlier_shares) > 0.5


def test_many_runs_are_judged_by_each_other() -> None:
    found = condition(MODEL, TRAINING, [*[run(0.1 + 0.001 * i) for i in range(12)], run(-1.0)])
    assert found.outlier_shares[-1] > 0.5
    assert found.of(run(0.0)).median == pytest.approx(0.1, abs=0.05)


def test_every_kind_has_a_model_and_sources_can_be_left_out() -> None:
    assert error_model("training", "no such source") == MODEL
    left = error_model("training", "DeepSeek-V3 technical report")
    assert left.mechanisms.keys() == MODEL.mechanisms.keys() == set(TRAINING)
    assert left.common != MODEL.common
    assert error_model("serving").mechanisms.keys() == set(SERVING)
    assert error_model("post-training").mechanisms.keys() == set(POST_TRAINING)
    assert error_model("memory").mechanisms.keys() == set(TRAINING_MEMORY)


def test_quantiles_of_a_mixture() -> None:
    one = np.array([1.0]), np.array([0.3]), np.array([0.1])
    assert quantile(*one, 0.5) == pytest.approx(0.3, abs=1e-6)
    assert quantile(*one, 0.95) == pytest.approx(0.3 + 0.16449, abs=1e-4)


def test_causes_sum_to_one_and_follow_the_slopes() -> None:
    found = causes_of(condition(SURE, TRAINING, [run(0.3, gemm=0.1, tensor=0.9)]), 0)
    assert found.probability.sum() == pytest.approx(1.0)
    assert found.names[int(found.probability.argmax())] == "tensor_parallel"
    assert found.share.sum() == pytest.approx(0.3, abs=0.05)
