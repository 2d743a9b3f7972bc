"""The spine: scenario x plans -> step time and peak memory, for one plan or a million.

Read this file to know where everything is:

    parts.py               what each layer kind, the embedding and the head cost on one rank
      workload/              the operations they are made of
      sharding/              what context, expert and tensor parallelism leave of them on one rank
      cost/op_times.py       how long an operation takes, kernel by kernel, and what it spends
    exchanges.py           what the layers wait for of each other's ranks
    sharding/pipeline.py   which parts stand on which stage
    sharding/data.py       what data parallelism shares and sends
    network/               how long a collective takes, given where its members stand
    cost/memory.py         what a stage holds
    simulate/pipeline.py   stage times to the time of a step
    breakdown.py           the same numbers as a tree

Every array has the plans on its first axis; one plan is a batch of one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foretell.cost.memory import StageMemory, in_flight, lost_bytes, weight_bytes
from foretell.cost.optimizer import optimizer_s
from foretell.cost.power import ChipPower, chip_power, clock_of
from foretell.exchanges import Exchanges, exchanges_of
from foretell.network.collectives import (
    collective_s,
    contention_s,
    occupancy,
    outermost,
    place,
    send_s,
)
from foretell.network.library_records import Kind
from foretell.network.placement import as_filled, group_counts
from foretell.parts import Parts, Shape, part_table
from foretell.sharding.data import DataTraffic, data_parallel
from foretell.sharding.pipeline import StageTable, stage_table
from foretell.simulate.pipeline import fill_and_drain_s
from foretell.specs._base import Num
from foretell.specs.plan import DTYPE_BYTES, Plans
from foretell.specs.scenario import Scenario
from foretell.specs.system import System

Array = NDArray[np.float64]
Index = NDArray[np.intp]

CHUNK = 8192
"""Plans evaluated together: large enough to amortise calls, small enough for the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Everything that depends on few fields of a plan, and where each plan finds its row in it."""

    parts: Parts
    """Costs of the parts by shape."""
    shape: Index
    """Shape of each plan."""
    stages: StageTable
    """Stages by (pp, vpp)."""
    pair: Index
    """(pp, vpp) of each plan."""
    exchanges: Exchanges
    """What the layers wait for, by shape and placement."""
    group: Index
    """Row of each plan in it."""
    data_counts: Array
    """Where the ranks that reduce gradients stand, dp x cp of them; (tiers, plans)."""
    expert_counts: Array | None
    """The same for spread experts, edp of them; None where no plan spreads any."""
    pipe_counts: Array
    """Where the stages stand; (tiers, plans)."""
    power: ChipPower
    """The chip's watts and joules."""
    bytes_per_s: Num
    """Bandwidth of its memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Exchanges of one parallelism; arrays are (plans, stages) unless said otherwise."""

    forward_s: Array
    """That the forward pass waits for."""
    backward_s: Array
    """That the backward pass waits for, recomputation included."""
    tier: Index
    """Outermost tier that they touch; (plans,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Weights that one kind of data-parallel group holds together."""

    parameters: Array
    """Weights on one rank; (plans, stages)."""
    ranks: Array
    """Ranks of the group; (plans,)."""
    counts: Array
    """Where they stand; (tiers, plans)."""
    traffic: DataTraffic
    """What they share and send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """What does not depend on data parallelism; arrays are (plans, stages) unless said otherwise."""

    forward_s: Array
    """Forward pass of one micro-batch."""
    backward_s: Array
    """Backward pass of one micro-batch, recomputation included."""
    clock: Array
    """Clock that the step holds, over that of short bursts; (plans,)."""
    core_fall: Array
    """Factor on the cores' joules at that clock; (plans,)."""
    waits: tuple[Waits, ...]
    """Exchanges that the passes wait for, by parallelism."""
    parameters: Array
    """Weights on one rank."""
    routed: Array | None
    """Of these, weights of spread experts; None where no plan spreads any."""
    kept_bytes: Array
    """Activations kept for one micro-batch in flight."""
    buffer_bytes: Array
    """Scores of the head, and one layer computed again."""
    largest: Array
    """Weights of the largest part; (plans,)."""


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
    optimizer_s: Array
    """Optimizer update."""
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


