"""T5, mT5 and UMT5."""

from dataclasses import replace

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.storage import dtype
from foretell.specs.ffn import Dense
from foretell.specs.mixers import Attention
from foretell.specs.model import Embedding, Head, Layer, Model, Stack

WHY = {"t5": "T5Config's defaults", "mt5": "MT5Config's defaults", "umt5": "UMT5Config's defaults"}


def read(config: Config) -> Model:
    """Relative-position tables (UMT5: one per layer), no biases, one shared token table."""
    why = WHY[config.family]
    hidden, heads = config.need("d_model", "hidden_size"), config.need("num_heads")
    head_dim, depth = config.need("d_kv"), config.layers(key="num_layers")
    decoder_depth = config.get("num_decoder_layers", depth, None, low=1)
    config.check(decoder_depth <= 10_000, ("num_decoder_layers",), "is deeper than any model")
    table = config.get("relative_attention_num_buckets", 32, why, low=1) * heads
    each = table if config.family == "umt5" else 0
    ffn = _ffn(config, why)
    own = Attention(heads=heads, kv_heads=heads, head_dim=head_dim)
    two_way = replace(own, causal=False)
    encoder_layer = Layer(mixers=(two_way,), ffn=ffn, extra_parameters=each)
    decoder_layer = Layer(
        mixers=(own, replace(two_way, cross=True)),
        ffn=ffn,
        norms=3,
        extra_parameters=each,
    )
    vocab = config.need("vocab_size")
    once = 0 if each else table
    return Model(
        id=config.id,
        family=config.family,
        kind="encoder-decoder",
        stack=Stack(
            hidden=hidden,
            layers=(decoder_layer,) * min(decoder_depth, 10_000),
            extra_parameters=once,
        ),
        encoder=Stack(hidden=hidden, layers=(encoder_layer,) * depth, extra_parameters=once),
        embedding=Embedding(vocab=vocab),
        head=Head(
            outputs=vocab,
            tied=config.flag("tie_word_embeddings", default=config.family == "t5", why=why),
        ),
        max_positions=config.get("n_positions", 512, "the length T5 was trained on", low=1),
        dtype=dtype(config),
    )


def _ffn(config: Config, why: str) -> Dense:
    """`feed_forward_proj`: an activation, with `gated-` before it where there are two up maps."""
    name = config.text("feed_forward_proj", "relu" if config.family == "t5" else "gated-gelu", why)
    return Dense(
        width=config.need("d_ff"),
        gated=name.startswith("gated-"),
        activation=name.removeprefix("gated-"),
    )
