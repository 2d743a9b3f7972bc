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

import numpy as np

from foretell.specs._base import changed
from foretell.specs.plan import Adapters
from foretell.workload.graph import LayerGraph, Saved
from foretell.workload.ops import Gemm, Lookup, Op, Pointwise, Split

DOWN, UP = ".lora_a", ".lora_b"
"""Ends of the names of an adapter's two products."""
WITHOUT = ("head.", "embedding.", "moe.router", "moe.shared_gate", "indexer.")
"""Linear maps that get no adapter."""
MIXERS = ("attention.", "cross.", "mamba.", "delta.", "replacement")
"""First words of the linear maps of token mixers."""
QUERIES = tuple(
    f"{mixer}.{name}"
    for mixer in ("attention", "cross")
    for name in ("qkv", "q", "kv", "q_down", "q_up", "kv_down", "kv_up")
)
"""Projections to queries, keys and values."""
INPUTS = {"ffn.down": ("ffn.act", 1.0), "moe.up": ("moe.in", 1.0), "moe.down": ("moe.act", 1.0)}
"""Linear map -> the saved tensor that is its input, and its share of it."""


def with_adapters(graph: LayerGraph, rank: int, where: Adapters = "all") -> LayerGraph:
    """The layer with adapters of one rank beside its matrices, before tensor parallelism cuts it."""
    if rank == 0:
        return graph
    ops: list[Op] = []
    saved = _without_inputs(graph, where)
    for op in graph.ops:
        ops.append(op)
        if has_adapter(op, where):
            assert isinstance(op, Gemm)
            ops += adapter(op, float(rank))
            saved.append(
                Saved(name=f"{op.name}.lora", elements=op.groups * op.m * rank, split="none")
            )
    return changed(graph, ops=tuple(ops), saved=tuple(saved))


def _without_inputs(graph: LayerGraph, where: Adapters) -> list[Saved]:
    """What is kept, less the inputs of matrices that are frozen and have no adapter."""
    frozen = [op.name for op in graph.ops if isinstance(op, Gemm) and not has_adapter(op, where)]
    spared = {saved: share for name, (saved, share) in INPUTS.items() if name in frozen}
    for tensor in graph.saved:
        # The entry of the feed-forward part, where it has one of its own beside the mixer's.
        if tensor.name == "region.in" and {"ffn.up", "moe.up"} & set(frozen):
            halves = np.asarray(tensor.elements) >= 2.0 * np.asarray(graph.input_elements)
            spared["region.in"] = 0.5 if halves.all() else 0.0
    return [
        changed(t, elements=t.elements * (1.0 - spared[t.name])) if t.name in spared else t
        for t in graph.saved
    ]


def has_adapter(op: Op, where: Adapters = "all") -> bool:
    """Linear maps of the layers, or of their mixers."""
    if not isinstance(op, Gemm) or op.tied or op.name.startswith(WITHOUT):
        return False
    if where == "qkv":
        return op.name in QUERIES
    return where == "all" or op.name.startswith(MIXERS)


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
    first = changed(op, name=op.name + DOWN, n=rank, bias=False, split=down, n_kv=0.0, n_kv_min=0.0)
    return (
        first,
        changed(op, name=op.name + UP, k=rank, bias=False, split=up),
        Pointwise(
            name=f"{op.name}.lora.residual",
            elements=op.groups * op.m * op.n,
            reads=2.0,
            back_moves=0.0,
            back_flop=0.0,
            split=outputs,
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
        ),
    )


def is_trained(op: Op, rank: int) -> bool:
    """Whether an operation's weights are trained: the adapters', or all where there are none."""
    return rank == 0 or op.name.endswith((DOWN, UP))


def backward_products(op: Op, rank: int) -> int:
    """How many of a matrix's two backward products run: both gradients, or the data's alone.

    Operations without matrices run as they are; a frozen table passes no gradient on and takes none: 0.
    """
    if is_trained(op, rank):
        return 2
    return 0 if isinstance(op, Lookup) else 1
