"""GPT-2 and GPT-BigCode (StarCoder, SantaCoder)."""

from foretell.interop.huggingface.common import even_heads, plain_ffn, token_decoder
from foretell.interop.huggingface.config import Config
from foretell.specs.model import Layer, Model

WHY = {"gpt2": "GPT2Config's defaults", "gpt_bigcode": "GPTBigCodeConfig's defaults"}

ACTIVATIONS = {"gpt2": "gelu_new", "gpt_bigcode": "gelu_pytorch_tanh"}
"""Activations that a config leaves out."""


def read(config: Config) -> Model:
    """Learned positions, layer norms, biases, tied tables; BigCode shares one key head."""
    why = WHY[config.family]
    hidden = config.need("n_embd", "hidden_size")
    heads = config.need("n_head", "num_attention_heads")
    one = config.family == "gpt_bigcode" and config.flag("multi_query", default=True, why=why)
    attention = even_heads(
        config, hidden, heads, ("n_embd", "n_head"), kv_heads=1 if one else heads
    ).attention(biased=True)
    ffn = plain_ffn(
        config.get("n_inner", 4 * hidden, None, low=1),
        config.text("activation_function", ACTIVATIONS[config.family]),
        biased=True,
    )
    length = config.need("n_positions", "max_position_embeddings")
    layer = Layer(mixers=(attention,), ffn=ffn, norm_kind="layer")
    layers = (layer,) * config.layers("num_hidden_layers", key="n_layer")
    return token_decoder(config, layers, hidden, length, why=why, tied=True, learned=True)
