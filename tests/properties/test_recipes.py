"""Recipes in the spine: what each does to time and memory, for one plan and for many."""

from dataclasses import replace

import numpy as np
import pytest

from foretell.catalog import model as catalog_model
from foretell.catalog import system as catalog_system
from foretell.inputs.software import with_software
from foretell.search.space import enumerate_plans
from foretell.sharding.rules import broken_rules
from foretell.specs.plan import Plan, batch_of, parse_plan
from foretell.specs.result import StepEstimate
from foretell.specs.scenario import Scenario
from foretell.training.answer import answer_of
from foretell.training.step import evaluate
from tests.builders import make_scenario

WORDS = (
    "recompute=full:2", "recompute=mlp", "recompute=attention+norm", "recompute=moe+act",
    "shard=2", "shard=4 secondary=2", "no-reshard", "reduce=step", "reduce=micro-batch",
    "wire=bf16", "gather=fp8", "lora=8", "lora=8 adapters=attention", "lora=8 recompute=full:1",
    "optimizer=muon", "optimizer=adafactor", "optimizer=adam8bit", "offload=optimizer",
    "offload=activations+weights", "precision=fp8 scaling=block", "precision=fp8 scaling=row",
    "framework=nanotron recompute=mlp",
)  # fmt: skip
DEGREES = (
    "tp2 sp dp8 zero3 mbs2", "tp1 dp16 zero1", "pp2 vpp2 tp2 dp4 zero2", "pp4 dp4 zero3 mbs2",
)  # fmt: skip


def scenario_of(name: str = "dense") -> Scenario:
    """Sixteen chips with a link to their host."""
    scenario = make_scenario(name, 16, 64)
    chip = replace(scenario.system.chip, host_bytes_per_s=25e9)
    return replace(scenario, system=replace(scenario.system, chip=chip))


def answer(words: str, name: str = "dense") -> StepEstimate:
    """The answer for one plan."""
    plan = parse_plan(words, 16)
    scenario = with_software(scenario_of(name), plan)
    assert not broken_rules(scenario, plan, batch_of([plan]))
    return answer_of(scenario, plan, chosen=False)


def shares(result: StepEstimate) -> dict[str, float]:
    """Seconds by name."""
    assert result.breakdown is not None
    return {child.name: child.value for child in result.breakdown.children}


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("degrees", DEGREES)
@pytest.mark.parametrize("name", ["dense", "moe"])
def test_leaves_sum_to_the_total(name: str, degrees: str, word: str) -> None:
    found = answer(f"{degrees} {word}", name)
    assert found.breakdown is not None
    assert found.memory is not None
    assert sum(x.value for x in found.breakdown.leaves()) == pytest.approx(found.step_s, rel=1e-12)
    assert sum(x.value for x in found.memory.leaves()) == pytest.approx(
        found.peak_memory_bytes, rel=1e-12
    )
    assert all(x.value >= 0 for x in (*found.breakdown.leaves(), *found.memory.leaves()))


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("name", ["dense", "moe", "uneven"])
def test_a_batch_equals_its_plans_one_by_one(name: str, word: str) -> None:
    base = parse_plan(f"dp16 {word}", 16)
    scenario = with_software(scenario_of(name), base)
    plans = enumerate_plans(scenario, base, ("recompute",)).plans
    rows = np.random.default_rng(0).choice(len(plans), size=min(12, len(plans)), replace=False)
    step, peak = evaluate(scenario, plans)
    for row in rows:
        plan = plans.plan(int(row))
        assert not broken_rules(scenario, plan, batch_of([plan]))
        alone_step, alone_peak = evaluate(scenario, batch_of([plan]))
        assert alone_step[0] == pytest.approx(step[row], rel=1e-12)
        assert alone_peak[0] == pytest.approx(peak[row], rel=1e-12)


def test_a_batch_may_mix_recomputations() -> None:
    scenario = scenario_of()
    kinds = ("full:2", "none", "selective", "full")
    plans = [parse_plan(f"tp2 pp2 dp4 recompute={kind}", 16) for kind in kinds]
    step, peak = evaluate(scenario, batch_of(plans))
    for i, plan in enumerate(plans):
        alone_step, alone_peak = evaluate(scenario, batch_of([plan]))
        assert (alone_step[0], alone_peak[0]) == pytest.approx((step[i], peak[i]), rel=1e-12)


@pytest.mark.parametrize("degrees", DEGREES)
@pytest.mark.parametrize("name", ["dense", "moe"])
def test_blocks_stand_between_none_and_full(name: str, degrees: str) -> None:
    kinds = ("none", "full:1", "full:2", "full")
    found = [answer(f"{degrees} recompute={kind}", name) for kind in kinds]
    again = [shares(one)["recompute"] for one in found]
    assert again == sorted(again)
    assert again[0] == 0.0 < again[1]
    kept = [next(x.value for x in one.memory.children if x.name == "activations") for one in found]  # type: ignore[union-attr]
    assert kept == sorted(kept, reverse=True)
    every = answer(f"{degrees} recompute=full:999", name)
    for field in ("step_s", "peak_memory_bytes", "hfu", "energy_joules"):
        assert getattr(every, field) == pytest.approx(getattr(found[-1], field), rel=1e-12)


