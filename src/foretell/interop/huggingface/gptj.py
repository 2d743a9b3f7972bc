"""GPT-J and CodeGen."""

from foretell.interop.huggingface.common import decoder, tied_embeddings
from foretell.interop.huggingface.config import Config
from foretell.specs.ffn import Dense
from foretell.specs.mixers import Attention
from foretell.specs.model import Embedding, Head, Layer, Model

MODEL_TYPES = ("gptj", "codegen")

WHY = {"gptj": "GPTJConfig's defaults", "codegen": "CodeGenConfig's defaults"}


def read(config: Config) -> Model:
    """Parallel block with one layer norm; attention without biases; scores with a bias."""
    hidden = config.need("n_embd", "hidden_size")
    heads = config.need("n_head", "num_attention_heads")
    attention = Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=config.divides(hidden, heads, ("n_embd", "n_head")),
    )
    ffn = Dense(
        width=config.get("n_inner", 4 * hidden, None, low=1),
        gated=False,
        activation=config.text("activation_function", "gelu_new"),
        up_bias=True,
        down_bias=True,
    )
    vocab, why = config.need("vocab_size"), WHY[config.family]
    layer = Layer(mixers=(attention,), ffn=ffn, norms=1, norm_kind="layer", parallel=True)
    return decoder(
        config,
        (layer,) * config.layers("num_hidden_layers", key="n_layer"),
        embedding=Embedding(vocab=vocab),
        head=Head(outputs=vocab, tied=tied_embeddings(config, False, why), bias=True),
        hidden=hidden,
        max_positions=config.get("n_positions", 2048, why, "max_position_embeddings", low=1),
        final_norm="layer",
    )
