"""Which module reads which `model_type`; only the one that is asked for is imported."""

import importlib
from typing import Protocol

from foretell.errors import nearest_name
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.rows import rules_of, table
from foretell.specs.model import Model

FAMILIES: dict[str, str] = {
    name: rules_of(name).get("module", "decoders")
    for name in table()
    if name not in ("defaults", "generic")
}
"""Every `model_type` that has a row -> the module of this package that reads it."""

SUFFIXES = (
    "ForCausalLM", "ForConditionalGeneration", "LMHeadModel", "ForMaskedLM", "ForPreTraining",
    "ForImageClassification", "ForSequenceClassification", "EncoderModel", "Model",
)  # fmt: skip
"""Endings of a class name in `architectures`: what precedes is the family."""


class FamilyReader(Protocol):
    """A module of this package that reads one family."""

    def read(self, config: Config) -> Model:
        """The model that the config describes."""
        ...


def family_of(config: Config) -> tuple[str, str]:
    """(family, module): by `model_type`, else by `architectures`, else by form; else generic."""
    if config.model_type in FAMILIES:
        return config.model_type, FAMILIES[config.model_type]
    named = _by_architecture(config)
    if named is not None:
        found = config.model_type or "absent"
        config.assume(f"model_type {found} is not known here: read as {named}, by architectures")
        return named, FAMILIES[named]
    if config.has("ssm_cfg") and config.has("d_model"):
        return "mamba_ssm", FAMILIES["mamba_ssm"]
    return config.model_type, "generic"


def load(module: str) -> FamilyReader:
    """The module of a family."""
    return importlib.import_module(f"{__package__}.{module}")


def _by_architecture(config: Config) -> str | None:
    """The known family whose class is the first of `architectures`."""
    names = config.raw("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        return None
    stem = names[0]
    for suffix in SUFFIXES:
        if stem.endswith(suffix):
            stem = stem.removesuffix(suffix)
            break
    plain = {name.replace("_", "").replace("-", "").lower(): name for name in FAMILIES}
    return plain.get(stem.lower())


def nearest_family(model_type: str) -> str | None:
    """The known `model_type` most like this one."""
    return nearest_name(model_type, FAMILIES)
