"""Memory over one training step: each pipeline stage simulated task by task, allocated and reserved.

The closed form of `training/memory.py` is the largest of this over the step. Equal to it for GPipe, 1F1B
and interleaved 1F1B with chunks of equal layers; an upper bound for zero-bubble schedules and DualPipe,
whose backward passes free while forward passes fill (tests/properties/test_timeline.py says by how much).
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from foretell.kernels.memory import (
    framework_bytes,
    weight_bytes,
)
from foretell.kernels.precision import kept_width, wide_share
from foretell.records import dataclass
from foretell.schedules import schedule_named
from foretell.schedules.rules import pipe_of
from foretell.sharding.offload import BUFFERED
from foretell.sharding.recompute import dropped_share
from foretell.simulation.events import Timeline, even_chunks, play
from foretell.simulation.memory import (
    GATHERED,
    GRADIENTS,
    Changes,
    LayerTensors,
    MemoryLine,
    RankTensors,
    Tensor,
    changes,
    delay_half,
    few_micro_batches,
    fill_gap,
    memory_line,
    with_update,
)
from foretell.simulation.programs.dealing import dealing_of
from foretell.specs.plan import Plan, Plans, batch_of
from foretell.specs.plan_forms import offloads, recompute_layers, recompute_modules
from foretell.specs.scenario import Scenario
from foretell.specs.software import Software
from foretell.training.data_parallel import shares_of
from foretell.training.late_gradients import is_late
from foretell.training.ledger import Ledger
from foretell.training.memory import (
    LISTED,
    gathered_bytes,
    gathered_copies,
    held_weights,
    inputs_that_stay,
)
from foretell.training.stages import stages_of_plans
from foretell.training.step import evaluate_rows
from foretell.training.tables import Stages, Tables, tables_of
from foretell.workload.graph import Saved
from foretell.workload.roles import ALL_EXPERTS, ATTENTIONS, Region

INPUT = "layer.in"
"""What a layer that is computed again keeps."""
GROUPS: Mapping[Region, str] = {
    **dict.fromkeys((*ATTENTIONS, Region.INDEXER), "attention"),
    **dict.fromkeys((Region.STATE_SPACE, Region.DELTA_RULE, Region.MIXER), "mixer"),
    Region.FEED_FORWARD: "feed-forward",
    **dict.fromkeys(ALL_EXPERTS, "experts"),
}
"""Region of a kept tensor -> category; others are the entries of mixers and feed-forward parts."""
ENTRIES = "layer entries"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLine:
    """One pipeline stage over a step."""

    stage: int
    """Its place in the pipeline."""
    alike: int
    """Stages of the same content, this one included; this is the one that holds most."""
    line: MemoryLine
    """Bytes by category: what tensors take."""
    kept_at_peak: Mapping[str, float]
    """Name -> bytes of kept tensors at the peak."""
    framework_bytes: float
    """Driver context and communicators besides."""
    closed_bytes: float
    """The closed form of the peak that tensors take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMemory:
    """Memory of every distinct stage over one step."""

    stages: tuple[StageLine, ...]
    """Distinct stages, first to last."""
    step_s: float
    """The step: the estimate's, over which the simulated one is laid."""
    capacity_bytes: float
    """The chip's memory."""
    schedule: str
    """The pipeline schedule's name."""

    @property
    def fullest(self) -> StageLine:
        """The stage whose tensors take most."""
        return max(self.stages, key=lambda stage: stage.line.peak[0])


def step_memory(scenario: Scenario, plan: Plan) -> StepMemory:
    """Play one step of a plan.

    Sums of gradients, the host and what experts wait for are in the estimate's step, not in the simulation:
    its moments are stretched to the step that every other verb tells.
    """
    plans = batch_of([plan])
    tables = tables_of(scenario, plans)
    rows, stages = evaluate_rows(scenario, plans, tables), stages_of_plans(plans, tables)
    contents, row = dealing_of(scenario, plan, tables, rows)
    step, tail_s, gap_s = _played(plan, rows, stages, list(row))
    step_s = float(rows.step_s[0])
    stretch = step_s / (step.step_s + tail_s + gap_s)
    lines = []
    for index in range(rows.multiplicity.shape[1]):
        if rows.multiplicity[0, index] > 0:
            rank = int(rows.position[0, index])
            kinds = tables.parts.kinds
            layers = tuple(tuple(p for p in chunk if p < kinds) for chunk in contents[rank])
            tensors = _tensors(plan, plans, tables, rows, stages, layers, rank, index)
            tensors = _with_update(scenario, plans, tables, stages, tensors, index)
            found = _stage_line(plans, rows, step, tensors, (rank, index), (tail_s, gap_s))
            line = replace(found.line, moments_s=stretch * found.line.moments_s)
            lines.append(replace(found, line=line))
    return StepMemory(
        stages=tuple(lines),
        step_s=step_s,
        capacity_bytes=float(scenario.system.chip.memory_bytes),
        schedule=plan.schedule,
    )


