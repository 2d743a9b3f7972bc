"""The plan that works and differs least from one that does not."""

import numpy as np

from foretell.search.space import all_orders, enumerate_plans, spell_order
from foretell.specs.arrays import Array
from foretell.specs.plan import Plan, Plans, recompute_code
from foretell.specs.scenario import Scenario
from foretell.training.feasibility import NO, YES, verdict_codes
from foretell.training.step import evaluate_plans

WEIGHTS = {"tp": 1.0, "pp": 1.0, "cp": 1.0, "ep": 0.7, "etp": 0.7, "micro_batch": 0.7, "vpp": 0.5}
"""Cost of doubling or halving a degree; changing a choice costs a half."""
TOO_CLOSE = 0.75
"""Cost of a plan that is borderline."""
FIRST_LOOK = 512
"""Plans that are evaluated first; four times as many each time none of them fits."""


def nearest_plan(scenario: Scenario, plan: Plan) -> Plan | None:
    """Among all plans that fit, the one with the fewest doublings and changed choices; then the fastest."""
    plans = enumerate_plans(scenario, plan).plans
    if len(plans) == 0:
        return None
    distance = np.zeros(len(plans))
    for name, weight in WEIGHTS.items():
        distance += weight * np.abs(np.log2(getattr(plans, name) / getattr(plan, name)))
    distance += 0.5 * np.abs(plans.zero - plan.zero)
    distance += 0.5 * (plans.recompute != recompute_code(plan.recompute))
    distance += 0.5 * (plans.sp != float(plan.sp))
    order = all_orders(plan).index(spell_order(plan.order, plan))
    distance = np.round(distance + 0.5 * (plans.order != order), 9)
    best = _nearest_that_fits(scenario, plans, distance)
    return None if best is None else plans.plan(best)


def _nearest_that_fits(scenario: Scenario, plans: Plans, distance: Array) -> int | None:
    """Row of the nearest plan that fits; near ones are looked at first, the rest only where none does."""
    have = scenario.system.chip.memory_bytes
    sequence = np.argsort(distance, kind="stable")
    found: tuple[float, float, int] | None = None
    start, size = 0, FIRST_LOOK
    while start < len(sequence):
        rows = sequence[start : start + size]
        if found is not None and distance[rows[0]] > found[0]:
            break
        totals = evaluate_plans(scenario, plans.take(rows))
        verdicts = verdict_codes(totals.held, have)
        far = np.round(distance[rows] + TOO_CLOSE * (verdicts != YES), 9)
        for at in np.flatnonzero(verdicts != NO):
            one = (float(far[at]), float(totals.step_s[at]), int(rows[at]))
            found = one if found is None else min(found, one)
        start, size = start + size, 4 * size
    return None if found is None else found[2]
