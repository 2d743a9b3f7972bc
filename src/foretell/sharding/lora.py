"""Low-rank adapters (Hu et al. 2021): y = x W + x A B with W frozen, A of k x r and B of r x n trained.

Linear maps of the layers get one each (all of them, the mixers', or those that are named), experts' each
their own; the router stays as it is, and table and head are frozen, or trained whole (`+ends`). What a frozen
matrix costs backward is its data gradient alone; gradients, states, master copy and the reduction over
data-parallel ranks are the adapters' alone; weights are held and, with ZeRO 3, gathered as before. Under
tensor parallelism the adapter of a matrix cut by columns has A on every rank and B cut by columns; by rows, A
cut by rows and B on every rank, so that its partial sums ride on the matrix's own reduction and nothing more
is sent. Adapters stay in 16 bits in every recipe. A frozen matrix without one needs its input no more, and
that is not kept. The frozen matrices of the layers may be stored in 4 bits (QLoRA): products read them
widened to 16 bits, once for each pass, and those of early bitsandbytes keep their input whether it has an
adapter or not. Other methods than LoRA are in tuning_methods.py.
"""

from collections.abc import Callable

import numpy as np

from foretell.sharding.tuning_methods import WITHOUT_MAPS, kept_elements, method_ops
from foretell.specs._base import with_fields
from foretell.specs.plan import QUANTISED, Adapters, Plan
from foretell.specs.plan_forms import TRAINED_ENDS, adapter_targets
from foretell.specs.plan_words import TuningMethod
from foretell.workload.graph import LayerGraph, Saved
from foretell.workload.ops import Gemm, Lookup, Op
from foretell.workload.roles import (
    ALL_EXPERTS,
    ATTENTIONS,
    ENDS,
    TOKEN_MIXERS,
    OpRole,
    Region,
    SavedRole,
)

WITHOUT = (*ENDS, Region.INDEXER, Region.FROZEN)
"""Regions whose linear maps get no adapter."""
ROUTING = (OpRole.ROUTER, OpRole.SHARED_GATE)
"""Linear maps that get none."""
MAPS = {
    OpRole.QKV: frozenset("qkv"),
    OpRole.QUERY: frozenset("q"),
    OpRole.QUERY_DOWN: frozenset("q"),
    OpRole.QUERY_UP: frozenset("q"),
    OpRole.KEY_VALUE: frozenset("kv"),
    OpRole.LATENT_DOWN: frozenset("kv"),
    OpRole.LATENT_UP: frozenset("kv"),
    OpRole.OUTPUT: frozenset("o"),
}
"""Projections of attention -> the targets that they are."""
MIXER_MAPS, FEED_MAPS = frozenset("qkvo"), {OpRole.UP: "up", OpRole.DOWN: "down"}
"""Targets that are all maps of a mixer together; products of feed-forward parts -> their target."""
FEEDS = (Region.FEED_FORWARD, *ALL_EXPERTS)
"""Regions of feed-forward parts."""
INPUTS = {
    (OpRole.DOWN, Region.FEED_FORWARD): (SavedRole.ACTIVATED, Region.FEED_FORWARD),
    (OpRole.UP, Region.EXPERTS): (SavedRole.EXPERT_INPUT, Region.EXPERTS),
    (OpRole.DOWN, Region.EXPERTS): (SavedRole.ACTIVATED, Region.EXPERTS),
}
"""Linear map -> the saved tensor that is its input."""
ENTERED = {(OpRole.UP, Region.FEED_FORWARD), (OpRole.UP, Region.EXPERTS)}
"""Linear maps that read the entry of the feed-forward part."""


Maps = Callable[[Gemm], tuple[Gemm, ...]]
"""The linear maps that are one product: each has an adapter of its own."""


def whole(op: Gemm) -> tuple[Gemm, ...]:
    """One adapter for a product, however many maps it joins."""
    return (op,)


