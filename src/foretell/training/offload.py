"""What a step waits for copies to and from the host's memory, and what of the offloaded stays on the chip."""

from dataclasses import replace

import numpy as np

from foretell.kernels.memory import StageMemory, allocator_share
from foretell.schedules import schedule_named
from foretell.sharding.offload import (
    Copies,
    ExposedCopies,
    StateBytes,
    exposed_copies,
    host_copies,
    link_seconds,
    on_chip,
)
from foretell.specs.arrays import Array
from foretell.specs.plan import Plans
from foretell.specs.scenario import Scenario
from foretell.training.micro_batch import MicroBatch
from foretell.training.part_costs import BothPasses
from foretell.training.tables import Stages, Tables, gather


def stage_copies(plans: Plans, stages: Stages, memory: StageMemory) -> Copies:
    """Bytes that a rank of each stage copies to and from the host."""
    there = StateBytes(
        weight_bytes=memory.weights, state_bytes=memory.states, kept_bytes=stages.kept_bytes
    )
    return host_copies(plans.base.offload, there, plans.base.reshard)


def copied_passes(
    scenario: Scenario, plans: Plans, stages: Stages, memory: StageMemory
) -> BothPasses | None:
    """Seconds of the copies beside a forward and a backward pass, which last no less; None without any."""
    if plans.base.offload == "none":
        return None
    copies, chip = stage_copies(plans, stages, memory), scenario.system.chip
    return BothPasses(
        forward_s=link_seconds(copies.forward_bytes, chip),
        backward_s=link_seconds(copies.backward_bytes, chip),
    )


def offload_seconds(
    scenario: Scenario, plans: Plans, one: MicroBatch, memory: StageMemory, update_s: Array
) -> ExposedCopies:
    """Copies to and from the host that nothing hides, of one micro-batch and of the update.

    They go on while a pass waits for data-parallel messages, which use other links. Of a backward pass in
    two, all that is copied is there before the second begins, the one to the weights: where others wait for
    the first alone, the second has less left.
    """
    stages = one.stages
    whole_s = inputs_s = stages.backward_s + one.sums_s + one.waits.weight_s
    if schedule_named(plans.base.schedule).splits_backward:
        inputs_s = stages.backward_s - stages.weight_s
    return exposed_copies(
        stage_copies(plans, stages, memory),
        scenario.system.chip,
        stages.forward_s + one.waits.forward_s,
        whole_s + one.waits.backward_s,
        update_s,
        usual_s=whole_s + one.waits.usual_s,
        inputs_s=inputs_s + one.waits.backward_s,
    )


def copied_seconds(micro_batches: Array, copies: ExposedCopies) -> Array:
    """All copies of a step that nothing hides; (plans, stages)."""
    each_s = copies.forward_s + copies.usual_s
    last_s = copies.backward_s - copies.usual_s
    return np.asarray(micro_batches[:, None] * each_s + last_s + copies.update_s)


def offload_memory(
    plans: Plans, tables: Tables, stages: Stages, memory: StageMemory
) -> StageMemory:
    """What stays on the chip: of each offloaded thing two layers' worth, of activations what one micro-batch
    keeps."""
    base, layers = plans.base, np.maximum(gather(tables.stages.layers, tables.pair), 1.0)

    def stays(name: str, held: Array, whole: Array) -> Array:
        return on_chip(base.offload, name, held, whole / layers)

    changed = replace(
        memory,
        weights=stays("weights", memory.weights, memory.weights),
        states=stays("optimizer", memory.states, memory.states),
        activations=stays("activations", memory.activations, stages.kept_bytes),
    )
    return replace(changed, allocator=allocator_share(base, tables.software) * changed.allocated)
