"""BLOOM."""

from foretell.interop.huggingface.common import decoder, even_heads, plain_ffn, tied_embeddings
from foretell.interop.huggingface.config import Config
from foretell.specs.model import Embedding, Head, Layer, Model


def read(config: Config) -> Model:
    """ALiBi (no position table), normalised embedding, biases everywhere, inner width 4 hidden."""
    hidden = config.need("hidden_size", "n_embed")
    heads = config.need("n_head", "num_attention_heads")
    shape = even_heads(config, hidden, heads, ("hidden_size", "n_head"))
    attention = shape.attention(biased=True)
    ffn = plain_ffn(4 * hidden, "gelu", biased=True)
    vocab = config.need("vocab_size")
    layer = Layer(mixers=(attention,), ffn=ffn, norm_kind="layer")
    return decoder(
        config,
        (layer,) * config.layers("num_hidden_layers", key="n_layer"),
        embedding=Embedding(vocab=vocab, norm="layer"),
        head=Head(
            outputs=vocab, tied=tied_embeddings(config, default=True, why="BloomConfig's defaults")
        ),
        hidden=hidden,
        max_positions=config.get(
            "seq_length", 2048, "the length BLOOM was trained on", "max_position_embeddings", low=1
        ),
        final_norm="layer",
    )
