"""Mixtral and others with experts in every layer."""

from dataclasses import replace

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.experts import routed_experts
from foretell.interop.huggingface.llamalike import Traits, every_layer, read_like
from foretell.specs.ffn import Experts
from foretell.specs.model import Model

MODEL_TYPES = ("mixtral", "phimoe", "olmoe")

TRAITS: dict[str, Traits] = {
    "mixtral": Traits(
        why="MixtralConfig's defaults",
        kv_default=8,
        windows=every_layer(None, "MixtralConfig's defaults"),
    ),
    "phimoe": Traits(
        why="PhimoeConfig's defaults",
        norm="layer",
        qkv_bias=("attention_bias", False),
        o_bias=("attention_bias", False),
        kv_default=8,
        windows=every_layer(None, "PhimoeConfig's defaults"),
    ),
    "olmoe": Traits(
        why="OlmoeConfig's defaults",
        qk_norm="whole",
        qkv_bias=("attention_bias", False),
        o_bias=("attention_bias", False),
    ),
}


def read(config: Config) -> Model:
    """One kind of layer: attention, router and gated experts of `intermediate_size`."""
    traits = TRAITS[config.family]
    experts, top_k = routed_experts(config)
    ffn = Experts(experts=experts, top_k=top_k, width=config.need("intermediate_size"))
    if config.family == "phimoe":
        traits = replace(traits, head_bias=config.flag("lm_head_bias", False, traits.why))
    return read_like(config, traits, (ffn,) * config.layers())
