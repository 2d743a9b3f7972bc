"""Decoders built like Llama: norms, attention, gated feed-forward, rotary positions.

A family says in `Traits` where it differs; `read_like` does the rest. Families with experts pass
their feed-forward parts, one per layer.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from foretell.interop.huggingface.common import (
    COMMON_NAMES,
    HeadNames,
    positions,
    read_heads,
    token_decoder,
)
from foretell.interop.huggingface.config import Config
from foretell.records import dataclass
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention
from foretell.specs.model import Layer, Model, NormKind

Bias = bool | tuple[str, bool]
"""Always or never, or (the key that says so, its default)."""
Windows = Callable[[Config, int], tuple[int | None, ...]]
"""(config, layers) -> keys that each layer's queries see, None for all."""


def no_windows(config: Config, layers: int) -> tuple[int | None, ...]:
    """Every layer sees all keys."""
    return (None,) * layers


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Where a family differs from Llama; the defaults are Llama's."""

    why: str
    """Whose defaults are taken for absent keys, as stated in the assumptions."""
    norm: NormKind = "rms"
    """Kind of every normalisation."""
    norms: int = 2
    """Normalisations per layer."""
    parallel: bool = False
    """Whether attention and feed-forward read the same input."""
    gated: bool = True
    """Whether the feed-forward part has a gate."""
    activation: str = "silu"
    """Activation where the config names none."""
    activation_keys: tuple[str, ...] = ("hidden_act",)
    """Keys that name it."""
    qkv_bias: Bias = False
    """Biases of queries, keys and values."""
    o_bias: Bias = False
    """Bias of the attention's output."""
    mlp_bias: Bias = False
    """Biases of the feed-forward part."""
    head_bias: Bias = False
    """Bias of the scores."""
    parallel_key: str | None = None
    """A flag by which one norm feeds both halves of a layer (off where absent)."""
    experts: Callable[[Config], Sequence[Dense | Experts]] | None = None
    """What reads the feed-forward parts where each has a form of its own."""
    qk_norm: Literal["none", "head", "whole"] = "none"
    """Normalised queries and keys."""
    qk_norm_bias: bool = False
    """Whether these norms have biases."""
    qk_norm_key: str | None = None
    """A flag that turns `qk_norm` on (off where absent); None: always as `qk_norm` says."""
    tied: bool = False
    """Tied tables where the config does not say."""
    kv_default: int | None = None
    """Key and value heads where the config does not say; None: as many as query heads."""
    dim_default: int | None = None
    """Width of a head where the config does not say; None: hidden / heads."""
    windows: Windows = no_windows
    """Sliding windows."""
    scaled_rotary: bool = False
    """Whether rotary positions carry a scale."""
    extra_per_layer: int = 0
    """Further weights of each layer."""
    names: HeadNames = COMMON_NAMES
    """What the numbers of the heads are called."""
    layers_key: str = "num_hidden_layers"
    """What the number of layers is called."""
    ffn_key: str = "intermediate_size"
    """What the inner width is called."""


def bias(config: Config, rule: Bias, why: str) -> bool:
    """Whether a bias is there, by rule or by key."""
    if isinstance(rule, bool):
        return rule
    key, default = rule
    return config.flag(key, default=default, why=why)


def activation(config: Config, traits: Traits) -> str:
    """The activation's name."""
    for key in traits.activation_keys:
        if config.has(key):
            return config.text(key, traits.activation)
    return traits.activation


def dense_ffn(config: Config, traits: Traits) -> Dense:
    """The dense feed-forward part of every layer."""
    biased = bias(config, traits.mlp_bias, traits.why)
    return Dense(
        width=config.need(traits.ffn_key, "intermediate_size"),
        gated=traits.gated,
        activation=activation(config, traits),
        up_bias=biased,
        down_bias=biased,
    )


