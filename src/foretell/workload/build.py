"""Model x tokens -> graph: its layers (layer.py), its two ends (ends.py), and towers in front (towers.py)."""

from dataclasses import replace
from functools import lru_cache

from foretell.specs._base import Num, with_fields
from foretell.specs.model import Model, TokenPrediction
from foretell.workload.ends import (
    embedding_graph,
    encoder_embedding_graph,
    head_graph,
    norm_op,
    projection_ops,
    scores_graph,
)
from foretell.workload.graph import Graph, LayerGraph, Phase, Saved, Tokens
from foretell.workload.layer import layer_graph, layers_graph
from foretell.workload.ops import Op, Pointwise
from foretell.workload.towers import frozen_tower, projector, tower_layers


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
        kinds, order = layers_graph(model.stack, main, "layer")
        first = embedding_graph(model.embedding, model.stack.hidden, main)
    else:
        main = _phase_tokens(source, seq_len if target_len is None else target_len, seq_len)
        enc_kinds, enc_order = (
            ((), ()) if phase == "decode" else layers_graph(model.encoder, source, "encoder")
        )
        dec_kinds, dec_order = layers_graph(model.stack, main, "decoder")
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
    ahead: tuple[int, ...] = ()
    if training:
        kinds, ahead, first = _with_towers(model, batch, kinds, first)
    return Graph(
        kinds=kinds,
        order=(*ahead, *order),
        ahead=len(ahead),
        embedding=first,
        head=head,
        prediction=prediction,
        extra_parameters=float(model.extra_parameters),
        notes=tuple(
            f"the {tower.name} tower ({tower.parameters:,} weights) is neither timed nor held: sequences "
            "are of text, without --images and --audio"
            for tower in model.towers
            if tower not in {load.tower for load in model.reads}
        ),
    )


build_kept = lru_cache(maxsize=32)(build)
"""The graph of plain numbers, kept: an estimate asks for one sequence twice, for its time and its FLOPs."""


def _with_towers(
    model: Model, batch: Num, kinds: tuple[LayerGraph, ...], first: LayerGraph
) -> tuple[tuple[LayerGraph, ...], tuple[int, ...], LayerGraph]:
    """Kinds of layers with those of towers that learn, the kind of each such layer, and what comes first."""
    ahead: tuple[int, ...] = ()
    for load in model.reads:
        if load.frozen:
            first = first + frozen_tower(load, batch)
            continue
        own, places = tower_layers(load, batch)
        ahead += tuple(place + len(kinds) for place in places)
        kinds += own
        ends = LayerGraph(name="embedding", ops=(projector(load, batch * load.tokens),))
        first = first + ends
    return kinds, ahead, first


def _phase_tokens(source: Tokens, length: Num, cross_len: Num) -> Tokens:
    """The tokens of the main stack: one new position in decode, all of them otherwise."""
    q_len = 1.0 if source.phase == "decode" else length
    return with_fields(source, q_len=q_len, kv_len=length, cross_len=cross_len)


def _prediction(block: TokenPrediction, model: Model, tokens: Tokens) -> LayerGraph:
    """Every block: norms, joint projection, layers, scores with the shared head."""
    hidden, count = model.stack.hidden, tokens.count
    graph = LayerGraph(name="prediction")
    for _ in range(block.repeats):
        ops: list[Op] = [
            norm_op("prediction.norm", count * hidden, block.norms, block.norm_kind, hidden),
            *projection_ops(block.projections, count),
            Pointwise(name="prediction.other", elements=0.0, weights=float(block.extra_parameters)),
        ]
        saved = (Saved(name="prediction.in", elements=3.0 * count * hidden, split="tokens"),)
        graph = graph + LayerGraph(name="prediction", ops=tuple(ops), saved=saved)
        for layer in block.layers:
            graph = graph + layer_graph(layer, hidden, tokens)
        if model.head.outputs:
            shared = replace(model.head, bias=False)
            graph = graph + scores_graph(shared, hidden, count, training=True, tied=True)
    return graph