def _played(
    plan: Plan, rows: Ledger, stages: Stages, row: list[int]
) -> tuple[Timeline, float, float]:
    """The step's tasks, the time of what follows them (reductions, update, the framework's own), and that of
    micro-batches in its middle that are not simulated, since they repeat those before."""
    schedule = schedule_named(plan.schedule)
    sends = float(rows.send_s[0, 0])
    forward_s = stages.forward_s[0][row] + 0.5 * sends
    weight_s = np.broadcast_to(stages.weight_s, stages.forward_s.shape)[0][row]
    input_s = stages.backward_s[0][row] - weight_s + 0.5 * sends
    many = round(float(rows.micro_batches[0]))
    alone = plan.pp == 1
    times = even_chunks(schedule, forward_s, input_s, weight_s, 1 if alone else plan.vpp)
    chosen = schedule_named("1f1b") if alone else schedule
    if alone:
        times = even_chunks(chosen, forward_s, input_s, weight_s)
    slow = int(rows.slowest[0])
    tail_s = rows.seconds.data_parallel[0, slow] + rows.seconds.optimizer[0, slow] + rows.fixed_s
    few = few_micro_batches(chosen, plan.pp, 1 if alone else plan.vpp, many)
    gap_s = (many - few) * float(np.max(forward_s + input_s + weight_s))
    return play(chosen, times, few), float(tail_s), gap_s


def _tensors(
    plan: Plan,
    plans: Plans,
    tables: Tables,
    rows: Ledger,
    stages: Stages,
    layers: tuple[tuple[int, ...], ...],
    rank: int,
    index: int,
) -> RankTensors:
    """What one rank holds: what is always there from the closed form, its layers tensor by tensor."""
    memory, weight = rows.memory, weight_bytes(plan)[0]
    shares = shares_of(plans, tables, stages, rows.micro_batches)
    gathered = float(gathered_bytes(plans, stages, shares)[0, index])
    empty = 0.0 if stages.placeholders is None else weight * float(stages.placeholders[0, index])
    late = _made_late(plans, tables.software, rows, stages, index)
    stays = bool(np.any(inputs_that_stay(plans, stages))) and float(rows.micro_batches[0]) <= 1.0
    always = {
        "weights": float(memory.weights[0, index]),
        GRADIENTS: 0.0 if late else float(memory.gradients[0, index]),
        "states": float(memory.states[0, index]),
        GATHERED: gathered,
        "gradient placeholders": empty,
        "messages": float(stages.message_bytes[0]),
        "widened weights": float(stages.widened_bytes[0]),
        "workspaces": tables.software.allocator.workspace_bytes,
    }
    chunks = tuple(chunk for chunk in layers) if plan.pp > 1 else (sum(layers, ()),)
    again = _again_first(plan, chunks)
    head = float(stages.head_bytes[0, index])
    kept, many = float(stages.kept_bytes[0, index]), max(sum(map(len, chunks)), 1)
    copies = schedule_named(plan.schedule).weight_copies if plan.pp > 1 else 1.0
    limit = BUFFERED * kept * copies / many if "activations" in offloads(plan.offload) else np.inf
    return RankTensors(
        always={name: size for name, size in always.items() if size > 0.0},
        chunks=tuple(
            tuple(
                replace(
                    _layer(plan, plans, tables, kind, computed_again=i < again[c], behind=behind),
                    made_bytes=late * float(tables.parts.parameters[0, kind]),
                )
                for i, (kind, behind) in enumerate(zip(chunk, _behind(chunk, stays), strict=True))
            )
            for c, chunk in enumerate(chunks)
        ),
        head_bytes=tuple(
            head if _has_head(plan, rank, chunk) else 0.0 for chunk in range(len(chunks))
        ),
        made_bytes=(0.0, 0.0)
        if stages.late is None
        else (
            late * float(stages.late.head[0, index]),
            late * float(stages.late.last_weights[0, index]),
        ),
        most_kept_bytes=float(limit),
    )


def _with_update(
    scenario: Scenario,
    plans: Plans,
    tables: Tables,
    stages: Stages,
    tensors: RankTensors,
    index: int,
) -> RankTensors:
    """The same with what an update gathers apart from the weights, where it stays until the next passes."""
    if not scenario.software.gathered_stay:
        return tensors
    shares = shares_of(plans, tables, stages, pipe_of(scenario, plans).micro_batches)
    weights = float(held_weights(scenario, plans, stages, shares)[0, index])
    updated = float(gathered_copies(plans, shares)[0, index])
    return replace(tensors, always={**tensors.always, "weights": weights}, updated_bytes=updated)


