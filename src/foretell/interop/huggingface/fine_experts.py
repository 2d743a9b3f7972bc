"""Grouped-query attention with many small experts: ERNIE-4.5, Ling (Bailing), dots.llm1, EXAONE.

A family is its traits as a Llama-like decoder and what it calls the numbers of its experts.
"""

from collections.abc import Callable
from dataclasses import replace

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.experts import leading_dense, routed_experts
from foretell.interop.huggingface.llamalike import (
    Bias,
    Traits,
    all_but_every,
    bias,
    dense_ffn,
    read_like,
    used_windows,
)
from foretell.interop.huggingface.prediction import joined_block
from foretell.records import dataclass
from foretell.specs.ffn import Dense, Experts
from foretell.specs.model import Model

Marks = Callable[[Config, int], tuple[bool, ...]]
"""(config, layers) -> which layers have experts."""


ERNIE, BAILING, BAILING_2 = (
    "Ernie4_5_MoeConfig's defaults",
    "the defaults of Ling's own code",
    "the defaults of Ling-2's own code",
)
DOTS, EXAONE, SOLAR = (
    "Dots1Config's defaults",
    "ExaoneMoeConfig's defaults",
    "SolarOpenConfig's defaults",
)


def marks_behind(default: int, why: str) -> Marks:
    """All layers behind the first `first_k_dense_replace`."""

    def marks(config: Config, depth: int) -> tuple[bool, ...]:
        first = leading_dense(config, depth, default, why)
        return tuple(i >= first for i in range(depth))

    return marks


def marks_between(config: Config, depth: int) -> tuple[bool, ...]:
    """ERNIE: every n-th layer from a start to an end."""
    start = config.get("moe_layer_start_index", 1, ERNIE)
    value = config.raw("moe_layer_end_index")
    end = depth - 1 if value in (None, -1) else config.get("moe_layer_end_index", depth - 1)
    every = config.get("moe_layer_interval", 1, ERNIE, low=1)
    return tuple((i + 1) % every == 0 and start <= i <= end for i in range(depth))


def windows_by_letter(config: Config, depth: int) -> tuple[int | None, ...]:
    """EXAONE: `layer_types`, or `sliding_window_pattern` in letters (L: window, G: all keys)."""
    pattern = config.raw("sliding_window_pattern")
    if config.has("layer_types") or not isinstance(pattern, str):
        return all_but_every(4, 4096, EXAONE)(config, depth)
    width = config.get("sliding_window", 4096, EXAONE, low=1)
    config.check(
        bool(pattern) and set(pattern) <= {"L", "G"},
        ("sliding_window_pattern",),
        "has letters other than L and G",
    )
    return tuple(
        None if (pattern or "G")[i % max(len(pattern), 1)] == "G" else width for i in range(depth)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FineExperts:
    """How one family names and places its experts."""

    traits: Traits
    """Everything but the experts."""
    experts: tuple[str, ...]
    """Routed experts."""
    top_k: tuple[str, ...] = ("num_experts_per_tok",)
    """Experts per token."""
    shared: str
    """Shared experts, in widths of one routed expert."""
    shared_default: int = 0
    """Shared experts where the config does not say."""
    router_bias: Bias = True
    """Whether the router has a balance bias."""
    marks: Marks
    """Layers with experts."""


FAMILIES: dict[str, FineExperts] = {
    "ernie4_5_moe": FineExperts(
        traits=Traits(
            why=ERNIE,
            qkv_bias=("use_bias", False),
            o_bias=("use_bias", False),
            mlp_bias=("use_bias", False),
            tied=True,
            kv_default=4,
        ),
        experts=("moe_num_experts", "num_experts"),
        top_k=("moe_k", "num_experts_per_tok"),
        shared="moe_num_shared_experts",
        shared_default=2,
        marks=marks_between,
    ),
    "bailing_moe": FineExperts(
        traits=Traits(
            why=BAILING,
            qkv_bias=("use_qkv_bias", False),
            o_bias=("use_bias", False),
            mlp_bias=("use_bias", False),
        ),
        experts=("num_experts",),
        shared="num_shared_experts",
        router_bias=False,
        marks=marks_behind(0, BAILING),
    ),
    "bailing_moe_v2": FineExperts(
        traits=Traits(
            why=BAILING_2,
            qkv_bias=("use_qkv_bias", False),
            o_bias=("use_bias", False),
            qk_norm="head",
        ),
        experts=("num_experts",),
        shared="num_shared_experts",
        router_bias=("moe_router_enable_expert_bias", True),
        marks=marks_behind(0, BAILING_2),
    ),
    "dots1": FineExperts(
        traits=Traits(
            why=DOTS,
            qkv_bias=("attention_bias", False),
            o_bias=("attention_bias", False),
            qk_norm="head",
            kv_default=32,
            windows=used_windows(DOTS),
        ),
        experts=("n_routed_experts",),
        shared="n_shared_experts",
        marks=marks_behind(0, DOTS),
    ),
    "solar_open": FineExperts(
        traits=Traits(
            why=SOLAR,
            qkv_bias=("attention_bias", False),
            kv_default=8,
            dim_default=128,
        ),
        experts=("n_routed_experts",),
        shared="n_shared_experts",
        shared_default=1,
        marks=marks_behind(0, SOLAR),
    ),
    "exaone_moe": FineExperts(
        traits=Traits(
            why=EXAONE,
            qk_norm="head",
            kv_default=32,
            windows=windows_by_letter,
        ),
        experts=("num_experts",),
        shared="num_shared_experts",
        shared_default=1,
        marks=marks_behind(1, EXAONE),
    ),
}


def read(config: Config) -> Model:
    """Dense and expert layers as marked; prediction blocks around the last layer's kind."""
    fine = FAMILIES[config.family]
    depth = config.layers()
    sparse = _experts(config, fine)
    marks = fine.marks(config, depth)
    dense = None if all(marks) else dense_ffn(config, fine.traits)
    parts: list[Dense | Experts] = [sparse if mark or dense is None else dense for mark in marks]
    model = read_like(config, fine.traits, parts)
    hidden = model.stack.hidden
    block = joined_block(config, model.stack.layers[-1], hidden, tables=0, default=0, why=None)
    if block is not None:
        config.assume("prediction blocks are taken as DeepSeek-V3's, around the last layer's kind")
    return replace(model, prediction=block)


def _experts(config: Config, fine: FineExperts) -> Experts:
    experts, top_k = routed_experts(config, experts=fine.experts, top_k=fine.top_k)
    width = config.need("moe_intermediate_size")
    count = config.get(fine.shared, fine.shared_default, fine.traits.why)
    own = config.get("moe_shared_expert_intermediate_size", width, low=1)
    return Experts(
        experts=experts,
        top_k=top_k,
        width=width,
        shared_width=count * own,
        router_bias=bias(config, fine.router_bias, fine.traits.why),
        expert_bias=bias(config, fine.traits.mlp_bias, fine.traits.why),
    )
