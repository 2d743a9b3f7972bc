"""MPT."""

from foretell.interop.huggingface.common import decoder, tied_embeddings
from foretell.interop.huggingface.config import Config
from foretell.specs.ffn import Dense
from foretell.specs.mixers import Attention
from foretell.specs.model import Embedding, Head, Layer, Model, NormKind

MODEL_TYPES = ("mpt",)

WHY = "MptConfig's defaults"


def read(config: Config) -> Model:
    """No biases; ALiBi, or a learned position table where `attn_config.alibi` is off."""
    hidden = config.need("d_model", "hidden_size")
    heads = config.need("n_heads", "num_attention_heads")
    inner = config.sub("attn_config") if config.has("attn_config") else None
    alibi = True if inner is None else inner.flag("alibi", True, WHY)
    shared = heads if inner is None else inner.get("kv_n_heads", heads, None, low=1)
    config.check(heads % shared == 0, ("n_heads",), f"{heads} heads over {shared} key heads")
    biased = not config.flag("no_bias", True, WHY)
    norm: NormKind = "layer" if biased else "layer-nobias"
    attention = Attention(
        heads=heads,
        kv_heads=shared,
        head_dim=config.divides(hidden, heads, ("d_model", "n_heads")),
        q_bias=biased,
        k_bias=biased,
        v_bias=biased,
        o_bias=biased,
    )
    ffn = Dense(
        width=round(hidden * config.number("expansion_ratio", 4.0, WHY, low=0.01)),
        gated=False,
        activation="gelu",
        up_bias=biased,
        down_bias=biased,
    )
    length, vocab = config.need("max_seq_len"), config.need("vocab_size")
    learned = not alibi and config.flag("learned_pos_emb", True, WHY)
    return decoder(
        config,
        (Layer(mixers=(attention,), ffn=ffn, norm_kind=norm),)
        * config.layers("num_hidden_layers", key="n_layers"),
        embedding=Embedding(vocab=vocab, positions=length if learned else 0),
        head=Head(outputs=vocab, tied=tied_embeddings(config, True, WHY)),
        hidden=hidden,
        max_positions=length,
        final_norm=norm,
    )
