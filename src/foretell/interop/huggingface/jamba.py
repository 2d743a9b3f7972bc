"""Jamba: Mamba-1 and attention layers, experts on every n-th."""

from dataclasses import replace

from foretell.interop.huggingface.common import plain_decoder, read_heads
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.experts import routed_experts
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention
from foretell.specs.model import Layer, Model, Projection

WHY = "JambaConfig's defaults"


def read(config: Config) -> Model:
    """Attention and experts recur with a period and an offset each."""
    hidden, depth = config.need("hidden_size"), config.layers()
    shape = read_heads(config, hidden, kv_default=8, why=WHY)
    attention = Attention(heads=shape.heads, kv_heads=shape.kv_heads, head_dim=shape.head_dim)
    dense, sparse = _ffns(config)
    maps, extra = _mamba(config, hidden)
    whole = _recurring(config, "attn_layer", 8, 4, depth)
    routed_at = _recurring(config, "expert_layer", 2, 1, depth)
    config.assume("the Mamba-1 recurrence is not timed; its maps are")
    layers = []
    for i in range(depth):
        ffn = sparse if routed_at[i] and sparse.experts > 1 else dense
        layers.append(
            Layer(mixers=(attention,), ffn=ffn)
            if whole[i]
            else Layer(ffn=ffn, projections=maps, extra_parameters=extra)
        )
    return plain_decoder(config, layers, hidden, longest=262144, why=WHY)


def _recurring(config: Config, name: str, period: int, offset: int, depth: int) -> tuple[bool, ...]:
    every = config.get(f"{name}_period", period, WHY, low=1)
    shift = config.get(f"{name}_offset", offset, WHY)
    return tuple(i % every == shift for i in range(depth))


def _ffns(config: Config) -> tuple[Dense, Experts]:
    width = config.need("intermediate_size")
    experts, top_k = routed_experts(config, experts=("num_experts",))
    return Dense(width=width), Experts(experts=experts, top_k=top_k, width=width)


def _mamba(config: Config, hidden: int) -> tuple[tuple[Projection, ...], int]:
    """Maps of a Mamba-1 mixer, and its other weights: convolution, decay, skip, three norms."""
    inner = config.get("mamba_expand", 2, WHY, low=1) * hidden
    state = config.get("mamba_d_state", 16, WHY, low=1)
    taps = config.get("mamba_d_conv", 4, WHY, low=1)
    if config.raw("mamba_dt_rank") in (None, "auto"):
        rank = -(-hidden // 16)
    else:
        rank = config.need("mamba_dt_rank")
    biased = config.flag("mamba_proj_bias", default=False, why=WHY)
    maps = (
        Projection(name="mamba.in", inputs=hidden, outputs=2 * inner, bias=biased, split="col"),
        Projection(name="mamba.x", inputs=inner, outputs=rank + 2 * state, split="row"),
        Projection(name="mamba.dt", inputs=rank, outputs=inner, bias=True, split="col"),
        Projection(name="mamba.out", inputs=inner, outputs=hidden, bias=biased, split="row"),
    )
    extra = inner * taps + (inner if config.flag("mamba_conv_bias", default=True, why=WHY) else 0)
    return tuple(
        replace(one, part="mixer") for one in maps
    ), extra + inner * state + inner + rank + 2 * state
