"""All words of a plan together: five and more parallelisms, every recipe, one formula for one and many."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from foretell.catalog import system as catalog_system
from foretell.catalog.software import software_names
from foretell.errors import BadInput
from foretell.inputs.software import with_software
from foretell.schedules.rules import all_broken
from foretell.search.plan_checks import check_choices
from foretell.search.space import enumerate_plans
from foretell.specs.plan import Plan, batch_of, parse_plan, plan_problems
from foretell.specs.scenario import Scenario
from foretell.training.answer import answer_of
from foretell.training.step import evaluate
from tests.builders import make_chip, make_scenario
from tests.properties.test_estimate import faster

WORDS: dict[str, list[Any]] = {
    "tp_mode": ["1d", "1d", "summa"],
    "tp_overlap": ["auto", "off", "on"],
    "panels": [0, 0, 0, 8],
    "cp_mode": ["ring", "allgather", "ulysses"],
    "schedule": ["1f1b", "gpipe", "zb-h1", "zb-v", "dualpipe"],
    "dispatch": ["alltoall", "dedup", "deepep"],
    "ep_overlap": ["off", "on"],
    "capacity": [0.0, 0.0, 1.25],
    "imbalance": [1.0, 1.3],
    "flash": [True, False],
    "fused": [True, False],
    "attention": ["auto", "fa2", "fa3"],
    "recompute": ["none", "none", "attention+mlp", "full:2", "act+norm"],
    "precision": ["bf16", "fp16", "fp8"],
    "scaling": ["tensor", "row", "block"],
    "lora": [0, 0, 0, 16],
    "shard": [0, 0, 4],
    "secondary": [0, 0, 2],
    "bucket": [0, 0, 1, 200],
    "reshard": [True, False],
    "reduce": ["auto", "step", "micro-batch"],
    "wire": ["auto", "bf16"],
    "gather": ["auto", "fp8"],
    "offload": ["none", "none", "optimizer", "activations+weights"],
    "optimizer": ["adam", "adam8bit", "adafactor", "muon", "sgd"],
    "gradients": ["fp32", "bf16"],
    "master": ["fp32", "none"],
    "states": ["fp32", "bf16"],
    "framework": list(software_names()),
}
"""Structural words, the usual ones more often where others leave little of the space."""
MODELS = ["dense", "uneven", "moe", "hybrid"]
QUICK = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def scenario_of(name: str) -> Scenario:
    chip = make_chip(host_bytes_per_s=50e9)
    return make_scenario(name, 16, 16, seq_len=8192, chip=chip)


@st.composite
def bases(draw: st.DrawFn) -> tuple[Scenario, Plan]:
    """A scenario, and a base of any words that no rule of recipes forbids."""
    scenario = scenario_of(draw(st.sampled_from(MODELS)))
    words = {key: draw(st.sampled_from(values)) for key, values in WORDS.items()}
    if words["precision"] != "fp8":
        words["scaling"] = "tensor"
    if words["tp_mode"] == "summa" or words["schedule"] not in ("1f1b",):
        words |= {"secondary": 0} if words["shard"] == 0 else {}
    if words["tp_mode"] != "summa":
        words["panels"] = 0
    else:
        words |= {"lora": 0, "tp_overlap": "auto"}
    base = Plan(**words)
    scenario = with_software(scenario, base)
    assume(not plan_problems(base))
    try:
        check_choices(scenario, replace(base, vpp=2 if base.schedule == "zb-v" else 1))
    except BadInput:
        assume(False)
    return scenario, base


@QUICK
@given(bases(), st.randoms(use_true_random=False))
def test_any_legal_plan_has_a_time_that_is_the_sum_of_its_leaves(
    given_base: tuple[Scenario, Plan], chance: Any
) -> None:
    scenario, base = given_base
    named = base.recompute not in ("none", "selective", "full")
    plans = enumerate_plans(scenario, base, ("recompute",) if named else ()).plans
    assume(len(plans) > 0)
    some = plans.take(np.array(sorted({chance.randrange(len(plans)) for _ in range(6)})))
    step, peak = evaluate(scenario, some)
    assert np.isfinite(step).all()
    assert np.isfinite(peak).all()
    assert (step > 0).all()
    assert (peak > 0).all()
    for row in range(len(some)):
        plan = some.plan(row)
        assert not all_broken(scenario, plan, batch_of([plan]))
        assert parse_plan(str(plan)) == plan
        answer = answer_of(scenario, plan, chosen=False)
        assert answer.step_s == pytest.approx(step[row], rel=1e-12)
        assert answer.peak_memory_bytes == pytest.approx(peak[row], rel=1e-12)
        assert answer.breakdown is not None
        assert answer.memory is not None
        leaves = answer.breakdown.leaves()
        assert sum(leaf.value for leaf in leaves) == pytest.approx(answer.step_s, rel=1e-12)
        assert all(leaf.value >= -1e-12 * answer.step_s for leaf in leaves)
        held = sum(leaf.value for leaf in answer.memory.leaves())
        assert held == pytest.approx(answer.peak_memory_bytes, rel=1e-12)


@pytest.mark.parametrize("system", ["test", "dgx-h100", "tpu-v5p"])
@pytest.mark.parametrize("words", ["tp_mode=summa", "tp_overlap=on", "schedule=dualpipe"])
def test_a_batch_equals_its_plans_one_by_one(words: str, system: str) -> None:
    scenario = scenario_of("uneven")
    if system != "test":
        scenario = replace(scenario, system=catalog_system(system))
    plans = enumerate_plans(scenario, parse_plan(words)).plans
    step, peak = evaluate(scenario, plans)
    for row in np.random.default_rng(0).choice(len(plans), size=25, replace=False):
        alone = evaluate(scenario, batch_of([plans.plan(int(row))]))
        assert alone[0][0] == pytest.approx(step[row], rel=1e-12)
        assert alone[1][0] == pytest.approx(peak[row], rel=1e-12)


@settings(QUICK, max_examples=15)
@given(bases(), st.sampled_from(["links", "latency", "matrix"]), st.floats(1.0, 30.0))
def test_better_hardware_is_never_slower(
    given_base: tuple[Scenario, Plan], field: str, factor: float
) -> None:
    """Also behind products that get shorter, and behind links that get faster.

    Exactly, where a backward pass is whole. Schedules that split it wait by forms of its parts, of which the
    weights' has a minus sign, and what hides behind a pass that waits for the host is a share of the pass:
    both may give back some thousandths of what a part gains where the whole is bound by something else.
    """
    scenario, base = given_base
    whole = base.offload == "none" and base.schedule in ("1f1b", "gpipe")
    plans = enumerate_plans(scenario, base).plans
    assume(len(plans) > 0)
    rows = np.random.default_rng(0).choice(len(plans), size=min(40, len(plans)), replace=False)
    some = plans.take(rows)
    before, _ = evaluate(scenario, some)
    after, _ = evaluate(faster(scenario, field, factor), some)
    assert (after <= before * (1 + (1e-9 if whole else 5e-3))).all()


def test_the_stage_that_sets_the_pace_is_the_one_with_the_longest_step() -> None:
    """Where another stage becomes the busiest, its waiting does not jump: found with half the latency."""
    scenario = scenario_of("moe")
    words = "tp2 pp2 vpp2 dp4 ep8 zero0 mbs1 sp recompute=full schedule=zb-v optimizer=adam8bit"
    plan = parse_plan(f"{words} bucket=200 offload=activations+weights order=tp,cp,pp,dp", 16)
    factors = np.linspace(1.0, 4.0, 25)
    steps = [
        evaluate(faster(scenario, "latency", factor), batch_of([plan]))[0][0] for factor in factors
    ]
    assert (np.diff(steps) <= 1e-9 * steps[0]).all()


@pytest.mark.parametrize(
    "text",
    [
        "tp2 sp cp2 pp2 dp4 ep4 zero1 mbs1 cp_mode=ulysses ep_overlap=on tp_overlap=on",
        "tp2 sp cp2 pp2 dp4 ep4 etp2 zero3 mbs1 schedule=dualpipe dispatch=dedup shard=4",
        "tp2 sp cp4 pp2 vpp3 dp2 ep8 zero2 mbs2 recompute=full offload=optimizer",
    ],
)
def test_five_dimensions_and_more(text: str) -> None:
    scenario = make_scenario("moe", 32, 32, seq_len=16384, chip=make_chip(host_bytes_per_s=50e9))
    plan = parse_plan(text, 32)
    assert not all_broken(scenario, plan, batch_of([plan]))
    answer = answer_of(scenario, plan, chosen=False)
    assert answer.breakdown is not None
    names = {leaf.name for leaf in answer.breakdown.children}
    assert {"tensor_parallel", "context_parallel", "expert_parallel"} <= names
    assert {"pipeline_parallel", "data_parallel", "bubble"} <= names
