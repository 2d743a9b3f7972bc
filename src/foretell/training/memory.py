"""What one rank of each stage holds at the peak of a step, in closed form for a batch of plans.

    kept_of            what the layers keep of one micro-batch, and what one computed again adds
    head_of            scores and loss
    message_bytes      activations on their way to and from other ranks
    stage_memory       all of it at the peak: kernels/memory.py says what the sums are

`simulation/memory_timeline.py` simulates the same over the step.
"""

from dataclasses import replace

import numpy as np

from foretell.kernels.memory import (
    StageMemory,
    allocator_share,
    framework_bytes,
    weight_bytes,
)
from foretell.kernels.modules import is_wide
from foretell.kernels.optimizer import state_bytes
from foretell.kernels.precision import copy_bytes
from foretell.kernels.stack_passes import spared_loss_bytes
from foretell.schedules import schedule_named
from foretell.schedules.base import Pipe
from foretell.schedules.rules import pipe_of
from foretell.sharding.recompute import blend_layers, full_share
from foretell.specs.arrays import Array, Index
from foretell.specs.corrections import AS_PREDICTED, Corrections
from foretell.specs.plan import RECOMPUTE, USUAL_SCHEDULES, Plan, Plans
from foretell.specs.plan_forms import recompute_layers
from foretell.specs.scenario import Scenario
from foretell.specs.software import Software
from foretell.training.data_parallel import GroupWeights, packed_weights
from foretell.training.late_gradients import fullest_moment, in_shards, nothing_summed
from foretell.training.part_costs import Parts
from foretell.training.shapes import sum_of
from foretell.training.tables import Stages, Tables, gather

CAST_BYTES = 2.0
"""Bytes of a weight that autocast has cast."""
LISTED = float(len(RECOMPUTE))
"""Code of recomputation as the batch's base words it: full:N, or modules by name."""


def kept_activations(
    plans: Plans,
    first: Index,
    shape: Index,
    parts: Parts,
    counts: Array,
    share: Array | None,
) -> tuple[Array, Array]:
    """Bytes kept for one micro-batch, and those that one layer computed again adds to what it keeps; both
    (combinations, stages).

    The backward pass of a layer holds a gradient as large as its largest tensor. full:N drops what the first
    N layers of a stage keep: while any other is behind them, its own bytes are freed before the first is
    computed again, and that adds nothing; schedules that split the backward pass free too little for that.
    """
    mode, is_layer = plans.recompute[first][:, None], np.arange(len(parts.names)) < parts.kinds
    whole, least = gather(parts.kept_whole, shape), gather(parts.kept_input, shape)
    some = np.where(mode == 1.0, gather(parts.kept_selective, shape), whole)
    kept = np.where(mode == 2.0, least, some)
    listed = mode == LISTED
    if parts.again is not None:
        kept = np.where(listed, gather(parts.kept_modules, shape), kept)
    gradient = gather(parts.gradient, shape)
    held = on_stages(counts, kept * is_layer)
    again = largest_here(counts, (whole - kept + gradient) * is_layer)
    if share is not None:
        held = blend_layers(share, on_stages(counts, least * is_layer), held)
        once_more = largest_here(counts, (whole - least + gradient) * is_layer)
        keeps_on = schedule_named(plans.base.schedule).splits_backward
        again = np.where((share >= 1.0) | ((share > 0.0) & keeps_on), once_more, again)
    return held, again


def staying_inputs(
    plans: Plans, software: Software, first: Index, shape: Index, parts: Parts, counts: Array
) -> Array | None:
    """Inputs of the layers of each stage that are computed again, but for its first layer's, where their
    gradients can wait for the end of the backward pass: FSDP 1, of which each matrix of an adapter is a
    unit, frees a frozen layer's weights by a hook on the gradients of its inputs (register_multi_grad_hook);
    (combinations, stages)."""
    if not (software.one_copy and software.adapter_operations and plans.base.lora):
        return None
    is_layer = np.arange(len(parts.names)) < parts.kinds
    least = gather(parts.kept_input, shape) * is_layer * (plans.recompute[first][:, None] == 2.0)
    return on_stages(counts, least) - largest_here(counts, least)


