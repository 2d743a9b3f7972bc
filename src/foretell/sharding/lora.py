"""Low-rank adapters (Hu et al. 2021): y = x W + x A B with W frozen, A of k x r and B of r x n trained.

Linear maps of the layers get one each (all of them, the mixers', or the projections to queries, keys and
values alone), experts' each their own; table, router and head stay as they are. What a frozen matrix costs
backward is its data gradient alone; gradients, states, master copy and the reduction over data-parallel
ranks are the adapters' alone; weights are held and, with ZeRO 3, gathered as before. Under tensor
parallelism the adapter of a matrix cut by columns has A on every rank and B cut by columns; by rows, A cut
by rows and B on every rank, so that its partial sums ride on the matrix's own reduction and nothing more is
sent. Adapters stay in 16 bits in every recipe. A frozen matrix without one needs its input no more, and that
is not kept.
"""

from collections.abc import Callable

import numpy as np

from foretell.specs._base import with_fields
from foretell.specs.plan import Adapters
from foretell.workload.graph import LayerGraph, Saved
from foretell.workload.ops import Gemm, Lookup, Op, Pointwise, Split
from foretell.workload.roles import ATTENTIONS, ENDS, TOKEN_MIXERS, OpRole, Region, SavedRole

WITHOUT = (*ENDS, Region.INDEXER)
"""Regions whose linear maps get no adapter."""
ROUTING = (OpRole.ROUTER, OpRole.SHARED_GATE)
"""Linear maps that get none."""
QUERIES = (
    OpRole.QKV,
    OpRole.QUERY,
    OpRole.KEY_VALUE,
    OpRole.QUERY_DOWN,
    OpRole.QUERY_UP,
    OpRole.LATENT_DOWN,
    OpRole.LATENT_UP,
)
"""Projections to queries, keys and values."""
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
    graph: LayerGraph, rank: int, where: Adapters = "all", maps: Maps = whole
) -> LayerGraph:
    """The layer with adapters of one rank beside its matrices, before tensor parallelism cuts it."""
    if rank == 0:
        return graph
    ops: list[Op] = []
    saved = _without_inputs(graph, where)
    for op in graph.ops:
        ops.append(op)
        if has_adapter(op, where):
            assert isinstance(op, Gemm)
            for one in _chosen(maps(op), where):
                ops += adapter(one, float(rank))
                elements = op.groups * op.m * rank
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
    if where != "qv" or maps[0].role is not OpRole.QKV:
        return maps
    if len(maps) > 1:
        return maps[0], maps[-1]
    half = 0.5 * maps[0].n_kv
    return (with_fields(maps[0], n=maps[0].n - half, n_kv=half, n_kv_min=0.5 * maps[0].n_kv_min),)


def has_adapter(op: Op, where: Adapters = "all") -> bool:
    """Linear maps of the layers, or of their mixers."""
    if not isinstance(op, Gemm) or op.tied or op.region in WITHOUT or op.role in ROUTING:
        return False
    if where in ("qkv", "qv"):
        return op.role in QUERIES and op.region in ATTENTIONS
    return where == "all" or op.region in TOKEN_MIXERS


def adapter(op: Gemm, rank: float) -> tuple[Op, ...]:
    """Two thin products, the addition of their result, and that of their data gradient."""
    down: Split = op.split if op.split in ("row", "heads", "tokens") else "none"
    up: Split = op.split if op.split in ("col", "heads", "tokens") else "none"
    outside: dict[Split, tuple[Split, Split]] = {
        "col": ("none", "width"),
        "row": ("width", "none"),
        "heads": ("width", "width"),
        "tokens": ("tokens", "tokens"),
    }
    inputs, outputs = outside.get(op.split, ("none", "none"))
    one = with_fields(op, bias=False, role=OpRole.ADAPTER, gated=False)
    return (
        with_fields(one, name=f"{op.name}.lora_a", n=rank, split=down, n_kv=0.0, n_kv_min=0.0),
        with_fields(one, name=f"{op.name}.lora_b", k=rank, split=up),
        Pointwise(
            name=f"{op.name}.lora.residual",
            elements=op.groups * op.m * op.n,
            reads=2.0,
            back_moves=0.0,
            back_flop=0.0,
            split=outputs,
            role=OpRole.ADAPTER_SUM,
            region=op.region,
            beside=op.role,
        ),
        Pointwise(
            name=f"{op.name}.lora_back.residual",
            elements=op.groups * op.m * op.k,
            reads=0.0,
            writes=0.0,
            flop=0.0,
            back_moves=3.0,
            back_flop=1.0,
            split=inputs,
            role=OpRole.ADAPTER_SUM,
            region=op.region,
            beside=op.role,
        ),
    )


def is_trained(op: Op, rank: int) -> bool:
    """Whether an operation's weights are trained: the adapters', or all where there are none."""
    return rank == 0 or op.role is OpRole.ADAPTER


def backward_products(op: Op, rank: int) -> int:
    """How many of a matrix's two backward products run: both gradients, or the data's alone.

    Operations without matrices run as they are; a frozen table passes no gradient on and takes none: 0.
    """
    if is_trained(op, rank):
        return 2
    return 0 if isinstance(op, Lookup) else 1
