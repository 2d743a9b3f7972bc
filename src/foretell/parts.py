"""What the parts of a model cost on one rank: each layer kind, the embedding, the head.

A part depends on tensor-parallel degree, micro-batch and sequence parallelism alone, so it is computed
once for each distinct combination of these ("shapes") and gathered to the plans afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from foretell.cost.calls import ACTIVATION_BYTES, CallStack, stacked
from foretell.cost.fusion import SIDE_BY_SIDE
from foretell.cost.kernels.base import p_norm
from foretell.cost.memory import KeptBytes, kept_bytes
from foretell.cost.op_times import OpTimes, op_times
from foretell.network.collectives import collective_s, outermost, place
from foretell.network.library_records import Kind
from foretell.sharding.tensor import TensorTraffic, tensor_parallel, tensor_traffic, token_parts
from foretell.specs._base import Num
from foretell.specs.chip import Chip
from foretell.specs.model import Model
from foretell.specs.plan import Plan
from foretell.specs.scenario import Scenario
from foretell.specs.system import System
from foretell.workload.build import build
from foretell.workload.graph import Graph, LayerGraph
from foretell.workload.ops import Gemm, Op

Array = NDArray[np.float64]

CORE = ("attention", "scan")
"""Families that selective recomputation runs again, where what they keep is not fused away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSeconds:
    """One pass through every part, at the clock of short bursts; arrays are (shapes, parts)."""

    seconds: Array
    """Time."""
    host_s: Array
    """What of it is waiting for the host to start kernels."""
    clocked_s: Array
    """What of it stretches when the clock falls."""
    core_joules: Array
    """What the cores spend."""
    memory_joules: Array
    """What the device memory spends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Costs of every part for every shape; arrays are (shapes, parts) unless said otherwise."""

    names: tuple[str, ...]
    """Layer kinds, then embedding, then head."""
    order: tuple[int, ...]
    """Kind of each layer of the model."""
    ops: tuple[tuple[Op, ...], ...]
    """Operations of each part on one rank."""
    times: OpTimes
    """Times of all operations, forward and then backward; (2 x operations, shapes)."""
    forward: PassSeconds
    """Forward pass."""
    backward: PassSeconds
    """Backward pass, without recomputation."""
    core_s: Array
    """Forward time of attention cores and scans that keep their inside: what selective recomputes."""
    parameters: Array
    """Weights on one rank."""
    tied: Array
    """Weights that the head borrows from the token table: a copy where that is elsewhere; (shapes,)."""
    kept_whole: Array
    """Bytes kept per micro-batch without recomputation."""
    kept_selective: Array
    """Bytes kept when the attention core is computed again."""
    kept_input: Array
    """Bytes kept when the whole part is computed again."""
    send_bytes: Array
    """What one rank passes to the next stage: its share of the activation; (shapes,)."""
    traffic: tuple[TensorTraffic, ...]
    """Tensor-parallel messages of each part."""
    tp: Array
    """Tensor-parallel ranks of the shape; (shapes,)."""
    sp: Array
    """1 where the shape has sequence parallelism; (shapes,)."""
    notes: tuple[str, ...]
    """What is not timed."""

    @property
    def counts(self) -> Array:
        """How often each part is there in the whole model."""
        layers = np.bincount(np.asarray(self.order), minlength=self.kinds)
        return np.concatenate([layers, [1.0, 1.0]])

    @property
    def kinds(self) -> int:
        """Number of layer kinds."""
        return len(self.names) - 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """The parts of a model on one rank, before any chip: operations, their work, what they keep."""

    graph: Graph
    """The whole model's graph."""
    whole: tuple[LayerGraph, ...]
    """Its parts, uncut."""
    ops: tuple[tuple[Op, ...], ...]
    """Operations of each part on one rank."""
    stacks: tuple[CallStack, ...]
    """Their kernels, by family."""
    parameters: Array
    """Weights of each operation; (operations, shapes)."""
    kept: tuple[KeptBytes, ...]
    """What each part keeps."""
    tied: Num
    """Weights that the head borrows."""


