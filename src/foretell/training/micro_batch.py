"""One micro-batch on a rank of each stage: passes, sends, sums and waits, pairs of passes, copies to the
host.

Of a schedule from both ends (DualPipe) the two passes of a pair have their dispatches and sends behind each
other's products, so that of both together only what is longer than the products shows. Communication takes
some of the cores while it runs (20 of an H800's 132; DeepSeek-V3, arXiv 2412.19437, section 3.2):

    saved = min(e, t) (1 - cores taken)      e: exchanges of both passes, t: the rest of both

Every weight is on two ranks of a pipeline, r and p - 1 - r, one for each half of the micro-batches: once a
step they add up their gradients (sharded ones their shares), an all-reduce of two.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

from foretell.kernels.memory import StageMemory, allocator_share
from foretell.network.collectives import by_group, ring_step_s, slower_by
from foretell.records import dataclass
from foretell.schedules import schedule_named
from foretell.schedules.base import Pipe, Schedule
from foretell.sharding.data import wire_bytes
from foretell.sharding.offload import (
    Copies,
    ExposedCopies,
    StateBytes,
    exposed_copies,
    host_copies,
    link_seconds,
    on_chip,
)
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.plan import Plans
from foretell.specs.scenario import Scenario
from foretell.training.data_parallel import GroupWeights
from foretell.training.data_waits import DataWaits, MessagesBeside, data_waits
from foretell.training.part_costs import BothPasses
from foretell.training.rank_links import system_as_filled
from foretell.training.shapes import sum_of
from foretell.training.stages import send_seconds
from foretell.training.tables import Stages, Tables, gather
from foretell.training.update import sum_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """What one micro-batch takes on a rank of each stage; arrays are (plans, stages) unless stated."""

    stages: Stages
    """Its passes."""
    sends_s: Array
    """Sends and receives; (plans, 1)."""
    sums_s: Array
    """Adding its gradients to the sum."""
    whole_s: Array
    """All of it."""
    waits: DataWaits
    """What it waits for data parallelism."""
    copies: ExposedCopies | None = None
    """What it waits for copies to and from the host; None where nothing is offloaded."""

    def passed_on_s(self, way: Literal["forward", "backward"]) -> Num:
        """What a pass waits for before its result goes on to the next stage, so that others wait too."""
        waits_s: Num = getattr(self.waits, f"{way}_s")
        return waits_s if self.copies is None else waits_s + getattr(self.copies, f"{way}_s")

    @property
    def weight_pass_s(self) -> Num:
        """The backward pass to the weights: what the whole one has beyond the one to the inputs."""
        pass_s = self.stages.weight_s + self.sums_s + self.waits.weight_s
        if self.copies is None:
            return pass_s
        return pass_s + self.copies.backward_s - self.copies.inputs_s


def alone_seconds(tables: Tables, pipe: Pipe, stages: Stages) -> Array | None:
    """What experts' exchanges show in a step although another micro-batch's work can hide them, since some
    passes have none beside them; (plans, stages).

    With p stages of v chunks and m micro-batches the last rank runs (v - 1) p + 1 chunks forward before its
    first backward pass, one of them so that the two are of different micro-batches (Megatron-Core,
    pipeline_parallel/schedules.py), and as many backward at the end; bubbles have passes of other ranks.
    """
    found = zip(tables.exchanges.by_name, stages.waits, strict=True)
    waits_s = {name: waits.waits_s for name, waits in found}.get("expert_parallel")
    if waits_s is None:
        return None
    chunks = np.minimum((pipe.vpp - 1.0) * pipe.pp + 1.0, pipe.micro_batches * pipe.vpp)
    return np.asarray(((chunks + pipe.pp - 1.0) / pipe.vpp)[:, None] * waits_s)


def micro_batch(
    scenario: Scenario,
    plans: Plans,
    tables: Tables,
    stages: Stages,
    shared: tuple[tuple[GroupWeights, ...], Array],
    copies_s: BothPasses | None = None,
) -> MicroBatch:
    """One micro-batch of every plan; `shared`: what replicas share, micro-batches; `copies_s`: to hosts."""
    sends_s, sums_s = send_seconds(plans, tables), sum_seconds(scenario, plans, stages, *shared)
    beside = MessagesBeside(sends_s=sends_s, sums_s=sums_s)
    return MicroBatch(
        stages=stages,
        sends_s=sends_s,
        sums_s=sums_s,
        whole_s=stages.forward_s + stages.backward_s + sends_s + sums_s,
        waits=data_waits(scenario, plans, tables, stages, shared[0], beside, copies_s),
    )


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
    counts = tables.links.counts["pp"][:, tables.spot]
    slower = slower_by(scenario.system.corrections.data_parallel, counts, scenario.system)
    step_s = ring_step_s(0.5 * size, counts, system_as_filled(scenario).network)
    step_s = step_s * by_group(slower, 2)
    return np.asarray(2.0 * step_s * (plans.pp > 1)[:, None])


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
    """What stays on the chip: two layers' worth of each offloaded thing, one micro-batch's of activations."""
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
