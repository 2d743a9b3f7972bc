"""A plan's step played task by task, with the times that its estimate has for every chunk."""

import numpy as np
from numpy.typing import NDArray

from foretell.kernels.optimizer import accumulate_s
from foretell.schedules import schedule_named
from foretell.sharding.pipeline import chunk_sizes, told_sizes
from foretell.simulation.events import ChunkTimes, play
from foretell.specs.plan import Plan, batch_of
from foretell.specs.scenario import Scenario
from foretell.training.pass_times import late_launches, part_seconds, pass_times
from foretell.training.stages import stages_of_plans
from foretell.training.step import evaluate_rows
from foretell.training.tables import Tables, tables_of, tail_layers
from tests.simulation.pipes import pipe

Array = NDArray[np.float64]


def parts_on_chunks(tables: Tables, plan: Plan, tail: int) -> Array:
    """Parts on each chunk along the model; (chunks, parts). Blocks behind the last layer count as `tail`."""
    order, chunks = np.asarray(tables.parts.order), plan.pp * plan.vpp
    counts = np.zeros((chunks, len(tables.parts.names)))
    layout = schedule_named(plan.schedule).layout
    sizes = told_sizes(len(order), chunks, layout, (), tail) or chunk_sizes(len(order), chunks)
    for chunk, (end, size) in enumerate(zip(np.cumsum(sizes), sizes, strict=True)):
        for kind in order[end - size : end]:
            counts[chunk, kind] += 1.0
    counts[0, -2] = counts[-1, -1] = 1.0
    return counts


def on_ranks(along: Array, layout: str, pp: int, vpp: int) -> Array:
    """Times of chunks along the model as (ranks, chunks) of a layout."""
    if layout == "v":
        return np.stack((along[:pp], along[: pp - 1 : -1]), axis=1)
    if layout == "both":
        return np.stack((along, along[::-1]), axis=1)
    return along.reshape(vpp, pp).T


def played_and_closed(scenario: Scenario, plan: Plan) -> tuple[float, float]:
    """The pipeline's time of a step: events, and the estimate's closed form."""
    plans = batch_of([plan])
    tables = tables_of(scenario, plans)
    rows = evaluate_rows(scenario, plans, tables)
    stages = stages_of_plans(plans, tables)
    schedule, parts, mu = schedule_named(plan.schedule), tables.parts, int(rows.micro_batches[0])
    layer = np.arange(len(parts.names)) < parts.kinds
    spent = pass_times(tables, tables.shape, tables.group, late_launches(plans, tables), plans.pp)
    forward, backward, _ = part_seconds(plans.recompute[:, None], layer, spent, stages.clock)
    weight = np.zeros_like(forward)
    if parts.weight_s is not None:
        slower = tables.pace / stages.clock[0] - 1.0
        weight = parts.weight_s[0] + slower * parts.weight_s[1]
    fused = scenario.software.sums_fused
    trained = parts.trained.copy()
    # A head that is the token table is a copy of it on another rank; V and DualPipe have both ends on one.
    trained[:, -1] += parts.tied * (schedule.layout not in ("v", "both"))
    sums = accumulate_s(trained, 1.0, scenario.system.chip, plan, fused=fused)
    sums = sums * (mu > 1 or fused)
    counts = parts_on_chunks(tables, plan, tail_layers(scenario.model))
    send = 0.5 * float(rows.send_s[0, 0]) / plan.vpp
    split = schedule.splits_backward
    along = [
        counts @ forward[0] + send,
        counts @ (backward - weight + (0.0 if split else sums))[0] + send,
        counts @ (weight + (sums if split else 0.0))[0],
    ]
    chunks = [on_ranks(x, schedule.layout, plan.pp, plan.vpp) for x in along]
    pairs = max(float(schedule.pairs(pipe(plan.pp, plan.vpp, mu))[0]), 1.0)
    hidden = rows.seconds.hidden
    saved = 0.0 if hidden is None else float(-hidden.min()) / pairs
    times = ChunkTimes(forward_s=chunks[0], input_s=chunks[1], weight_s=chunks[2], saved_s=saved)
    slow = int(rows.slowest[0])
    spent, away = rows.seconds, rows.seconds.offload
    other = float(spent.data_parallel[0, slow] + spent.optimizer[0, slow])
    other += 0.0 if away is None else float(away[0, slow])
    closed = float(rows.step_s[0]) - rows.fixed_s - other
    return play(schedule, times, mu).step_s, closed