def with_adapters(
    graph: LayerGraph,
    rank: int,
    where: Adapters = "all",
    maps: Maps = whole,
    *,
    method: TuningMethod = "lora",
    stored: bool = False,
) -> LayerGraph:
    """The layer with adapters of one size beside its matrices, before tensor parallelism cuts it; `stored`:
    the frozen ones are in 4 bits and keep their input."""
    if rank == 0:
        return graph
    where = "" if method in WITHOUT_MAPS else where
    ops: list[Op] = []
    saved = list(graph.saved) if stored else _without_inputs(graph, where)
    for op in graph.ops:
        ops.append(op)
        if has_adapter(op, where):
            assert isinstance(op, Gemm)
            for one in _chosen(maps(op), where):
                ops += method_ops(method, one, float(rank))
                elements = kept_elements(method, one, float(rank))
                name = f"{op.name}.lora"
                saved.append(Saved(name=name, elements=elements, split="none", region=op.region))
    return with_fields(graph, ops=tuple(ops), saved=tuple(saved))


def _without_inputs(graph: LayerGraph, where: Adapters) -> list[Saved]:
    """What is kept, less the inputs of matrices that are frozen and have no adapter."""
    products = (op for op in graph.ops if isinstance(op, Gemm) and not has_adapter(op, where))
    frozen = {(op.role, op.region) for op in products}
    spared = {INPUTS[product] for product in frozen & INPUTS.keys()}
    found = []
    for tensor in graph.saved:
        share = 1.0 if (tensor.role, tensor.region) in spared else 0.0
        # The entry of the feed-forward part, where it has one of its own beside the mixer's.
        if tensor.role is SavedRole.ENTRY and ENTERED & frozen:
            halves = np.asarray(tensor.elements) >= 2.0 * np.asarray(graph.input_elements)
            share = 0.5 if halves.all() else 0.0
        found.append(
            with_fields(tensor, elements=tensor.elements * (1.0 - share)) if share else tensor
        )
    return found


def _chosen(maps: tuple[Gemm, ...], where: Adapters) -> tuple[Gemm, ...]:
    """Of queries, keys and values those that have adapters; of one product for all, the outputs that do."""
    targets = adapter_targets(where)
    if maps[0].role is not OpRole.QKV or targets >= MAPS[OpRole.QKV]:
        return maps
    if len(maps) > 1:
        return tuple(one for one, name in zip(maps, "qkv", strict=True) if name in targets)
    joint, share = maps[0], 0.5 * len(targets & {"k", "v"})
    queries = (joint.n - joint.n_kv) * ("q" in targets)
    kept = share * joint.n_kv
    return (with_fields(joint, n=queries + kept, n_kv=kept, n_kv_min=share * joint.n_kv_min),)


def has_adapter(op: Op, where: Adapters = "all") -> bool:
    """Linear maps of the layers, or of their mixers or feed-forward parts, or those that are named."""
    if not is_layer_map(op):
        return False
    targets = adapter_targets(where)
    if op.region in TOKEN_MIXERS:
        named = MAPS.get(op.role, frozenset()) if op.region in ATTENTIONS else frozenset()
        return targets >= MIXER_MAPS or bool(targets & named)
    if op.region in FEEDS and op.role in FEED_MAPS:
        return FEED_MAPS[op.role] in targets
    return targets >= adapter_targets("all")


def is_layer_map(op: Op) -> bool:
    """Whether an operation is a linear map of a layer: not table, head, router or an indexer's."""
    maps = isinstance(op, Gemm) and not op.tied
    return maps and op.region not in WITHOUT and op.role not in ROUTING


def is_quantised(op: Op, plan: Plan) -> bool:
    """Whether an operation's weights are stored in 4 bits: frozen linear maps of the layers."""
    return plan.weights in QUANTISED and is_layer_map(op) and op.role is not OpRole.ADAPTER


def trains_ends(plan: Plan) -> bool:
    """Whether table and head are trained whole beside adapters."""
    return plan.lora > 0 and TRAINED_ENDS in plan.adapters.split("+")


def is_trained(op: Op, plan: Plan) -> bool:
    """Whether an operation's weights are trained: the adapters', or all where there are none; those of table
    and head where they are trained whole."""
    if op.region is Region.FROZEN:
        return False
    if plan.lora == 0 or op.role is OpRole.ADAPTER:
        return True
    return op.region in ENDS and trains_ends(plan)


def backward_products(op: Op, plan: Plan) -> int:
    """How many of a matrix's two backward products run: both gradients, or the data's alone.

    Operations without matrices run as they are; a frozen table or tower passes no gradient on and takes
    none: 0.
    """
    if is_trained(op, plan):
        return 2
    return 0 if isinstance(op, Lookup) or op.region is Region.FROZEN else 1
