"""Intervals of derived numbers: around the number, nested, turned where it falls, as sure as their causes."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foretell
from foretell.api.answers import Estimate, estimate_answer
from foretell.inputs.software import with_software
from foretell.kernels.memory import HeldBytes
from foretell.simulation.answer import with_step
from foretell.specs.plan import Plan
from foretell.training.answer import answer_of
from foretell.training.feasibility import (
    CLOSE_SHARE,
    TENSOR_ERROR,
    VERDICTS,
    memory_verdict,
    verdict_codes,
)
from foretell.uncertainty.intervals import (
    SURE,
    Interval,
    cause,
    combine_causes,
    fit_probability,
    held_intervals,
    inverse_cause,
    of_estimate,
    of_ranges,
    probability_by_ends,
    range_cause,
    share_of_cause,
    t_share,
    times,
    watts_cause,
)
from tests.builders import STACKS, make_scenario

RATES = ("tokens_per_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "hfu", "mfu_causal")
MEMORY = ("allocated_bytes", "reserved_bytes", "peak_memory_bytes")


@st.composite
def causes(draw: st.DrawFn) -> Interval:
    """Factors around 1, nested."""
    far = [draw(st.floats(0.0, 2.0)) for _ in range(2)]
    near = [end * draw(st.floats(0.0, 1.0)) for end in far]
    ends = {"p50": near, "p90": far}
    return {key: (math.exp(-low), math.exp(high)) for key, (low, high) in ends.items()}


def holds(value: float, interval: Interval) -> bool:
    """The number is inside, and half of the cases inside nine tenths of them."""
    (low90, high90), (low50, high50) = interval["p90"], interval["p50"]
    slack = 1e-9 * abs(value)
    return (
        low90 <= low50 + slack
        and low50 <= value + slack
        and value <= high50 + slack
        and high50 <= high90 + slack
    )


@given(causes(), causes(), st.floats(1e-6, 1e9), st.floats(0.0, 1.0))
def test_rules_keep_the_number_inside(a: Interval, b: Interval, value: float, part: float) -> None:
    for found in (
        a,
        inverse_cause(a),
        combine_causes(a, b),
        share_of_cause(a, part),
        combine_causes(share_of_cause(a, part), inverse_cause(b)),
    ):
        assert holds(value, times(value, found))
    for key, (low, high) in combine_causes(a, b).items():
        assert low <= min(a[key][0], b[key][0]) * (1 + 1e-12)
        assert high >= max(a[key][1], b[key][1]) * (1 - 1e-12)
    assert inverse_cause(inverse_cause(a))["p90"] == pytest.approx(a["p90"])
    assert combine_causes(a, SURE)["p90"] == pytest.approx(a["p90"])
    assert cause(value, times(value, a))["p90"] == pytest.approx(
        (max(a["p90"][0], 1e-3), a["p90"][1])
    )


@given(st.floats(1.0, 1e3), st.floats(0.0, 1.0), st.floats(0.0, 3.0))
def test_ranges_of_nine_cases_in_ten(value: float, less: float, more: float) -> None:
    low, high = value * (1.0 - 0.9 * less), value * (1.0 + more)
    for found in (
        of_ranges({"usd": value, "low_usd": low, "high_usd": high})["usd"],
        times(value, range_cause(value, low, high)),
    ):
        assert found["p90"] == pytest.approx((low, high))
        assert holds(value, found)


def test_a_draw_stays_below_the_limit() -> None:
    assert watts_cause(690.0, 700.0)["p90"][1] == pytest.approx(700.0 / 690.0)
    assert watts_cause(710.0, 700.0)["p90"][1] == 1.0
    assert watts_cause()["p90"] == pytest.approx((0.85, 1.15))


def answer(name: str = "dense", **plan: object) -> Estimate:
    scenario = make_scenario(name, gpus=4, batch=16)
    words = Plan(**({"tp": 2, "dp": 2, "sp": True} | plan))  # type: ignore[arg-type]
    scenario = with_software(scenario, words)
    return estimate_answer(answer_of(scenario, words, chosen=False))


@pytest.mark.parametrize("name", sorted(STACKS))
def test_every_number_of_a_step_is_inside_its_interval(name: str) -> None:
    found = answer(name)
    told = found.intervals
    assert set(told) == {"step_s", *MEMORY, "energy_joules", "joules_per_token", *RATES}
    for number, interval in told.items():
        assert holds(getattr(found, number), interval), number
    assert found.interval is not None
    for key, ends in found.interval.items():
        assert told["step_s"][key] == pytest.approx(ends)
    for rate in RATES:  # rate x time is what is done, at either end too
        done = getattr(found, rate) * found.step_s
        for key, (low, high) in told["step_s"].items():
            assert told[rate][key] == pytest.approx((done / high, done / low))
    assert 0.0 <= (found.fit_probability or 0.0) <= 1.0


def test_energy_follows_the_time_by_its_base_alone() -> None:
    """A step that may take twice as long need not take twice the energy."""
    found = answer()
    sure = replace(found, interval=dict.fromkeys(("p50", "p90"), (found.step_s, found.step_s)))
    slow = replace(found, interval=dict.fromkeys(("p50", "p90"), (found.step_s, 2 * found.step_s)))
    ends = [of_estimate(one)["energy_joules"]["p90"][1] for one in (sure, slow)]
    assert ends[0] < ends[1] < 2.0 * (found.energy_joules or 0.0) * 1.15


def test_a_played_step_keeps_its_relative_interval() -> None:
    found = answer()
    played = estimate_answer(with_step(found, 1.25 * found.step_s))
    for key, ends in found.intervals["step_s"].items():
        assert played.intervals["step_s"][key] == pytest.approx([1.25 * end for end in ends])
        rates = found.intervals["tokens_per_s"][key]
        assert played.intervals["tokens_per_s"][key] == pytest.approx([r / 1.25 for r in rates])
    for name in MEMORY:
        assert played.intervals[name] == found.intervals[name]


def test_a_step_without_residuals_has_an_interval_of_its_memory_alone() -> None:
    bare = replace(answer(), interval=None)
    assert set(bare.intervals) == {*MEMORY}
    assert replace(bare, scenario=None).intervals == {}
    assert replace(bare, scenario=None).fit_probability is None


@st.composite
def held_bytes(draw: st.DrawFn) -> HeldBytes:
    """Tensors, with what the allocator and the driver take beside them."""
    tensors = draw(st.floats(1e6, 1e12))
    reserved = tensors * draw(st.floats(1.0, 1.5))
    own = draw(st.floats(0.0, 4e9))
    return HeldBytes(allocated_bytes=tensors, reserved_bytes=reserved, peak_bytes=reserved + own)


@given(held_bytes(), st.floats(0.1, 10.0), st.sampled_from(["generic", "nanotron", "transformers"]))
def test_memory_is_inside_its_intervals(held: HeldBytes, size: float, framework: str) -> None:
    one = answer(framework=framework)
    assert one.scenario is not None
    peak = float(held.peak_bytes)
    told = held_intervals(one.scenario, one.plan, held, peak * size)
    values = (held.allocated_bytes, held.reserved_bytes, peak)
    for name, value in zip(MEMORY, values, strict=True):
        assert holds(float(value), told[name]), name
    own = peak - float(held.reserved_bytes)
    for key, (low, high) in told["reserved_bytes"].items():
        assert told["peak_memory_bytes"][key] == pytest.approx((low + own, high + own))


def test_tensors_are_surer_than_what_the_process_holds() -> None:
    told = answer().intervals
    tensors, held = (told[name]["p90"] for name in ("allocated_bytes", "reserved_bytes"))
    assert tensors[1] / tensors[0] < 1.25
    assert held[1] / held[0] > tensors[1] / tensors[0]


def test_a_process_takes_more_where_there_is_room() -> None:
    """An empty chip leaves the allocator more to take, so that the interval reaches higher."""
    one = answer()
    assert one.scenario is not None
    held = HeldBytes(allocated_bytes=1e10, reserved_bytes=1.1e10, peak_bytes=1.2e10)
    full, empty = (
        held_intervals(one.scenario, one.plan, held, have)["reserved_bytes"]["p90"]
        for have in (1.2e10, 1e12)
    )
    assert empty[1] > full[1]
    assert math.log(empty[1] / empty[0]) > math.log(full[1] / full[0])


@given(held_bytes(), st.floats(0.1, 10.0), st.floats(0.1, 10.0))
def test_a_larger_chip_fits_as_likely_or_likelier(
    held: HeldBytes, one: float, other: float
) -> None:
    scenario = make_scenario("dense", gpus=4, batch=16)
    sizes = np.array(sorted((one, other))) * float(held.peak_bytes)
    small, large = fit_probability(scenario, Plan(), held, sizes)
    assert 0.0 <= small <= large + 1e-12 <= 1.0 + 1e-12
    codes = verdict_codes(held, sizes)
    assert codes[1] <= codes[0]
    # Where what the process is predicted to hold just fits, it is one half.
    edge = float(fit_probability(scenario, Plan(), held, float(held.peak_bytes)))
    assert edge == pytest.approx(0.5)


def test_an_interval_says_how_likely_a_plan_fits() -> None:
    peak, ends = 100.0, {"p50": (90.0, 110.0), "p90": (80.0, 125.0)}
    known = {80.0: 0.05, 100.0: 0.5, 125.0: 0.95}
    for capacity, likely in known.items():
        assert probability_by_ends(peak, ends, capacity) == pytest.approx(likely, abs=1e-9)
    assert probability_by_ends(peak, ends, 1e4) > 0.999
    assert probability_by_ends(peak, ends, 10.0) < 1e-3
    exact = {"p50": (100.0, 100.0), "p90": (100.0, 100.0)}
    assert [probability_by_ends(peak, exact, c) for c in (99.0, 101.0)] == [0.0, 1.0]


def test_shares_of_students_t() -> None:
    """Quantiles of tables, and the sum of the density."""
    found = t_share(np.array([-2.1318467863, 0.0, 0.7406970841, 4.6040948713]))
    assert found == pytest.approx([0.05, 0.5, 0.75, 0.995], abs=1e-9)
    x = np.linspace(-60.0, 1.3, 2_000_001)
    density = 0.375 * (1.0 + np.square(x) / 4.0) ** -2.5
    assert float(np.trapezoid(density, x)) == pytest.approx(float(t_share(x[-1:])[0]), abs=1e-6)


def test_the_allocator_alone_makes_no_no() -> None:
    """yes below 90 % of the memory; borderline as long as the tensors fit, whatever the allocator loses; no
    where not even they do, as well as they are known."""
    tensors, own = 1e10, 1e9
    for lost in (0.0, 1e9, 1e11):
        reserved = tensors + lost
        held = HeldBytes(
            allocated_bytes=tensors, reserved_bytes=reserved, peak_bytes=reserved + own
        )
        assert memory_verdict(held, (reserved + own) / CLOSE_SHARE * 1.001) == "yes"
        assert memory_verdict(held, (reserved + own) / CLOSE_SHARE * 0.999) == "too_close"
        assert memory_verdict(held, tensors + own) == "too_close"
        least = (tensors + own) / (1.0 + TENSOR_ERROR)
        assert memory_verdict(held, 0.999 * least) == "no"
    assert VERDICTS == ("yes", "too_close", "no")


def test_services_and_runs() -> None:
    place: dict[str, Any] = {"system": "h100-sxm", "gpus": 8}
    served = foretell.serve("llama-3.1-8b", **place, concurrency=32)
    for name, interval in served.intervals.items():
        value = getattr(served, name)
        assert holds(getattr(value, "mean", value), interval), name
    low, high = served.usd_per_chip_hour_range or (0.0, 0.0)
    assert low <= (served.usd_per_chip_hour or 0.0) <= high
    by_hand = foretell.serve("llama-3.1-8b", **place, concurrency=32, price=2.0)
    assert by_hand.usd_per_chip_hour_range is None
    wide, narrow = (
        one.intervals["usd_per_million_output_tokens"]["p90"] for one in (served, by_hand)
    )
    assert wide[1] / wide[0] > narrow[1] / narrow[0]
    asked = foretell.serve("llama-3.1-8b", **place, rate=2.0)
    assert asked.intervals["requests_per_s"]["p90"] == pytest.approx((2.0, 2.0))
    trained = foretell.estimate("llama-3.1-8b", **place, tokens="1B", plan="zero3 mbs1")
    assert trained.run is not None
    for name, interval in trained.run.intervals.items():
        assert holds(getattr(trained.run, name), interval), name
    assert trained.run.interval is not None
    for key, ends in trained.run.interval.items():
        assert trained.run.intervals["days"][key] == pytest.approx(ends)


def test_sized_chips_are_whole_instances() -> None:
    found = foretell.size("llama-3.1-8b", system="h100-sxm", rate=40.0, simulate=False, top=6)
    for choice in found.choices:
        told = choice.intervals
        assert holds(choice.option.gpus, told["gpus"])
        assert holds(choice.headroom, told["headroom"])
        assert holds(choice.tpot_ms, told["tpot_ms"])
        if choice.option.prefill is None:
            each = choice.option.instance.deployment.gpus
            assert all(end % each == 0.0 for ends in told["gpus"].values() for end in ends)
    assert found.intervals == found.best.intervals