def block_share(plans: Plans, first: Index, tables: Tables) -> Array | None:
    """Share of each stage's layers that full:N computes again, (combinations, stages); None: no plan does."""
    blocks, listed = recompute_layers(plans.base.recompute), plans.recompute[first] == LISTED
    if not blocks or not listed.any():
        return None
    layers = gather(tables.stages.layers, tables.pair[first])
    return np.where(listed[:, None], full_share(layers, float(blocks)), 0.0)


def largest_here(counts: Array, values: Array) -> Array:
    """The largest of a quantity over the parts that are on each stage."""
    return np.asarray(np.where(counts > 0.0, values[:, None, :], 0.0).max(axis=2, initial=0.0))


def on_stages(counts: Array, values: Array) -> Array:
    """Sum a quantity of the parts over each stage: (plans, stages, parts) x (plans, parts)."""
    return np.asarray(np.einsum("nsp,np->ns", counts, values))


def head_of(
    plans: Plans, software: Software, first: Index, shape: Index, parts: Parts, counts: Array
) -> Array:
    """Bytes of the head for one micro-batch: inputs, scores, loss, placeholders; (combinations, stages)."""
    base = plans.base
    whole, cut = spared_loss_bytes(base, software)
    spared = np.where(plans.tp[first] > 1, cut, whole) * parts.scores[shape]
    held = parts.kept_whole[shape, -1] - spared
    if is_wide(base, software) and not base.lora:
        # Casts of weights stay through the forward pass, of layers that are computed again too; the loss
        # holds less then: the scores twice in 32 bits, and in 16.
        casts = CAST_BYTES * (parts.counts * parts.linear[shape])[:, :-2].sum(axis=1)
        more = np.maximum(casts - CAST_BYTES * parts.scores[shape], 0.0)
        held = held + more * (plans.recompute[first] == 2.0)
    if software.placeholders and not base.lora:
        held = held + weight_bytes(base)[0] * parts.linear[shape, -1]
    return np.asarray(np.ceil(counts[:, :, -1]) * held[:, None])


def placeholders_of(
    base: Plan, software: Software, shape: Index, parts: Parts, counts: Array
) -> Array | None:
    """Weights of the largest layer on each stage, where each shape of a matrix has an empty gradient."""
    if not software.placeholders or base.lora:
        return None
    linear = gather(parts.linear, shape)[:, None, :-2]
    here = np.where(counts[:, :, :-2] > 0.0, linear, 0.0)
    return np.asarray(here.max(axis=2, initial=0.0))


def message_bytes(plans: Plans, tables: Tables) -> Array:
    """Activations on their way: gathered and their gradient, panels, to and from other stages; (plans,)."""
    sent = tables.parts.send_bytes[tables.shape]
    gathered = 2.0 * plans.tp * sent * (plans.sp > 0) * (plans.tp > 1)
    panels = tables.parts.panel_bytes[tables.shape]
    return np.asarray(gathered + panels + 2.0 * sent * (plans.pp > 1))


def correct_memory(memory: StageMemory, known: Corrections) -> StageMemory:
    """What stages hold, with activations and overheads as measured runs had them."""
    if known is AS_PREDICTED:
        return memory
    more, over = (np.reshape(factor, (-1, 1)) for factor in (known.activations, known.overhead))
    return replace(
        memory,
        activations=memory.activations * more,
        buffers=memory.buffers * more,
        allocator=memory.allocator * over,
        framework=memory.framework * over,
    )


def held_micro_batches(plans: Plans, tables: Tables, pipe: Pipe) -> Array:
    """Micro-batches, of the whole stage, whose activations it holds at its peak; (plans, stages)."""
    position = gather(tables.stages.position, tables.pair)
    flight = schedule_named(plans.base.schedule).in_flight(pipe, position)
    if plans.base.schedule in USUAL_SCHEDULES:
        return flight
    # A single rank has nothing to wait for with its backward passes.
    return np.where(plans.pp[:, None] > 1, flight, 1.0)


