"""Whisper."""

from foretell.interop.huggingface.bart import side_layers
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.storage import dtype
from foretell.specs.model import Embedding, Head, Model, Projection, Stack

WHY = "WhisperConfig's defaults"
TAPS = 3
"""Taps of each of the two convolutions in front of the encoder."""


def read(config: Config) -> Model:
    """Audio frames through two convolutions; keys have no bias; fixed positions are counted."""
    hidden = config.need("d_model", "hidden_size")
    mel = config.need("num_mel_bins")
    frames = config.get("max_source_positions", 1500, WHY, low=1)
    length = config.get("max_target_positions", 448, WHY, low=1)
    vocab = config.need("vocab_size")
    convolutions = (
        Projection(name="embedding.conv1", inputs=TAPS * mel, outputs=hidden, bias=True),
        Projection(name="embedding.conv2", inputs=TAPS * hidden, outputs=hidden, bias=True),
    )
    return Model(
        id=config.id,
        family=config.family,
        kind="encoder-decoder",
        stack=Stack(
            hidden=hidden,
            layers=side_layers(config, hidden, "decoder", key_bias=False),
            final_norm="layer",
        ),
        encoder=Stack(
            hidden=hidden,
            layers=side_layers(config, hidden, "encoder", key_bias=False),
            final_norm="layer",
        ),
        embedding=Embedding(vocab=vocab, positions=length),
        encoder_embedding=Embedding(positions=frames, projections=convolutions),
        head=Head(outputs=vocab, tied=config.flag("tie_word_embeddings", default=True, why=WHY)),
        max_positions=length,
        dtype=dtype(config),
    )
