"""Text models inside multimodal configs: which level describes them, and what is added to them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.registry import FAMILIES, family_of, load
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
    shaped = tuple(_shaped(config, tower) for tower in towers)
    return replace(model, family=config.family, towers=(*model.towers, *shaped))


def _shaped(config: Config, tower: Tower) -> Tower:
    """A tower with the sizes that its time depends on, where the config has them as whole numbers."""
    key = f"{tower.name}_config"
    if not config.has(key):
        return tower
    part = config.sub(key)

    def first(*names: str) -> int:
        values = (part.raw(name) for name in names if part.has(name))
        return next((value for value in values if type(value) is int and value > 0), 0)

    return replace(
        tower,
        patch=first("patch_size") if tower.name == "vision" else 0,
        merge=first("spatial_merge_size", "pooling_kernel_size") or 1,
        hidden=first("hidden_size", "embed_dim", "vt_hidden_size", "d_model"),
        layers=first("depth", "num_hidden_layers", "vt_num_hidden_layers", "encoder_layers"),
    )


def has_tower(config: Config, key: str, what: str) -> bool:
    """Whether the config describes a tower; where it does not, that is said."""
    if config.has(key):
        return True
    config.assume(f"the config has no {key}: no {what} tower is counted")
    return False
