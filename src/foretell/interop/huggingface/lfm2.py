"""LFM2: gated short convolutions and attention, dense or with experts."""

from foretell.interop.huggingface.common import decoder, positions, read_heads
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.experts import routed_experts
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention
from foretell.specs.model import Embedding, Head, Layer, Model, Projection

WHY = "Lfm2Config's defaults"


def read(config: Config) -> Model:
    """A convolution layer is a map to three hidden widths, a short convolution and a map back."""
    hidden, depth = config.need("hidden_size"), config.layers()
    shape = read_heads(config, hidden, kv_default=8, why=WHY)
    attention = Attention(
        heads=shape.heads, kv_heads=shape.kv_heads, head_dim=shape.head_dim, qk_norm="head"
    )
    taps = config.get("conv_L_cache", 3, WHY, low=1)
    biased = config.flag("conv_bias", default=False, why=WHY)
    maps = (
        Projection(name="conv.in", inputs=hidden, outputs=3 * hidden, bias=biased, split="col"),
        Projection(name="conv.out", inputs=hidden, outputs=hidden, bias=biased, split="row"),
    )
    extra = hidden * taps + (hidden if biased else 0)
    layers = [
        Layer(mixers=(attention,), ffn=ffn)
        if whole
        else Layer(ffn=ffn, projections=maps, extra_parameters=extra)
        for whole, ffn in zip(_whole(config, depth), _ffns(config, depth), strict=True)
    ]
    vocab = config.need("vocab_size")
    key = "tie_embedding" if config.has("tie_embedding") else "tie_word_embeddings"
    return decoder(
        config,
        layers,
        embedding=Embedding(vocab=vocab),
        head=Head(outputs=vocab, tied=config.flag(key, default=True, why=WHY)),
        hidden=hidden,
        max_positions=positions(config, default=128000),
    )


def _whole(config: Config, depth: int) -> tuple[bool, ...]:
    """Layers with attention: `layer_types`, or the list of their numbers."""
    kinds = config.layer_types(depth, ("conv", "full_attention"))
    if kinds is not None:
        return tuple(kind == "full_attention" for kind in kinds)
    named = config.wholes("full_attn_idxs")
    if named is None:
        config.problem("layer_types", "is missing", allowed="conv or full_attention per layer")
        return (True,) * depth
    return tuple(i in named for i in range(depth))


def _ffns(config: Config, depth: int) -> tuple[Dense | Experts, ...]:
    if config.family == "lfm2":
        return (Dense(width=_width(config)),) * depth
    experts, top_k = routed_experts(config, experts=("num_experts",))
    sparse = Experts(
        experts=experts,
        top_k=top_k,
        width=config.need("moe_intermediate_size"),
        router_bias=config.flag("use_expert_bias", default=True, why=WHY),
    )
    first = min(config.get("num_dense_layers", 2, WHY), depth)
    return (Dense(width=config.need("intermediate_size")),) * first + (sparse,) * (depth - first)


def _width(config: Config) -> int:
    """Two thirds of the given width, scaled and rounded up, unless that is turned off."""
    width = config.need("block_ff_dim" if config.has("block_ff_dim") else "intermediate_size")
    if not config.flag("block_auto_adjust_ff_dim", default=True, why=WHY):
        return width
    scale = config.number("block_ffn_dim_multiplier", 1.0, WHY)
    step = config.get("block_multiple_of", 256, WHY, low=1)
    return -(-int(scale * int(2 * width / 3)) // step) * step