def stage_memory(
    scenario: Scenario,
    plans: Plans,
    stages: Stages,
    shares: tuple[GroupWeights, ...],
    flight: Array,
) -> StageMemory:
    """What one rank of each stage holds at its peak; (plans, stages)."""
    base, holds = plans.base, scenario.software
    gradient = weight_bytes(base)[1]
    gradients = sum_of([s.trained * (gradient / s.traffic.gradient_parts)[:, None] for s in shares])
    if holds.buckets:
        replicas = (plans.dp * plans.cp > 1)[:, None]
        gradients = gradients + weight_bytes(base)[0] * stages.trained * replicas
    weights = held_weights(scenario, plans, stages, shares)
    states = held_states(plans, stages, shares)
    activations = flight * stages.kept_bytes
    buffers = buffer_bytes(plans, holds, stages, flight, gathered_bytes(plans, stages, shares))
    groups = sum(
        (getattr(plans, name) > 1).astype(float) for name in ("tp", "pp", "dp", "cp", "ep")
    )
    memory = StageMemory(
        weights=weights,
        gradients=gradients,
        states=states,
        activations=activations,
        buffers=buffers,
        allocator=np.zeros_like(buffers),
        framework=np.broadcast_to(framework_bytes(groups)[:, None], buffers.shape),
    )
    if holds.gathered_stay:
        copies = gathered_copies(plans, shares)
        memory = after_update(memory, copies, passing_by(plans, stages, flight))
    lost: Array | float = 0.0
    if stages.late is not None:
        memory = at_fullest(scenario, plans, stages, memory, flight)
        # What was given back is of no use to the stream that makes shards of gradients.
        apart = in_shards(plans, holds)[:, None]
        lost = np.where(apart, np.maximum(gradients - memory.gradients, 0.0), 0.0)
    return replace(memory, allocator=allocator_share(base, holds) * memory.allocated + lost)


def gathered_copies(plans: Plans, shares: tuple[GroupWeights, ...]) -> Array:
    """Weights that an update gathers beside the working ones, with this rank's part; (plans, stages)."""
    weight = weight_bytes(plans.base)[0] * (plans.zero == 1)[:, None]
    parts = [s.parameters * (1.0 + 1.0 / s.traffic.state_parts)[:, None] for s in shares]
    return np.asarray(weight * sum_of(parts))


def after_update(memory: StageMemory, copies: Array, passing: Array) -> StageMemory:
    """Memory of a stage where weights gathered by the update take more than the next passes."""
    more = copies > memory.activations + passing
    return replace(
        memory,
        weights=np.where(more, memory.weights + copies, memory.weights),
        activations=np.where(more, 0.0, memory.activations),
        buffers=np.where(more, memory.buffers - passing, memory.buffers),
    )


def at_fullest(
    scenario: Scenario, plans: Plans, stages: Stages, memory: StageMemory, flight: Array
) -> StageMemory:
    """The same at the fullest moment, of plans whose backward pass makes the gradients on its way."""
    assert stages.late is not None
    late = nothing_summed(plans, scenario.software, pipe_of(scenario, plans).micro_batches)
    passing = scores_waiting(plans, stages, flight), stages.again_bytes
    each = memory.gradients / np.maximum(stages.trained, 1.0)
    then = fullest_moment(memory, stages.late, passing, each)
    return replace(
        memory,
        gradients=np.where(late, then.gradients, memory.gradients),
        activations=np.where(late, then.activations, memory.activations),
        buffers=np.where(late, then.buffers, memory.buffers),
    )


def scores_waiting(plans: Plans, stages: Stages, flight: Array) -> Array:
    """Bytes of the head, of every micro-batch where all forward passes come first; (plans, stages)."""
    waiting = flight if schedule_named(plans.base.schedule).scores_wait else 1.0
    return np.asarray(waiting * stages.head_bytes)


def buffer_bytes(
    plans: Plans, software: Software, stages: Stages, flight: Array, gathered: Array
) -> Array:
    """Scores or a layer computed again, gathered weights, messages, workspaces; (plans, stages)."""
    weight = weight_bytes(plans.base)[0]
    placeholders = 0.0 if stages.placeholders is None else weight * stages.placeholders
    always = stages.message_bytes + stages.widened_bytes + software.allocator.workspace_bytes
    if software.sums_copies and not plans.base.lora:
        # A part's gradients, and their copy in the format of the sum, on their way to the other ranks.
        each = sum(weight_bytes(plans.base)[:2])
        always = always + np.where(plans.zero >= 3, each * stages.largest, 0.0)
    return np.asarray(passing_by(plans, stages, flight) + placeholders + gathered + always[:, None])