def chunks(tables: Tables) -> Iterator[Index]:
    """Rows of at most CHUNK plans, those with few distinct stages together, so that arrays stay narrow."""
    stages = tables.stages.distinct[tables.pair]
    order = np.argsort(stages, kind="stable")
    for start in range(0, len(order), CHUNK):
        yield order[start : start + CHUNK]


def tables_of(scenario: Scenario, plans: Plans) -> Tables:
    """Compute each quantity on the distinct combinations of the fields that it depends on."""
    first, shape = distinct(*shape_columns(plans))
    names = ("micro_batch", "tp", "sp", "cp", "ep", "etp")
    parts = part_table(scenario, plans.base, Shape(**{n: getattr(plans, n)[first] for n in names}))
    first, pair = distinct(plans.pp, plans.vpp)
    pairs = tuple((int(plans.pp[i]), int(plans.vpp[i])) for i in first)
    system = system_as_filled(scenario)
    counts = group_counts(plans, system.network, scenario.job.gpus)
    # Counts need not be whole where a prime number of chips fills its units unevenly.
    placed = [*np.rint(1024.0 * counts["tp"])]
    placed += [*np.rint(1024.0 * counts["cp"])] if parts.context else []
    placed += [*np.rint(1024.0 * counts["ep"])] if parts.experts else []
    placed += [*np.rint(1024.0 * counts["etp"])] if parts.experts else []
    first, group = distinct(shape, *placed)
    where = {name: at[:, first] for name, at in counts.items()}
    return Tables(
        parts=parts,
        shape=shape,
        stages=stage_table(parts.order, parts.kinds, pairs),
        pair=pair,
        exchanges=exchanges_of(parts, shape[first], where, system, plans.base.cp_mode),
        group=group,
        data_counts=counts["dp"] * counts["cp"],
        expert_counts=counts.get("edp"),
        pipe_counts=counts["pp"],
        power=chip_power(scenario.system.chip),
        bytes_per_s=scenario.system.chip.memory_bandwidth_bytes_per_s,
    )


def shape_columns(plans: Plans) -> list[Array]:
    """The fields that the operations of a part depend on; those that all plans leave at 1 are left out."""
    columns = [plans.tp, plans.micro_batch, plans.sp]
    columns += [plans.cp] if (plans.cp > 1).any() else []
    return columns + ([plans.ep, plans.etp] if (plans.ep > 1).any() else [])


def system_as_filled(scenario: Scenario) -> System:
    """The system as the job finds it, its links shared by all of the job's chips."""
    network = as_filled(scenario.system.network, scenario.job.gpus)
    if network is scenario.system.network:
        return scenario.system
    return replace(scenario.system, network=network)


def select(tables: Tables, rows: Index) -> Tables:
    """The same tables with the rows of some of the plans, as narrow as their stages allow."""
    pair = tables.pair[rows]
    return Tables(
        parts=tables.parts,
        shape=tables.shape[rows],
        stages=tables.stages.trim(int(tables.stages.distinct[pair].max())),
        pair=pair,
        exchanges=tables.exchanges,
        group=tables.group[rows],
        data_counts=tables.data_counts[:, rows],
        expert_counts=None if tables.expert_counts is None else tables.expert_counts[:, rows],
        pipe_counts=tables.pipe_counts[:, rows],
        power=tables.power,
        bytes_per_s=tables.bytes_per_s,
    )


def distinct(*columns: Array | Index) -> tuple[Index, Index]:
    """First row of each distinct combination, and the combination of each row."""
    if len(columns[0]) == 1:
        return np.zeros(1, dtype=np.intp), np.zeros(1, dtype=np.intp)
    key, span = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        whole = column.astype(np.int64)
        values = int(whole.max(initial=0)) + 1
        if span * values >= 2**62:
            # Number the combinations so far anew, so that the key cannot overflow.
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
            span = int(key.max()) + 1
        key, span = key * values + whole, span * values
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return first, inverse