Lengths = tuple[int, int | None]
"""Tokens of a sequence, and of a target sequence."""
Shape = tuple[Num, Num, Num]
"""Micro-batch, tensor-parallel ranks, sequence parallelism."""


def part_table(scenario: Scenario, base: Plan, tp: Array, micro_batch: Array, sp: Array) -> Parts:
    """Build the graph for all shapes at once, cut it, and cost it in two calls."""
    chip, job = scenario.system.chip, scenario.job
    lengths = (job.seq_len, job.target_len)
    if len(tp) == 1:
        # A single shape recurs from estimate to estimate: what it costs is remembered.
        one = (float(micro_batch[0]), float(tp[0]), float(sp[0]))
        return _one_part_table(scenario.model, lengths, chip, recipe_of(base), one)
    shapes = shapes_of(scenario.model, lengths, base.flash, (micro_batch, tp, sp))
    return _costed(shapes, chip, base, tp, sp)


def recipe_of(plan: Plan) -> Plan:
    """A plan reduced to what kernels run by."""
    return Plan(
        flash=plan.flash,
        fused=plan.fused,
        attention=plan.attention,
        precision=plan.precision,
        weights=plan.weights,
    )


@lru_cache(maxsize=512)
def _one_part_table(
    model: Model, lengths: Lengths, chip: Chip, recipe: Plan, shape: tuple[float, float, float]
) -> Parts:
    """Costs of one shape."""
    shapes = _one_shape(model, lengths, recipe.flash, shape)
    return _costed(shapes, chip, recipe, np.array(shape[1:2]), np.array(shape[2:]))


def _costed(shapes: Shapes, chip: Chip, base: Plan, tp: Array, sp: Array) -> Parts:
    """Shapes on a chip."""
    width, ops, whole = len(tp), shapes.ops, shapes.whole
    flat = [op for part in ops for op in part]
    times = op_times(shapes.stacks, len(flat), chip, base)
    core = np.array([op.family in CORE and not base.flash for op in flat])[:, None]
    return Parts(
        names=tuple(part.name for part in whole),
        order=shapes.graph.order,
        ops=ops,
        times=times,
        forward=_pass(ops, times, slice(0, len(flat))),
        backward=_pass(ops, times, slice(len(flat), None)),
        core_s=_sum_parts(ops, times.seconds[: len(flat)] * core),
        parameters=_sum_parts(ops, shapes.parameters),
        tied=stack([shapes.tied], width)[0],
        kept_whole=stack([k.whole for k in shapes.kept], width).T,
        kept_selective=stack([k.selective for k in shapes.kept], width).T,
        kept_input=stack([k.input for k in shapes.kept], width).T,
        send_bytes=stack([whole[0].input_elements * ACTIVATION_BYTES / tp], width)[0],
        traffic=tuple(tensor_traffic(part) for part in whole),
        tp=tp,
        sp=sp,
        notes=shapes.graph.notes,
    )


@lru_cache(maxsize=256)
def _one_shape(
    model: Model, lengths: Lengths, flash: bool, shape: tuple[float, float, float]
) -> Shapes:
    """One shape, in plain numbers, on which the same arithmetic is ten times as fast as on arrays."""
    return shapes_of(model, lengths, flash, shape)


def shapes_of(model: Model, lengths: Lengths, flash: bool, shape: Shape) -> Shapes:
    """Operations, work and kept bytes of every part, for numbers or arrays of batch, tp and sp."""
    batch, tp, sp = shape
    seq_len, target_len = lengths
    target = None if target_len is None else float(target_len)
    graph = build(model, batch=batch, seq_len=float(seq_len), target_len=target, flash=flash)
    whole = graph_parts(graph)
    local = tuple(tensor_parallel(part, tp, sp) for part in whole)
    ops = tuple(part.ops for part in local)
    flat = [op for part in ops for op in part]
    width = np.size(tp)
    input_parts = token_parts(tp, sp)
    return Shapes(
        graph=graph,
        whole=whole,
        ops=ops,
        stacks=stacked(flat, width),
        parameters=stack([op.parameters for op in flat], width),
        kept=tuple(kept_bytes(part, input_parts, ACTIVATION_BYTES) for part in local),
        tied=tied_weights(local[-1]),
    )


