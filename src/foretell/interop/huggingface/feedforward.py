"""Feed-forward parts by the rules of a row: dense ones, experts, and which layers have which."""

from collections.abc import Callable, Sequence

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.layers import marks_of
from foretell.interop.huggingface.rows import Row, table
from foretell.specs.ffn import Dense, Experts

Parts = Sequence[Dense | Experts | None]


def dense_part(row: Row) -> Dense:
    """A dense part."""
    biased = row.flag("mlp_bias")
    return Dense(
        width=max(row.whole("ffn_width"), 1),
        gated=row.flag("gated"),
        activation=row.word("activation"),
        up_bias=biased,
        down_bias=biased,
    )


def routed_experts(
    config: Config,
    experts: Sequence[str] = ("num_local_experts", "num_experts", "n_routed_experts"),
    top_k: Sequence[str] = ("num_experts_per_tok",),
) -> tuple[int, int]:
    """(routed experts, experts per token), which cannot be more."""
    total, chosen = config.need(*experts), config.need(*top_k)
    named = next((key for key in experts if config.has(key)), experts[0])
    config.check(
        chosen <= total, (top_k[0], named), f"{chosen} experts per token of {total} in all"
    )
    return total, min(chosen, total)


def expert_part(row: Row) -> Experts:
    """Routed experts with shared ones, by the rules for experts of a row."""
    own = row.within(row.rules["experts"], table()["defaults"]["experts"])
    if "in" in own.rules:
        own.config = row.config.sub(own.rules["in"])
    experts, top_k = routed_experts(own.config, own.rules["count"], own.rules["top_k"])
    width = own.whole("width")
    shared, latent = own.whole("shared", 0), own.optional("latent")
    if shared:
        shared *= own.optional("shared_unit") or width
    return Experts(
        experts=experts,
        top_k=top_k,
        width=width,
        gated=own.flag("gated"),
        activation=own.word("activation"),
        expert_bias=own.flag("expert_bias"),
        clamped=own.flag("clamped"),
        shared_width=shared,
        shared_gate=own.flag("shared_gate") and shared > 0,
        router_bias=own.flag("router_bias"),
        extra_parameters=own.whole("extra", 0),
        latent=latent,
        latent_norm=latent is not None and own.flag("latent_norm"),
    )


SPARSE = {"types": "mlp_layer_types", "on": ["sparse"], "off": ["dense"]}
"""How releases of the library from 5 on write which layers have experts, whatever the family's own keys."""


def parts_of(row: Row, depth: int) -> Parts:
    """The feed-forward part of each layer: dense, experts, or experts in the layers that are marked."""
    if row.rules.get("parts"):
        return PER_LAYER[row.rules["parts"]](row, depth)
    rules = row.rules.get("experts")
    if rules is None or not row.holds(rules.get("if", True)):
        return (dense_part(row),) * depth
    sparse = expert_part(row)
    marks = marks_of(row, (SPARSE, *rules.get("layers", ())), depth)
    if sparse.experts == 1 and rules.get("one_is_dense"):
        marks = (False,) * depth
    if all(marks):
        return (sparse,) * depth
    dense = dense_part(row)
    return tuple(sparse if mark else dense for mark in marks)


def two_thirds(row: Row, depth: int) -> Parts:
    """LFM2: two thirds of the given width, scaled and rounded up, unless that is turned off."""
    config = row.config
    width = config.need("block_ff_dim" if config.has("block_ff_dim") else "intermediate_size")
    if config.flag("block_auto_adjust_ff_dim", default=True, why=row.why):
        scale = config.number("block_ffn_dim_multiplier", 1.0, row.why)
        step = config.get("block_multiple_of", 256, row.why, low=1)
        width = -(-int(scale * int(2 * width / 3)) // step) * step
    return (Dense(width=width),) * depth


def half_as_wide(row: Row, depth: int) -> Parts:
    """Parts whose `intermediate_size` is that of two projections together: the first Qwen's."""
    both = row.config.need("intermediate_size", low=2)
    return (Dense(width=row.config.divides(both, 2, ("intermediate_size",))),) * depth


def by_layer(row: Row, depth: int) -> Parts:
    """Hunyuan-A13B: experts beside shared ones as wide as dense parts, numbers that may differ by layer."""

    def each(key: str, default: int | None = None) -> tuple[int, ...]:
        if isinstance(row.config.raw(key), list | tuple):
            return row.config.wholes(key, depth, low=1) or (1,) * depth
        if default is None:
            return (row.config.need(key),) * depth
        return (row.config.get(key, default, row.why, low=1),) * depth

    experts, chosen, shared = each("num_experts"), each("moe_topk"), each("num_shared_expert", 1)
    width = row.config.need("intermediate_size")
    own = each("moe_intermediate_size", width)
    row.config.check(
        all(k <= e for k, e in zip(chosen, experts, strict=True)),
        ("moe_topk", "num_experts"),
        "more experts per token than there are",
    )
    return tuple(
        Experts(experts=e, top_k=min(k, e), width=w, shared_width=s * width)
        for e, k, s, w in zip(experts, chosen, shared, own, strict=True)
    )


PER_LAYER: dict[str, Callable[[Row, int], Parts]] = {
    "none": lambda row, depth: (None,) * depth,
    "half": half_as_wide, "by_layer": by_layer, "two_thirds": two_thirds,
}  # fmt: skip
"""What computes the parts of a few families, by the word `parts` of a row."""
