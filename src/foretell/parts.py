"""What the parts of a model cost on one rank: each layer kind, the embedding, the head.

A part depends on tensor-parallel degree, micro-batch and sequence parallelism alone, so it is computed
once for each distinct combination of these ("shapes") and gathered to the plans afterwards.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from foretell.cost.memory import KeptBytes, kept_bytes
from foretell.cost.roofline import (
    ACTIVATION_BYTES,
    OpSeconds,
    op_rates,
    op_seconds,
    stack,
    stack_works,
)
from foretell.network.collectives import collective_s, outermost, place
from foretell.network.library_records import Kind
from foretell.sharding.tensor import TensorTraffic, tensor_parallel, tensor_traffic, token_parts
from foretell.specs._base import Num
from foretell.specs.model import Model
from foretell.specs.plan import Plan
from foretell.specs.scenario import Scenario
from foretell.specs.system import System
from foretell.workload.build import build
from foretell.workload.graph import Graph, LayerGraph
from foretell.workload.ops import Gemm, Op, Work

Array = NDArray[np.float64]

CORE = ("attention", "scan")
"""Families that selective recomputation runs again, where what they keep is not fused away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Costs of every part for every shape; arrays are (shapes, parts) unless said otherwise."""

    names: tuple[str, ...]
    """Layer kinds, then embedding, then head."""
    order: tuple[int, ...]
    """Kind of each layer of the model."""
    ops: tuple[tuple[Op, ...], ...]
    """Operations of each part on one rank."""
    forward: OpSeconds
    """Times of all operations, forward; (operations, shapes)."""
    backward: OpSeconds
    """The same, backward."""
    forward_s: Array
    """Forward time."""
    backward_s: Array
    """Backward time, without recomputation."""
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
    forward: Work
    """Stacked work of all operations, forward; (operations, shapes)."""
    backward: Work
    """The same, backward."""
    parameters: Array
    """Weights of each operation; (operations, shapes)."""
    kept: tuple[KeptBytes, ...]
    """What each part keeps."""
    tied: Num
    """Weights that the head borrows."""


def part_table(scenario: Scenario, base: Plan, tp: Array, micro_batch: Array, sp: Array) -> Parts:
    """Build the graph for all shapes at once, cut it, and cost it in two calls."""
    width, chip, job = len(tp), scenario.system.chip, scenario.job
    lengths = (job.seq_len, job.target_len)
    if width == 1:
        # A single shape recurs from estimate to estimate: what it is made of is remembered.
        one = (float(micro_batch[0]), float(tp[0]), float(sp[0]))
        shapes = _one_shape(scenario.model, lengths, base.flash, one)
    else:
        shapes = shapes_of(scenario.model, lengths, base.flash, (micro_batch, tp, sp))
    ops, whole = shapes.ops, shapes.whole
    flat = [op for part in ops for op in part]
    rates = op_rates(flat, chip, base)
    forward = op_seconds(rates, shapes.forward, chip, base)
    backward = op_seconds(rates, shapes.backward, chip, base)
    core = np.array([op.family in CORE and not base.flash for op in flat])[:, None]
    return Parts(
        names=tuple(part.name for part in whole),
        order=shapes.graph.order,
        ops=ops,
        forward=forward,
        backward=backward,
        forward_s=_sum_parts(ops, forward.total_s),
        backward_s=_sum_parts(ops, backward.total_s),
        core_s=_sum_parts(ops, forward.total_s * core),
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
    model: Model, lengths: tuple[int, int | None], flash: bool, shape: tuple[float, float, float]
) -> Shapes:
    """One shape, in plain numbers, on which the same arithmetic is ten times as fast as on arrays."""
    return shapes_of(model, lengths, flash, shape)


def shapes_of(
    model: Model, lengths: tuple[int, int | None], flash: bool, shape: tuple[Num, Num, Num]
) -> Shapes:
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
        forward=stack_works([op.forward() for op in flat], width),
        backward=stack_works([op.backward() for op in flat], width),
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


def _sum_parts(ops: tuple[tuple[Op, ...], ...], values: Array) -> Array:
    """Sum (operations, shapes) over the operations of each part, to (shapes, parts)."""
    ends = list(accumulate(len(part) for part in ops))
    sums = np.empty((len(ops), values.shape[1]))
    for row, start, end in zip(sums, [0, *ends], ends, strict=False):
        values[start:end].sum(axis=0, out=row)
    return sums.T
