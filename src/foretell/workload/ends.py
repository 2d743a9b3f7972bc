"""The ends of a model as operations: tables before the first layer; norm, head and loss after the last."""

from foretell.specs._base import Num, with_fields
from foretell.specs.block import MapShape
from foretell.specs.model import Embedding, Head, Model, NormKind, Projection
from foretell.workload.graph import LayerGraph, Saved, Tokens, with_region
from foretell.workload.ops import Gemm, Lookup, Op, Pointwise, Split
from foretell.workload.part import Fields, PartOps
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
    part = PartOps(name="embedding", region=region, rows=count)
    table = _token_table(embedding, hidden, part)
    ops: list[Op] = [*table.ops]
    if embedding.patch_inputs:
        inputs = embedding.patch_inputs
        ops.append(part.gemm("patches", hidden, inputs, bias=embedding.patch_bias))
    if tables := embedding.positions + embedding.token_types:
        ops.append(_look("positions", tables, hidden, part, "none"))
    if embedding.fixed_positions:
        ops.append(part.pointwise("sines", count * hidden, **SINES))
    ops += projection_ops(embedding.projections, count, region)
    weights = norm_weights(embedding.norm, hidden) + embedding.extra_parameters
    if weights:
        ops.append(part.norm("norm", count * hidden if embedding.norm != "none" else 0.0, weights))
    return LayerGraph(
        name="embedding",
        ops=tuple(ops),
        saved=table.saved,
        edges=table.edges,
        input_elements=count * hidden,
    )


SINES: Fields = {"reads": 2.0, "back_moves": 2.0}
"""Sines of the positions, added."""


def _token_table(embedding: Embedding, hidden: int, part: PartOps) -> LayerGraph:
    """The token table, whole or by its factors; nothing where there is none."""
    width = embedding.width or hidden
    if not embedding.vocab:
        return LayerGraph(name="embedding")
    if embedding.factor is None:
        look = _look("tokens", embedding.vocab, width, part, "row")
        edges = part.ends(0.0, part.rows * hidden)[1:]
        return LayerGraph(name="embedding", ops=(look,), edges=edges)
    shape = MapShape(name="embedding.tokens", inputs=embedding.vocab, outputs=width)
    table: LayerGraph = embedding.factor.table_graph(shape, part.rows)
    return with_region(with_fields(table, edges=()), part.region)


def _look(what: str, rows: int, width: int, part: PartOps, split: Split) -> Lookup:
    return Lookup(
        name=f"{part.name}.{what}", tokens=part.rows, rows=float(rows), width=float(width), split=split,
        region=part.region,
    )  # fmt: skip


def encoder_embedding_graph(model: Model, tokens: Tokens) -> LayerGraph:
    """The encoder's input: its own embedding, or the shared table looked up once more (no weights)."""
    assert model.encoder is not None
    hidden, kind = model.encoder.hidden, model.encoder.final_norm
    part = PartOps(name="encoder", region=Region.EMBEDDING, rows=tokens.count)
    elements, weights = tokens.count * hidden, float(model.encoder.extra_parameters)
    norm = norm_op("encoder.norm", elements, 1, kind, hidden, region=part.region)
    other = part.pointwise("other", 0.0, weights=weights)
    after = LayerGraph(name="embedding", ops=(norm, other))
    if model.encoder_embedding is not None:
        return embedding_graph(model.encoder_embedding, hidden, tokens) + after
    ops: tuple[Op, ...] = (part.pointwise("tokens", elements, back_moves=2.0),)
    if model.embedding.fixed_positions:
        ops = (*ops, part.pointwise("sines", elements, **SINES))
    return LayerGraph(name="embedding", ops=ops) + after


def scores_graph(head: Head, width: int, rows: Num, *, training: bool, tied: bool) -> LayerGraph:
    """The scoring matrix and, in training, softmax with cross-entropy in fp32."""
    part = PartOps(name="head", region=Region.HEAD, rows=rows)
    outputs = float(head.outputs)
    ops: list[Op] = []
    kept: tuple[Saved, ...] = ()
    if head.factor is not None and not tied:
        shape = MapShape(name="head.map", inputs=width, outputs=head.outputs, bias=head.bias)
        scores: LayerGraph = with_region(head.factor.graph(shape, rows, "none"), part.region)
        ops, kept = [*scores.ops], scores.saved
    else:
        own: Fields = {"bias": head.bias and not tied, "tied": tied}
        ops.append(part.gemm("scores", outputs, width, "col", OpRole.SCORES, **own))
    if head.bias and tied:
        ops.append(part.pointwise("bias", 0.0, "width", weights=outputs, cut_weights=True))
    if not training:
        return LayerGraph(name="head", ops=tuple(ops))
    work: Fields = {"reads": 3.0, "writes": 2.0, "flop": 6.0, "family": "loss"}
    ops.append(part.pointwise("loss", rows * outputs, "width", **work))
    saved = (
        *kept,
        part.kept("scores", rows * outputs),
        # Cross-entropy runs in fp32: scores and their gradient, which is then rounded to 16 bits.
        part.kept("loss", rows * outputs, SavedRole.LOSS, bytes_per_element=10.0),
    )
    edges = part.ends(rows * width, 0.0)[:1]
    return LayerGraph(name="head", ops=tuple(ops), saved=saved, edges=edges)


def head_graph(model: Model, tokens: Tokens) -> LayerGraph:
    """Final norm, maps before the scores, scores."""
    head, hidden, count = model.head, model.stack.hidden, tokens.count
    part = PartOps(name="head", region=Region.HEAD, rows=count)
    one = tokens.phase == "prefill" and model.kind != "encoder"
    rows = tokens.batch if one or not head.every_position else count
    other = head.extra_parameters + model.stack.extra_parameters
    kind, region = model.stack.final_norm, part.region
    ops: list[Op] = [
        norm_op("head.norm", count * hidden, 1, kind, hidden, region=region),
        *projection_ops(head.projections, rows, region),
    ]
    if other:
        ops.append(part.pointwise("other", 0.0, weights=float(other)))
    graph = LayerGraph(
        name="head",
        ops=tuple(ops),
        saved=(part.kept("in", 2.0 * count * hidden, SavedRole.HEAD_INPUT, "tokens"),),
        input_elements=count * hidden,
    )
    if not head.outputs:
        return graph
    width = model.embedding.width or hidden
    training = tokens.phase == "training"
    return graph + scores_graph(head, width, rows, training=training, tied=head.tied)
