"""Falcon 7B, 40B, 180B, 11B and the RefinedWeb models."""

from foretell.interop.huggingface.common import even_heads, plain_ffn, positions, token_decoder
from foretell.interop.huggingface.config import Config
from foretell.specs.model import Layer, Model

WHY = "FalconConfig's defaults"


def read(config: Config) -> Model:
    """Parallel block; one norm per layer, or two in the new architecture of the 40B and 180B."""
    hidden = config.need("hidden_size", "n_embed")
    heads = config.need("num_attention_heads", "n_head")
    depth = config.layers("n_layer")
    new = config.flag("new_decoder_architecture", default=config.family == "RefinedWeb", why=WHY)
    parallel = new or config.flag("parallel_attn", default=True, why=WHY)
    biased = config.flag("bias", default=False, why=WHY)
    attention = even_heads(
        config,
        hidden,
        heads,
        kv_heads=_kv_heads(config, heads, new=new),
    ).attention(biased=biased)
    ffn = plain_ffn(
        config.get("ffn_hidden_size", 4 * hidden, None, low=1),
        config.text("activation", "gelu"),
        biased=biased,
    )
    norms = 2
    if new:
        norms = config.get("num_ln_in_parallel_attn", 2, None, low=1)
    elif parallel:
        norms = 1
    layer = Layer(mixers=(attention,), ffn=ffn, norms=norms, norm_kind="layer", parallel=parallel)
    length = positions(config, default=2048)
    return token_decoder(config, (layer,) * depth, hidden, length, why=WHY, tied=True)


def _kv_heads(config: Config, heads: int, *, new: bool) -> int:
    """New architecture: `num_kv_heads`; else one with `multi_query`, or as many as heads."""
    if not new:
        return 1 if config.flag("multi_query", default=True, why=WHY) else heads
    shared = config.get("num_kv_heads", heads, None, "n_head_kv", low=1)
    config.check(
        heads % shared == 0,
        ("num_attention_heads", "num_kv_heads"),
        f"{heads} query heads cannot share {shared} key and value heads evenly",
    )
    return shared
