"""The spine: scenario x plans -> step time and peak memory, for one plan or a million.

Read this file to know where everything is:

    tables.py                each quantity on the distinct combinations of what it depends on
    layer_costs.py           what each layer kind, the embedding and the head cost on one rank
      kernels/op_times.py      how long an operation takes, kernel by kernel, and what it spends
    shapes.py                which operations that is, once for each distinct shape
      workload/                the operations they are made of
      sharding/                what context, expert and tensor parallelism leave of them on one rank
    exchanges.py             what the layers wait for of each other's ranks
    pass_times.py            what the passes of a micro-batch take of both, at the clock that is held
    sharding/pipeline.py     which parts stand on which stage
    data_parallel.py         what data parallelism sends, and what of it shows
      sharding/data.py         what its ranks share
    dualpipe.py              what schedules from both ends save and pay
    network/                 how long a collective takes, given where its members stand
    memory.py                what a stage holds at its peak
      late_gradients.py        the same where the backward pass makes the gradients on its way
      kernels/memory.py        what the sums are
      specs/software.py        what a framework holds beside them, and all else that is its own
    schedules/               stage times to the time of a step
    breakdown.py             the same numbers as a tree

Every array has the plans on its first axis; one plan is a batch of one.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foretell.kernels.memory import StageMemory
from foretell.kernels.optimizer import (
    Matrices,
    accumulate_s,
    first_sum_s,
    optimizer_s,
    shared_products_s,
)
from foretell.records import dataclass
from foretell.schedules import schedule_named
from foretell.schedules.base import Pipe, RankTimes, Schedule
from foretell.schedules.rules import pipe_of
from foretell.sharding.offload import Held, exposed_copies, host_copies
from foretell.specs.plan import USUAL_SCHEDULES, Plans
from foretell.specs.scenario import Scenario
from foretell.training.data_parallel import Share, data_seconds, shares_of, sum_of
from foretell.training.dualpipe import hidden_exchanges, mirror_seconds, pair_savings
from foretell.training.exchanges import Exchange
from foretell.training.late_gradients import late_weights
from foretell.training.memory import (
    LISTED,
    block_share,
    head_of,
    kept_of,
    message_bytes,
    offloaded,
    on_stages,
    parts_of,
    placeholders_of,
    stage_memory,
)
from foretell.training.pass_times import held_passes, late_launches, weight_seconds
from foretell.training.tables import (
    Stages,
    Tables,
    Waits,
    chunks,
    distinct,
    gather,
    largest_stage,
    select,
    tables_of,
)

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A chunk of plans, fully evaluated; arrays are (plans, stages) unless said otherwise."""

    micro_batches: Array
    """Micro-batches per step and replica; (plans,)."""
    counts: Array
    """Parts on each stage, by (pp, vpp); (pairs, stages, parts)."""
    pair: Index
    """(pp, vpp) of each plan; (plans,)."""
    multiplicity: Array
    """How many stages are alike; 0 pads."""
    position: Array
    """Index of the first of them."""
    send_s: Array
    """Sends and receives of one micro-batch; (plans, 1)."""
    data_s: Array
    """Exposed data-parallel communication of the step."""
    sums_s: Array
    """Adding one micro-batch's gradients to the sum."""
    fixed_s: float
    """What a step takes beside its work."""
    optimizer_s: Array
    """Optimizer update."""
    saved_s: Array
    """What exchanges of a forward beside a backward pass hide of the step; (1, 1) where none run so."""
    offload_s: Array
    """Copies to and from the host that nothing hides."""
    clock: Array
    """Clock that the step holds; (plans,)."""
    core_fall: Array
    """Factor on the cores' joules at that clock; (plans,)."""
    memory: StageMemory
    """What a stage holds."""
    slowest: Index
    """The stage that sets the pace; (plans,)."""
    bubble_s: Array
    """Its waiting for the others; (plans,)."""
    step_s: Array
    """Time of the step; (plans,)."""
    fullest: Index
    """The stage that holds most; (plans,)."""
    peak_bytes: Array
    """What it holds; (plans,)."""


