"""MiniMax-M3: attention over blocks of keys that an indexer chooses, dense layers first, a tower."""

from dataclasses import replace

from foretell.interop.huggingface import towers
from foretell.interop.huggingface.common import plain_decoder, read_heads
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.experts import routed_experts
from foretell.interop.huggingface.multimodal import finish, has_tower, text_level
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention, Indexer
from foretell.specs.model import Layer, Model, Projection, TokenPrediction

WHY = "MiniMaxM3VLTextConfig's defaults"
INDEX = {
    "index_n_heads": ("sparse_num_index_heads", 4),
    "index_head_dim": ("sparse_index_dim", 128),
    "index_block_size": ("sparse_block_size", 128),
    "index_topk_blocks": ("sparse_topk_blocks", 16),
}
"""Numbers of the indexer: the library's name -> (the released config's, default)."""


def read(config: Config) -> Model:
    """The text model and, where the config describes it, the tower."""
    text = text_level(config)
    text.family = config.family
    model = _text(text)
    if text is config or not has_tower(config, "vision_config", "vision"):
        return finish(config, model, ())
    hidden = model.stack.hidden
    inner = config.get("projector_hidden_size", hidden, low=1)
    tower = towers.minimax_m3(config.sub("vision_config"), hidden, inner)
    return finish(config, model, (tower,))


def _text(config: Config) -> Model:
    hidden, depth = config.need("hidden_size"), config.layers()
    layers = [
        Layer(
            mixers=(mixer,),
            ffn=ffn,
            # The norm of the indexer's queries; its own op holds that of its keys.
            extra_parameters=0 if mixer.indexer is None else mixer.indexer.head_dim,
        )
        for mixer, ffn in zip(_mixers(config, hidden, depth), _ffns(config, depth), strict=True)
    ]
    model = plain_decoder(config, layers, hidden, longest=524288, why=WHY)
    repeats = config.get("num_mtp_modules", 0)
    if not repeats:
        return model
    config.assume("prediction blocks are taken as DeepSeek-V3's, around the last layer's kind")
    block = TokenPrediction(
        layers=(layers[-1],),
        repeats=min(repeats, 100),
        projections=(Projection(name="prediction.joint", inputs=2 * hidden, outputs=hidden),),
    )
    return replace(model, prediction=block)


def _mixers(config: Config, hidden: int, depth: int) -> tuple[Attention, ...]:
    """Whole attention, or attention over the blocks of keys that an indexer keeps."""
    shape = read_heads(config, hidden, kv_default=4, dim_default=128, why=WHY)
    whole = Attention(
        heads=shape.heads, kv_heads=shape.kv_heads, head_dim=shape.head_dim, qk_norm="head"
    )
    table = config.sub("sparse_attention_config") if config.has("sparse_attention_config") else None
    numbers = {
        name: config.get(name, default, None if table else WHY, low=1)
        if table is None or config.has(name)
        else table.get(theirs, default, WHY, low=1)
        for name, (theirs, default) in INDEX.items()
    }
    sparse = replace(
        whole,
        indexer=Indexer(
            heads=numbers["index_n_heads"],
            head_dim=numbers["index_head_dim"],
            top_k=numbers["index_topk_blocks"] * numbers["index_block_size"],
            query_inputs=hidden,
            key_norm="rms",
            head_weights=False,
        ),
    )
    kinds = config.layer_types(depth, ("full_attention", "minimax_m3_sparse"))
    if kinds is not None:
        return tuple(sparse if kind == "minimax_m3_sparse" else whole for kind in kinds)
    marks = None if table is None else table.wholes("sparse_attention_freq", depth)
    if marks is None:
        config.assume("no layer is marked as sparse: every layer sees all keys")
        return (whole,) * depth
    return tuple(sparse if mark else whole for mark in marks)


def _ffns(config: Config, depth: int) -> tuple[Dense | Experts, ...]:
    """Experts with shared ones where `mlp_layer_types` or `moe_layer_freq` says, everywhere else
    a dense part of its own width."""
    experts, top_k = routed_experts(config, experts=("num_local_experts", "num_experts"))
    shared = config.get("shared_intermediate_size", 3072, WHY)
    sparse = Experts(
        experts=experts,
        top_k=top_k,
        width=config.need("intermediate_size"),
        shared_width=shared * config.get("n_shared_experts", 1, WHY),
        router_bias=config.flag("use_routing_bias", default=True, why=WHY),
    )
    kinds = config.texts("mlp_layer_types", depth)
    marks = config.wholes("moe_layer_freq", depth)
    if kinds is not None:
        marked = [kind == "sparse" for kind in kinds]
    elif marks is not None:
        marked = [bool(mark) for mark in marks]
    else:
        return (sparse,) * depth
    dense = Dense(width=config.get("dense_intermediate_size", 12288, WHY, low=1))
    return tuple(sparse if mark else dense for mark in marked)
