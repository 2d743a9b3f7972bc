"""MPT."""

from foretell.interop.huggingface.common import even_heads, plain_ffn, token_decoder
from foretell.interop.huggingface.config import Config
from foretell.specs.model import Layer, Model, NormKind

WHY = "MptConfig's defaults"


def read(config: Config) -> Model:
    """No biases; ALiBi, or a learned position table where `attn_config.alibi` is off."""
    hidden = config.need("d_model", "hidden_size")
    heads = config.need("n_heads", "num_attention_heads")
    inner = config.sub("attn_config") if config.has("attn_config") else None
    alibi = True if inner is None else inner.flag("alibi", default=True, why=WHY)
    shared = heads if inner is None else inner.get("kv_n_heads", heads, None, low=1)
    config.check(heads % shared == 0, ("n_heads",), f"{heads} heads over {shared} key heads")
    biased = not config.flag("no_bias", default=True, why=WHY)
    norm: NormKind = "layer" if biased else "layer-nobias"
    attention = even_heads(
        config, hidden, heads, ("d_model", "n_heads"), kv_heads=shared
    ).attention(biased=biased)
    ffn = plain_ffn(
        round(hidden * config.number("expansion_ratio", 4.0, WHY, low=0.01)), "gelu", biased=biased
    )
    length = config.need("max_seq_len")
    learned = not alibi and config.flag("learned_pos_emb", default=True, why=WHY)
    layer = Layer(mixers=(attention,), ffn=ffn, norm_kind=norm)
    layers = (layer,) * config.layers("num_hidden_layers", key="n_layers")
    return token_decoder(
        config, layers, hidden, length, why=WHY, tied=True, learned=learned, norm=norm
    )
