"""The spine: scenario x plans -> step time and peak memory, for one plan or a million.

Read this file to know where everything is:

    tables.py                each quantity on the distinct combinations of what it depends on
    layer_costs.py           what each layer kind, the embedding and the head cost on one rank
      kernels/op_times.py      how long an operation takes, kernel by kernel, and what it spends
    shapes.py                which operations that is, once for each distinct shape
      workload/                the operations they are made of
      sharding/                what context, expert and tensor parallelism leave of them on one rank
    exchanges.py             what the layers wait for of each other's ranks
      tensor_exchanges.py      exchanges behind the products that need or make them
      dispatches.py            those of spread experts
    pass_times.py            what the passes of a micro-batch take of both, at the clock that is held
    stages.py                the parts of each stage together
      sharding/pipeline.py     which parts are on which stage
    data_parallel.py         what data parallelism shares and sends
      sharding/data.py         what its ranks share
      network/                 how long a collective takes, given where its members are
    data_waits.py            what of it a step waits for
      exposed_messages.py      messages behind a pass: what of them shows
      overlap.py               exchanges behind work, and others on their links
    update.py                sums of gradients, the optimizer's update
    micro_batch.py           one micro-batch: passes, sends, sums, waits, pairs, copies to the host
    memory.py                what a stage holds at its peak
      late_gradients.py        memory where the backward pass makes the gradients on its way
      kernels/memory.py        what the sums are
      specs/software.py        what a framework holds beside them, and all else that is its own
    pace.py                  which stage sets the pace, and its waiting
      schedules/               stage times to the time of a step
    feasibility.py           whether that fits the chip's memory: the one verdict
    ledger.py                seconds and bytes of every leaf: totals are their sums
      leaves.py                one plan's passes by op family, host and exchange
      breakdown.py             the ledger of one plan as trees
      totals.py                joules of the same leaves; matrix operations, as MFU and HFU count them
    answer.py                all of it as an Estimate; specs/result.py has each number's formula

Every array has the plans on its first axis; one plan is a batch of one.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from foretell.kernels.memory import HeldBytes
from foretell.schedules import schedule_named
from foretell.schedules.rules import pipe_of
from foretell.specs.arrays import Array
from foretell.specs.plan import Plans
from foretell.specs.scenario import Scenario
from foretell.training.data_parallel import shares_of
from foretell.training.feasibility import PlanTotals, empty_totals
from foretell.training.ledger import Ledger, StageSeconds
from foretell.training.memory import correct_memory, held_micro_batches, stage_memory
from foretell.training.micro_batch import (
    alone_seconds,
    copied_passes,
    copied_seconds,
    hidden_seconds,
    micro_batch,
    mirror_seconds,
    offload_memory,
    offload_seconds,
)
from foretell.training.pace import set_pace
from foretell.training.shapes import fixed_seconds
from foretell.training.stages import stages_of_plans
from foretell.training.tables import Tables, chunks, gather, largest_stage, select, tables_of
from foretell.training.update import update_seconds


def evaluate(
    scenario: Scenario, plans: Plans, progress: Callable[[int], None] | None = None
) -> tuple[Array, Array]:
    """Step time (s) and peak memory (bytes) of every plan."""
    found = evaluate_plans(scenario, plans, progress)
    return found.step_s, np.asarray(found.held.peak_bytes)


def evaluate_plans(
    scenario: Scenario, plans: Plans, progress: Callable[[int], None] | None = None
) -> PlanTotals:
    """Step times and memory of every plan."""
    return evaluate_chunks(scenario, plans, tables_of(scenario, plans), progress)


def evaluate_chunks(
    scenario: Scenario,
    plans: Plans,
    tables: Tables,
    progress: Callable[[int], None] | None = None,
) -> PlanTotals:
    """Step times and memory of every plan, chunk by chunk, with tables that have a row for each plan."""
    found, done = empty_totals(len(plans)), 0
    for rows in chunks(plans, tables):
        result = evaluate_rows(scenario, plans.take(rows), select(tables, rows))
        found.put(rows, PlanTotals(step_s=result.step_s, held=result.held))
        done += len(rows)
        if progress is not None:
            progress(done)
    return found


def evaluate_rows(scenario: Scenario, plans: Plans, tables: Tables) -> Ledger:
    """The ledger of a chunk of plans: one broadcast over plans and stages."""
    pipe, stages = pipe_of(scenario, plans), stages_of_plans(plans, tables)
    shares = shares_of(plans, tables, stages, pipe.micro_batches)
    memory = stage_memory(scenario, plans, stages, shares, held_micro_batches(plans, tables, pipe))
    copies_s = copied_passes(scenario, plans, stages, memory)
    one = micro_batch(scenario, plans, tables, stages, (shares, pipe.micro_batches), copies_s)
    seconds = StageSeconds(
        passes=pipe.micro_batches[:, None] * one.whole_s,
        data_parallel=one.waits.step_s,
        optimizer=update_seconds(scenario, plans, tables, stages, shares),
    )
    if schedule_named(plans.base.schedule).layout == "both":
        mirror_s = mirror_seconds(scenario, plans, tables, shares)
        hidden_s = hidden_seconds(scenario, plans, tables, pipe, one)
        seconds = replace(seconds, data_parallel=one.waits.step_s + mirror_s, hidden=hidden_s)
    elif plans.base.ep_overlap == "on":
        seconds = replace(seconds, hidden=alone_seconds(tables, pipe, stages))
    if plans.base.offload != "none":
        copies = offload_seconds(scenario, plans, one, memory, seconds.optimizer)
        one = replace(one, copies=copies)
        seconds = replace(seconds, offload=copied_seconds(pipe.micro_batches, copies))
        memory = offload_memory(plans, tables, stages, memory)
    memory = correct_memory(memory, scenario.system.corrections)
    multiplicity = gather(tables.stages.multiplicity, tables.pair)
    busy_s = seconds.total * (multiplicity > 0)
    slowest, bubble_s = set_pace(plans, tables, pipe, one, seconds, busy_s)
    there = multiplicity > 0
    allocated = memory.allocated * there
    reserved = allocated + memory.allocator * there
    fullest, peak_bytes = largest_stage(reserved + memory.framework * there)
    held = HeldBytes(
        allocated_bytes=allocated.max(axis=1),
        reserved_bytes=reserved.max(axis=1),
        peak_bytes=peak_bytes,
    )
    return Ledger(
        micro_batches=pipe.micro_batches,
        counts=tables.stages.counts,
        pair=tables.pair,
        multiplicity=multiplicity,
        position=gather(tables.stages.position, tables.pair),
        send_s=one.sends_s,
        sums_s=one.sums_s,
        clock=stages.clock,
        core_fall=stages.core_fall,
        seconds=seconds,
        busy_s=busy_s,
        memory=memory,
        slowest=slowest,
        bubble_s=bubble_s,
        fixed_s=fixed_seconds(scenario) * scenario.system.corrections.fixed,
        fullest=fullest,
        held=held,
    )