def read_like(
    config: Config, traits: Traits, ffns: Sequence[Dense | Experts] | None = None
) -> Model:
    """The model of a config whose layers differ at most in windows and feed-forward parts."""
    if ffns is None and traits.experts:
        ffns = traits.experts(config)
    if traits.parallel_key and config.flag(traits.parallel_key, default=False, why=traits.why):
        traits = replace(traits, norms=1, parallel=True)
    hidden = config.need("hidden_size")
    depth = config.layers(key=traits.layers_key)
    mixers = attentions(config, traits, hidden, depth)
    parts = (dense_ffn(config, traits),) * depth if ffns is None else tuple(ffns)
    layers = [
        Layer(
            mixers=(mixer,),
            ffn=ffn,
            norms=traits.norms,
            norm_kind=traits.norm,
            parallel=traits.parallel,
            extra_parameters=traits.extra_per_layer,
        )
        for mixer, ffn in zip(mixers, parts, strict=True)
    ]
    return token_decoder(
        config,
        layers,
        hidden,
        positions(config, default=4096),
        why=traits.why,
        tied=traits.tied,
        head_bias=bias(config, traits.head_bias, traits.why),
        norm=traits.norm,
    )


def attentions(config: Config, traits: Traits, hidden: int, depth: int) -> tuple[Attention, ...]:
    """The attention of each layer."""
    shape = read_heads(
        config,
        hidden,
        traits.names,
        kv_default=traits.kv_default,
        dim_default=traits.dim_default,
        why=traits.why,
    )
    qkv = bias(config, traits.qkv_bias, traits.why)
    out = bias(config, traits.o_bias, traits.why)
    normed = traits.qk_norm
    if traits.qk_norm_key is not None and not config.flag(
        traits.qk_norm_key, default=False, why=traits.why
    ):
        normed = "none"
    made = {
        window: Attention(
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            window=window,
            q_bias=qkv,
            k_bias=qkv,
            v_bias=qkv,
            o_bias=out,
            qk_norm=normed,
            qk_norm_bias=traits.qk_norm_bias and normed != "none",
            scaled_rotary=traits.scaled_rotary,
        )
        for window in dict.fromkeys(traits.windows(config, depth))
    }
    return tuple(made[window] for window in traits.windows(config, depth))


def window_width(config: Config, default: int | None, why: str) -> int | None:
    """`sliding_window`: null means none, absent means the family's default, which is reported."""
    if config.given("sliding_window") or default is None:
        return config.get("sliding_window", None, low=1)
    return config.get("sliding_window", default, why, low=1)


def every_layer(default: int | None, why: str) -> Windows:
    """One window for all layers, or for those that `layer_types` marks."""

    def windows(config: Config, layers: int) -> tuple[int | None, ...]:
        width = window_width(config, default, why)
        return by_kind(config, layers, width) or (width,) * layers

    return windows


def by_kind(config: Config, layers: int, width: int | None) -> tuple[int | None, ...] | None:
    """Windows by `layer_types`; None where the config has no such list."""
    kinds = config.layer_types(layers, ("full_attention", "sliding_attention"))
    if kinds is None:
        return None
    config.check(
        width is not None or "sliding_attention" not in kinds,
        ("layer_types", "sliding_window"),
        "layers with a sliding window need its width",
    )
    return tuple(width if kind == "sliding_attention" else None for kind in kinds)


def all_but_every(
    pattern: int, default: int | None, why: str, key: str = "sliding_window_pattern"
) -> Windows:
    """Windows on all layers but every n-th (n from `key`), or as `layer_types` says."""

    def windows(config: Config, layers: int) -> tuple[int | None, ...]:
        width = window_width(config, default, why)
        found = by_kind(config, layers, width)
        if found is not None:
            return found
        if width is None:
            return (None,) * layers
        every = config.get(key, pattern, why, low=1)
        return tuple(None if (i + 1) % every == 0 else width for i in range(layers))

    return windows


def used_windows(why: str, *, first_full: int | None = 28) -> Windows:
    """Where `use_sliding_window` is on: by `layer_types`, else from `max_window_layers` on."""

    def windows(config: Config, layers: int) -> tuple[int | None, ...]:
        if not config.flag("use_sliding_window", default=False, why=why):
            return (None,) * layers
        width = window_width(config, 4096, why)
        found = by_kind(config, layers, width)
        if found is not None:
            return found
        full = 0 if first_full is None else config.get("max_window_layers", first_full, why)
        return tuple(width if i >= full else None for i in range(layers))

    return windows
