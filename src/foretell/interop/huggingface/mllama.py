"""Llama-3.2 Vision: Llama with cross-attention layers to the tower's states."""

from dataclasses import replace

from foretell.interop.huggingface import llama, towers
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.multimodal import finish, has_tower, text_level
from foretell.specs.mixers import Attention
from foretell.specs.model import Layer, Model, Stack


def read(config: Config) -> Model:
    """`cross_attention_layers` read the tower's states; eight more rows of the token table."""
    text = text_level(config)
    text.family = "llama"
    model = llama.read(text)
    crossed = set(text.wholes("cross_attention_layers") or ())
    layers = tuple(
        _crossed(layer) if i in crossed else layer for i, layer in enumerate(model.stack.layers)
    )
    model = replace(
        model,
        stack=Stack(hidden=model.stack.hidden, layers=layers),
        embedding=replace(model.embedding, vocab=model.embedding.vocab + 8),
    )
    if config.family != "mllama" or not has_tower(config, "vision_config", "vision"):
        return finish(config, model, ())
    tower = towers.mllama(config.sub("vision_config"), model.stack.hidden)
    return finish(config, model, (tower,))


def _crossed(layer: Layer) -> Layer:
    """The same layer over the tower's states, with normalised queries and keys and two gates."""
    (mixer,) = layer.mixers
    assert isinstance(mixer, Attention)
    cross = replace(mixer, cross=True, causal=False, qk_norm="head")
    return replace(layer, mixers=(cross,), extra_parameters=2)
