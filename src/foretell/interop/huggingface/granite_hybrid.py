"""Granite-4 hybrids: Mamba-2 or attention, then experts with a shared part, or the latter alone."""

from foretell.interop.huggingface.common import plain_decoder, read_heads
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.experts import routed_experts
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention, Mamba2
from foretell.specs.model import Layer, Model

WHY = "GraniteMoeHybridConfig's defaults"
KINDS = {
    "mamba": "mamba",
    "linear_attention": "mamba",
    "attention": "attention",
    "full_attention": "attention",
}


def read(config: Config) -> Model:
    """One mixer by `layer_types` and one feed-forward part per layer."""
    hidden, depth = config.need("hidden_size"), config.layers()
    kinds = config.layer_types(depth, tuple(KINDS))
    if kinds is None:
        config.assume("layer_types is absent: every layer is Mamba-2, the library's way")
        kinds = ("mamba",) * depth
    named = [KINDS[kind] for kind in kinds]
    ffn = _ffn(config)
    made = {kind: Layer(mixers=(_mixer(config, hidden, kind),), ffn=ffn) for kind in set(named)}
    return plain_decoder(config, [made[kind] for kind in named], hidden, longest=2048, why=WHY)


def _mixer(config: Config, hidden: int, kind: str) -> Attention | Mamba2:
    if kind == "attention":
        shape = read_heads(config, hidden)
        biased = config.flag("attention_bias", default=False, why=WHY)
        return shape.attention(biased=biased)
    heads = config.get("mamba_n_heads", 128, WHY, low=1)
    inner = config.get("mamba_expand", 2, WHY, low=1) * hidden
    if config.raw("mamba_d_head") in (None, "auto"):
        width = config.divides(inner, heads, ("mamba_expand", "mamba_n_heads"))
    else:
        width = config.need("mamba_d_head")
    config.check(
        heads * width == inner,
        ("mamba_d_head", "mamba_n_heads", "mamba_expand"),
        f"{heads} heads of {width} do not make {inner}",
    )
    return Mamba2(
        heads=heads,
        head_dim=width,
        state=config.get("mamba_d_state", 256, WHY, low=1),
        groups=config.get("mamba_n_groups", 1, WHY, low=1),
        conv_kernel=config.get("mamba_d_conv", 4, WHY, low=1),
        conv_bias=config.flag("mamba_conv_bias", default=True, why=WHY),
        proj_bias=config.flag("mamba_proj_bias", default=False, why=WHY),
        chunk=config.get("mamba_chunk_size", 256, WHY, low=1),
    )


def _ffn(config: Config) -> Dense | Experts:
    shared = config.get("shared_intermediate_size", 1024, WHY, low=1)
    if config.get("num_local_experts", 8, WHY) == 0:
        return Dense(width=shared)
    experts, top_k = routed_experts(config, experts=("num_local_experts",))
    return Experts(
        experts=experts, top_k=top_k, width=config.need("intermediate_size"), shared_width=shared
    )
