"""Llama-3.2 Vision: Llama with cross-attention layers to the tower's states."""

from dataclasses import replace

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.decoders import decoder
from foretell.interop.huggingface.multimodal import with_towers
from foretell.interop.huggingface.rows import Row, rules_of
from foretell.specs.mixers import Attention
from foretell.specs.model import Layer, Model


def read(config: Config) -> Model:
    """`cross_attention_layers` read the tower's states; eight more rows of the token table."""
    return with_towers(config, rules_of(config.family), _text)


def _text(row: Row) -> Model:
    model = decoder(row)
    crossed = set(row.config.wholes("cross_attention_layers") or ())
    layers = tuple(
        _crossed(layer) if i in crossed else layer for i, layer in enumerate(model.stack.layers)
    )
    return replace(
        model,
        stack=replace(model.stack, layers=layers),
        embedding=replace(model.embedding, vocab=model.embedding.vocab + 8),
    )


def _crossed(layer: Layer) -> Layer:
    """The same layer over the tower's states, with normalised queries and keys and two gates."""
    (mixer,) = layer.mixers
    assert isinstance(mixer, Attention)
    cross = replace(mixer, cross=True, causal=False, qk_norm="head")
    return replace(layer, mixers=(cross,), extra_parameters=2)
