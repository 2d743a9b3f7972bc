"""A search that skips plans by a bound on their step finds what one finds that evaluates every plan."""

import numpy as np
import pytest

from foretell.inputs.question import ask, plan_of
from foretell.search.choices import bases_of, worth_trying
from foretell.search.leading import NEAR, leading_plans
from foretell.search.search import rank, search_plans
from foretell.search.space import all_stages, enumerate_plans
from foretell.specs.plan import BATCH_FIELDS, Plan
from foretell.specs.scenario import Scenario
from foretell.training.feasibility import YES, verdict_codes
from foretell.training.pace import least_seconds
from foretell.training.step import evaluate, evaluate_plans
from foretell.training.tables import tables_of
from tests.builders import make_chip, make_scenario

CASES = (
    ("llama-3.1-8b", "h100-sxm", 24, 96, ""),
    ("qwen3-30b-a3b", "gb200-nvl72", 36, 72, ""),
    ("llama-3.1-8b", "perlmutter", 16, 64, "framework=fsdp"),
    ("llama-3.1-8b", "tpu-v5p", 16, 64, "recompute=full:2"),
    ("llama-3.1-8b", "mi300x", 16, 64, "tp_mode=summa"),
    ("llama-3.1-8b", "h100-sxm", 16, 64, "framework=deepspeed offload=optimizer"),
    ("llama-3.1-8b", "b200-sxm", 16, 64, "lora=16 precision=fp8 no-flash"),
    ("llama-3.1-8b", "h100-sxm", 16, 64, "schedule=dualpipe"),
    ("llama-3.1-8b", "h100-sxm", 16, 64, "schedule=zb-h1"),
    ("llama-3.1-8b", "h100-sxm", 32, 128, "schedule=zb-v vpp2"),
    ("qwen3-30b-a3b", "h100-sxm", 16, 64, "schedule=gpipe"),
)


def asked(model: str, system: str, gpus: int, batch: int, words: str) -> tuple[Scenario, Plan]:
    scenario = ask(model, system=system, gpus=gpus, global_batch=batch, seq_len=4096)
    return plan_of(scenario, words or None, searched=not words)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[1]} {case[4]}")
def test_no_step_is_below_its_bound(case: tuple[str, str, int, int, str]) -> None:
    scenario, base = asked(*case)
    fixed = ("recompute",) if "recompute" in case[4] else ()
    plans = enumerate_plans(scenario, base, fixed).plans
    plans = plans.take(np.random.default_rng(0).permutation(len(plans))[:20_000])
    step_s, _ = evaluate(scenario, plans)
    least_s = least_seconds(scenario, plans, tables_of(scenario, plans))
    assert (least_s <= step_s).all()
    if "schedule=dualpipe" not in case[4]:
        assert (step_s / least_s).min() < 1.3  # a bound that is near tells plans apart


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[1]} {case[4]}")
def test_what_leads_is_what_leads_of_all(case: tuple[str, str, int, int, str]) -> None:
    scenario, base = asked(*case)
    fixed = ("recompute",) if "recompute" in case[4] else ()
    space = enumerate_plans(scenario, base, fixed)
    every = evaluate_plans(scenario, space.plans)
    step_s, capacity = every.step_s, float(scenario.system.chip.memory_bytes)
    verdicts = verdict_codes(every.held, capacity)
    best = rank(step_s, verdicts, 10, space.plans.recompute)
    found = leading_plans(scenario, enumerate_plans(scenario, base, fixed, staged=True), 10)
    theirs = verdict_codes(found.totals.held, capacity)
    mine = rank(found.totals.step_s, theirs, 10, found.plans.recompute)
    assert [found.plans.plan(int(r)) for r in mine] == [space.plans.plan(int(r)) for r in best]
    assert found.totals.step_s[mine] == pytest.approx(step_s[best], rel=1e-12)
    assert len(found.plans) + found.skipped == len(space.plans)
    clear = verdicts == YES
    if clear.any():
        near = clear & (step_s <= NEAR * step_s[clear].min())
        assert (
            near.sum()
            == ((theirs == YES) & (found.totals.step_s <= NEAR * step_s[clear].min())).sum()
        )


def test_stages_are_laid_out_as_they_were() -> None:
    scenario = make_scenario("moe", 24, 48)
    every, staged = (enumerate_plans(scenario, Plan(), staged=one) for one in (False, True))
    plans, _, places = all_stages(staged, np.arange(len(staged.plans)))
    order = np.argsort(places)
    assert places[order].tolist() == list(range(len(every.plans)))
    for name in BATCH_FIELDS:
        assert (getattr(plans.take(order), name) == getattr(every.plans, name)).all()
    assert every.count == staged.count == len(every.plans)


def test_where_nothing_fits_every_plan_is_evaluated() -> None:
    scenario = make_scenario("dense", 8, 16, chip=make_chip(memory_bytes=1e6))
    found = search_plans(scenario, Plan())
    assert found.plans == ()
    assert found.plans_pruned == 0
    assert found.smallest is not None
    roomy = make_scenario("dense", 96, 384, chip=make_chip(memory_bytes=1e12))
    assert search_plans(roomy, Plan(), top=1).plans_pruned > 0


def test_choices_beside_each_other_lead_as_all_of_them_would() -> None:
    """What leads in one batch of a search over structural choices skips plans of the next."""
    scenario, base = asked("qwen3-30b-a3b", "h100-sxm", 32, 128, "")
    found = search_plans(scenario, base, over=("schedule", "dispatch"))
    capacity, every = float(scenario.system.chip.memory_bytes), []
    for variant, changed in bases_of(scenario, base, ("schedule", "dispatch")):
        plans = enumerate_plans(scenario, variant).plans
        plans = plans.take(np.flatnonzero(worth_trying(plans, changed))) if changed else plans
        if len(plans):
            totals = evaluate_plans(scenario, plans)
            verdicts = verdict_codes(totals.held, capacity)
            rows = rank(totals.step_s, verdicts, 10, plans.recompute)
            every += [(float(totals.step_s[row]), verdicts[row] == YES) for row in rows]
    best = sorted(step_s for step_s, fits in every if fits)[:10]
    assert sorted(one.step_s for one in found.plans) == pytest.approx(best, rel=1e-12)
    assert found.plans_pruned > found.plans_evaluated
