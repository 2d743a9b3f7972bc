"""Text models inside multimodal configs: which level describes them, and what is added to them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.registry import FAMILIES, family_of, load
from foretell.interop.huggingface.tower_shapes import shaped
from foretell.specs.model import Model, Tower

INHERITED = (
    "tie_word_embeddings",
    "torch_dtype",
    "dtype",
    "quantization_config",
    "hf_quant_config",
)
"""Keys of the whole config that hold for its text model too."""


def text_level(config: Config, key: str = "text_config") -> Config:
    """The level that describes the text model: the table under `key`, or the whole where the config
    is flat (early Qwen-VL configs, a text model's own config)."""
    if not config.given(key):
        return config
    return config.sub(key, INHERITED)


def read_text(
    config: Config, names: Mapping[str, str], default: str, key: str = "text_config"
) -> Model:
    """The text model, read as the family of its own `model_type`.

    `names` maps the names that a multimodal family gives its text model to those of the plain
    families; an absent `model_type` is `default`.
    """
    text = text_level(config, key)
    given = default if text is config else (text.model_type or default)
    family = names.get(given, given)
    whole, text.family = config.family, family
    module = FAMILIES.get(family)
    if module is None:
        text.family, module = family_of(text)
    model = load(module).read(text)
    config.family = whole  # in a flat config both are one level
    return model


def finish(config: Config, model: Model, towers: Sequence[Tower]) -> Model:
    """The text model under the whole config's family, with its towers."""
    known = tuple(shaped(config, tower) for tower in towers)
    return replace(model, family=config.family, towers=(*model.towers, *known))


def has_tower(config: Config, key: str, what: str) -> bool:
    """Whether the config describes a tower; where it does not, that is reported."""
    if config.has(key):
        return True
    config.assume(f"the config has no {key}: no {what} tower is counted")
    return False
