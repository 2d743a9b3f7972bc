"""What of a model is on one rank: the operations of each part, cut as a shape says, and what they keep.

A part depends on micro-batch, tensor, sequence, context and expert parallelism alone: its shape. Of a plan's
other words operations depend on those of `operations_recipe`, and their kernels on those of `recipe_of`.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np

from foretell.catalog.hosts import host_of, optimizer_of
from foretell.kernels.call_records import CallStack, table_of
from foretell.kernels.calls import call_stacks, halves_of, maps_of
from foretell.kernels.memory import KeptBytes, kept_bytes
from foretell.kernels.modules import ModuleForm, as_run, form_of, stream_bytes, written_of
from foretell.kernels.precision import kept_width, linear_format, passing_width, wide_share
from foretell.records import dataclass
from foretell.schedules import schedule_named
from foretell.sharding.context import ContextTraffic, context_parallel, context_traffic
from foretell.sharding.expert import (
    ExpertSpread,
    ExpertTraffic,
    expert_parallel,
    expert_traffic,
    routed_parameters,
    spread_of,
    with_loads,
)
from foretell.sharding.lora import backward_products, with_adapters
from foretell.sharding.lora import whole as whole_maps
from foretell.sharding.recompute import Recomputation, recompute_layer
from foretell.sharding.tensor import tensor_parallel, token_parts
from foretell.sharding.tensor2d import GridTraffic, grid_of, grid_parallel, grid_traffic
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.model import Model
from foretell.specs.plan import RECOMPUTE, Plan
from foretell.specs.plan_forms import recompute_modules
from foretell.specs.scenario import Scenario
from foretell.specs.software import Software
from foretell.workload.build import build, build_kept
from foretell.workload.graph import Graph, LayerGraph, Saved
from foretell.workload.masks import within_documents
from foretell.workload.ops import Gemm, Op
from foretell.workload.roles import OpRole

Lengths = tuple[int, int | None]
"""Tokens of a sequence, and of a target sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a part's operations depend on: numbers, or arrays over shapes."""

    micro_batch: Num
    """Sequences of a micro-batch."""
    tp: Num
    """Tensor-parallel ranks."""
    sp: Num
    """1 with sequence parallelism, else 0."""
    cp: Num = 1.0
    """Context-parallel ranks."""
    ep: Num = 1.0
    """Expert-parallel ranks."""
    etp: Num = 1.0
    """Tensor-parallel ranks inside an expert."""
    tp2: Num = 0.0
    """Of a grid of tensor-parallel ranks, those along its second dimension."""

    @property
    def tokens_cut(self) -> bool:
        """Whether any shape has context parallelism."""
        return bool(np.any(np.asarray(self.cp) > 1.0))

    @property
    def experts_spread(self) -> bool:
        """Whether any shape has expert parallelism."""
        return bool(np.any(np.asarray(self.ep) > 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """The parts of a model on one rank, before any chip: operations, their work, what they keep."""

    graph: Graph
    """The whole model's graph."""
    counts: Array
    """How often each part is there in the whole model; (parts,)."""
    whole: tuple[LayerGraph, ...]
    """Its parts, uncut."""
    ops: tuple[tuple[Op, ...], ...]
    """Operations of each part on one rank."""
    stacks: tuple[CallStack, ...]
    """Their kernels, by family."""
    parameters: Array
    """Weights of each operation; (operations, shapes)."""
    routed: Array
    """Of these, weights of routed experts that expert parallelism spreads."""
    context: tuple[ContextTraffic, ...]
    """Context-parallel messages of each part."""
    experts: tuple[ExpertTraffic, ...]
    """Dispatches of each part."""
    grid: tuple[GridTraffic, ...]
    """Messages of each part on a grid."""
    saved: tuple[tuple[Saved, ...], ...]
    """Tensors that each part keeps on one rank."""
    kept: tuple[KeptBytes, ...]
    """What each part keeps."""
    again: tuple[Recomputation, ...]
    """What recomputing the plan's modules does to each part; empty where it names none."""
    tied: Num
    """Weights that the head borrows."""


def named_modules(recompute: str) -> bool:
    """Whether modules are named by which a layer is computed again; selective has a code of its own."""
    return recompute not in RECOMPUTE and bool(recompute_modules(recompute))


@lru_cache(maxsize=256)
def one_shape(
    model: Model, lengths: Lengths, cut: Plan, software: Software, shape: Shape
) -> Shapes:
    """One shape, in plain numbers, on which the same arithmetic is ten times as fast as on arrays."""
    return shapes_of(model, lengths, cut, software, shape)


def shapes_of(
    model: Model, lengths: Lengths, base: Plan, software: Software, shape: Shape
) -> Shapes:
    """Operations, work and kept bytes of every part, for numbers or arrays of a shape."""
    seq_len, target_len = lengths
    target = None if target_len is None else float(target_len)
    make: Callable[..., Graph] = build_kept if type(shape.micro_batch) is float else build
    sizes = {"batch": shape.micro_batch, "seq_len": float(seq_len), "target_len": target}
    graph = make(model, **sizes, flash=base.flash)
    whole = _parts_in_context(graph, base, shape)
    spreads = _spreads(whole, base, shape)
    grid = grid_of(shape.tp, shape.tp2, float(base.panels)) if base.tp_mode == "summa" else None
    form = form_of(model, base, software)
    if grid is None:
        pairs = zip(whole, spreads, strict=True)
        local = tuple(
            _on_one_rank(part, shape, spread, base, software, form) for part, spread in pairs
        )
    else:
        local = tuple(grid_parallel(part, grid) for part in whole)
    if form is not None:
        local = tuple(as_run(part, form, software) for part in local)
    modules = recompute_modules(base.recompute) if named_modules(base.recompute) else ()
    ends = len(whole) - 2
    ops = tuple(part.ops for part in local)
    flat = [op for part in ops for op in part]
    width = np.size(shape.tp)
    folded = np.minimum(shape.ep - 1.0, 1.0)
    input_parts = token_parts(shape.tp, shape.sp) if grid is None else shape.tp
    wide = wide_share(base, len(graph.order))
    held = partial(kept_width, plan=base, software=software, wide=wide)
    passing = partial(passing_width, plan=base, software=software)
    return Shapes(
        graph=graph,
        counts=part_counts(graph.order, len(graph.kinds)),
        whole=whole,
        ops=ops,
        stacks=call_stacks(
            flat,
            width,
            lambda op: backward_products(op, base),
            written=written_of(form, software),
            narrow=linear_format(base) is not None,
        ),
        parameters=table_of([op.parameters for op in flat], width),
        routed=table_of([routed_parameters(op) * folded for op in flat], width),
        context=tuple(context_traffic(part, base.cp_mode) for part in local if shape.tokens_cut),
        experts=tuple(
            expert_traffic(part, spread)
            for part, spread in zip(whole, spreads, strict=True)
            if shape.experts_spread
        ),
        grid=tuple(
            grid_traffic(part, cut, grid, float(model.stack.hidden))
            for part, cut in zip(whole, local, strict=True)
            if grid is not None
        ),
        saved=tuple(part.saved for part in local),
        kept=tuple(
            kept_bytes(part, input_parts, held, passing, stream_bytes(base, form)) for part in local
        ),
        # Embedding and head are never computed again.
        again=tuple(
            recompute_layer(part, modules if i < ends else (), flash=base.flash, width=held)
            for i, part in enumerate(local)
            if modules
        ),
        tied=tied_weights(local[-1]),
    )


def _parts_in_context(graph: Graph, base: Plan, shape: Shape) -> tuple[LayerGraph, ...]:
    """The parts of a model, within documents and on one rank of context parallelism."""
    whole = graph_parts(graph)
    if base.documents:
        whole = tuple(within_documents(part, float(base.documents)) for part in whole)
    if shape.tokens_cut:
        ways = base.cp_mode, base.cp_cut
        whole = tuple(context_parallel(part, shape.cp, *ways) for part in whole)
    return whole


def _spreads(whole: Sequence[LayerGraph], base: Plan, shape: Shape) -> list[ExpertSpread]:
    """How each part's experts are spread over ranks, with the load of the busiest one."""
    even = spread_of(shape.tp, shape.ep, shape.etp, base)
    if not shape.experts_spread:
        return [even] * len(whole)
    # The ranks of a group have the sequences of ep / (tp cp) replicas.
    sequences = shape.micro_batch * np.maximum(shape.ep / (shape.tp * shape.cp), 1.0)
    return [with_loads(even, part, base, sequences) for part in whole]


def _on_one_rank(
    part: LayerGraph,
    shape: Shape,
    spread: ExpertSpread,
    base: Plan,
    software: Software,
    form: ModuleForm | None,
) -> LayerGraph:
    """A part whose tokens are cut already, on one rank of its expert and tensor groups."""
    if shape.experts_spread or spread.even != 1.0:
        part = expert_parallel(part, spread)
    apart = whole_maps if form is None or form.halves else halves_of if form.joint else maps_of
    stored = software.keeps_stored and base.weights.startswith("nf4")
    part = with_adapters(part, base.lora, base.adapters, apart, method=base.method, stored=stored)
    return tensor_parallel(part, shape.tp, shape.sp)


def graph_parts(graph: Graph) -> tuple[LayerGraph, ...]:
    """Layer kinds, embedding, head with multi-token prediction."""
    head = graph.head if graph.prediction is None else graph.head + graph.prediction
    return (*graph.kinds, graph.embedding, head)


@lru_cache(maxsize=64)
def part_counts(order: tuple[int, ...], kinds: int) -> Array:
    """How often each part is there: layers by their kind, then embedding and head."""
    return np.concatenate([np.bincount(np.asarray(order), minlength=kinds), [1.0, 1.0]])


def tied_weights(head: LayerGraph) -> Num:
    """Weights that the last stage borrows from the token table: a tied head, the input of predictions."""
    for op in head.ops:
        if isinstance(op, Gemm) and op.tied and op.role is OpRole.SCORES:
            return op.groups * op.k * op.n / op.weight_parts
    return 0.0


def sum_of(values: Sequence[Array]) -> Array:
    """Their sum; one alone is itself."""
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


CUT = (
    "flash fused precision weights autocast scaling wide_layers lora adapters loss method cp_mode cp_cut "
    "documents tp_mode panels capacity routing imbalance"
).split()
"""What operations are cut and kept by, beside what runs again."""


def recipe_of(plan: Plan) -> Plan:
    """A plan reduced to what kernels run by."""
    same = {
        name: getattr(plan, name) for name in (*CUT, "attention", "master", "dispatch", "graphs")
    }
    return Plan(
        **same,
        # Kernels do not depend on these unless matrices are treated apart or modules run again.
        optimizer="adam" if optimizer_of(plan.optimizer).uniform else plan.optimizer,
        recompute=plan.recompute if named_modules(plan.recompute) else "none",
        schedule=plan.schedule if schedule_named(plan.schedule).splits_backward else "1f1b",
    )


def operations_recipe(recipe: Plan) -> Plan:
    """A recipe reduced to what operations are cut and kept by."""
    return Plan(**{name: getattr(recipe, name) for name in (*CUT, "recompute")})


def launch_kind(plan: Plan, software: Software) -> str:
    """How the kernels of a plan are started: as its software does, or as captured graphs where it says so."""
    if plan.graphs == "on":
        return "program"
    return "eager" if plan.graphs == "off" and software.launch == "program" else software.launch


def fixed_seconds(scenario: Scenario) -> float:
    """What a step takes beside its work: the host's own, and operations that its software launches."""
    host, many = host_of(scenario.system), scenario.software.step_operations
    return host.step_s + many * (host.operation_s + host.kernel_s)
