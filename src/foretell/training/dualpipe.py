"""Schedules from both ends (DualPipe): what a forward beside a backward pass saves, what two copies cost.

In a pair the two passes' dispatches and sends run behind each other's products, so that of both together only
what is longer than the products shows. Communication takes some of the cores while it runs (20 of an H800's
132; DeepSeek-V3, arXiv 2412.19437, section 3.2):

    saved = min(e, t) (1 - cores taken)      e: exchanges of both passes, t: the rest of both

Every weight is on two ranks of a pipeline, r and p - 1 - r, one for each half of the micro-batches: once a
step they add up their gradients (sharded ones their shares), an all-reduce of two.
"""

import numpy as np

from foretell.network.collectives import by_group, ring_step_s, slower_by
from foretell.schedules import schedule_named
from foretell.schedules.base import Pipe, Schedule
from foretell.sharding.data import wire_bytes
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.plan import Plans
from foretell.specs.scenario import Scenario
from foretell.training.data_parallel import GroupWeights
from foretell.training.micro_batch import MicroBatch
from foretell.training.rank_links import system_as_filled
from foretell.training.shapes import sum_of
from foretell.training.tables import Stages, Tables

TAKEN_CORES = 20.0
"""Cores that dispatch and combination have for themselves."""


def hidden_seconds(
    scenario: Scenario,
    plans: Plans,
    tables: Tables,
    pipe: Pipe,
    one: MicroBatch,
) -> Array:
    """Less what the pairs of a step hide, so negative; (plans, stages)."""
    schedule = schedule_named(plans.base.schedule)
    exchanged_s = hidden_exchanges(plans, tables, one.stages, one.sends_s)
    return -pair_savings(schedule, pipe, exchanged_s, one.whole_s, scenario.system.chip.cores)


def hidden_exchanges(plans: Plans, tables: Tables, stages: Stages, sends_s: Array) -> Array:
    """Seconds of a micro-batch's dispatches and sends, both passes; (plans, stages)."""
    total = sends_s + np.zeros_like(stages.forward_s)
    if plans.base.ep_overlap == "on":
        return total
    for name, waits in zip(tables.exchanges.by_name, stages.waits, strict=True):
        if name == "expert_parallel":
            total = total + (0.0 if waits.waits_s is None else waits.waits_s)
    return total


def pair_savings(
    schedule: Schedule,
    pipe: Pipe,
    exchanged_s: Array,
    stage_s: Array,
    cores: Num,
) -> Array:
    """What the pairs of a step save; (plans, stages). `cores` are the chip's, 0 where unknown."""
    many_cores = np.reshape(np.asarray(cores, float), (-1, 1))
    taken = np.where(many_cores > 0, TAKEN_CORES / np.maximum(many_cores, TAKEN_CORES), 0.0)
    products_s = np.maximum(stage_s - exchanged_s, 0.0)
    each = np.minimum(exchanged_s, products_s) * (1.0 - taken)
    many = np.where(pipe.pp > 1, np.maximum(schedule.pairs(pipe), 0.0), 0.0)
    return np.asarray(many[:, None] * each)


def mirror_seconds(
    scenario: Scenario, plans: Plans, tables: Tables, shares: tuple[GroupWeights, ...]
) -> Array:
    """Once a step, the gradients of the two copies become one: two halves there and back."""
    gradient_bytes, _ = wire_bytes(plans.base)
    size = sum_of([s.trained * (gradient_bytes / s.traffic.state_parts)[:, None] for s in shares])
    counts = tables.pipe_counts[:, tables.spot]
    slower = slower_by(scenario.system.corrections.data_parallel, counts, scenario.system)
    step_s = ring_step_s(0.5 * size, counts, system_as_filled(scenario).network)
    step_s = step_s * by_group(slower, 2)
    return np.asarray(2.0 * step_s * (plans.pp > 1)[:, None])
