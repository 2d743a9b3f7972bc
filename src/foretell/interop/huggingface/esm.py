"""ESM-2 and ESM-1b: protein encoders."""

from foretell.interop.huggingface.common import even_heads, plain_ffn
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.storage import dtype
from foretell.specs.model import Embedding, Head, Layer, Model, Projection, Stack

WHY = "EsmConfig's defaults"


def read(config: Config) -> Model:
    """Pre-norm encoder; masked-residue head; contact head (layers x heads weights, a bias)."""
    hidden, heads = config.need("hidden_size"), config.need("num_attention_heads")
    depth, vocab = config.layers(), config.need("vocab_size")
    length = config.need("max_position_embeddings")
    attention = even_heads(config, hidden, heads).attention(biased=True, causal=False)
    ffn = plain_ffn(config.need("intermediate_size"), "gelu", biased=True)
    kind = config.choice("position_embedding_type", ("absolute", "rotary"), "absolute", WHY)
    layer = Layer(mixers=(attention,), ffn=ffn, norm_kind="layer")
    transform = Projection(name="head.transform", inputs=hidden, outputs=hidden, bias=True)
    return Model(
        id=config.id,
        family=config.family,
        kind="encoder",
        stack=Stack(
            hidden=hidden,
            layers=(layer,) * depth,
            final_norm="layer",
            extra_parameters=depth * heads + 1,
        ),
        embedding=Embedding(
            vocab=vocab,
            positions=length if kind == "absolute" else 0,
            norm="layer"
            if config.flag("emb_layer_norm_before", default=False, why=WHY)
            else "none",
        ),
        head=Head(
            outputs=vocab,
            tied=config.flag("tie_word_embeddings", default=True, why=WHY),
            bias=True,
            projections=(transform,),
            extra_parameters=2 * hidden,
        ),
        max_positions=length,
        dtype=dtype(config),
    )
