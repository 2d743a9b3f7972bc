"""Recomputation: what is dropped after the forward pass and computed again before it is needed.

    none        everything is kept
    selective   attention cores and scans run again (Korthikanti et al. 2022), fused ones too, which keep no
                inside to drop (Megatron-Core's core_attn checkpoints whatever kernel it is)
    full        only the inputs of layers are kept
    full:N      N layers of each stage as full, the others as none (Megatron's block method)
    modules     by name, as Megatron-Core's recompute modules:

    core        as selective
    attention   the whole mixer, its projections included
    up          queries, keys and values out of their latents
    mlp         the dense feed-forward part
    act         activations of feed-forward parts and experts: their output alone
    norm        norms at the entry of mixers and feed-forward parts: their output alone
    moe         router, experts and shared experts
    products    by operation, as torchtitan's selective mode: every second product of a layer is kept (the
                first, third, ...: queries, values, gate, down) with the attention's result and the layer's
                input; the others (keys, out, up) and all element-wise work run again

A module is run from its kept input to its end with the messages of its tensor-parallel region, and what it
drops is held for one layer at a time while the backward pass is there.
"""

from collections.abc import Callable, Sequence

import numpy as np

from foretell.records import dataclass
from foretell.specs._base import Num, with_fields
from foretell.specs.arrays import Array
from foretell.workload.graph import LayerGraph, Saved
from foretell.workload.ops import Gemm, Op
from foretell.workload.roles import ALL_EXPERTS, TOKEN_MIXERS, OpRole, Region, SavedRole

MODULES = {
    **dict.fromkeys((*TOKEN_MIXERS, Region.INDEXER), "attention"),
    Region.FEED_FORWARD: "mlp",
    **dict.fromkeys(ALL_EXPERTS, "moe"),
}
"""Region -> the module that computes all of it again; regions of no module are left out."""
KEPT = (SavedRole.QUERY, SavedRole.RESULT, SavedRole.STATISTIC)
"""What is kept whole where every second product is."""
HALVED = (SavedRole.KEY_VALUE, SavedRole.UP, SavedRole.NORM_INPUT)
"""What is kept by halves: results of products, and of two entries the one within the layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputation:
    """What recomputing some modules of one layer does."""

    ops: tuple[float, ...]
    """Share of each of the layer's operations that runs again."""
    kept_bytes: Num
    """What stays kept for one micro-batch."""
    dropped_bytes: Num
    """What is dropped: held again for one layer in the backward pass."""
    graph: LayerGraph
    """The layer with those edges alone whose messages are sent again."""


def bytes_16bit(tensor: Saved) -> float:
    """Bytes per element of a saved tensor in 16 bits."""
    return tensor.bytes_per_element or 2.0


def recompute_layer(
    graph: LayerGraph,
    modules: Sequence[str],
    *,
    flash: bool,
    width: Callable[[Saved], float] = bytes_16bit,
) -> Recomputation:
    """A layer on one rank under selective recomputation of some modules; `width` in bytes per element."""
    kept: Num = 0.0
    dropped: Num = 0.0
    for tensor in graph.saved:
        size = tensor.elements * width(tensor)
        share = dropped_share(tensor, modules)
        dropped = dropped + share * size
        kept = kept + (1.0 - share) * size
    ops = tuple(
        max((runs(op, module, flash=flash) for module in modules), default=0.0) for op in graph.ops
    )
    edges = tuple(edge for edge in graph.edges if MODULES.get(edge.region) in modules)
    return Recomputation(
        ops=ops, kept_bytes=kept, dropped_bytes=dropped, graph=with_fields(graph, edges=edges)
    )


def runs(op: Op, module: str, *, flash: bool) -> float:
    """Share of an operation that runs again with a module."""
    match module:
        case "core":
            return float(op.role is OpRole.CORE)
        case "up":
            latent = (OpRole.LATENT_UP, OpRole.QUERY_UP, OpRole.LATENT_JOIN)
            return float(op.role in latent)
        case "act":
            return float(op.role in (OpRole.ACTIVATION, OpRole.CLAMP))
        case "norm":
            return float(op.role is OpRole.ENTRY_NORM)
        case "products":
            return 0.0 if op.family == "attention" and flash else _second_runs(op)
    return float(MODULES.get(op.region) == module)


def _second_runs(op: Op) -> float:
    """Share of an operation that runs again where every second product is kept."""
    last = op.role is OpRole.DOWN and op.region is not Region.SHARED_EXPERTS
    if last or op.role is OpRole.UNPERMUTE:
        return 0.0  # it ends the layer: nothing behind it within the layer is computed again
    if not isinstance(op, Gemm):
        return 1.0
    if op.role is OpRole.QKV:
        # Of queries, keys and values the second, half of what is not the queries.
        return float(np.max(0.5 * np.asarray(op.n_kv) / np.asarray(op.n)))
    return 1.0 if op.role is OpRole.OUTPUT else 0.5


def dropped_share(tensor: Saved, modules: Sequence[str]) -> float:
    """Share of a saved tensor that is dropped with some modules: with that which drops most of it."""
    return max((drops(tensor, module) for module in modules), default=0.0)


def drops(tensor: Saved, module: str) -> float:
    """Share of a saved tensor that is dropped with a module."""
    match module:
        case "core":
            return float(tensor.core)
        case "up":
            return float(tensor.role in (SavedRole.EXPANDED, SavedRole.EXPANDED_QUERY))
        case "act":
            return float(tensor.role in (SavedRole.ACTIVATED, SavedRole.GATE))
        case "norm":
            return float(tensor.role is SavedRole.ENTRY)
        case "products":
            return _second_drops(tensor.role)
    return float(MODULES.get(tensor.region) == module)


def _second_drops(role: SavedRole) -> float:
    """Share of a saved tensor that is dropped where every second product is kept; what is element-wise
    whole."""
    if role in KEPT:
        return 0.0
    return 0.5 if role in HALVED else 1.0


def waits_again(graph: LayerGraph, modules: Sequence[str], exchange: str) -> float:
    """Share of a layer's forward exchanges of one parallelism that recomputing some modules repeats.

    tensor_parallel: the edges of the modules' regions; context_parallel: with the whole mixer;
    expert_parallel: with the experts.
    """
    if "products" in modules:
        # Results of scatters and all-to-alls are kept; what is gathered is gathered again.
        return 0.5 * (exchange == "tensor_parallel")
    if exchange == "tensor_parallel":
        again_too = [edge for edge in graph.edges if MODULES.get(edge.region) in modules]
        return len(again_too) / max(len(graph.edges), 1)
    return float({"context_parallel": "attention", "expert_parallel": "moe"}[exchange] in modules)


def full_share(layers: Num, limit: Num) -> Array:
    """Of a stage's layers, the share that full:N computes again; N layers, or all where there are fewer."""
    many = np.maximum(np.asarray(layers, float), 1.0)
    return np.asarray(np.minimum(limit / many, 1.0))


def blend_layers(share: Num, recomputed: Num, plain: Num) -> Array:
    """A sum over a stage's layers of which a share is computed again."""
    return np.asarray(share * recomputed + (1.0 - np.asarray(share)) * plain)