def evaluate(
    scenario: Scenario, plans: Plans, progress: Callable[[int], None] | None = None
) -> tuple[Array, Array]:
    """Step time (s) and peak memory (bytes) of every plan."""
    tables = tables_of(scenario, plans)
    step, peak = np.empty(len(plans)), np.empty(len(plans))
    done = 0
    for rows in chunks(tables):
        result = evaluate_rows(scenario, plans.take(rows), select(tables, rows))
        step[rows], peak[rows] = result.step_s, result.peak_bytes
        done += len(rows)
        if progress is not None:
            progress(done)
    return step, peak


def evaluate_rows(scenario: Scenario, plans: Plans, tables: Tables) -> Rows:
    """One broadcast over plans and stages."""
    pair = tables.pair
    counts, multiplicity = tables.stages.counts, gather(tables.stages.multiplicity, pair)
    position = gather(tables.stages.position, pair)
    pipe = pipe_of(scenario, plans)
    micro_batches = pipe.micro_batches
    stages = stages_of_plans(plans, tables)
    shares = shares_of(plans, tables, stages, micro_batches)
    latency_s, s_per_byte = (line[tables.spot] for line in tables.send_line)
    sends = latency_s + tables.parts.send_bytes[tables.shape] * s_per_byte
    sends = sends + tables.exchanges.send_s[tables.group] * (plans.pp > 1)
    sends_s = (2.0 * plans.vpp * sends)[:, None]
    data_s = data_seconds(scenario, plans, tables, stages, shares, sends_s)
    update_s = update_seconds(scenario, plans, stages, shares)
    software = scenario.software
    again = (micro_batches > 1.0) | software.sums_fused
    chip, base = scenario.system.chip, plans.base
    # Gradients that every micro-batch scatters are added up in pieces.
    pieces = shares[0].traffic.gradient_parts[:, None]
    sums_s = accumulate_s(stages.trained / pieces, 1.0, chip, base, fused=software.sums_fused)
    if software.casts_apart and base.gradients != base.weights:
        # Where the sum is of another dtype, the first micro-batch begins it by a pass of its own.
        begun_s = first_sum_s(stages.trained / pieces, chip, base)
        sums_s = sums_s + (begun_s - sums_s) / micro_batches[:, None]
        again = np.ones_like(again)
    # A micro-batch passes one of the copies of the weights that a rank may hold.
    sums_s = sums_s * (again / schedule_named(base.schedule).weight_copies)[:, None]
    stage_s = stages.forward_s + stages.backward_s + sends_s + sums_s
    schedule = schedule_named(base.schedule)
    saved_s = np.zeros((1, 1))
    if schedule.layout == "both":
        exchanged_s = hidden_exchanges(plans, tables, stages, sends_s)
        saved_s = pair_savings(schedule, pipe, exchanged_s, stage_s, chip.cores)
        data_s = data_s + mirror_seconds(scenario, plans, tables, shares)
    flight = schedule.in_flight(pipe, position)
    if base.schedule not in USUAL_SCHEDULES:
        # A single rank has nothing to wait for with its backward passes.
        flight = np.where(plans.pp[:, None] > 1, flight, 1.0)
    memory = stage_memory(scenario, plans, stages, shares, flight)
    offload_s = np.zeros_like(update_s)
    runs_s = micro_batches[:, None] * stage_s
    busy_s = runs_s + data_s + update_s
    if schedule.layout == "both":
        busy_s = busy_s - saved_s
    if base.offload != "none":
        offload_s = offload_seconds(scenario, plans, stages, memory, update_s, micro_batches)
        many = np.maximum(gather(tables.stages.layers, pair), 1.0)
        memory = offloaded(memory, base, software, many, stages.kept_bytes)
        busy_s = busy_s + offload_s
    there = multiplicity > 0
    busy_s *= there
    waits_s, longest = chunks_wait(
        tables.stages.waiting[pair], runs_s * there, data_s, multiplicity
    )
    times = RankTimes(
        whole_s=stage_s,
        multiplicity=multiplicity,
        slowest=longest,
        forward_s=stages.forward_s + 0.5 * sends_s,
        weight_s=stages.weight_s + sums_s if schedule.splits_backward else 0.0,
    )
    slowest, bubble_s = pace_of(schedule, times, pipe, busy_s, (longest, waits_s))
    fullest, peak_bytes = largest_stage(memory.total * there)
    return Rows(
        micro_batches=micro_batches,
        counts=counts,
        pair=pair,
        multiplicity=multiplicity,
        position=position,
        send_s=sends_s,
        data_s=data_s,
        sums_s=sums_s,
        fixed_s=software.fixed_s,
        optimizer_s=update_s,
        saved_s=saved_s,
        offload_s=offload_s,
        clock=stages.clock,
        core_fall=stages.core_fall,
        memory=memory,
        slowest=slowest,
        bubble_s=bubble_s,
        step_s=busy_s[np.arange(len(plans)), slowest] + bubble_s + software.fixed_s,
        fullest=fullest,
        peak_bytes=peak_bytes,
    )


