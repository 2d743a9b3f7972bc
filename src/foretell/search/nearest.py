"""The plan that works and differs least from one that does not."""

import numpy as np

from foretell.kernels.memory import CLOSE_SHARE
from foretell.search.space import all_orders, enumerate_plans, spell_order
from foretell.specs.plan import Plan, recompute_code
from foretell.specs.scenario import Scenario
from foretell.training.step import evaluate

WEIGHTS = {"tp": 1.0, "pp": 1.0, "cp": 1.0, "ep": 0.7, "etp": 0.7, "micro_batch": 0.7, "vpp": 0.5}
"""Cost of doubling or halving a degree; changing a choice costs a half, and a plan that is
too close to call three quarters."""


def nearest_plan(scenario: Scenario, plan: Plan) -> Plan | None:
    """Among all plans that fit, the one with the fewest doublings and changed choices; then the fastest."""
    plans = enumerate_plans(scenario, plan).plans
    if len(plans) == 0:
        return None
    step, peak = evaluate(scenario, plans)
    distance = np.zeros(len(plans))
    for name, weight in WEIGHTS.items():
        distance += weight * np.abs(np.log2(getattr(plans, name) / getattr(plan, name)))
    distance += 0.5 * np.abs(plans.zero - plan.zero)
    distance += 0.5 * (plans.recompute != recompute_code(plan.recompute))
    distance += 0.5 * (plans.sp != float(plan.sp))
    order = all_orders(plan).index(spell_order(plan.order, plan))
    distance += 0.5 * (plans.order != order)
    distance += 0.75 * (peak > CLOSE_SHARE * scenario.system.chip.memory_bytes)
    ok = np.flatnonzero(peak <= scenario.system.chip.memory_bytes)
    if len(ok) == 0:
        return None
    best = ok[np.lexsort((step[ok], np.round(distance[ok], 9)))[0]]
    return plans.plan(int(best))
