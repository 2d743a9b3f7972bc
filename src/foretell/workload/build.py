"""Model x tokens -> graph: what each layer kind is made of, and the two ends of the model."""

from dataclasses import replace
from functools import lru_cache

from foretell.specs._base import Num, changed
from foretell.specs.block import FeedForwardBlock, MapShape, MixerBlock
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
    Embedding,
    Head,
    Layer,
    Model,
    NormKind,
    Projection,
    Stack,
    TokenPrediction,
)
from foretell.workload.attention import attention_graph
from foretell.workload.deltanet import deltanet_graph
from foretell.workload.feedforward import dense_graph, experts_graph
from foretell.workload.graph import Edge, Graph, LayerGraph, Phase, Saved, Tokens
from foretell.workload.latent import latent_graph
from foretell.workload.mamba2 import mamba2_graph
from foretell.workload.ops import Gemm, Lookup, Op, Pointwise
from foretell.workload.replacement import replacement_graph


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
        first = _embedding(model.embedding, model.stack.hidden, main)
    else:
        main = _phase_tokens(source, seq_len if target_len is None else target_len, seq_len)
        enc_kinds, enc_order = (
            ((), ()) if phase == "decode" else _layers(model.encoder, source, "encoder")
        )
        dec_kinds, dec_order = _layers(model.stack, main, "decoder")
        kinds = enc_kinds + dec_kinds
        order = enc_order + tuple(i + len(enc_kinds) for i in dec_order)
        first = _embedding(model.embedding, model.stack.hidden, main)
        if phase != "decode":
            first = first + _encoder_embedding(model, source)
    training = phase == "training"
    head = _head(model, main)
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
    ops: list[Op] = [
        norm_op("norm", count * hidden, layer.norms, layer.norm_kind, hidden),
        Pointwise(name="residual", elements=count * hidden * steps, reads=2.0, back_moves=2.0),
        *projection_ops(layer.projections, count),
    ]
    if layer.extra_parameters:
        ops.append(Pointwise(name="other", elements=0.0, weights=float(layer.extra_parameters)))
    extra = LayerGraph(
        name=name,
        ops=tuple(ops),
        saved=(
            Saved(name="norm.in", elements=count * hidden * layer.norms, split="tokens"),
            Saved(name="region.in", elements=count * hidden * steps, split="tokens"),
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
            graph: LayerGraph = mixer.graph(hidden, tokens)
            return graph


def norm_weights(kind: NormKind, width: int) -> float:
    """Weights of one normalisation over `width`."""
    return {"rms": 1.0, "layer": 2.0, "layer-nobias": 1.0, "none": 0.0}[kind] * width


def norm_op(name: str, elements: Num, repeats: int, kind: NormKind, width: int) -> Pointwise:
    """`repeats` normalisations as one op: some 5 operations per element forward, 8 backward."""
    return Pointwise(
        name=name,
        elements=elements * repeats,
        flop=5.0,
        back_flop=8.0,
        weights=norm_weights(kind, width) * repeats,
        family="norm",
    )


def projection_ops(projections: tuple[Projection, ...], rows: Num) -> tuple[Gemm, ...]:
    """Further linear maps on `rows` positions."""
    return tuple(
        Gemm(
            name=p.name,
            m=rows,
            n=float(p.outputs) / p.groups,
            k=float(p.inputs) / p.groups,
            groups=float(p.groups),
            bias=p.bias,
            split=p.split,
        )
        for p in projections
    )


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
        graph: LayerGraph = ffn.graph(hidden, tokens)
        return graph
    if isinstance(ffn, Experts):
        return experts_graph(ffn, hidden, tokens)
    return dense_graph(ffn, hidden, tokens)


def _embedding(embedding: Embedding, hidden: int, tokens: Tokens) -> LayerGraph:
    """Tables, patches, projections and norm in front of a stack; or the block in their place."""
    count = tokens.count
    if embedding.block is not None:
        block: LayerGraph = embedding.block.graph(embedding.vocab, hidden, tokens)
        return changed(block, name="embedding", input_elements=count * hidden)
    width = embedding.width or hidden
    ops: list[Op] = []
    saved: tuple[Saved, ...] = ()
    if embedding.vocab and embedding.factor is not None:
        shape = MapShape(name="embedding.tokens", inputs=embedding.vocab, outputs=width)
        table: LayerGraph = embedding.factor.table_graph(shape, count)
        ops, saved = [*table.ops], table.saved
    elif embedding.vocab:
        ops.append(
            Lookup(
                name="embedding.tokens",
                tokens=count,
                rows=float(embedding.vocab),
                width=float(width),
            )
        )
    if embedding.patch_inputs:
        ops.append(
            Gemm(
                name="embedding.patches",
                m=count,
                n=float(hidden),
                k=float(embedding.patch_inputs),
                bias=embedding.patch_bias,
            )
        )
    tables = embedding.positions + embedding.token_types
    if tables:
        ops.append(
            Lookup(
                name="embedding.positions",
                tokens=count,
                rows=float(tables),
                width=float(hidden),
                split="none",
            )
        )
    if embedding.fixed_positions:
        sines = Pointwise(
            name="embedding.sines", elements=count * hidden, reads=2.0, back_moves=2.0
        )
        ops.append(sines)
    ops += projection_ops(embedding.projections, count)
    weights = norm_weights(embedding.norm, hidden) + embedding.extra_parameters
    if weights:
        elements = count * hidden if embedding.norm != "none" else 0.0
        ops.append(
            Pointwise(
                name="embedding.norm",
                elements=elements,
                flop=5.0,
                back_flop=8.0,
                weights=weights,
                family="norm",
            )
        )
    cut = embedding.vocab and embedding.factor is None
    edges = (Edge(name="embedding", elements=count * hidden, leave=True),) if cut else ()
    return LayerGraph(
        name="embedding",
        ops=tuple(ops),
        saved=saved,
        edges=edges,
        input_elements=count * hidden,
    )


def _encoder_embedding(model: Model, tokens: Tokens) -> LayerGraph:
    """The encoder's input: its own embedding, or the shared table looked up once more (no weights)."""
    assert model.encoder is not None
    hidden = model.encoder.hidden
    norm = norm_op("encoder.norm", tokens.count * hidden, 1, model.encoder.final_norm, hidden)
    other = Pointwise(
        name="encoder.other", elements=0.0, weights=float(model.encoder.extra_parameters)
    )
    after = LayerGraph(name="embedding", ops=(norm, other))
    if model.encoder_embedding is not None:
        return _embedding(model.encoder_embedding, hidden, tokens) + after
    look = Pointwise(name="encoder.tokens", elements=tokens.count * hidden, back_moves=2.0)
    ops: tuple[Op, ...] = (look,)
    if model.embedding.fixed_positions:
        sines = Pointwise(
            name="encoder.sines", elements=tokens.count * hidden, reads=2.0, back_moves=2.0
        )
        ops = (look, sines)
    return LayerGraph(name="embedding", ops=ops) + after


def _scores(head: Head, width: int, rows: Num, *, training: bool, tied: bool) -> LayerGraph:
    """The scoring matrix and, in training, softmax with cross-entropy in fp32."""
    outputs = float(head.outputs)
    ops: list[Op] = []
    kept: tuple[Saved, ...] = ()
    if head.factor is not None and not tied:
        shape = MapShape(name="head.map", inputs=width, outputs=head.outputs, bias=head.bias)
        scores: LayerGraph = head.factor.graph(shape, rows, "none")
        ops, kept = [*scores.ops], scores.saved
    else:
        ops.append(
            Gemm(
                name="head.scores",
                m=rows,
                n=outputs,
                k=float(width),
                bias=head.bias and not tied,
                tied=tied,
                split="col",
            )
        )
    if head.bias and tied:
        ops.append(
            Pointwise(
                name="head.bias", elements=0.0, weights=outputs, split="width", cut_weights=True
            )
        )
    if not training:
        return LayerGraph(name="head", ops=tuple(ops))
    ops.append(
        Pointwise(
            name="head.loss",
            elements=rows * outputs,
            reads=3.0,
            writes=2.0,
            flop=6.0,
            back_moves=3.0,
            back_flop=2.0,
            split="width",
            family="loss",
        )
    )
    saved = (
        *kept,
        Saved(name="head.scores", elements=rows * outputs, split="width"),
        # Cross-entropy runs in fp32: scores and their gradient, which is then rounded to 16 bits.
        Saved(name="head.loss", elements=rows * outputs, split="width", bytes_per_element=10.0),
    )
    edges = (Edge(name="head", elements=rows * width, leave=False),)
    return LayerGraph(name="head", ops=tuple(ops), saved=saved, edges=edges)


def _head(model: Model, tokens: Tokens) -> LayerGraph:
    """Final norm, maps before the scores, scores."""
    head, hidden = model.head, model.stack.hidden
    count = tokens.count
    one = tokens.phase == "prefill" and model.kind != "encoder"
    rows = tokens.batch if one or not head.every_position else count
    other = head.extra_parameters + model.stack.extra_parameters
    ops: list[Op] = [
        norm_op("head.norm", count * hidden, 1, model.stack.final_norm, hidden),
        *projection_ops(head.projections, rows),
    ]
    if other:
        ops.append(Pointwise(name="head.other", elements=0.0, weights=float(other)))
    graph = LayerGraph(
        name="head",
        ops=tuple(ops),
        saved=(Saved(name="head.in", elements=2.0 * count * hidden, split="tokens"),),
        input_elements=count * hidden,
    )
    if not head.outputs:
        return graph
    width = model.embedding.width or hidden
    training = tokens.phase == "training"
    return graph + _scores(head, width, rows, training=training, tied=head.tied)


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
            graph = graph + _scores(shared, hidden, count, training=True, tied=True)
    return graph
