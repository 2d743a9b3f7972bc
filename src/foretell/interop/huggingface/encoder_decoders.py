"""Encoders with a decoder: T5 and its kin, BART and its kin, Whisper."""

from dataclasses import replace

from foretell.interop.huggingface.config import LAYERS_MOST, Config
from foretell.interop.huggingface.decoders import layer_of, shape_of, stack_model
from foretell.interop.huggingface.feedforward import dense_part
from foretell.interop.huggingface.rows import Row, rules_of
from foretell.specs.mixers import Attention
from foretell.specs.model import Embedding, Layer, Model, Projection, Stack

TAPS = 3
"""Taps of each of the two convolutions in front of Whisper's encoder."""


def read(config: Config) -> Model:
    """Two stacks, the decoder's layers with cross-attention to the encoder's states."""
    row = Row(config, rules_of(config.family))
    return _t5(row) if "relative" in row.rules else _bart(row)


def _t5(row: Row) -> Model:
    """Relative-position tables (UMT5: one per layer), no biases, one shared token table."""
    depth, config = shape_of(row), row.config
    decoder_depth = config.get("num_decoder_layers", depth, None, low=1)
    config.check(decoder_depth <= LAYERS_MOST, ("num_decoder_layers",), "is deeper than any model")
    table = row.whole("relative") * row.whole("heads")
    once, each = (0, table) if row.flag("each_layer") else (table, 0)
    name = row.word("activation")
    ffn = replace(
        dense_part(row), gated=name.startswith("gated-"), activation=name.removeprefix("gated-")
    )
    base = replace(layer_of(row), ffn=ffn, extra_parameters=each)
    model = stack_model(row, (_crossed(base),) * min(decoder_depth, LAYERS_MOST))
    encoder = replace(model.stack, layers=(_two_way(base),) * depth, extra_parameters=once)
    return replace(
        model,
        kind="encoder-decoder",
        stack=replace(model.stack, extra_parameters=once),
        encoder=encoder,
    )


def _bart(row: Row) -> Model:
    """Two stacks with biases and position tables of their own (fixed ones are stored too)."""
    config, hidden = row.config, row.whole("hidden")
    row.known["hidden"] = hidden
    encoder, decoder = (_side(row, side) for side in ("encoder", "decoder"))
    model = stack_model(row, [_crossed(layer) for layer in decoder])
    table = Embedding(positions=model.embedding.positions, norm=model.embedding.norm)
    if config.family == "whisper":
        mel, frames = (
            config.need("num_mel_bins"),
            config.get("max_source_positions", 1500, row.why, low=1),
        )
        convolutions = (
            Projection(name="embedding.conv1", inputs=TAPS * mel, outputs=hidden, bias=True),
            Projection(name="embedding.conv2", inputs=TAPS * hidden, outputs=hidden, bias=True),
        )
        table = Embedding(positions=frames, projections=convolutions)
    layers = tuple(_two_way(layer) for layer in encoder)
    return replace(
        model,
        kind="encoder-decoder",
        encoder=Stack(hidden=hidden, layers=layers, final_norm=model.stack.final_norm),
        encoder_embedding=table,
    )


def _side(row: Row, side: str) -> tuple[Layer, ...]:
    """The layers of one side, by `encoder_...` or `decoder_...` keys; keys may have no bias."""
    keys = {"heads": "attention_heads", "ffn_width": "ffn_dim"}
    own = row.within({name: [f"{side}_{key}"] for name, key in keys.items()})
    layer = replace(layer_of(own), ffn=dense_part(own))
    (mixer,) = layer.mixers
    assert isinstance(mixer, Attention)
    mixer = replace(mixer, k_bias=row.flag("k_bias"))
    return (replace(layer, mixers=(mixer,)),) * row.config.layers(key=f"{side}_layers")


def _two_way(layer: Layer) -> Layer:
    """A layer whose positions see one another."""
    (own,) = layer.mixers
    assert isinstance(own, Attention)
    return replace(layer, mixers=(replace(own, causal=False),))


def _crossed(layer: Layer) -> Layer:
    """A layer with cross-attention behind its own."""
    (own,) = layer.mixers
    assert isinstance(own, Attention)
    return replace(layer, mixers=(own, replace(own, causal=False, cross=True)), norms=3)
