"""Qwen3-Next and Qwen3.5: gated DeltaNet and gated attention in turn, dense or with experts."""

from dataclasses import replace

from foretell.interop.huggingface import towers
from foretell.interop.huggingface.common import plain_decoder, read_heads
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.multimodal import finish, has_tower, text_level
from foretell.interop.huggingface.prediction import joined_block
from foretell.interop.huggingface.qwen_moe import on_marked
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention, DeltaNet
from foretell.specs.model import Layer, Model

VISION = ("qwen3_5", "qwen3_5_moe")
"""Those with a vision tower."""

WHY = "the defaults of Qwen3NextConfig and Qwen3_5Config"


def read(config: Config) -> Model:
    """The text model; a prediction block of one attention layer; the vision tower of Qwen3.5."""
    text = text_level(config)
    text.family = config.family
    model = _text(text)
    if config.family not in VISION or not has_tower(config, "vision_config", "vision"):
        return finish(config, model, ())
    return finish(config, model, (towers.qwen3_vl(config.sub("vision_config")),))


def _text(config: Config) -> Model:
    hidden, depth = config.need("hidden_size"), config.layers()
    attention, linear = _attention(config, hidden), _linear(config)
    kinds = _kinds(config, depth)
    layers = [
        Layer(mixers=(attention if kind == "full_attention" else linear,), ffn=ffn)
        for kind, ffn in zip(kinds, _ffns(config, depth), strict=True)
    ]
    vocab = config.need("vocab_size")
    model = plain_decoder(config, layers, hidden, longest=32768, why=WHY)
    own = config.flag("mtp_use_dedicated_embeddings", default=False)
    block = joined_block(
        config,
        replace(layers[-1], mixers=(attention,)),
        hidden,
        tables=vocab * hidden if own else 0,
        default=0,
        why=None,
    )
    return replace(model, prediction=block)


def _attention(config: Config, hidden: int) -> Attention:
    """Attention whose output a gate per value scales (Qwen3-Next: always)."""
    shape = read_heads(config, hidden, kv_default=2, dim_default=256, why=WHY)
    biased = config.flag("attention_bias", default=False, why=WHY)
    return shape.attention(
        biased=biased,
        qk_norm="head",
        output_gate="element" if config.flag("attn_output_gate", default=True) else "none",
    )


def _linear(config: Config) -> DeltaNet:
    return DeltaNet(
        key_heads=config.need("linear_num_key_heads"),
        value_heads=config.need("linear_num_value_heads"),
        key_dim=config.need("linear_key_head_dim"),
        value_dim=config.need("linear_value_head_dim"),
        conv_kernel=config.need("linear_conv_kernel_dim"),
    )


def _kinds(config: Config, depth: int) -> tuple[str, ...]:
    """`layer_types`, or attention on every `full_attention_interval`-th layer."""
    kinds = config.layer_types(depth, ("linear_attention", "full_attention"))
    if kinds is not None:
        return kinds
    every = config.get("full_attention_interval", 4, WHY, low=1)
    return tuple(
        "full_attention" if (i + 1) % every == 0 else "linear_attention" for i in range(depth)
    )


def _ffns(config: Config, depth: int) -> tuple[Dense | Experts, ...]:
    """Dense parts, or experts with a gated shared one on the layers that the sparse step marks."""
    if not config.has("num_experts", "num_local_experts"):
        return (Dense(width=config.need("intermediate_size")),) * depth
    return on_marked(
        config,
        shared=True,
        dense=lambda: Dense(width=config.need("intermediate_size")),
        why=None,
    )
