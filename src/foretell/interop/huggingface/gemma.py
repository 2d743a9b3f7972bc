"""Gemma, Gemma 2 and the text models of Gemma 3."""

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.llamalike import Traits, all_but_every, read_like
from foretell.specs.model import Model

MODEL_TYPES = ("gemma", "gemma2", "gemma3_text")


def _traits(name: str, **changes: object) -> Traits:
    base: dict[str, object] = {
        "why": f"{name}'s defaults",
        "activation": "gelu_pytorch_tanh",
        "activation_keys": ("hidden_activation", "hidden_act"),
        "qkv_bias": ("attention_bias", False),
        "o_bias": ("attention_bias", False),
        "tied": True,
        "kv_default": 4,
        "dim_default": 256,
    }
    return Traits(**(base | changes))  # type: ignore[arg-type]


TRAITS: dict[str, Traits] = {
    "gemma": _traits("GemmaConfig", kv_default=16),
    "gemma2": _traits(
        "Gemma2Config", norms=4, windows=all_but_every(2, 4096, "Gemma2Config's defaults")
    ),
    "gemma3_text": _traits(
        "Gemma3TextConfig",
        norms=4,
        qk_norm="head",
        windows=all_but_every(6, 4096, "Gemma3TextConfig's defaults"),
    ),
}


def read(config: Config) -> Model:
    """Gated GELU and tied tables; from Gemma 2 on norms also after each half, and windows."""
    return read_like(config, TRAITS[config.family])
