"""Qwen1.5-MoE, Qwen2-57B-A14B (qwen2_moe) and the Qwen3 mixtures of experts (qwen3_moe)."""

from collections.abc import Callable

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.experts import routed_experts
from foretell.interop.huggingface.llamalike import Traits, dense_ffn, read_like, used_windows
from foretell.specs.ffn import Dense, Experts
from foretell.specs.model import Model

TRAITS: dict[str, Traits] = {
    "qwen2_moe": Traits(
        why="Qwen2MoeConfig's defaults",
        qkv_bias=("qkv_bias", True),
        kv_default=16,
        windows=used_windows("Qwen2MoeConfig's defaults"),
    ),
    "qwen3_moe": Traits(
        why="Qwen3MoeConfig's defaults",
        qkv_bias=("attention_bias", False),
        o_bias=("attention_bias", False),
        qk_norm="head",
        kv_default=4,
        windows=used_windows("Qwen3MoeConfig's defaults", first_full=None),
    ),
}


def read(config: Config) -> Model:
    """Experts on the layers that the sparse step marks; qwen2_moe has a gated shared expert."""
    traits = TRAITS[config.family]
    return read_like(config, traits, ffns(config, traits))


def ffns(config: Config, traits: Traits) -> tuple[Dense | Experts, ...]:
    """The feed-forward part of each layer."""
    return on_marked(
        config,
        shared=config.family == "qwen2_moe",
        dense=lambda: dense_ffn(config, traits),
        why=traits.why,
    )


def on_marked(
    config: Config, *, shared: bool, dense: Callable[[], Dense], why: str | None
) -> tuple[Dense | Experts, ...]:
    """Experts, with a gated shared one or none, on the layers that the sparse step marks; what the others
    have is read where there are such."""
    depth = config.layers()
    experts, top_k = routed_experts(config, experts=("num_experts", "num_local_experts"))
    width = config.need("shared_expert_intermediate_size", low=0) if shared else 0
    sparse = Experts(
        experts=experts,
        top_k=top_k,
        width=config.need("moe_intermediate_size"),
        shared_width=width,
        shared_gate=width > 0,
    )
    step = config.get("decoder_sparse_step", 1, why, low=1)
    dense_at = set(config.wholes("mlp_only_layers") or ())
    marks = [i not in dense_at and (i + 1) % step == 0 for i in range(depth)]
    if all(marks):
        return (sparse,) * depth
    rest = dense()
    return tuple(sparse if mark else rest for mark in marks)
