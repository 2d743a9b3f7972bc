"""Grok-1."""

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.experts import routed_experts
from foretell.interop.huggingface.llamalike import Traits, read_like
from foretell.specs.ffn import Experts
from foretell.specs.model import Model

MODEL_TYPES = ("grok-1",)

TRAITS = Traits(why="the defaults of Grok-1's own code", norms=4, tied=True, activation="gelu")


def read(config: Config) -> Model:
    """Eight gated experts in every layer; norms before and after each half."""
    experts, top_k = routed_experts(config, experts=("num_experts", "num_local_experts"))
    ffn = Experts(
        experts=experts,
        top_k=top_k,
        width=config.need("intermediate_size"),
        activation="gelu",
    )
    return read_like(config, TRAITS, (ffn,) * config.layers())