def evaluate_rows(scenario: Scenario, plans: Plans, tables: Tables) -> Rows:
    """One broadcast over plans and stages."""
    pair = tables.pair
    counts, multiplicity = tables.stages.counts, tables.stages.multiplicity[pair]
    position = tables.stages.position[pair]
    micro_batches = scenario.job.global_batch / (plans.dp * plans.micro_batch)
    stages = stages_of_plans(plans, tables)
    shares = shares_of(plans, tables, stages, micro_batches)
    network = system_as_filled(scenario).network
    sends = send_s(tables.parts.send_bytes[tables.shape], tables.pipe_counts, network)
    sends = sends + tables.exchanges.send_s[tables.group] * (plans.pp > 1)
    sends_s = (2.0 * plans.vpp * sends)[:, None]
    data_s = data_seconds(scenario, plans, tables, stages, shares, sends_s)
    updated = sum_of([s.parameters / s.traffic.state_parts[:, None] for s in shares])
    update_s = optimizer_s(updated, scenario.system.chip, plans.base)
    stage_s = stages.forward_s + stages.backward_s + sends_s
    busy_s = micro_batches[:, None] * stage_s + data_s + update_s
    busy_s *= multiplicity > 0
    slowest = busy_s.argmax(axis=1)
    rows = np.arange(len(plans))
    waiting_s = micro_batches * tables.stages.waiting[pair] * stage_s[rows, slowest]
    bubble_s = fill_and_drain_s(stage_s, multiplicity, slowest, plans.vpp) + waiting_s
    flight = in_flight(micro_batches[:, None], plans.pp[:, None], plans.vpp[:, None], position)
    memory = stage_memory(plans, stages, shares, flight)
    held = memory.total * (multiplicity > 0)
    fullest = held.argmax(axis=1)
    return Rows(
        micro_batches=micro_batches,
        counts=counts,
        pair=pair,
        multiplicity=multiplicity,
        position=position,
        send_s=sends_s,
        data_s=data_s,
        optimizer_s=update_s,
        clock=stages.clock,
        core_fall=stages.core_fall,
        memory=memory,
        slowest=slowest,
        bubble_s=bubble_s,
        step_s=busy_s[rows, slowest] + bubble_s,
        fullest=fullest,
        peak_bytes=held[rows, fullest],
    )


def stages_of_plans(plans: Plans, tables: Tables) -> Stages:
    """Sums over the parts of each stage, on distinct combinations, gathered to the plans."""
    first, key = distinct(tables.group, tables.pair, plans.recompute)
    shape = tables.shape[first]
    parts, counts = tables.parts, tables.stages.counts[tables.pair[first]]
    mode = plans.recompute[first][:, None]
    is_layer = np.arange(len(parts.names)) < parts.kinds
    group = tables.group[first]
    clock, fall = clock_held(mode, is_layer, shape, group, tables)
    forward, backward = part_seconds(mode, is_layer, shape, group, tables, clock)
    whole = parts.kept_whole[shape]
    kept = np.where(
        mode == 2.0,
        parts.kept_input[shape],
        np.where(mode == 1.0, parts.kept_selective[shape], whole),
    )
    working = np.where((mode == 2.0) & is_layer, whole, 0.0).max(axis=1)
    parameters = parts.parameters[shape]
    # A tied head is the token table itself on a single stage, and a copy of it on another.
    parameters[:, -1] += parts.tied[shape] * (plans.pp[first] > 1)
    return Stages(
        forward_s=on_stages(counts, forward)[key],
        backward_s=on_stages(counts, backward)[key],
        clock=clock[key],
        core_fall=fall[key],
        waits=tuple(
            Waits(
                forward_s=on_stages(counts, e.forward_s[group])[key],
                backward_s=on_stages(
                    counts, e.backward_s[group] + (mode == 2.0) * is_layer * e.forward_s[group]
                )[key],
                tier=e.tier[tables.group],
            )
            for e in tables.exchanges.by_name.values()
        ),
        parameters=on_stages(counts, parameters)[key],
        routed=on_stages(counts, parts.routed[shape])[key] if parts.experts else None,
        kept_bytes=on_stages(counts, kept * is_layer)[key],
        buffer_bytes=(working[:, None] + counts[:, :, -1] * whole[:, None, -1])[key],
        largest=parameters.max(axis=1)[key],
    )