def _made_late(plans: Plans, software: Software, rows: Ledger, stages: Stages, index: int) -> float:
    """Bytes of a gradient on one rank that the backward pass makes; 0 where a buffer holds all of them."""
    if not is_late(stages.late, plans, software, rows.micro_batches):
        return 0.0
    each, whole = weight_bytes(plans.base)[1], stages.trained[0, index]
    shared = plans.dp[0] * plans.cp[0] if plans.zero[0] >= 3 else 1.0
    return float(each / shared) if whole else 0.0


def _has_head(plan: Plan, rank: int, chunk: int) -> bool:
    """Whether the head is on a chunk of a rank."""
    if plan.pp == 1:
        return True
    layout = schedule_named(plan.schedule).layout
    if layout == "v":
        return rank == 0 and chunk == 1
    if layout == "both":
        return (rank == plan.pp - 1 and chunk == 0) or (rank == 0 and chunk == 1)
    return rank == plan.pp - 1 and chunk == plan.vpp - 1


def _behind(chunk: tuple[int, ...], stays: bool) -> list[int]:
    """For each layer of a chunk how many are behind it, where their inputs stay."""
    return [stays * (len(chunk) - 1 - i) for i in range(len(chunk))]


def _again_first(plan: Plan, chunks: tuple[tuple[int, ...], ...]) -> list[int]:
    """How many of each chunk's first layers full:N computes again: N of a rank, even over its chunks."""
    many, total = recompute_layers(plan.recompute), max(sum(map(len, chunks)), 1)
    share = min(many / total, 1.0) if many else 0.0
    return [round(share * len(chunk)) for chunk in chunks]


def _layer(
    plan: Plan, plans: Plans, tables: Tables, kind: int, *, computed_again: bool, behind: int
) -> LayerTensors:
    """Tensors of one layer as recomputation keeps them; `behind`: layers whose inputs are still there."""
    parts, mode = tables.parts, float(plans.recompute[0])
    gradient, whole = float(parts.gradient[0, kind]), float(parts.kept_whole[0, kind])
    if mode == 2.0 or computed_again:
        least = float(parts.kept_input[0, kind])
        kept = {Tensor(ENTRIES, INPUT, 0): least}
        return LayerTensors(
            kept=kept, passing_bytes=whole - least + gradient + 2.0 * behind * least
        )
    modules = recompute_modules(plan.recompute) if mode == LISTED else ()
    kept = {}
    for place, tensor in enumerate(parts.saved[kind]):
        dropped = float(tensor.core) if mode == 1.0 else dropped_share(tensor, modules)
        size = (1.0 - dropped) * _size(tensor, plan, tables)
        if size > 0.0:
            kept[Tensor(GROUPS.get(tensor.region, ENTRIES), tensor.name, place)] = size
    return LayerTensors(kept=kept, passing_bytes=whole - sum(kept.values()) + gradient)


def _size(tensor: Saved, plan: Plan, tables: Tables) -> float:
    """Bytes of a tensor on one rank."""
    wide = wide_share(plan, len(tables.parts.order))
    return float(np.ravel(tensor.elements)[0]) * kept_width(tensor, plan, tables.software, wide)


def _stage_line(
    plans: Plans,
    rows: Ledger,
    step: Timeline,
    tensors: RankTensors,
    place: tuple[int, int],
    besides_s: tuple[float, float],
) -> StageLine:
    """One stage, simulated; `place`: rank and column, `besides_s`: after the tasks, and in their middle."""
    rank, index = place
    tail_s, gap_s = besides_s
    found, end_s = delay_half(changes(step, rank, tensors), gap_s), step.step_s + gap_s
    whole = with_update(found, tensors, end_s, end_s + tail_s)
    line = memory_line(whole, tensors, end_s + tail_s)
    line = fill_gap(line, found) if gap_s else line
    used = (plans.tp, plans.pp, plans.dp, plans.cp, plans.ep)
    return StageLine(
        stage=rank,
        alike=int(rows.multiplicity[0, index]),
        line=line,
        kept_at_peak=_kept_at(whole, line.peak[1]),
        framework_bytes=float(framework_bytes(sum(float(each[0] > 1) for each in used))),
        closed_bytes=float(rows.memory.allocated[0, index]),
    )


def _kept_at(found: Changes, when_s: float) -> dict[str, float]:
    """Name -> bytes of kept tensors at a moment."""
    before = found.at_s <= when_s
    held = np.bincount(found.tensor[before], found.change_bytes[before], len(found.tensors))
    kept: dict[str, float] = {}
    for tensor, size in zip(found.tensors, held.tolist(), strict=True):
        if tensor.is_kept and size > 1.0:
            kept[tensor.name] = kept.get(tensor.name, 0.0) + size
    return kept
