"""GPT-2 and GPT-BigCode (StarCoder, SantaCoder)."""

from foretell.interop.huggingface.common import decoder, tied_embeddings
from foretell.interop.huggingface.config import Config
from foretell.specs.ffn import Dense
from foretell.specs.mixers import Attention
from foretell.specs.model import Embedding, Head, Layer, Model

MODEL_TYPES = ("gpt2", "gpt_bigcode")

WHY = {"gpt2": "GPT2Config's defaults", "gpt_bigcode": "GPTBigCodeConfig's defaults"}


def read(config: Config) -> Model:
    """Learned positions, layer norms, biases, tied tables; BigCode shares one key head."""
    why = WHY[config.family]
    hidden = config.need("n_embd", "hidden_size")
    heads = config.need("n_head", "num_attention_heads")
    one = config.family == "gpt_bigcode" and config.flag("multi_query", True, why)
    attention = Attention(
        heads=heads,
        kv_heads=1 if one else heads,
        head_dim=config.divides(hidden, heads, ("n_embd", "n_head")),
        q_bias=True,
        k_bias=True,
        v_bias=True,
        o_bias=True,
    )
    ffn = Dense(
        width=config.get("n_inner", 4 * hidden, None, low=1),
        gated=False,
        activation=config.text("activation_function", "gelu_new"),
        up_bias=True,
        down_bias=True,
    )
    length = config.need("n_positions", "max_position_embeddings")
    vocab = config.need("vocab_size")
    layer = Layer(mixers=(attention,), ffn=ffn, norm_kind="layer")
    return decoder(
        config,
        (layer,) * config.layers("num_hidden_layers", key="n_layer"),
        embedding=Embedding(vocab=vocab, positions=length),
        head=Head(outputs=vocab, tied=tied_embeddings(config, True, why)),
        hidden=hidden,
        max_positions=length,
        final_norm="layer",
    )