@pytest.mark.parametrize("modules", ["mlp", "attention", "norm", "act", "attention+mlp"])
def test_modules_cost_time_and_save_activations(modules: str) -> None:
    plain, some, full = (
        answer(f"tp2 sp dp8 recompute={kind}") for kind in ("none", modules, "full")
    )
    assert 0.0 < shares(some)["recompute"] < shares(full)["recompute"]
    assert plain.hfu * plain.step_s <= some.hfu * some.step_s * (1.0 + 1e-12)
    assert plain.step_s < some.step_s < full.step_s
    assert some.peak_memory_bytes < plain.peak_memory_bytes


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_sharing_over_all_ranks_is_plain_zero(zero: int) -> None:
    whole, shared = answer(f"dp16 zero{zero}"), answer(f"dp16 zero{zero} shard=16")
    assert shared.step_s == pytest.approx(whole.step_s, rel=1e-12)
    assert shared.peak_memory_bytes == pytest.approx(whole.peak_memory_bytes, rel=1e-12)


def test_smaller_groups_hold_more() -> None:
    held = [answer(f"dp16 zero3 shard={n}").peak_memory_bytes for n in (16, 8, 4, 2)]
    assert held == sorted(held)
    assert held[0] < held[-1]


def test_weights_that_stay_are_gathered_once() -> None:
    usual, stay = answer("dp16 zero3"), answer("dp16 zero3 no-reshard")
    assert shares(stay)["data_parallel"] < shares(usual)["data_parallel"]
    assert stay.peak_memory_bytes > usual.peak_memory_bytes


def test_gradients_reduced_once_a_step_are_sent_less_and_held_whole() -> None:
    often, once = answer("dp4 tp4 sp zero3"), answer("dp4 tp4 sp zero3 reduce=step")
    assert shares(once)["data_parallel"] < shares(often)["data_parallel"]
    assert once.peak_memory_bytes > often.peak_memory_bytes


@pytest.mark.parametrize("word", ["wire=bf16", "gather=fp8"])
def test_narrower_messages_take_less(word: str) -> None:
    assert (
        shares(answer(f"dp16 zero3 {word}"))["data_parallel"]
        < shares(answer("dp16 zero3"))["data_parallel"]
    )


@pytest.mark.parametrize("name", ["dense", "moe"])
def test_adapters_hold_send_and_update_less(name: str) -> None:
    full, adapted = answer("tp2 sp dp8", name), answer("tp2 sp dp8 lora=8", name)
    assert adapted.peak_memory_bytes < full.peak_memory_bytes
    for part in ("data_parallel", "optimizer", "gradient_sums"):
        assert shares(adapted)[part] < 0.2 * shares(full)[part]


def test_adapters_of_a_large_model_save_time() -> None:
    """The gradients of its weights are a third of the work; small models lose more on thin products."""
    scenario = replace(
        scenario_of(), model=catalog_model("llama-3.1-70b"), system=catalog_system("dgx-h100")
    )
    full, adapted = (
        answer_of(scenario, parse_plan(f"tp4 sp pp2 dp2 {word}", 16), chosen=False)
        for word in ("", "lora=16")
    )
    assert 0.66 < adapted.step_s / full.step_s < 0.9
    assert adapted.mfu < full.mfu * full.step_s / adapted.step_s


@pytest.mark.parametrize("what", ["optimizer", "activations", "weights"])
def test_what_is_offloaded_is_not_on_the_chip(what: str) -> None:
    here, there = answer("dp16 zero1 mbs4"), answer(f"dp16 zero1 mbs4 offload={what}")
    assert there.peak_memory_bytes < here.peak_memory_bytes
    assert there.step_s >= here.step_s
    # While the chip stands still for copies, gradients on their way take no cores from it.
    spared_s = shares(here)["data_parallel"] - shares(there)["data_parallel"]
    longer_s = there.step_s - here.step_s + spared_s
    assert 0.0 <= spared_s < shares(here)["data_parallel"]
    # States on the host are updated there, by its cores.
    longer_s -= shares(there)["optimizer"] - shares(here)["optimizer"]
    assert longer_s == pytest.approx(shares(there).get("offload", 0.0), rel=1e-6, abs=1e-6)


def test_optimizers_hold_what_they_keep() -> None:
    def states(word: str) -> float:
        found = answer(f"dp16 optimizer={word}").memory
        assert found is not None
        return next(x.value for x in found.children if x.name == "states")

    order = [states(word) for word in ("adafactor", "muon", "adam")]
    assert order == sorted(order)
    assert states("adam8bit") < states("adam")
    assert shares(answer("dp16 optimizer=muon"))["optimizer"] > 0.0


def test_ranks_that_do_not_divide_are_refused() -> None:
    scenario = scenario_of()
    for words in ("dp16 zero3 shard=3", "dp16 zero3 shard=32", "dp16 zero3 shard=8 secondary=3"):
        plan = parse_plan(words, 16)
        assert [name for name, _ in broken_rules(scenario, plan, batch_of([plan]))] == ["sharing"]
    plan = Plan(dp=16, zero=3, shard=8, secondary=4)
    assert not broken_rules(scenario, plan, batch_of([plan]))
