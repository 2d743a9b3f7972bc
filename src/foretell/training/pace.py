"""Which stage sets the pace of a step, how long it waits for the others, and the least that a step can take.

The least is from what its passes take alone; a search skips plans that cannot lead. With W the passes of one
micro-batch over the whole model, mu micro-batches, p stages of v chunks and e what a rank sends of each, some
stage has at least the mean of all, W / p, and the closed form grows with it:

    step >= mu (W / p + e) + (p - 1) (W / p + e) / v + what a step takes beside its work

Gradients, their sums, the update and waits for unequal chunks come on top of it. Schedules that fill their
pipeline in another way have the work alone, mu (W / p + e); those that hide communication behind passes of
the other direction have no bound. W depends on shape, placement and recomputation alone, so that a million
plans need it a few thousand times.
"""

from dataclasses import replace

import numpy as np

from foretell.schedules import schedule_named
from foretell.schedules.base import Pipe, RankTimes, Schedule
from foretell.schedules.rules import pipe_of
from foretell.specs._base import Num
from foretell.specs.arrays import Array, Index
from foretell.specs.plan import USUAL_SCHEDULES, Plans
from foretell.specs.scenario import Scenario
from foretell.training.ledger import StageSeconds
from foretell.training.micro_batch import MicroBatch
from foretell.training.pass_times import held_passes, late_launches
from foretell.training.shapes import fixed_seconds
from foretell.training.stages import send_seconds
from foretell.training.tables import Tables, distinct, gather, largest_stage


def set_pace(
    plans: Plans, tables: Tables, pipe: Pipe, one: MicroBatch, seconds: StageSeconds, busy_s: Array
) -> tuple[Index, Array]:
    """The stage that sets the pace, and its waiting; (plans,). `busy_s` are the sums of `seconds`."""
    base, schedule = plans.base, schedule_named(plans.base.schedule)
    multiplicity = gather(tables.stages.multiplicity, tables.pair)
    runs_s, share = seconds.passes * (multiplicity > 0), tables.stages.waiting[tables.pair]
    waits = chunks_wait(share, runs_s, seconds.data_parallel, multiplicity)
    forward_s: Num = 0.0
    if base.schedule not in USUAL_SCHEDULES:
        forward_s = one.stages.forward_s + 0.5 * one.sends_s + one.passed_on_s("forward")
    weight_s = one.weight_pass_s if schedule.splits_backward else 0.0
    times = RankTimes(
        whole_s=one.whole_s
        + one.waits.weight_s
        + one.passed_on_s("forward")
        + one.passed_on_s("backward"),
        multiplicity=multiplicity,
        slowest=waits[0],
        forward_s=forward_s,
        weight_s=weight_s,
    )
    return pace_of(schedule, times, pipe, busy_s, *waits)


def pace_of(
    schedule: Schedule, times: RankTimes, pipe: Pipe, busy_s: Array, waiting: Index, waits_s: Array
) -> tuple[Index, Array]:
    """The stage whose work and waiting together are longest, and its waiting; (plans,).

    What any stage does and waits for the others is a bound on the step; the largest bound is the step. The
    busiest stage alone would not do: where another becomes it the waiting would jump, and a better network
    could make a step longer. `waiting` is a stage of each plan, `waits_s` what that one waits besides.
    """
    count, stages = busy_s.shape
    slowest, bubble_s, most_s = np.zeros(count, dtype=np.intp), np.zeros(count), np.zeros(count)
    for stage in range(stages):
        here = replace(times, slowest=np.full(count, stage, dtype=np.intp))
        own_s = schedule.bubble_s(here, pipe) + waits_s * (waiting == stage)
        whole_s = (busy_s[:, stage] + own_s) * (times.multiplicity[:, stage] > 0)
        more = whole_s > most_s
        slowest, bubble_s = np.where(more, stage, slowest), np.where(more, own_s, bubble_s)
        most_s = np.maximum(most_s, whole_s)
    return slowest, bubble_s


def chunks_wait(share: Array, runs_s: Array, data_s: Array, many: Array) -> tuple[Index, Array]:
    """The longest stage, and what it waits in a step for unequal chunks of the others; (plans,).

    The other stages' rounds take (1 + share) times the longest of them: a stage that is longer for its ends
    fills that itself, and so do data-parallel messages, which go on meanwhile. Shorter stages set no pace.
    """
    waits_s, longest = np.zeros(len(share)), np.zeros(len(share), dtype=np.intp)
    at = np.flatnonzero(share)
    if not len(at):
        return longest, waits_s
    others, count = gather(runs_s, at), np.arange(len(at))
    stage, own = largest_stage(others)
    own = own + data_s[at, stage]
    others[count, stage] *= many[at, stage] > 1
    waits_s[at] = np.maximum((1.0 + share[at]) * others.max(axis=1) - own, 0.0)
    longest[at] = stage
    return longest, waits_s


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