def shares_of(
    plans: Plans, tables: Tables, stages: Stages, micro_batches: Array
) -> tuple[Share, ...]:
    """What data parallelism shares: everything over dp x cp ranks, spread experts over edp."""
    ranks, routed = plans.dp * plans.cp, stages.routed
    rest = stages.parameters if routed is None else stages.parameters - routed
    traffic = data_parallel(ranks, plans.zero, micro_batches)
    whole = Share(parameters=rest, ranks=ranks, counts=tables.data_counts, traffic=traffic)
    if routed is None or tables.expert_counts is None:
        return (whole,)
    replicas = plans.dp * plans.cp * plans.tp / (plans.ep * plans.etp)
    traffic = data_parallel(replicas, plans.zero, micro_batches)
    counts = tables.expert_counts
    experts = Share(parameters=routed, ranks=replicas, counts=counts, traffic=traffic)
    return whole, experts


def clock_held(
    mode: Array, is_layer: NDArray[np.bool_], shape: Index, group: Index, tables: Tables
) -> tuple[Array, Array]:
    """Clock that a step holds under the power limit, and the factor on its cores' joules; (combinations,).

    From sums over the whole model of one micro-batch: what stretches when the clock falls, what does not
    (memory traffic, exchanges), and what is spent.
    """
    parts, waited = tables.parts, tables.exchanges
    again = 1.0 + (mode == 2.0) * is_layer
    many = parts.counts

    def total(forward: Array, backward: Array) -> Array:
        return np.asarray(((forward[shape] * again + backward[shape]) * many).sum(axis=1))

    names = ("seconds", "clocked_s", "core_joules", "memory_joules")
    sums = [total(getattr(parts.forward, n), getattr(parts.backward, n)) for n in names]
    waits = ((waited.forward_s[group] * again + waited.backward_s[group]) * many).sum(axis=1)
    return clock_of(sums[0] - sums[1] + waits, sums[1], sums[2], sums[3], tables.power)


def part_seconds(
    mode: Array,
    is_layer: NDArray[np.bool_],
    shape: Index,
    group: Index,
    tables: Tables,
    clock: Array,
) -> tuple[Array, Array]:
    """Forward and backward time of each part for one micro-batch; (combinations, parts).

    Full recomputation (mode 2) runs the layers' forward pass with its communication again, selective
    (mode 1) the attention core; embedding and head are never recomputed.
    """
    parts = tables.parts
    slower = (1.0 / clock - 1.0)[:, None]
    forward = parts.forward.seconds[shape] + slower * parts.forward.clocked_s[shape]
    forward = forward + tables.exchanges.forward_s[group]
    backward = parts.backward.seconds[shape] + slower * parts.backward.clocked_s[shape]
    again = np.where(
        mode == 2.0, forward * is_layer, np.where(mode == 1.0, parts.core_s[shape], 0.0)
    )
    return forward, backward + tables.exchanges.backward_s[group] + again


def on_stages(counts: Array, values: Array) -> Array:
    """Sum a quantity of the parts over each stage: (plans, stages, parts) x (plans, parts)."""
    return np.asarray(np.einsum("nsp,np->ns", counts, values))


def data_seconds(
    scenario: Scenario,
    plans: Plans,
    tables: Tables,
    stages: Stages,
    shares: tuple[Share, ...],
    sends_s: Array,
) -> Array:
    """Data-parallel communication that the step waits for; (plans, stages).

    Layer by layer, gradients are reduced behind the rest of the backward pass of a micro-batch and
    weights gathered behind the forward pass; what is longer than the pass, and at least one layer's
    share, is exposed. Where the pass's own exchanges use the same links, both take longer. Spread experts
    have a group of their own, whose messages follow those of the others.
    """
    messages = [data_messages(scenario, plans, tables, share) for share in shares]
    in_use = occupancy(tables.data_counts, scenario.system.network)
    rows = np.arange(len(plans))
    pipe_share = in_use[outermost(tables.pipe_counts), rows][:, None]

    def exposed(ones: list[Array], behind_s: Array, waits: list[Array]) -> Array:
        all_s = sum_of([m.pieces * one_s for m, one_s in zip(messages, ones, strict=True)])
        beyond_s = np.maximum(sum_of(ones), all_s - behind_s)
        own_s = sum_of(
            [s * in_use[w.tier, rows][:, None] for s, w in zip(waits, stages.waits, strict=True)]
        )
        return beyond_s + contention_s(own_s + 0.5 * sends_s * pipe_share, all_s, behind_s)

    traffic = shares[0].traffic
    again = (traffic.gathers_backward > 0)[:, None]
    backward = stages.backward_s, [w.backward_s for w in stages.waits]
    forward = stages.forward_s, [w.forward_s for w in stages.waits]
    return (
        traffic.all_reduces[:, None] * exposed([m.reduce_s for m in messages], *backward)
        + traffic.scatters[:, None]
        * exposed([m.scatter_s + m.gather_s * again for m in messages], *backward)
        + traffic.gathers_forward[:, None] * exposed([m.gather_s for m in messages], *forward)
    )