def pace_of(
    schedule: Schedule, times: RankTimes, pipe: Pipe, busy_s: Array, waits: tuple[Index, Array]
) -> tuple[Index, Array]:
    """The stage whose work and waiting together are longest, and its waiting; (plans,).

    What any stage does and waits for the others is a bound on the step; the largest bound is the step. The
    busiest stage alone would not do: where another becomes it the waiting would jump, and a better network
    could make a step longer. `waits` are a stage of each plan, and what that one waits besides.
    """
    count, stages = busy_s.shape
    slowest, bubble_s, most_s = np.zeros(count, dtype=np.intp), np.zeros(count), np.zeros(count)
    for stage in range(stages):
        here = replace(times, slowest=np.full(count, stage, dtype=np.intp))
        own_s = schedule.bubble_s(here, pipe) + waits[1] * (waits[0] == stage)
        whole_s = (busy_s[:, stage] + own_s) * (times.multiplicity[:, stage] > 0)
        more = whole_s > most_s
        slowest, bubble_s = np.where(more, stage, slowest), np.where(more, own_s, bubble_s)
        most_s = np.maximum(most_s, whole_s)
    return slowest, bubble_s


def chunks_wait(share: Array, runs_s: Array, data_s: Array, many: Array) -> tuple[Array, Index]:
    """What the longest stage waits in a step for unequal chunks of the others, and which it is; (plans,).

    The other stages' rounds take (1 + share) times the longest of them: a stage that is longer for its ends
    fills that itself, and so do data-parallel messages, which go on meanwhile. Shorter stages set no pace.
    """
    waits_s, longest = np.zeros(len(share)), np.zeros(len(share), dtype=np.intp)
    at = np.flatnonzero(share)
    if not len(at):
        return waits_s, longest
    others, count = gather(runs_s, at), np.arange(len(at))
    stage, own = largest_stage(others)
    own = own + data_s[at, stage]
    others[count, stage] *= many[at, stage] > 1
    waits_s[at] = np.maximum((1.0 + share[at]) * others.max(axis=1) - own, 0.0)
    longest[at] = stage
    return waits_s, longest


def update_seconds(
    scenario: Scenario, plans: Plans, stages: Stages, shares: tuple[Share, ...]
) -> Array:
    """The optimizer's update on one rank of each stage; (plans, stages)."""
    updated = sum_of([s.trained / s.traffic.state_parts[:, None] for s in shares])
    chip, apart, all_s = scenario.system.chip, stages.matrices, stages.products_s
    casts_apart = scenario.software.casts_apart
    if apart is None or all_s is None:
        return optimizer_s(updated, chip, plans.base, casts_apart=casts_apart)
    # Spread experts are shared by fewer ranks; both kinds of weights are in matrices alike.
    products_s = sum_of(
        [
            shared_products_s(all_s * part, apart.counts * part, s.traffic.state_parts[:, None])
            for s, part in parts_of(stages, shares)
        ]
    )
    in_matrices = updated * apart.weights / np.maximum(stages.trained, 1.0)
    return optimizer_s(updated, chip, plans.base, in_matrices, products_s, casts_apart=casts_apart)


