"""The ends of a model as operations: tables before the first layer; norm, head and loss after the last."""

from foretell.specs._base import Num, changed
from foretell.specs.block import MapShape
from foretell.specs.model import (
    Embedding,
    Head,
    Model,
    NormKind,
    Projection,
)
from foretell.workload.graph import Edge, LayerGraph, Saved, Tokens
from foretell.workload.ops import Gemm, Lookup, Op, Pointwise


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


def embedding_graph(embedding: Embedding, hidden: int, tokens: Tokens) -> LayerGraph:
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


def encoder_embedding_graph(model: Model, tokens: Tokens) -> LayerGraph:
    """The encoder's input: its own embedding, or the shared table looked up once more (no weights)."""
    assert model.encoder is not None
    hidden = model.encoder.hidden
    norm = norm_op("encoder.norm", tokens.count * hidden, 1, model.encoder.final_norm, hidden)
    other = Pointwise(
        name="encoder.other", elements=0.0, weights=float(model.encoder.extra_parameters)
    )
    after = LayerGraph(name="embedding", ops=(norm, other))
    if model.encoder_embedding is not None:
        return embedding_graph(model.encoder_embedding, hidden, tokens) + after
    look = Pointwise(name="encoder.tokens", elements=tokens.count * hidden, back_moves=2.0)
    ops: tuple[Op, ...] = (look,)
    if model.embedding.fixed_positions:
        sines = Pointwise(
            name="encoder.sines", elements=tokens.count * hidden, reads=2.0, back_moves=2.0
        )
        ops = (look, sines)
    return LayerGraph(name="embedding", ops=ops) + after


def scores_graph(head: Head, width: int, rows: Num, *, training: bool, tied: bool) -> LayerGraph:
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


def head_graph(model: Model, tokens: Tokens) -> LayerGraph:
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
    return graph + scores_graph(head, width, rows, training=training, tied=head.tied)
