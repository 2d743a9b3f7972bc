"""Hunyuan-A13B: experts with a shared one in every layer, numbers that may differ by layer."""

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.llamalike import Traits, read_like
from foretell.specs.ffn import Experts
from foretell.specs.model import Model

MODEL_TYPES = ("hunyuan_v1_moe", "hunyuan")

TRAITS = Traits(
    why="HunYuanMoEV1Config's defaults",
    qkv_bias=("attention_bias", False),
    o_bias=("attention_bias", False),
    qk_norm="head",
)


def read(config: Config) -> Model:
    """Queries and keys are normalised; the shared expert has the dense width."""
    depth = config.layers()
    experts = _each(config, "num_experts", depth)
    chosen = _each(config, "moe_topk", depth)
    shared = _each(config, "num_shared_expert", depth, 1)
    width = config.need("intermediate_size")
    own = _each(config, "moe_intermediate_size", depth, width)
    config.check(
        all(k <= e for k, e in zip(chosen, experts, strict=True)),
        ("moe_topk", "num_experts"),
        "more experts per token than there are",
    )
    ffns = [
        Experts(experts=e, top_k=min(k, e), width=w, shared_width=s * width)
        for e, k, s, w in zip(experts, chosen, shared, own, strict=True)
    ]
    return read_like(config, TRAITS, ffns)


def _each(config: Config, key: str, depth: int, default: int | None = None) -> tuple[int, ...]:
    """One number per layer, given once or as a list."""
    if isinstance(config.raw(key), list | tuple):
        return config.wholes(key, depth, low=1) or (1,) * depth
    if default is None:
        return (config.need(key),) * depth
    return (config.get(key, default, TRAITS.why, low=1),) * depth
