"""The search finds what brute force finds, and its space holds what it says."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import foretell
from foretell.api.training import best_plan, fixed_fields
from foretell.errors import BadInput, Infeasible
from foretell.inputs.question import plan_of
from foretell.network.placement import group_counts
from foretell.search.instead import nearest_plan
from foretell.search.search import rank, search_plans
from foretell.search.space import ORDERS, divisors, enumerate_plans
from foretell.sharding.rules import broken_rules, layers_of
from foretell.specs.plan import Plan, batch_of
from foretell.specs.scenario import Scenario
from foretell.specs.system import System
from foretell.training.answer import answer_of
from foretell.training.feasibility import NO, TOO_CLOSE, YES
from tests.builders import make_chip, make_model, make_network, make_scenario


def first_of_its_placement(scenario: Scenario, plan: Plan) -> bool:
    """Whether no earlier order puts all groups on the same tiers."""
    network = scenario.system.network

    def where(order: tuple[str, ...]) -> list[float]:
        groups = group_counts(batch_of([replace(plan, order=order)]), network, scenario.job.gpus)
        return [float(x) for name in ("tp", "dp", "pp") for x in groups[name].ravel()]

    earlier = ORDERS[: ORDERS.index(plan.order)]
    return all(where(order) != where(plan.order) for order in earlier)


def brute_force(scenario: Scenario) -> list[tuple[float, Plan]]:
    """Every combination of every field, one plan at a time, rules and memory checked one by one."""
    gpus, batch = scenario.job.gpus, scenario.job.global_batch
    found = []
    degrees = range(1, gpus + 1)
    layers = layers_of(scenario.model)
    for tp, pp, dp in itertools.product(degrees, repeat=3):
        if tp * pp * dp != gpus:
            continue
        for mbs, vpp, zero, recompute, sp, order in itertools.product(
            range(1, batch + 1), range(1, layers + 3), (0, 1, 2, 3), ("none", "full"),
            (False, True), ORDERS,
        ):  # fmt: skip
            if (
                pp * vpp > layers + 2
                or batch % (dp * mbs)
                or (sp and tp == 1)
                or (zero and dp == 1)
            ):
                continue
            schedule = "interleaved" if vpp > 1 else "1f1b"
            plan = Plan(
                tp=tp, pp=pp, dp=dp, micro_batch=mbs, vpp=vpp, zero=zero, recompute=recompute,
                sp=sp, order=order, schedule=schedule,
            )  # fmt: skip
            if broken_rules(scenario, plan, batch_of([plan])) or not first_of_its_placement(
                scenario, plan
            ):
                continue
            answer = answer_of(scenario, plan, chosen=False)
            if answer.fits == "yes":
                found.append((answer.step_s, plan))
    return sorted(found, key=lambda f: f[0])


@pytest.mark.parametrize(
    ("model", "gpus", "batch", "gib"),
    [("uneven", 4, 4, 80), ("uneven", 6, 6, 4), ("hybrid", 4, 2, 8)],
)
def test_the_best_equals_brute_force(model: str, gpus: int, batch: int, gib: float) -> None:
    scenario = make_scenario(model, gpus, batch, chip=make_chip(memory_bytes=gib * 2.0**30))
    slow = brute_force(scenario)
    fast = search_plans(scenario, Plan(), top=5)
    assert [p.step_s for p in fast.plans] == pytest.approx([s for s, _ in slow[:5]], rel=1e-12)
    assert fast.plans[0].plan in [p for s, p in slow if s <= slow[0][0] * (1 + 1e-12)]


def test_counts_add_up() -> None:
    scenario = make_scenario("dense", 16, 64)
    found = search_plans(scenario, Plan(), top=10)
    assert found.plans_feasible <= found.plans_evaluated
    every = len(enumerate_plans(scenario, Plan()).plans)
    assert found.plans_evaluated + found.plans_pruned == every
    assert len(found.plans) == 10
    times = [p.step_s for p in found.plans]
    assert times == sorted(times)
    assert found.evaluation_seconds > 0
    assert found.best.plan_chosen


def test_workers_change_nothing() -> None:
    scenario = make_scenario("dense", 16, 64)
    one, two = (search_plans(scenario, Plan(), top=10, workers=w) for w in (1, 2))
    assert one.plans == two.plans


def test_every_candidate_obeys_every_rule_and_occurs_once() -> None:
    for model, gpus, batch in (("uneven", 24, 48), ("moe", 12, 36), ("dense", 40, 80)):
        scenario = make_scenario(model, gpus, batch)
        plans = enumerate_plans(scenario, Plan()).plans
        texts = {str(plans.plan(row)) for row in range(len(plans))}
        assert len(texts) == len(plans)
        for row in range(0, len(plans), max(1, len(plans) // 50)):
            plan = plans.plan(row)
            assert not broken_rules(scenario, plan, batch_of([plan]))


def test_degrees_need_not_be_powers_of_two() -> None:
    plans = enumerate_plans(make_scenario("dense", 24, 48), Plan()).plans
    assert 3.0 in plans.pp
    assert 6.0 in plans.dp
    assert 3.0 in plans.micro_batch


@pytest.mark.parametrize("text", [
    "tp4", "tp2 pp2 zero1", "mbs2 recompute=full", "recompute=selective", "order=dp,tp,cp,pp", "no-sp tp2",
])  # fmt: skip
def test_what_a_plan_names_is_kept(text: str) -> None:
    """A search with words fixed gives the best of the plans that have them."""
    scenario = make_scenario("uneven", 8, 16)
    scenario, base = plan_of(scenario, text)
    fixed = enumerate_plans(scenario, base, fixed_fields(text, ())).plans
    words = {word for word in text.split() if not word.startswith("order")}
    plans = [fixed.plan(row) for row in range(len(fixed))]
    assert plans
    assert all(words <= {*str(plan).split()} for plan in plans)
    if text.startswith("order"):
        assert {plan.order for plan in plans} == {("dp", "tp", "cp", "pp")}
        return
    free = enumerate_plans(scenario, replace(base, flash=base.flash)).plans
    having = {str(free.plan(row)) for row in range(len(free))}
    having = {plan for plan in having if words <= {*plan.split()}}
    assert having <= {str(plan) for plan in plans}


def test_more_chips_than_there_are_is_a_clear_no() -> None:
    with pytest.raises(Infeasible, match="has 64 chips"):
        foretell.estimate(
            make_model("dense"),
            system=System(id="s", name="s", chip=make_chip(), network=make_network(nodes=8)),
            gpus=128,
        )


def test_where_nothing_fits_the_plan_that_holds_least_is_named() -> None:
    """By the search as by the estimate that searches, with what it needs."""
    scenario = make_scenario("dense", gpus=4, batch=8, chip=make_chip(memory_bytes=2.0**30))
    found = search_plans(scenario, Plan())
    plans = enumerate_plans(scenario, Plan(), ()).plans
    held = [answer_of(scenario, plans.plan(row), chosen=True) for row in range(len(plans))]
    least = min(held, key=lambda one: one.peak_memory_bytes)
    assert not found.plans
    assert found.smallest_bytes == pytest.approx(least.peak_memory_bytes)
    assert f"the smallest, `{found.smallest}`, needs" in str(found.why_none)
    assert "lora=16" in str(found.why_none)
    with pytest.raises(Infeasible, match="the smallest, `") as no:
        best_plan(scenario, Plan())
    assert str(found.why_none) in str(no.value)


def test_settings_without_effect_are_refused() -> None:
    with pytest.raises(BadInput, match="has no effect"):
        foretell.estimate(
            "llama-3.1-8b", gpus="8xH100", plan="zero3", set={"network.node.efficiency": 0.5}
        )


def test_rank_prefers_what_clearly_fits() -> None:
    step = np.array([1.0, 2.0, 3.0, 4.0])
    verdicts = np.array([TOO_CLOSE, YES, NO, YES])
    assert rank(step, verdicts, 4).tolist() == [1, 3, 0]


@pytest.mark.parametrize("plan", [
    Plan(tp=3, dp=5), Plan(tp=16, dp=1), Plan(pp=16, dp=1), Plan(dp=16, micro_batch=5),
    Plan(tp=2, pp=2, dp=4, vpp=3, micro_batch=8, schedule="interleaved"),
])  # fmt: skip
def test_the_nearest_plan_works_and_is_near(plan: Plan) -> None:
    scenario = make_scenario("uneven", 16, 64)
    near = nearest_plan(scenario, plan)
    assert near is not None
    assert not broken_rules(scenario, near, batch_of([near]))
    assert answer_of(scenario, near, chosen=False).fits != "no"


def test_divisors() -> None:
    assert divisors(12) == [1, 2, 3, 4, 6, 12]
    assert divisors(1) == [1]
    assert divisors(49) == [1, 7, 49]
