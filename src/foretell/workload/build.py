"""Model x tokens -> graph: what each layer kind is made of, and the two ends of the model (ends.py)."""

from dataclasses import replace
from functools import lru_cache

from foretell.specs._base import Num
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
from foretell.specs.model import (
    Layer,
    Model,
    Stack,
    TokenPrediction,
)
from foretell.workload.attention import attention_graph
from foretell.workload.deltanet import deltanet_graph
from foretell.workload.ends import (
    embedding_graph,
    encoder_embedding_graph,
    head_graph,
    norm_op,
    projection_ops,
    scores_graph,
)
from foretell.workload.feedforward import dense_graph, experts_graph
from foretell.workload.graph import Graph, LayerGraph, Phase, Saved, Tokens, with_region
from foretell.workload.latent import latent_graph
from foretell.workload.mamba2 import mamba2_graph
from foretell.workload.ops import Op, Pointwise
from foretell.workload.replacement import replacement_graph
from foretell.workload.roles import OpRole, Region, SavedRole


def build(
    model: Model,
    *,
    batch: Num,
    seq_len: Num,
    target_len: Num | None = None,
    phase: Phase = "training",
    flash: bool = True,
) -> Graph:
    """The graph of one micro-batch of `batch` sequences.

    training and prefill: all `seq_len` positions at once; decode: one new position per sequence against
    `seq_len` positions (the new one included). An encoder-decoder reads `seq_len` source positions and
    writes `target_len`; in decode its encoder has already run.
    """
    source = Tokens(
        batch=batch,
        q_len=seq_len,
        kv_len=seq_len,
        phase=phase,
        flash=flash,
        rotary=model.embedding.rotary,
    )
    if model.encoder is None:
        main = _phase_tokens(source, seq_len, 0.0)
        kinds, order = _layers(model.stack, main, "layer")
        first = embedding_graph(model.embedding, model.stack.hidden, main)
    else:
        main = _phase_tokens(source, seq_len if target_len is None else target_len, seq_len)
        enc_kinds, enc_order = (
            ((), ()) if phase == "decode" else _layers(model.encoder, source, "encoder")
        )
        dec_kinds, dec_order = _layers(model.stack, main, "decoder")
        kinds = enc_kinds + dec_kinds
        order = enc_order + tuple(i + len(enc_kinds) for i in dec_order)
        first = embedding_graph(model.embedding, model.stack.hidden, main)
        if phase != "decode":
            first = first + encoder_embedding_graph(model, source)
    training = phase == "training"
    head = head_graph(model, main)
    prediction = None
    if model.prediction is not None and training:
        prediction = _prediction(model.prediction, model, main)
    return Graph(
        kinds=kinds,
        order=order,
        embedding=first,
        head=head,
        prediction=prediction,
        extra_parameters=float(model.extra_parameters),
        notes=tuple(
            f"the {tower.name} tower ({tower.parameters:,} weights) is counted, not timed, nor held "
            "in the memory shown"
            for tower in model.towers
        ),
    )


build_kept = lru_cache(maxsize=32)(build)
"""The graph of plain numbers, kept: an estimate asks for one sequence twice, for its time and its FLOPs."""


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
        body = LayerGraph(
            name=name,
            ops=body.ops,
            saved=body.saved,
            edges=body.edges[:2],
            input_elements=body.input_elements,
        )
    norms, role = layer.norms, OpRole.ENTRY_NORM
    ops: list[Op] = [
        norm_op("norm", count * hidden, norms, layer.norm_kind, hidden, role=role),
        Pointwise(
            name="residual",
            elements=count * hidden * steps,
            reads=2.0,
            back_moves=2.0,
            repeats=float(max(steps, 1)),
            role=OpRole.RESIDUAL,
        ),
        *projection_ops(layer.projections, count),
    ]
    if layer.extra_parameters:
        ops.append(Pointwise(name="other", elements=0.0, weights=float(layer.extra_parameters)))
    extra = LayerGraph(
        name=name,
        ops=tuple(ops),
        saved=(
            Saved(
                name="norm.in",
                elements=count * hidden * norms,
                split="tokens",
                role=SavedRole.NORM_INPUT,
            ),
            Saved(
                name="region.in",
                elements=count * hidden * steps,
                split="tokens",
                role=SavedRole.ENTRY,
            ),
        ),
    )
    return body + extra


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
            return replacement_graph(mixer, hidden, tokens)
        case MixerBlock():
            graph: LayerGraph = with_region(mixer.graph(hidden, tokens), Region.MIXER)
            return graph


def _phase_tokens(source: Tokens, length: Num, cross_len: Num) -> Tokens:
    """The tokens of the main stack: one new position in decode, all of them otherwise."""
    decode = source.phase == "decode"
    return Tokens(
        batch=source.batch,
        q_len=1.0 if decode else length,
        kv_len=length,
        cross_len=cross_len,
        phase=source.phase,
        flash=source.flash,
        rotary=source.rotary,
    )


def _layers(
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


def _prediction(block: TokenPrediction, model: Model, tokens: Tokens) -> LayerGraph:
    """Every block: norms, joint projection, layers, scores with the shared head."""
    hidden, count = model.stack.hidden, tokens.count
    graph = LayerGraph(name="prediction")
    for _ in range(block.repeats):
        ops: list[Op] = [
            norm_op("prediction.norm", count * hidden, block.norms, block.norm_kind, hidden),
            *projection_ops(block.projections, count),
            Pointwise(
                name="prediction.other",
                elements=0.0,
                weights=float(block.extra_parameters),
            ),
        ]
        saved = (Saved(name="prediction.in", elements=3.0 * count * hidden, split="tokens"),)
        graph = graph + LayerGraph(name="prediction", ops=tuple(ops), saved=saved)
        for layer in block.layers:
            graph = graph + layer_graph(layer, hidden, tokens)
        if model.head.outputs:
            shared = replace(model.head, bias=False)
            graph = graph + scores_graph(shared, hidden, count, training=True, tied=True)
    return graph
