"""Multimodal configs: the level that describes the text model, and the towers beside it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.registry import FAMILIES, family_of, load
from foretell.interop.huggingface.rows import Row
from foretell.interop.huggingface.tower_shapes import shaped
from foretell.interop.huggingface.towers import tower_weights
from foretell.specs.model import Model, Tower

INHERITED = (
    "tie_word_embeddings",
    "torch_dtype",
    "dtype",
    "quantization_config",
    "hf_quant_config",
)
"""Keys of the whole config that hold for its text model too."""


def with_towers(config: Config, rules: Mapping[str, Any], make: Callable[[Row], Model]) -> Model:
    """The text model, which `make` makes unless a family of its own reads it, and the towers of the rules."""
    if "text" in rules:
        model = text_model(config, **rules["text"])
    else:
        text = text_level(config) if rules.get("nested") else config
        text.family = config.family
        model = make(Row(text, rules))
    towers = []
    for name, tower in rules.get("towers", {}).items():
        if config.has(f"{name}_config"):
            part = config.sub(f"{name}_config")
            weights = tower_weights(config, part, tower, model.stack.hidden)
            towers.append(shaped(config, rules, Tower(name=name, parameters=weights)))
        elif name not in rules.get("may_lack", ()):
            config.assume(f"the config has no {name}_config: no {name} tower is counted")
    return replace(model, family=config.family, towers=(*model.towers, *towers))


def text_level(config: Config, key: str = "text_config") -> Config:
    """The level that describes the text model: the table under `key`, or the whole where the config
    is flat (early Qwen-VL configs, a text model's own config)."""
    return config.sub(key, INHERITED) if config.given(key) else config


def text_model(config: Config, default: str, key: str = "text_config") -> Model:
    """The text model, read as the family of its own `model_type`, or as the `default`."""
    text, whole = text_level(config, key), config.family
    own = "" if text.model_type in ("", config.model_type) else text.model_type
    if own:
        text.family, module = family_of(text)
    else:
        text.family, module = default, FAMILIES[default]
    model = load(module).read(text)
    config.family = whole  # in a flat config both are one level
    return model
