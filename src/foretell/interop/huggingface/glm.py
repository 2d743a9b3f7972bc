"""GLM-4: the library's forms (glm, glm4) and the one of the model's own code (chatglm)."""

from dataclasses import replace

from foretell.interop.huggingface.common import HeadNames, decoder, read_heads
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.llamalike import Traits, read_like
from foretell.specs.ffn import Dense
from foretell.specs.mixers import Attention
from foretell.specs.model import Embedding, Head, Layer, Model

GLM = Traits(
    why="GlmConfig's defaults", qkv_bias=("attention_bias", True), kv_default=2, dim_default=128
)
TRAITS: dict[str, Traits] = {
    "glm": GLM,
    "glm4": replace(GLM, why="Glm4Config's defaults", norms=4),
}
CHATGLM_NAMES = HeadNames(kv_heads=("multi_query_group_num",), head_dim=("kv_channels",))


def read(config: Config) -> Model:
    """Biases on queries, keys and values; glm4 has norms after each half too."""
    if config.family == "chatglm":
        return _chatglm(config)
    return read_like(config, TRAITS[config.family])


def _chatglm(config: Config) -> Model:
    """ChatGLM2, 3 and GLM-4-9B under the names of their own code."""
    why = "the defaults of ChatGLM's own code"
    hidden = config.need("hidden_size")
    depth = config.layers(key="num_layers")
    shape = read_heads(config, hidden, CHATGLM_NAMES)
    everywhere = config.flag("add_bias_linear", default=False, why=why)
    qkv = config.flag("add_qkv_bias", default=False, why=why) or everywhere
    attention = Attention(
        heads=shape.heads,
        kv_heads=shape.kv_heads
        if config.flag("multi_query_attention", default=False, why=why)
        else shape.heads,
        head_dim=shape.head_dim,
        q_bias=qkv,
        k_bias=qkv,
        v_bias=qkv,
        o_bias=everywhere,
    )
    ffn = Dense(width=config.need("ffn_hidden_size"), up_bias=everywhere, down_bias=everywhere)
    vocab = config.need("padded_vocab_size", "vocab_size")
    layer = Layer(
        mixers=(attention,),
        ffn=ffn,
        norm_kind="rms" if config.flag("rmsnorm", default=True, why=why) else "layer",
    )
    return decoder(
        config,
        (layer,) * depth,
        embedding=Embedding(vocab=vocab),
        head=Head(outputs=vocab, tied=config.flag("tie_word_embeddings", default=False, why=why)),
        hidden=hidden,
        max_positions=config.get("seq_length", 2048, why, low=1),
        final_norm=layer.norm_kind,
    )