def offload_seconds(
    scenario: Scenario,
    plans: Plans,
    stages: Stages,
    memory: StageMemory,
    update_s: Array,
    micro_batches: Array,
) -> Array:
    """Copies to and from the host in a step that no pass hides; (plans, stages)."""
    there = Held(
        weight_bytes=memory.weights, state_bytes=memory.states, kept_bytes=stages.kept_bytes
    )
    copies = host_copies(plans.base.offload, there, plans.base.reshard)
    passes = stages.forward_s, stages.backward_s, update_s
    waits = exposed_copies(copies, scenario.system.chip, *passes)
    return micro_batches[:, None] * (waits.forward_s + waits.backward_s) + waits.update_s


def stages_of_plans(plans: Plans, tables: Tables) -> Stages:
    """Sums over the parts of each stage, on distinct combinations, gathered to the plans."""
    late = late_launches(plans, tables)
    first, key = distinct(tables.group, tables.pair, plans.recompute, *late)
    shape = tables.shape[first]
    parts, counts = tables.parts, gather(tables.stages.counts, tables.pair[first])
    mode = plans.recompute[first][:, None]
    is_layer = np.arange(len(parts.names)) < parts.kinds
    group = tables.group[first]
    share = block_share(plans, first, tables)
    passes = held_passes(plans, tables, first, late)
    forward, backward, clock = passes.forward_s, passes.backward_s, passes.clock
    again = 0.0 if share is None else on_stages(counts, forward * is_layer) * share
    kept, again_bytes = kept_of(plans, first, shape, parts, counts, share)
    parameters = gather(parts.parameters, shape)
    schedule = schedule_named(plans.base.schedule)
    # A tied head is the token table itself on a single stage, and a copy of it on another.
    apart = (plans.pp[first] > 1) & (schedule.layout != "v")
    parameters[:, -1] += parts.tied[shape] * apart
    held = counts if schedule.weight_copies == 1.0 else schedule.weight_copies * counts

    def on_plans(counted: Array, values: Array) -> Array:
        """Sums over the parts of a stage, gathered to the plans."""
        return gather(on_stages(counted, values), key)

    on_rank = on_plans(held, parameters)
    layer_only = placeholders_of(plans.base, tables.software, shape, parts, counts)

    def waited(name: str, exchange: Exchange) -> Array:
        """Exchanges of the backward pass, with those of what is computed again."""
        once_more = (mode == 2.0) * is_layer
        if parts.again is not None:
            once_more = once_more + (mode == LISTED) * is_layer * parts.waits_again[name]
        forward_s = gather(exchange.forward_s, group)
        sums = on_stages(counts, gather(exchange.backward_s, group) + once_more * forward_s)
        return sums if share is None else sums + share * on_stages(counts, is_layer * forward_s)

    return Stages(
        forward_s=on_plans(counts, forward),
        backward_s=gather(on_stages(counts, backward) + again, key),
        weight_s=weight_seconds(parts.weight_s, shape, clock / tables.pace, counts, key),
        clock=clock[key],
        core_fall=passes.core_fall[key],
        waits=tuple(
            Waits(
                forward_s=on_plans(counts, gather(e.forward_s, group)),
                backward_s=gather(waited(name, e), key),
                tier=e.tier[tables.group],
            )
            for name, e in tables.exchanges.by_name.items()
        ),
        parameters=on_rank,
        trained=on_plans(held, gather(parts.trained, shape)) if plans.base.lora else on_rank,
        matrices=None
        if parts.matrices is None
        else Matrices(
            weights=on_plans(held, gather(parts.matrices.weights, shape)),
            edges=on_plans(held, gather(parts.matrices.edges, shape)),
            counts=on_plans(held, gather(parts.matrices.counts, shape)),
        ),
        products_s=None
        if parts.products_s is None
        else on_plans(held, gather(parts.products_s, shape)),
        routed=on_plans(held, gather(parts.routed, shape)) if parts.experts else None,
        kept_bytes=gather(kept, key),
        again_bytes=gather(again_bytes, key),
        head_bytes=gather(head_of(plans, tables.software, first, shape, parts, counts), key),
        placeholders=None if layer_only is None else gather(layer_only, key),
        narrow=None if parts.narrow is None else on_plans(held, gather(parts.narrow, shape)),
        late=late_weights(
            plans, tables.software, key, parameters, parts.tied[shape] * ~apart, counts
        ),
        message_bytes=message_bytes(plans, tables),
        largest=parameters.max(axis=1)[key],
    )
