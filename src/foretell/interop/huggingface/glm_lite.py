"""GLM-4.7-Flash and Mistral-Small-4: latent attention and experts as DeepSeek-V3 has them."""

from dataclasses import replace

from foretell.interop.huggingface.common import decoder, positions, tied
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.deepseek import deepseek_ffns, latent_attention
from foretell.interop.huggingface.prediction import joined_block
from foretell.specs.model import Embedding, Head, Layer, Model

MODEL_TYPES = ("glm4_moe_lite", "mistral4")

WHY = "the defaults of Glm4MoeLiteConfig and Mistral4Config"


def read(config: Config) -> Model:
    """Experts behind the leading dense layers; a prediction block with copies of the tables."""
    hidden, depth = config.need("hidden_size"), config.layers()
    mixer = latent_attention(config, WHY)
    biased = config.family == "glm4_moe_lite"
    ffns = deepseek_ffns(config, depth, router_bias=biased, why=WHY)
    layers = tuple(Layer(mixers=(mixer,), ffn=ffn) for ffn in ffns)
    vocab = config.need("vocab_size")
    model = decoder(
        config,
        layers,
        embedding=Embedding(vocab=vocab),
        head=Head(outputs=vocab, tied=tied(config, False, WHY)),
        hidden=hidden,
        max_positions=positions(config, default=202752),
    )
    block = joined_block(config, layers[-1], hidden, tables=2 * vocab * hidden, default=0, why=None)
    if block is not None:
        config.assume(
            "the prediction block is counted with its stored copies of embedding and head"
        )
    return replace(model, prediction=block)