def sum_of(values: list[Array]) -> Array:
    """Their sum; one alone is itself."""
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """Data-parallel messages of one step; arrays are (plans, stages)."""

    reduce_s: Array
    """Seconds of one all-reduce."""
    scatter_s: Array
    """Seconds of one reduce-scatter."""
    gather_s: Array
    """Seconds of one all-gather."""
    pieces: Array
    """How many there are."""


def data_messages(scenario: Scenario, plans: Plans, tables: Tables, share: Share) -> Messages:
    """Seconds of one message of each kind.

    They depend on degrees and placement alone, not on micro-batch or recomputation: computed on the
    distinct combinations and gathered.
    """
    # No states shared, some, or the weights too: what is sent differs.
    grade = (plans.zero >= 1).astype(float) + (plans.zero >= 3)
    spread = [] if tables.expert_counts is None else [plans.ep, plans.etp]
    first, key = distinct(
        plans.tp, tables.pair, share.ranks, grade, *spread, *np.rint(1024.0 * share.counts)
    )
    zero = plans.zero[first]
    kinds: tuple[Kind, ...] = ("reduce-scatter", "all-gather") if (zero >= 1).any() else ()
    kinds += () if (zero >= 1).all() else ("all-reduce",)
    group = place(share.counts[:, first], system_as_filled(scenario), kinds)
    parameters = share.parameters[first]
    layers = tables.stages.layers[tables.pair[first]]
    pieces = message_count(share.ranks[first], zero, parameters, layers)
    gradient = parameters * DTYPE_BYTES[plans.base.gradients] / pieces
    weight = parameters * DTYPE_BYTES[plans.base.weights] / pieces

    def seconds(kind: Kind, size: Array) -> Array:
        times = collective_s(kind, size, group) if kind in kinds else np.zeros_like(size)
        return times[key]

    return Messages(
        reduce_s=seconds("all-reduce", gradient),
        scatter_s=seconds("reduce-scatter", gradient),
        gather_s=seconds("all-gather", weight),
        pieces=pieces[key],
    )


def message_count(ranks: Array, zero: Array, parameters: Array, layers: Array) -> Array:
    """Messages that a stage's gradients travel in: layers, or buckets where those are fewer.

    A bucket holds max(40 million, 1 million x ranks) weights, as Megatron-Core has it; ZeRO 3 gathers and
    scatters layer by layer.
    """
    bucket = np.maximum(40e6, 1e6 * ranks)[:, None]
    buckets = np.where(zero[:, None] >= 3, layers, parameters / bucket)
    return np.maximum(np.minimum(layers, buckets), 1.0)


def stage_memory(
    plans: Plans, stages: Stages, shares: tuple[Share, ...], flight: Array
) -> StageMemory:
    """What one rank of each stage holds at its peak; (plans, stages)."""
    weight, gradient, state = weight_bytes(plans.base)
    gathered = np.where(plans.zero >= 3, 2.0 * weight * stages.largest, 0.0)
    held = [(s.parameters, s.traffic) for s in shares]
    weights = sum_of([n * (weight / t.weight_parts)[:, None] for n, t in held])
    gradients = sum_of([n * (gradient / t.gradient_parts)[:, None] for n, t in held])
    states = sum_of([n * (state / t.state_parts)[:, None] for n, t in held])
    activations = flight * stages.kept_bytes
    buffers = stages.buffer_bytes + gathered[:, None]
    return StageMemory(
        weights=weights,
        gradients=gradients,
        states=states,
        activations=activations,
        buffers=buffers,
        lost=lost_bytes(weights + gradients + states + activations + buffers),
    )