def graph_parts(graph: Graph) -> tuple[LayerGraph, ...]:
    """Layer kinds, embedding, head with multi-token prediction."""
    head = graph.head if graph.prediction is None else graph.head + graph.prediction
    return (*graph.kinds, graph.embedding, head)


def tied_weights(head: LayerGraph) -> Num:
    """Weights that the last stage borrows from the token table: a tied head, the input of predictions."""
    for op in head.ops:
        if isinstance(op, Gemm) and op.tied:
            return op.groups * op.k * op.n
    return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSeconds:
    """Exposed tensor-parallel time by group of ranks and placement."""

    forward_s: Array
    """Of each part, forward; (groups, parts)."""
    backward_s: Array
    """Of each part, backward; (groups, parts)."""
    send_s: Array
    """Gathering what a stage received in pieces, where tokens are not cut anyway; (groups,)."""
    tier: NDArray[np.intp]
    """Outermost tier that the group touches; (groups,)."""


def tensor_seconds(
    parts: Parts, shape: NDArray[np.intp], counts: Array, system: System
) -> TensorSeconds:
    """Times of the exchanges at the edges of tensor-parallel regions.

    `shape` says which shape each group has, `counts` (tiers, groups) where its members stand.
    """
    width = len(parts.sp)
    sp = parts.sp[shape][:, None] > 0
    enter = stack([t.enter_elements for t in parts.traffic], width).T[shape] * ACTIVATION_BYTES
    leave = stack([t.leave_elements for t in parts.traffic], width).T[shape] * ACTIVATION_BYTES
    enters = np.array([t.enters for t in parts.traffic])
    leaves = np.array([t.leaves for t in parts.traffic])
    # What no group needs is not prepared: with sequence parallelism nothing is all-reduced.
    kinds: tuple[Kind, ...] = ("all-gather",)
    kinds += ("reduce-scatter",) if sp.any() else ()
    kinds += () if sp.all() else ("all-reduce",)
    group = place(counts, system, kinds)

    def seconds(kind: Kind, size: Array) -> Array:
        return collective_s(kind, size, group) if kind in kinds else np.zeros_like(size)

    gathered = enters * seconds("all-gather", enter) + leaves * seconds("reduce-scatter", leave)
    scattered = enters * seconds("reduce-scatter", enter) + leaves * seconds("all-gather", leave)
    gather_s = seconds("all-gather", parts.send_bytes[shape] * parts.tp[shape])
    return TensorSeconds(
        forward_s=np.where(sp, gathered, leaves * seconds("all-reduce", leave)),
        backward_s=np.where(sp, scattered, enters * seconds("all-reduce", enter)),
        send_s=np.where(sp[:, 0], 0.0, gather_s),
        tier=outermost(counts),
    )


def _pass(ops: tuple[tuple[Op, ...], ...], times: OpTimes, rows: slice) -> PassSeconds:
    """Sums over the operations of each part in one pass."""
    chip_s = _sum_parts(ops, times.seconds[rows])
    seconds = p_norm(chip_s, _sum_parts(ops, times.host_s[rows]), SIDE_BY_SIDE)
    return PassSeconds(
        seconds=seconds,
        host_s=seconds - chip_s,
        clocked_s=_sum_parts(ops, times.clocked_s[rows]),
        core_joules=_sum_parts(ops, times.core_joules[rows]),
        memory_joules=_sum_parts(ops, times.memory_joules[rows]),
    )


def stack(values: Sequence[Num], width: int) -> Array:
    """Numbers and arrays over shapes as one (values, shapes) array."""
    rows = np.empty((len(values), width))
    for row, value in zip(rows, values, strict=True):
        row[...] = value
    return rows


def _sum_parts(ops: tuple[tuple[Op, ...], ...], values: Array) -> Array:
    """Sum (operations, shapes) over the operations of each part, to (shapes, parts)."""
    ends = list(accumulate(len(part) for part in ops))
    sums = np.empty((len(ops), values.shape[1]))
    for row, start, end in zip(sums, [0, *ends], ends, strict=False):
        values[start:end].sum(axis=0, out=row)
    return sums.T
