"""DeepSeek-V4: one wide key-value head, keys merged over runs of positions, hyper-connections.

`deepseek_ref` is the name that re-quantised releases give the same model. Weights as in the
library's DeepseekV4 modules; the prediction block, which these leave out, as the serving engines
load it.
"""

from dataclasses import replace
from typing import Literal

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.decoders import shape_of, stack_model
from foretell.interop.huggingface.feedforward import expert_part
from foretell.interop.huggingface.rows import Row, rules_of
from foretell.records import dataclass
from foretell.specs.ffn import Experts
from foretell.specs.mixers import Attention, Indexer
from foretell.specs.model import Layer, Model, Projection, TokenPrediction

SPARSE, HEAVY = 4, 128
"""The two released ratios: 4 (overlapping runs, an indexer chooses) and 128 (all merged keys)."""
KINDS = {
    "sliding_attention": 0,
    "compressed_sparse_attention": SPARSE,
    "heavily_compressed_attention": HEAVY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepSeekShape:
    """What all layers share."""

    hidden: int
    """Width of one residual stream."""
    streams: int
    """Residual streams (hyper-connections)."""
    attention: Attention
    """Attention of the layers that see their window alone."""
    indexer: Indexer
    """The indexer of the layers that choose among merged keys."""
    experts: Experts
    """Experts behind a learned choice."""


def read(config: Config) -> Model:
    """Windowed layers, with merged keys where `compress_ratios` says; experts everywhere."""
    row = Row(config, rules_of(config.family))
    depth = shape_of(row)
    shape = _shape(row)
    ratios = _ratios(config, depth)
    hashed = min(config.get("num_hash_layers", 3, row.why), depth)
    layers = [_layer(shape, ratio, hashed=i < hashed) for i, ratio in enumerate(ratios[:depth])]
    model = stack_model(row, layers)
    scale = replace(model.head, projections=(_collapse(shape),), extra_parameters=1)
    repeats = config.get("num_nextn_predict_layers", 1, row.why)
    if repeats == 0:
        return replace(model, head=scale)
    config.assume("the prediction block is counted without copies of embedding and head")
    last = ratios[depth] if len(ratios) > depth else 0
    return replace(model, head=scale, prediction=_prediction(shape, last, repeats))


def _shape(row: Row) -> DeepSeekShape:
    config, rank = row.config, row.config.need("q_lora_rank")
    heads, groups = config.need("num_attention_heads"), config.need("o_groups")
    config.check(
        heads % groups == 0,
        ("num_attention_heads", "o_groups"),
        f"{heads} heads do not fall into {groups} equal groups",
    )
    config.check(
        config.get("num_key_value_heads", 1) == 1, ("num_key_value_heads",), "only 1 is known here"
    )
    return DeepSeekShape(
        hidden=row.whole("hidden"),
        streams=config.get("hc_mult", 4, row.why, low=1),
        attention=Attention(
            heads=heads,
            kv_heads=1,
            head_dim=config.need("head_dim"),
            window=config.need("sliding_window"),
            value_is_key=True,
            q_rank=rank,
            o_rank=config.need("o_lora_rank"),
            o_groups=groups,
        ),
        indexer=Indexer(
            heads=config.need("index_n_heads"),
            head_dim=config.need("index_head_dim"),
            top_k=config.need("index_topk"),
            query_inputs=rank,
            key_norm="rms",
            ratio=SPARSE,
        ),
        experts=expert_part(row),
    )


def _ratios(config: Config, depth: int) -> tuple[int, ...]:
    """Positions per merged key of each layer, 0 for none; prediction blocks may follow."""
    ratios = config.wholes("compress_ratios")
    if ratios is None:
        kinds = config.layer_types(depth, tuple(KINDS))
        if kinds is None:
            config.problem("compress_ratios", "is missing", allowed="one whole number per layer")
            return (0,) * depth
        ratios = tuple(KINDS[kind] for kind in kinds)
    config.check(
        len(ratios) >= depth,
        ("compress_ratios", "num_hidden_layers"),
        f"{len(ratios)} ratios for {depth} layers",
    )
    for ratio in sorted(set(ratios) - {0, SPARSE, HEAVY}):
        config.problem("compress_ratios", "has an unknown ratio", ratio, allowed="0, 4, 128")
    return ratios + (0,) * (depth - len(ratios))


def _layer(shape: DeepSeekShape, ratio: int, *, hashed: bool) -> Layer:
    """Attention with its merging maps, experts, and the two hyper-connections of each half.

    Beside the ops: one sink per head, the norm of the single key, the run positions and norm of the
    merged keys, three scales per hyper-connection. A table sends tokens of `hashed` layers to their
    experts (no weights); the router still weighs these, without a balance bias.
    """
    attention = shape.attention
    width = attention.head_dim
    extra = attention.heads + width + 6
    mixes = 2 * (2 + shape.streams) * shape.streams
    maps = [
        Projection(
            name="streams.mix", inputs=shape.streams * shape.hidden, outputs=mixes, bias=True
        )
    ]
    if ratio:
        overlap = 2 if ratio == SPARSE else 1
        # Keys and their weights in the run, for each of the overlapping halves.
        maps.append(_map("attention.merge", shape.hidden, 2 * overlap * width, "attention"))
        extra += ratio * overlap * width + width
        attention = replace(attention, compress_ratio=ratio)
    if ratio == SPARSE:
        index = shape.indexer.head_dim
        # The indexer's own op has one map of hidden -> index; the merged form has four.
        maps.append(_map("indexer.merge", shape.hidden, 3 * index, "indexer"))
        extra += ratio * 2 * index
        attention = replace(attention, indexer=shape.indexer)
    return Layer(
        mixers=(attention,),
        ffn=replace(shape.experts, router_bias=not hashed),
        projections=tuple(maps),
        extra_parameters=extra,
    )


def _map(
    name: str, inputs: int, outputs: int, part: Literal["listed", "attention", "indexer"] = "listed"
) -> Projection:
    return Projection(name=name, inputs=inputs, outputs=outputs, part=part)


def _collapse(shape: DeepSeekShape) -> Projection:
    """Weights of the streams before the final norm."""
    return Projection(
        name="streams.collapse",
        inputs=shape.streams * shape.hidden,
        outputs=shape.streams,
        bias=True,
        part="layer",
    )


def _prediction(shape: DeepSeekShape, ratio: int, repeats: int) -> TokenPrediction:
    """Separate maps for embedding and hidden state, a layer, the streams' collapse, three norms."""
    return TokenPrediction(
        layers=(_layer(shape, ratio, hashed=False),),
        repeats=repeats,
        projections=(
            _map("prediction.embedding", shape.hidden, shape.hidden),
            _map("prediction.hidden", shape.hidden, shape.hidden),
            _collapse(shape),
        ),
        extra_parameters=1,
    )
