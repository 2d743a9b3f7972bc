"""Numbers of a mixture of experts, under the names that families give them."""

from collections.abc import Callable

from foretell.interop.huggingface.config import Config
from foretell.specs.ffn import Dense, Experts


def routed_experts(
    config: Config,
    *,
    experts: tuple[str, ...] = ("num_local_experts", "num_experts", "n_routed_experts"),
    top_k: tuple[str, ...] = ("num_experts_per_tok",),
) -> tuple[int, int]:
    """(routed experts, experts per token), which cannot be more."""
    total, chosen = config.need(*experts), config.need(*top_k)
    named = next((key for key in experts if config.has(key)), experts[0])
    config.check(
        chosen <= total, (top_k[0], named), f"{chosen} experts per token of {total} in all"
    )
    return total, min(chosen, total)


def leading_dense(config: Config, depth: int, default: int, why: str | None) -> int:
    """`first_k_dense_replace`: dense layers before the first with experts."""
    first = config.get("first_k_dense_replace", default, why)
    config.check(
        first <= depth,
        ("first_k_dense_replace", "num_hidden_layers"),
        f"{first} leading dense layers of {depth} in all",
    )
    return min(first, depth)


def in_every_layer(activation: str) -> Callable[[Config], tuple[Experts, ...]]:
    """What reads the same gated experts, as wide as `intermediate_size`, for every layer."""

    def read(config: Config) -> tuple[Experts, ...]:
        experts, top_k = routed_experts(config)
        width = config.need("intermediate_size")
        one = Experts(experts=experts, top_k=top_k, width=width, activation=activation)
        return (one,) * config.layers()

    return read


def half_as_wide(config: Config) -> tuple[Dense, ...]:
    """Feed-forward parts whose `intermediate_size` is that of two projections together: the first Qwen's."""
    both = config.need("intermediate_size", low=2)
    return (Dense(width=config.divides(both, 2, ("intermediate_size",))),) * config.layers()


WHY = "HunYuanMoEV1Config's defaults"


def by_layer(config: Config) -> tuple[Experts, ...]:
    """Hunyuan-A13B: experts beside shared ones as wide as dense parts, numbers that may differ by layer."""
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
    return tuple(
        Experts(experts=e, top_k=min(k, e), width=w, shared_width=s * width)
        for e, k, s, w in zip(experts, chosen, shared, own, strict=True)
    )


def _each(config: Config, key: str, depth: int, default: int | None = None) -> tuple[int, ...]:
    """One number per layer, given once or as a list."""
    if isinstance(config.raw(key), list | tuple):
        return config.wholes(key, depth, low=1) or (1,) * depth
    if default is None:
        return (config.need(key),) * depth
    return (config.get(key, default, WHY, low=1),) * depth
