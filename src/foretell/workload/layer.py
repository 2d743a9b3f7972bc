"""One layer of any kind as operations: norms, token mixers, feed-forward part, residual additions."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from foretell.specs._base import Num, with_fields
from foretell.specs.block import FeedForwardBlock, MixerBlock
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import (
    Attention,
    DeltaNet,
    LatentAttention,
    Mamba2,
    Mixer,
    Replacement,
)
from foretell.specs.model import Layer, Stack
from foretell.workload.attention import attention_graph
from foretell.workload.deltanet import deltanet_graph
from foretell.workload.ends import norm_op, projection_ops
from foretell.workload.feedforward import dense_graph, experts_graph
from foretell.workload.graph import LayerGraph, Saved, Tokens, with_region
from foretell.workload.latent import latent_graph
from foretell.workload.mamba2 import mamba2_graph
from foretell.workload.ops import Gemm, Op, Pointwise
from foretell.workload.roles import OpRole, Region, SavedRole


def layer_graph(layer: Layer, hidden: int, tokens: Tokens, name: str = "layer") -> LayerGraph:
    """Norms, mixers, feed-forward part, residual additions and further maps of one layer."""
    count = tokens.count
    parts = [mixer_graph(mixer, hidden, tokens) for mixer in layer.mixers]
    feeds = [_feedforward(f, hidden, tokens) for f in (layer.ffn, layer.dense_beside) if f]
    blocks = len(parts) + (1 if feeds else 0)
    steps = min(blocks, 1) if layer.parallel else blocks
    body = LayerGraph(name=name, input_elements=count * hidden)
    for part in (*parts, *feeds):
        body = body + part
    if layer.parallel and len(body.edges) > 2:
        body = with_fields(body, edges=body.edges[:2])
    norms, sums = layer.norms, count * hidden * steps
    ops: list[Op] = [
        norm_op("norm", count * hidden, norms, layer.norm_kind, hidden, role=OpRole.ENTRY_NORM),
        Pointwise(name="residual", elements=sums, **ADDED, repeats=float(max(steps, 1))),
        *projection_ops(layer.projections, count),
    ]
    if layer.extra_parameters:
        ops.append(Pointwise(name="other", elements=0.0, weights=float(layer.extra_parameters)))
    extra = LayerGraph(
        name=name,
        ops=tuple(ops),
        saved=(
            _entry("norm.in", count * hidden * norms, SavedRole.NORM_INPUT),
            _entry("region.in", sums, SavedRole.ENTRY),
        ),
    )
    return body + extra


ADDED: Mapping[str, Any] = {"reads": 2.0, "back_moves": 2.0, "role": OpRole.RESIDUAL}
"""Two tensors read and their sum written."""


def _entry(name: str, elements: Num, role: SavedRole) -> Saved:
    return Saved(name=name, elements=elements, split="tokens", role=role)


def mixer_graph(mixer: Mixer, hidden: int, tokens: Tokens) -> LayerGraph:
    """The operations of one token mixer."""
    match mixer:
        case Attention():
            return attention_graph(mixer, hidden, tokens)
        case LatentAttention():
            return latent_graph(mixer, hidden, tokens)
        case Mamba2():
            return mamba2_graph(mixer, hidden, tokens)
        case DeltaNet():
            return deltanet_graph(mixer, hidden, tokens)
        case Replacement():
            return _replacement_graph(mixer, hidden, tokens)
        case MixerBlock():
            graph: LayerGraph = with_region(mixer.graph(hidden, tokens), Region.MIXER)
            return graph


def _replacement_graph(mixer: Replacement, hidden: int, tokens: Tokens) -> LayerGraph:
    """hidden -> hidden (NAS-pruned Llama): h^2 weights (+ h), on every rank whole.

    It acts on each token alone, so it opens no tensor-parallel region; sequence parallelism cuts
    its tokens. Its input is the layer's normalised state, which the layer itself keeps.
    """
    name, width, region = "replacement", float(hidden), Region.MIXER
    op = Gemm(
        name=name, m=tokens.count, n=width, k=width, bias=mixer.bias, split="tokens", region=region
    )
    return LayerGraph(name=name, ops=(op,))


def layers_graph(
    stack: Stack, tokens: Tokens, name: str
) -> tuple[tuple[LayerGraph, ...], tuple[int, ...]]:
    """Distinct layers and which of them each layer is."""
    distinct, order = layer_kinds(stack)
    several = len(distinct) > 1
    kinds = tuple(
        layer_graph(layer, stack.hidden, tokens, f"{name}-{i}" if several else name)
        for i, layer in enumerate(distinct)
    )
    return kinds, order


@lru_cache(maxsize=64)
def layer_kinds(stack: Stack) -> tuple[tuple[Layer, ...], tuple[int, ...]]:
    """Distinct layers of a stack, in the order of their first use, and the kind of each layer."""
    index: dict[Layer, int] = {}
    order = tuple(index.setdefault(layer, len(index)) for layer in stack.layers)
    return tuple(index), order


def _feedforward(
    ffn: Dense | Experts | FeedForwardBlock, hidden: int, tokens: Tokens
) -> LayerGraph:
    if isinstance(ffn, FeedForwardBlock):
        graph: LayerGraph = with_region(ffn.graph(hidden, tokens), Region.FEED_FORWARD)
        return graph
    if isinstance(ffn, Experts):
        return experts_graph(ffn, hidden, tokens)
    return dense_graph(ffn, hidden, tokens)
