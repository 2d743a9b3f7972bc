"""Phi-1, Phi-2 (phi) and Phi-3, Phi-4 (phi3)."""

from dataclasses import replace

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.llamalike import Traits, every_layer, read_like
from foretell.specs.mixers import Attention
from foretell.specs.model import Layer, Model

MODEL_TYPES = ("phi", "phi3")

TRAITS: dict[str, Traits] = {
    "phi": Traits(
        why="PhiConfig's defaults",
        norm="layer",
        norms=1,
        parallel=True,
        gated=False,
        activation="gelu_new",
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        head_bias=True,
        qk_norm="head",
        qk_norm_key="qk_layernorm",
    ),
    "phi3": Traits(why="Phi3Config's defaults", windows=every_layer(None, "Phi3Config's defaults")),
}


def read(config: Config) -> Model:
    """phi: parallel block with one layer norm and biases everywhere; phi3: Llama-like."""
    model = read_like(config, TRAITS[config.family])
    if config.family == "phi" and config.flag("qk_layernorm", False):
        layers = tuple(_with_norm_bias(layer) for layer in model.stack.layers)
        return replace(model, stack=replace(model.stack, layers=layers))
    return model


def _with_norm_bias(layer: Layer) -> Layer:
    """Its query and key norms are layer norms, which have a bias."""
    mixers = tuple(
        replace(mixer, qk_norm_bias=True) if isinstance(mixer, Attention) else mixer
        for mixer in layer.mixers
    )
    return replace(layer, mixers=mixers)
