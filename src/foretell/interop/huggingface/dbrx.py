"""DBRX."""

from foretell.interop.huggingface.common import token_decoder
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.experts import routed_experts
from foretell.specs.ffn import Experts
from foretell.specs.mixers import Attention
from foretell.specs.model import Layer, Model


def read(config: Config) -> Model:
    """Experts in every layer; layer norms without bias."""
    hidden = config.need("d_model", "hidden_size")
    heads = config.need("n_heads", "num_attention_heads")
    inner, ffn = config.sub("attn_config"), config.sub("ffn_config")
    shared = inner.need("kv_n_heads")
    config.check(
        heads % shared == 0,
        ("n_heads", "attn_config.kv_n_heads"),
        f"{heads} query heads cannot share {shared} key and value heads evenly",
    )
    attention = Attention(
        heads=heads,
        kv_heads=shared,
        head_dim=config.divides(hidden, heads, ("d_model", "n_heads")),
    )
    experts, top_k = routed_experts(ffn, experts=("moe_num_experts",), top_k=("moe_top_k",))
    part = Experts(experts=experts, top_k=top_k, width=ffn.need("ffn_hidden_size"))
    layer = Layer(mixers=(attention,), ffn=part, norm_kind="layer-nobias")
    return token_decoder(
        config,
        (layer,) * config.layers("num_hidden_layers", key="n_layers"),
        hidden,
        config.need("max_seq_len", "max_position_embeddings"),
        why="DbrxConfig's defaults",
        tied=False,
        norm="layer-nobias",
    )
