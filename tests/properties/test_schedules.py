"""Pipeline schedules in the estimate: bubbles, memory, rules, and one formula for one plan and many."""

import numpy as np
import pytest

from foretell.errors import BadInput
from foretell.search.plan_checks import check_choices
from foretell.specs.plan import Plan, Plans, batch_of, parse_plan
from foretell.training.step import evaluate, evaluate_rows
from foretell.training.tables import tables_of
from tests.builders import make_scenario

WORDS = {
    "1f1b": "tp1 pp4 dp1 zero0 mbs1",
    "gpipe": "tp1 pp4 dp1 zero0 mbs1 schedule=gpipe",
    "zb-h1": "tp1 pp4 dp1 zero0 mbs1 schedule=zb-h1",
    "zb-v": "tp1 pp4 vpp2 dp1 zero0 mbs1 schedule=zb-v",
    "dualpipe": "tp1 pp4 dp1 zero0 mbs1 schedule=dualpipe",
}


def rows(name: str, batch: int = 32) -> tuple[float, float, float]:
    """Step, bubble and peak memory of one plan."""
    scenario = make_scenario("dense", gpus=4, batch=batch)
    plans = batch_of([parse_plan(WORDS[name], 4)])
    found = evaluate_rows(scenario, plans, tables_of(scenario, plans))
    return float(found.step_s[0]), float(found.bubble_s[0]), float(found.peak_bytes[0])


def test_splitting_the_backward_pass_shortens_the_bubble() -> None:
    steps = {name: rows(name) for name in WORDS}
    assert steps["gpipe"][0] == pytest.approx(steps["1f1b"][0], rel=0.02)
    assert steps["zb-h1"][1] < steps["1f1b"][1]
    assert steps["zb-v"][1] < steps["1f1b"][1]
    assert all(np.isfinite(value).all() for value in steps.values())


def test_what_is_held_follows_the_schedule() -> None:
    """GPipe holds every micro-batch, 1F1B as many as stages; DualPipe two copies of the weights."""
    assert rows("gpipe")[2] > rows("1f1b")[2]
    assert rows("dualpipe")[2] > rows("1f1b")[2]
    assert rows("gpipe", batch=64)[2] > rows("gpipe")[2]
    assert rows("1f1b", batch=64)[2] == pytest.approx(rows("1f1b")[2])


@pytest.mark.parametrize("name", sorted(WORDS))
def test_a_batch_equals_its_plans(name: str) -> None:
    scenario = make_scenario("uneven", gpus=8, batch=64)
    base = parse_plan(WORDS[name], 4)
    plans = [replaced(base, micro_batch=m) for m in (1, 2, 4)]
    together: Plans = batch_of(plans)
    step, peak = evaluate(scenario, together)
    for i, plan in enumerate(plans):
        alone = evaluate(scenario, batch_of([plan]))
        assert alone[0][0] == pytest.approx(step[i], rel=1e-12)
        assert alone[1][0] == pytest.approx(peak[i], rel=1e-12)


def replaced(plan: Plan, **changes: int) -> Plan:
    from dataclasses import replace

    return replace(plan, **changes, dp=2)  # type: ignore[arg-type]


def test_a_layout_that_a_schedule_has_not_is_refused() -> None:
    scenario = make_scenario("dense", gpus=4, batch=32)
    with pytest.raises(BadInput):
        check_choices(scenario, parse_plan("tp1 pp4 vpp3 dp1 mbs1 schedule=dualpipe", 4))
