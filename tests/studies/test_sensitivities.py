"""What-ifs are estimates with --set, slopes obey the scaling of seconds, new plans are never worse."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foretell
from foretell.api.cost import Payment, RunQuestion, paid_hour, run_cost
from foretell.errors import BadInput, Infeasible
from foretell.search.search import search_plans
from foretell.search.what_if import (
    CAPACITY,
    NETWORK,
    SIDES,
    factor_of,
    held_results,
    replan_systems,
    varied_numbers,
)
from foretell.specs.plan import Plan
from foretell.studies.sensitivity.records import Sensitivities
from tests.builders import make_scenario

JOB: dict[str, Any] = {"system": "h100-sxm", "gpus": 64, "global_batch": 256}
MODEL = "llama-3.1-8b"
PLAN = "tp2 pp2 zero1 mbs1"
SERVICE: dict[str, Any] = {
    "system": "h100-sxm",
    "gpus": 1,
    "isl": 500,
    "osl": 100,
    "concurrency": 8,
}


@pytest.fixture(scope="module")
def held() -> Sensitivities:
    return foretell.sensitivity(MODEL, **JOB, plan=PLAN, rent="own")


@pytest.fixture(scope="module")
def served() -> Sensitivities:
    return foretell.sensitivity(MODEL, **SERVICE)


FIELDS = [
    "chip.memory_bandwidth_bytes_per_s",
    "chip.vector_flop_per_s",
    "chip.tdp_watts",
    "chip.idle_watts",
    "network.node.bandwidth_bytes_per_s",
    "network.cluster.bandwidth_bytes_per_s",
    "network.cluster.latency_s",
]


@pytest.mark.parametrize("path", FIELDS)
def test_a_what_if_is_the_estimate_with_the_number_set(path: str, held: Sensitivities) -> None:
    for what_if in (held[path].better, held[path].worse):
        assert what_if is not None
        assert what_if.ratios is not None
        changed = {path: held[path].value * what_if.factor}
        alone = foretell.estimate(MODEL, **JOB, plan=PLAN, set=changed)
        assert alone.energy_joules is not None
        assert held.results["step_s"] * what_if.ratios["step_s"] == pytest.approx(alone.step_s)
        joules = held.results["energy_joules"] * what_if.ratios["energy_joules"]
        assert joules == pytest.approx(alone.energy_joules)


@pytest.mark.parametrize("path", ["chip.memory_bandwidth_bytes_per_s", "chip.memory_bytes"])
def test_a_what_if_of_a_service_is_its_answer_with_the_number_set(
    path: str, served: Sensitivities
) -> None:
    number = served[path]
    assert number.better is not None
    assert number.better.ratios is not None
    changed = {path: number.value * number.better.factor}
    alone = foretell.serve(MODEL, **SERVICE, plan=served.plan, set=changed)
    for name, found in (
        ("tpot_ms", alone.tpot_ms.mean),
        ("joules_per_token", alone.joules_per_token),
    ):
        assert served.results[name] * number.better.ratios[name] == pytest.approx(found)


def test_money_is_what_a_run_of_the_same_speed_costs(held: Sensitivities) -> None:
    """The price of a run without failures is that of its steps."""
    estimate = foretell.estimate(MODEL, **JOB, plan=PLAN, tokens="1T", failures_per_gpu_day="1e-12")
    assert estimate.run is not None
    run = run_cost(
        RunQuestion(
            model=MODEL, **JOB, plan=PLAN, rent="own", tokens="1T", failures_per_gpu_day="1e-12"
        )
    )
    # Checkpoints are the rest of the run.
    rate = run.facts["usd_per_million_tokens"] * estimate.run.goodput
    assert held.results["usd_per_million_tokens"] == pytest.approx(rate, rel=1e-3)


def test_an_hour_is_linear_in_what_is_drawn() -> None:
    result = foretell.estimate(MODEL, **JOB, plan=PLAN)
    assert result.scenario is not None
    asked: Any = ("h100-sxm", result.scenario.system, 64)
    own = [paid_hour(Payment(rent="own"), *asked, watts) for watts in (300.0, 500.0)]
    assert own[0].usd(1.0, 650.0) == pytest.approx(own[1].usd(1.0, 650.0))
    assert own[0].usd_per_watt > 0.0
    rented = paid_hour(Payment(price=2.5), *asked, 500.0)
    assert (rented.base_usd, rented.usd_per_watt) == (pytest.approx(2.5), pytest.approx(0.0))


@settings(max_examples=8, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2]),
    zero=st.integers(0, 3),
    by=st.floats(1.1, 8.0),
    stack=st.sampled_from(["dense", "moe", "hybrid"]),
)
def test_slopes_add_up_and_better_is_better(
    tp: int, pp: int, zero: int, by: float, stack: str
) -> None:
    """Time: rates less times are -1. Energy: watts are rates too, and it does not scale at all."""
    scenario = make_scenario(stack, gpus=16, batch=64)
    plan = Plan(tp=tp, pp=pp, dp=16 // tp // pp, zero=zero)
    found = held_results(scenario, plan, by)
    signs = {"rate": 1.0, "time": -1.0}
    for result, whole in (("step_s", -1.0), ("energy_joules", 0.0)):
        sums = [signs.get(n.kind, 0.0) * found.slopes[n.path][result] for n in found.numbers]
        assert sum(sums) == pytest.approx(whole, abs=2e-4)
    assert {n.path for n in found.numbers} == set(found.slopes)
    for number in found.numbers:
        better, worse = (found.changed[number.path, side] for side in SIDES)
        # Links are left out: a library may choose an algorithm that is not the best for faster ones.
        if number.path.startswith(("chip.m", "chip.v", "software")):
            assert better.step_s <= found.now.step_s * (1.0 + 1e-9), number.path
            assert worse.step_s >= found.now.step_s * (1.0 - 1e-9), number.path


@pytest.mark.parametrize(("by", "stack"), [(2.0, "dense"), (4.0, "mixed")])
def test_new_plans_are_never_worse_than_the_plan_held(by: float, stack: str) -> None:
    scenario = make_scenario(stack, gpus=4, batch=16)
    best = search_plans(scenario, Plan(dp=4), top=1).best
    held = held_results(scenario, best.plan, by)
    now, again = replan_systems(scenario, best.plan, held, by)
    assert now.step_s == pytest.approx(best.step_s)
    assert now.plan == str(best.plan)
    for key, found in again.items():
        stays = held.changed[key]
        if stays.fits != "no":
            assert found.step_s <= stays.step_s, key
            assert found.fits != "no"
    assert again[CAPACITY, "better"].step_s <= now.step_s


def test_new_plans_are_those_of_a_search_on_the_changed_system() -> None:
    found = foretell.sensitivity(MODEL, system="h100-sxm", gpus=8, global_batch=64, replan=True)
    assert found.replanned
    assert found.best_now is not None
    assert found.best_now.plan == found.plan
    path = "network.node.bandwidth_bytes_per_s"
    worse = found[path].worse
    assert worse is not None
    assert worse.ratios is not None
    again = foretell.search(
        MODEL, system="h100-sxm", gpus=8, global_batch=64, set={path: found[path].value / 2.0}
    ).best
    assert worse.plan == str(again.plan)
    assert found.results["step_s"] * worse.ratios["step_s"] == pytest.approx(again.step_s)


def test_memory_matters_where_it_ends_the_plan() -> None:
    found = foretell.sensitivity(MODEL, **JOB, plan="zero1 mbs1", factor=8.0)
    memory = found[CAPACITY]
    assert memory.elasticities["step_s"] == 0.0
    assert memory.worse is not None
    assert (memory.worse.fits, memory.worse.ratios) == ("no", None)
    assert memory.better is not None
    assert memory.better.ratios is not None
    assert memory.better.ratios["step_s"] == 1.0


def test_all_tiers_together_are_stronger_than_each(held: Sensitivities) -> None:
    tiers = [n for n in held.numbers if n.path.endswith(".bandwidth_bytes_per_s")]
    slope = sum(n.elasticities["step_s"] for n in tiers)
    assert held[NETWORK].elasticities["step_s"] == pytest.approx(slope, abs=1e-4)


def test_rented_money_goes_with_time_and_rent() -> None:
    found = foretell.sensitivity(MODEL, **JOB, plan=PLAN, price=3.0)
    hours = found.results["step_s"] * 64 / 3600.0
    tokens = 256 * found.about["seq_len"]
    assert found.results["usd_per_million_tokens"] == pytest.approx(3.0 * hours * 1e6 / tokens)
    for number in found.numbers:
        if number.kind != "price":
            slopes = number.elasticities
            assert slopes["usd_per_million_tokens"] == pytest.approx(slopes["step_s"])
    assert found["prices.rent"].elasticities["usd_per_million_tokens"] == 1.0


def test_engines_have_numbers_too(served: Sensitivities) -> None:
    engine = [n for n in served.numbers if n.path.startswith("engine.")]
    assert any(n.elasticities["tpot_ms"] > 0.005 for n in engine)
    for number in engine:
        assert number.better is not None
        assert number.better.ratios is not None
        ratios = number.better.ratios
        assert ratios["ttft_ms"] <= 1.0 + 1e-9
        assert ratios["output_tokens_per_s"] >= 1.0 - 1e-9
        # In a loop who waits less for the engine is with the others for longer: Little's law.
        least = 1.001 if number.path.startswith("engine.latency") else 1.0 + 1e-9
        assert ratios["tpot_ms"] <= least


def test_factors_know_which_way_is_better() -> None:
    scenario = make_scenario("dense", gpus=8, batch=32)
    numbers = {n.path: n for n in varied_numbers(scenario, Plan(dp=8))}
    for path, better in (
        ("chip.tdp_watts", 3.0),
        ("network.node.latency_s", 1 / 3),
        (CAPACITY, 3.0),
    ):
        if path in numbers:
            assert factor_of(numbers[path], "better", 3.0) == pytest.approx(better)
            assert factor_of(numbers[path], "worse", 3.0) == pytest.approx(1.0 / better)


def test_bad_input_is_told_at_once() -> None:
    with pytest.raises(BadInput) as caught:
        foretell.sensitivity(MODEL, **JOB, factor=1.0, set={"chip.nothing": 3})
    assert {p.path for p in caught.value.problems} == {"factor", "--set chip.nothing"}
    with pytest.raises(BadInput, match="rent"):
        foretell.sensitivity(MODEL, **JOB, plan=PLAN, rent="sometimes")
    with pytest.raises(Infeasible):
        foretell.sensitivity("llama-3.1-70b", system="h100-sxm", gpus=8, plan="dp8")


def test_an_answer_of_one_token_has_no_time_between_tokens() -> None:
    found = foretell.sensitivity(
        "llama-3.2-1b", system="h100-sxm", gpus=1, isl=128, osl=1
    ).to_dict()
    assert "tpot_ms" not in found["results"]
    assert found["numbers"]