def passing_by(plans: Plans, stages: Stages, flight: Array) -> Array:
    """Scores or a layer computed again, whichever is more; (plans, stages)."""
    # Where a forward pass runs beside a backward pass, the scores of one meet the layers of the other.
    meet = np.add if schedule_named(plans.base.schedule).layout == "both" else np.maximum
    again = stages.again_bytes + inputs_that_stay(plans, stages)
    return np.asarray(meet(scores_waiting(plans, stages, flight), again))


def inputs_that_stay(plans: Plans, stages: Stages) -> Array | float:
    """Gradients of layers' inputs that wait for the end of the backward pass; (plans, stages)."""
    if stages.inputs is None:
        return 0.0
    return np.asarray(((plans.zero >= 3) & (plans.dp * plans.cp > 1))[:, None] * stages.inputs)


def gathered_bytes(plans: Plans, stages: Stages, shares: tuple[GroupWeights, ...]) -> Array:
    """Weights that ZeRO 3 has gathered at once, two parts of the model: none where there is nobody to share
    with, and never more than sharing saves, as where a stage has few layers; (plans, stages)."""
    base, weight = plans.base, weight_bytes(plans.base)[0]
    passing = (plans.zero >= 3) & base.reshard & (plans.dp * plans.cp > 1)
    if not passing.any():
        return np.zeros_like(stages.parameters)
    two = np.where(passing, 2.0 * weight * gathered_weights(base, stages), 0.0)[:, None]
    saved = weight * sum_of(
        [packed_weights(base, s) * (1.0 - 1.0 / s.traffic.weight_parts)[:, None] for s in shares]
    )
    return np.asarray(np.where(saved > 0.0, np.minimum(two, saved), two))


def gathered_weights(base: Plan, stages: Stages) -> Array:
    """Weights that ZeRO 3 gathers at once: the largest part, or the bucket of joined parts; (plans,)."""
    if not base.bucket:
        return stages.largest
    joined = np.minimum(1e6 * base.bucket, stages.parameters.max(axis=1))
    return np.asarray(np.maximum(stages.largest, joined))


def held_weights(
    scenario: Scenario, plans: Plans, stages: Stages, shares: tuple[GroupWeights, ...]
) -> Array:
    """Working weights and their copies; (plans, stages)."""
    base, holds = plans.base, scenario.software
    weight = weight_bytes(base)[0]
    passing = ((plans.zero >= 3) & base.reshard)[:, None]
    # Of weights whose shared copy is the master's, frozen ones have no master.
    mastered = passing & (holds.one_copy and base.master != "none")
    weights = sum_of(
        [
            (packed_weights(base, s) - np.where(mastered, s.trained, 0.0))
            * (weight / s.traffic.weight_parts)[:, None]
            for s in shares
        ]
    )
    copies = copy_bytes(base, holds, scenario.system.chip.architecture)
    if stages.narrow is not None and copies > 0.0:
        weights = weights + np.where(passing, 0.0, copies * stages.narrow)
    return np.asarray(weights)


def held_states(plans: Plans, stages: Stages, shares: tuple[GroupWeights, ...]) -> Array:
    """Master copy and states; (plans, stages)."""
    base, apart, state = plans.base, stages.matrices, weight_bytes(plans.base)[2]
    if apart is None:
        return sum_of([s.trained * (state / s.traffic.state_parts)[:, None] for s in shares])
    return sum_of(
        [
            part * state_bytes(base, stages.trained, s.traffic.state_parts[:, None], apart)
            for s, part in parts_of(stages, shares)
        ]
    )


def parts_of(stages: Stages, shares: tuple[GroupWeights, ...]) -> list[tuple[GroupWeights, Array]]:
    """Each kind of group with its part of the trained weights."""
    return [(s, s.trained / np.maximum(stages.trained, 1.0)) for s in shares]
