"""The least that a step can take, from what its passes take alone: a search skips plans that cannot lead.

With W the passes of one micro-batch over the whole model, mu micro-batches, p stages of v chunks and e what a
rank sends of each, some stage has at least the mean of all, W / p, and the closed form grows with it:

    step >= mu (W / p + e) + (p - 1) (W / p + e) / v + what a step takes beside its work

Gradients, their sums, the update and waits for unequal chunks come on top of it. Schedules that fill their
pipeline in another way have the work alone, mu (W / p + e); those that hide communication behind passes of
the other direction have no bound. W depends on shape, placement and recomputation alone, so that a million
plans need it a few thousand times.
"""

import numpy as np

from foretell.schedules import schedule_named
from foretell.schedules.rules import pipe_of
from foretell.specs.arrays import Array
from foretell.specs.plan import USUAL_SCHEDULES, Plans
from foretell.specs.scenario import Scenario
from foretell.training.pass_times import held_passes, late_launches
from foretell.training.recipes import fixed_seconds
from foretell.training.stages import send_seconds
from foretell.training.tables import Tables, distinct

ROUNDING = 1e-9
"""Share by which a bound is lowered, so that the order of additions cannot lift it above a step."""


def least_seconds(scenario: Scenario, plans: Plans, tables: Tables) -> Array:
    """A time that no step of each plan is below; (plans,). 0 where a schedule hides communication."""
    if schedule_named(plans.base.schedule).layout == "both":
        return np.zeros(len(plans))
    late = late_launches(plans, tables)
    # Of full:N, which computes some layers of every stage again, the rest is a bound too.
    first, key = distinct(tables.group, plans.recompute, *late)
    passes = held_passes(plans, tables, first, late)
    whole_s = ((passes.forward_s + passes.backward_s) * tables.parts.counts).sum(axis=1)
    pipe = pipe_of(scenario, plans)
    mean_s = whole_s[key] / plans.pp + send_seconds(plans, tables)[:, 0]
    usual = plans.base.schedule in USUAL_SCHEDULES
    step_s = (pipe.micro_batches + usual * (plans.pp - 1.0) / plans.vpp) * mean_s
    fixed_s = fixed_seconds(scenario) * scenario.system.corrections.fixed
    return np.asarray((step_s + fixed_s) * (1.0 - ROUNDING))
