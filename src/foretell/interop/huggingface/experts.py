"""Numbers of a mixture of experts, under the names that families give them."""

from foretell.interop.huggingface.config import Config


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
