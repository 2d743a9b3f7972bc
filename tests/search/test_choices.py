"""Structural choices in the search: what is tried, and its best against brute force."""

import itertools
from dataclasses import replace

import pytest

from foretell.errors import BadInput
from foretell.schedules.rules import all_broken
from foretell.search.choices import NAMES, bases_of, over_names
from foretell.search.search import search_plans
from foretell.search.space import ORDERS, enumerate_plans
from foretell.sharding.rules import layers_of
from foretell.specs.model import Stack
from foretell.specs.plan import Plan, batch_of
from foretell.specs.scenario import Scenario
from foretell.training.feasibility import YES, verdict_codes
from foretell.training.step import evaluate_plans
from tests.builders import DENSE, make_chip, make_scenario
from tests.search.test_search import first_of_its_placement

SCHEDULES = {"1f1b": 1, "gpipe": 1, "zb-h1": 1, "zb-v": 2, "dualpipe": 1}


def small(batch: int, gib: float, gpus: int = 4) -> Scenario:
    chip = make_chip(memory_bytes=gib * 2.0**30)
    scenario = make_scenario("dense", gpus, batch, seq_len=8192, chip=chip)
    return replace(
        scenario,
        model=replace(scenario.model, stack=Stack(hidden=1024, layers=(DENSE,) * 2)),
        # Software that waits for tensor-parallel exchanges, so that their overlap is a choice.
        software=replace(scenario.software, pieces_on=""),
    )


def brute_force(scenario: Scenario, over: set[str]) -> list[float]:
    """Every combination of degrees and of the choices' values, one plan at a time."""
    gpus, batch, layers = scenario.job.gpus, scenario.job.global_batch, layers_of(scenario.model)
    modes = ("1d", "summa") if "tp_mode" in over else ("1d",)
    overlaps = ("auto", "on") if "tp_overlap" in over else ("auto",)
    ways = ("ring", "allgather", "ulysses") if "cp_mode" in over else ("ring",)
    names = list(SCHEDULES) if "schedule" in over else ["1f1b"]
    found = []
    degrees = [
        (tp, cp, pp, gpus // tp // cp // pp)
        for tp, cp, pp in itertools.product((1, 2, 4), (1, 2), (1, 2, 4))
        if gpus % (tp * cp * pp) == 0
    ]
    for (tp, cp, pp, dp), mode, tp2, overlap, way, name in itertools.product(
        degrees, modes, (0, 1, 2, 4), overlaps, ways, names
    ):
        chunks = range(1, layers + 3) if name == "1f1b" else (SCHEDULES[name],)
        for vpp, zero, sp, order in itertools.product(chunks, range(4), (False, True), ORDERS):
            schedule = "interleaved" if name == "1f1b" and vpp > 1 else name
            plan = Plan(
                tp=tp, cp=cp, pp=pp, dp=dp, tp_mode=mode, tp2=tp2, tp_overlap=overlap, cp_mode=way,
                vpp=vpp, zero=zero, sp=sp, order=order, schedule=schedule,
            )  # fmt: skip
            if (
                not wanted(plan, batch)
                or all_broken(scenario, plan, batch_of([plan]))
                or not first_of_its_placement(scenario, plan)
            ):
                continue
            one = evaluate_plans(scenario, batch_of([plan]))
            if verdict_codes(one.held, float(scenario.system.chip.memory_bytes))[0] == YES:
                found.append(float(one.step_s[0]))
    return sorted(found)


def wanted(plan: Plan, batch: int) -> bool:
    """Plans of which each choice changes something."""
    if batch % (plan.dp * plan.micro_batch) or (plan.zero and plan.dp * plan.cp == 1):
        return False
    if plan.sp != (plan.tp > 1) and not (plan.tp > 1 and plan.tp_mode == "1d"):
        return False
    if (plan.tp_mode == "summa") != (plan.tp2 > 0) or (plan.tp_mode == "summa" and plan.tp == 1):
        return False
    if plan.tp_overlap == "on" and plan.tp == 1:
        return False
    if plan.cp_mode != "ring" and plan.cp == 1:
        return False
    return plan.schedule in ("1f1b", "interleaved") or plan.pp > 1


@pytest.mark.parametrize(
    ("batch", "gib", "over"),
    [(4, 80, {"tp_mode", "tp_overlap"}), (4, 5, {"tp_mode", "cp_mode"}), (8, 80, {"schedule"})],
)
def test_the_best_equals_brute_force(batch: int, gib: float, over: set[str]) -> None:
    scenario = small(batch, gib)
    slow = brute_force(scenario, over)
    fixed = ("micro_batch", "recompute")
    fast = search_plans(scenario, Plan(), top=20, fixed=fixed, over=over_names(sorted(over)))
    assert len(slow) > 20
    assert [p.step_s for p in fast.plans] == pytest.approx(slow[:20], rel=1e-12)


def test_every_candidate_occurs_once_and_obeys_every_rule() -> None:
    scenario = small(4, 80)
    found = search_plans(scenario, Plan(), top=150, over=over_names("all"))
    texts = [str(p.plan) for p in found.plans]
    assert len(set(texts)) == len(texts) == 150
    for row in found.plans[:40]:
        assert not all_broken(scenario, row.plan, batch_of([row.plan]))
    alone = search_plans(scenario, Plan(), top=1)
    many, few = (one.plans_evaluated + one.plans_pruned for one in (found, alone))
    assert many > 5 * few


def test_without_choices_a_search_is_as_before() -> None:
    scenario = small(4, 80)
    plain, none = search_plans(scenario, Plan(), top=5), search_plans(scenario, Plan(), over=())
    assert [p.plan for p in plain.plans] == [p.plan for p in none.plans[:5]]
    every = len(enumerate_plans(scenario, Plan()).plans)
    assert plain.plans_evaluated + plain.plans_pruned == every
    assert [(base, changed) for base, changed in bases_of(scenario, Plan(), ())] == [(Plan(), [])]


def test_names_are_checked_and_what_a_plan_says_is_kept() -> None:
    assert over_names("all") == NAMES
    assert over_names("cp_mode, schedule") == ("cp_mode", "schedule")
    assert over_names("all", ("schedule", "tp")) == tuple(n for n in NAMES if n != "schedule")
    with pytest.raises(BadInput, match="no choice"):
        over_names("schedul")


def test_a_model_without_a_grid_or_experts_has_fewer_batches() -> None:
    moe = make_scenario("moe", 16, 64)
    assert {base.tp_mode for base, _ in bases_of(moe, Plan(), ("tp_mode",))} == {"1d"}
    tried = [base for base, _ in bases_of(small(4, 80), Plan(), ("tp_mode", "cp_mode"))]
    assert len(tried) == 4
