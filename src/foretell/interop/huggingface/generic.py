"""A config of an unknown family, read from the keys that most decoders share."""

from collections.abc import Mapping

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.decoders import decoder
from foretell.interop.huggingface.registry import family_of, load, nearest_family
from foretell.interop.huggingface.rows import Row, rules_of
from foretell.specs.model import Model


def read(config: Config) -> Model:
    """A Llama-like decoder, with experts where the config has them, and a sentence that says so."""
    name = config.model_type or "absent"
    if not config.has("hidden_size") and isinstance(config.raw("text_config"), Mapping):
        return _text_alone(config, name)
    near = nearest_family(config.model_type) if config.model_type else None
    config.assume(
        f"model_type {name} is not known here: read as a Llama-like decoder from its generic keys "
        "(RMS norms, gated feed-forward, no position table)"
        + (f"; the nearest known family is {near}" if near else "")
        + "; foretell trace takes the class itself, where transformers has it"
    )
    model = decoder(Row(config, rules_of("generic")))
    if config.problems:
        config.problem(
            "model_type",
            "is no family known here, and the keys that most families share do not describe it",
            config.raw("model_type"),
            nearest=near,
        )
    return model


def _text_alone(config: Config, name: str) -> Model:
    """The text part of an unknown multimodal config."""
    text = config.sub("text_config")
    text.family, module = family_of(text)
    config.assume(
        f"model_type {name} is not known here: its text_config is read alone, and its towers are "
        "not counted"
    )
    return load(module).read(text)
