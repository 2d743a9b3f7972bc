"""The ends of a model as operations: tables before the first layer; norm, head and loss after the last."""

from foretell.specs._base import Num, with_fields
from foretell.specs.block import MapShape
from foretell.specs.model import (
    Embedding,
    Head,
    Model,
    NormKind,
    Projection,
)
from foretell.workload.graph import Edge, LayerGraph, Saved, Tokens, with_region
from foretell.workload.ops import Gemm, Lookup, Op, Pointwise
from foretell.workload.roles import OpRole, Region, SavedRole


def norm_weights(kind: NormKind, width: int) -> float:
    """Weights of one normalisation over `width`."""
    return {"rms": 1.0, "layer": 2.0, "layer-nobias": 1.0, "none": 0.0}[kind] * width


def norm_op(
    name: str,
    elements: Num,
    repeats: int,
    kind: NormKind,
    width: int,
    role: OpRole = OpRole.OTHER,
    region: Region = Region.NONE,
) -> Pointwise:
    """`repeats` normalisations as one op: some 5 operations per element forward, 8 backward."""
    return Pointwise(
        name=name,
        elements=elements * repeats,
        flop=5.0,
        back_flop=8.0,
        weights=norm_weights(kind, width) * repeats,
        repeats=float(max(repeats, 1)),
        family="norm",
        role=role,
        region=region,
    )


def projection_ops(
    projections: tuple[Projection, ...], rows: Num, listed: Region = Region.NONE
) -> tuple[Gemm, ...]:
    """Further linear maps on `rows` positions, of the region that lists them unless they say otherwise."""
    regions = {
        "listed": listed,
        "layer": Region.NONE,
        "attention": Region.ATTENTION,
        "mixer": Region.MIXER,
        "indexer": Region.INDEXER,
    }
    return tuple(
        Gemm(
            name=p.name,
            m=rows,
            n=float(p.outputs) / p.groups,
            k=float(p.inputs) / p.groups,
            groups=float(p.groups),
            bias=p.bias,
            split=p.split,
            role=OpRole.QKV if p.qkv else OpRole.OTHER,
            region=regions[p.part],
        )
        for p in projections
    )


def embedding_graph(embedding: Embedding, hidden: int, tokens: Tokens) -> LayerGraph:
    """Tables, patches, projections and norm in front of a stack; or the block in their place."""
    count, region = tokens.count, Region.EMBEDDING
    if embedding.block is not None:
        block: LayerGraph = with_region(
            embedding.block.graph(embedding.vocab, hidden, tokens), region
        )
        return with_fields(block, name="embedding", input_elements=count * hidden)
    width = embedding.width or hidden
    ops: list[Op] = []
    saved: tuple[Saved, ...] = ()
    if embedding.vocab and embedding.factor is not None:
        shape = MapShape(name="embedding.tokens", inputs=embedding.vocab, outputs=width)
        table: LayerGraph = with_region(embedding.factor.table_graph(shape, count), region)
        ops, saved = [*table.ops], table.saved
    elif embedding.vocab:
        ops.append(
            Lookup(
                name="embedding.tokens",
                tokens=count,
                rows=float(embedding.vocab),
                width=float(width),
                region=region,
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
                region=region,
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
                region=region,
            )
        )
    if embedding.fixed_positions:
        ops.append(_sines("embedding.sines", count * hidden))
    ops += projection_ops(embedding.projections, count, region)
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
                region=region,
            )
        )
    cut = embedding.vocab and embedding.factor is None
    edge = Edge(name="embedding", elements=count * hidden, leave=True, region=region)
    return LayerGraph(
        name="embedding",
        ops=tuple(ops),
        saved=saved,
        edges=(edge,) if cut else (),
        input_elements=count * hidden,
    )


def encoder_embedding_graph(model: Model, tokens: Tokens) -> LayerGraph:
    """The encoder's input: its own embedding, or the shared table looked up once more (no weights)."""
    assert model.encoder is not None
    hidden, region = model.encoder.hidden, Region.EMBEDDING
    elements, kind = tokens.count * hidden, model.encoder.final_norm
    norm = norm_op("encoder.norm", elements, 1, kind, hidden, region=region)
    weights = float(model.encoder.extra_parameters)
    other = Pointwise(name="encoder.other", elements=0.0, weights=weights, region=region)
    after = LayerGraph(name="embedding", ops=(norm, other))
    if model.encoder_embedding is not None:
        return embedding_graph(model.encoder_embedding, hidden, tokens) + after
    look = Pointwise(name="encoder.tokens", elements=elements, back_moves=2.0, region=region)
    ops: tuple[Op, ...] = (look,)
    if model.embedding.fixed_positions:
        ops = (look, _sines("encoder.sines", elements))
    return LayerGraph(name="embedding", ops=ops) + after


def _sines(name: str, elements: Num) -> Pointwise:
    """Sines of the positions, added."""
    return Pointwise(
        name=name, elements=elements, reads=2.0, back_moves=2.0, region=Region.EMBEDDING
    )


def scores_graph(head: Head, width: int, rows: Num, *, training: bool, tied: bool) -> LayerGraph:
    """The scoring matrix and, in training, softmax with cross-entropy in fp32."""
    outputs, region = float(head.outputs), Region.HEAD
    ops: list[Op] = []
    kept: tuple[Saved, ...] = ()
    if head.factor is not None and not tied:
        shape = MapShape(name="head.map", inputs=width, outputs=head.outputs, bias=head.bias)
        scores: LayerGraph = with_region(head.factor.graph(shape, rows, "none"), region)
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
                role=OpRole.SCORES,
                region=region,
            )
        )
    if head.bias and tied:
        ops.append(
            Pointwise(
                name="head.bias",
                elements=0.0,
                weights=outputs,
                split="width",
                cut_weights=True,
                region=region,
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
            region=region,
        )
    )
    saved = (
        *kept,
        Saved(name="head.scores", elements=rows * outputs, split="width", region=region),
        # Cross-entropy runs in fp32: scores and their gradient, which is then rounded to 16 bits.
        Saved(
            name="head.loss",
            elements=rows * outputs,
            split="width",
            bytes_per_element=10.0,
            role=SavedRole.LOSS,
            region=region,
        ),
    )
    edges = (Edge(name="head", elements=rows * width, leave=False, region=region),)
    return LayerGraph(name="head", ops=tuple(ops), saved=saved, edges=edges)


def head_graph(model: Model, tokens: Tokens) -> LayerGraph:
    """Final norm, maps before the scores, scores."""
    head, hidden = model.head, model.stack.hidden
    count, region = tokens.count, Region.HEAD
    one = tokens.phase == "prefill" and model.kind != "encoder"
    rows = tokens.batch if one or not head.every_position else count
    other = head.extra_parameters + model.stack.extra_parameters
    ops: list[Op] = [
        norm_op("head.norm", count * hidden, 1, model.stack.final_norm, hidden, region=region),
        *projection_ops(head.projections, rows, region),
    ]
    if other:
        ops.append(Pointwise(name="head.other", elements=0.0, weights=float(other), region=region))
    graph = LayerGraph(
        name="head",
        ops=tuple(ops),
        saved=(
            Saved(
                name="head.in",
                elements=2.0 * count * hidden,
                split="tokens",
                role=SavedRole.HEAD_INPUT,
                region=region,
            ),
        ),
        input_elements=count * hidden,
    )
    if not head.outputs:
        return graph
    width = model.embedding.width or hidden
    training = tokens.phase == "training"
    return graph + scores_graph(head, width, rows, training=training, tied=head.tied)
