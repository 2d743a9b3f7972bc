"""GPT-J and CodeGen."""

from foretell.interop.huggingface.common import plain_ffn, token_decoder
from foretell.interop.huggingface.config import Config
from foretell.specs.mixers import Attention
from foretell.specs.model import Layer, Model

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
    ffn = plain_ffn(
        config.get("n_inner", 4 * hidden, None, low=1),
        config.text("activation_function", "gelu_new"),
        biased=True,
    )
    why = WHY[config.family]
    layer = Layer(mixers=(attention,), ffn=ffn, norms=1, norm_kind="layer", parallel=True)
    layers = (layer,) * config.layers("num_hidden_layers", key="n_layer")
    length = config.get("n_positions", 2048, why, "max_position_embeddings", low=1)
    return token_decoder(config, layers, hidden, length, why=why, tied=False, head_bias=True)
