"""Qwen, Qwen2, Qwen2.5 and Qwen3, dense."""

from foretell.interop.huggingface.common import HeadNames
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.llamalike import (
    Traits,
    Windows,
    by_kind,
    read_like,
    window_width,
)
from foretell.specs.ffn import Dense
from foretell.specs.model import Model

MODEL_TYPES = ("qwen", "qwen2", "qwen3")


def used_windows(why: str, *, first_full: int | None = 28) -> Windows:
    """Where `use_sliding_window` is on: by `layer_types`, else from `max_window_layers` on."""

    def windows(config: Config, layers: int) -> tuple[int | None, ...]:
        if not config.flag("use_sliding_window", False, why):
            return (None,) * layers
        width = window_width(config, 4096, why)
        found = by_kind(config, layers, width)
        if found is not None:
            return found
        full = 0 if first_full is None else config.get("max_window_layers", first_full, why)
        return tuple(width if i >= full else None for i in range(layers))

    return windows


TRAITS: dict[str, Traits] = {
    "qwen2": Traits(
        why="Qwen2Config's defaults",
        qkv_bias=True,
        kv_default=32,
        windows=used_windows("Qwen2Config's defaults"),
    ),
    "qwen3": Traits(
        why="Qwen3Config's defaults",
        qkv_bias=("attention_bias", False),
        o_bias=("attention_bias", False),
        qk_norm="head",
        kv_default=32,
        dim_default=128,
        windows=used_windows("Qwen3Config's defaults"),
    ),
}


FIRST = Traits(why="the defaults of Qwen's own code", qkv_bias=True, names=HeadNames(kv_heads=()))


def read(config: Config) -> Model:
    """Qwen2: biases on queries, keys and values; Qwen3: normalised queries and keys instead.

    The first Qwen's `intermediate_size` is that of the gate and the up projection together.
    """
    if config.family != "qwen":
        return read_like(config, TRAITS[config.family])
    both = config.need("intermediate_size", low=2)
    ffn = Dense(width=config.divides(both, 2, ("intermediate_size",)))
    return read_like(config, FIRST, (ffn,) * config.layers())
