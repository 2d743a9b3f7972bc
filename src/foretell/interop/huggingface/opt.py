"""OPT, the 350m included (post-norm, narrow embedding)."""

from foretell.interop.huggingface.common import decoder, even_heads, plain_ffn, tied_embeddings
from foretell.interop.huggingface.config import Config
from foretell.specs.model import Embedding, Head, Layer, Model, NormKind, Projection

WHY = "OPTConfig's defaults"
POSITION_OFFSET = 2
"""The position table has two rows more than `max_position_embeddings`."""


def read(config: Config) -> Model:
    """Learned positions with an offset; a token table narrower than the model is projected."""
    hidden = config.need("hidden_size")
    heads = config.need("num_attention_heads")
    biased = config.flag("enable_bias", default=True)
    norm: NormKind = (
        "layer" if config.flag("layer_norm_elementwise_affine", default=True) else "none"
    )
    before = config.flag("do_layer_norm_before", default=True, why=WHY)
    last = before and not config.flag("_remove_final_layer_norm", default=False)
    attention = even_heads(config, hidden, heads).attention(biased=biased)
    ffn = plain_ffn(
        config.need("ffn_dim"), config.text("activation_function", "relu"), biased=biased
    )
    length, vocab = config.need("max_position_embeddings"), config.need("vocab_size")
    width = config.get("word_embed_proj_dim", hidden, low=1)
    narrow = width != hidden
    into = Projection(name="embedding.project_in", inputs=width, outputs=hidden)
    out = Projection(name="head.project_out", inputs=hidden, outputs=width)
    return decoder(
        config,
        (Layer(mixers=(attention,), ffn=ffn, norm_kind=norm),) * config.layers(),
        embedding=Embedding(
            vocab=vocab,
            width=width if narrow else None,
            positions=length + POSITION_OFFSET,
            projections=(into,) if narrow else (),
        ),
        head=Head(
            outputs=vocab,
            tied=tied_embeddings(config, default=True, why=WHY),
            projections=(out,) if narrow else (),
        ),
        hidden=hidden,
        max_positions=length,
        final_norm=norm if last else "none",
    )
