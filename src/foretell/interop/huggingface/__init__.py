"""Hugging Face configs: `read_model` turns a config.json into a `Model`.

A family is one module of this package with `read(config: Config) -> Model`, named
in `registry.FAMILIES`. An unknown `model_type` is read from the keys that most decoders share, and
the model's assumptions say so.
"""

from collections.abc import Mapping
from pathlib import Path

from foretell.specs.model import Model

__all__ = ["read_model"]


def read_model(source: Mapping[str, object] | Path, id: str | None = None) -> Model:
    """The model of a parsed config, a config.json, or a folder that holds one.

    A hf_quant_config.json beside the config gives the stored precision. Everything wrong is raised
    at once as `BadInput`, with paths such as `config.json: num_attention_heads`.
    """
    from dataclasses import replace

    from foretell.interop.huggingface.config import Config
    from foretell.interop.huggingface.files import load_config
    from foretell.interop.huggingface.registry import family_of, load

    if isinstance(source, Mapping):
        data, name, given = source, "config.json", id or "config.json"
    else:
        data, name, given = load_config(source)
    config = Config(data, id=id or given, prefix=f"{name}: ")
    config.family, module = family_of(config)
    try:
        model = load(module).read(config)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        # A stand-in for a faulty key may lead a reader astray: the faults found are what to say.
        config.raise_problems()
        raise
    config.raise_problems()
    return replace(model, assumptions=(*model.assumptions, *config.assumptions))
