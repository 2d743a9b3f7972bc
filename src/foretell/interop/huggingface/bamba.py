"""Bamba (Mamba-2 and attention in turn) and Falcon-H1 (both in every layer)."""

from foretell.interop.huggingface.common import plain_decoder, read_heads
from foretell.interop.huggingface.config import Config
from foretell.specs.ffn import Dense
from foretell.specs.mixers import Mamba2
from foretell.specs.model import Layer, Model

WHY = {"bamba": "BambaConfig's defaults", "falcon_h1": "FalconH1Config's defaults"}


def read(config: Config) -> Model:
    """Mixers by layer, each layer with a gated feed-forward part."""
    why = WHY[config.family]
    hidden, depth = config.need("hidden_size"), config.layers()
    shape = read_heads(config, hidden, kv_default=8, why=why)
    biased = config.flag("attention_bias", default=False, why=why)
    attention = shape.attention(biased=biased)
    mamba = _mamba(config, hidden, why)
    mlp_bias = config.flag("mlp_bias", default=False, why=why)
    ffn = Dense(width=config.need("intermediate_size"), up_bias=mlp_bias, down_bias=mlp_bias)
    both = Layer(mixers=(attention, mamba), ffn=ffn)
    if config.family == "falcon_h1":
        layers = (both,) * depth
    else:
        at = set(config.wholes("attn_layer_indices") or ())
        config.check(
            all(i < depth for i in at),
            ("attn_layer_indices", "num_hidden_layers"),
            f"names layers beyond the {depth} there are",
        )
        one, two = Layer(mixers=(attention,), ffn=ffn), Layer(mixers=(mamba,), ffn=ffn)
        layers = tuple(one if i in at else two for i in range(depth))
    return plain_decoder(config, layers, hidden, longest=8192, why=why)


def _mamba(config: Config, hidden: int, why: str) -> Mamba2:
    """The state-space mixer; Falcon-H1 may name its inner width and leave its norm out."""
    heads = config.need("mamba_n_heads")
    falcon = config.family == "falcon_h1"
    width = config.get("mamba_expand", 2, why, low=1) * hidden
    if falcon:
        width = config.get("mamba_d_ssm", width, None, low=1)
    keys = ("mamba_expand", "hidden_size", "mamba_n_heads")
    head_dim = config.divides(width, heads, keys)
    given = config.raw("mamba_d_head")
    config.check(
        given in (None, "auto", head_dim),
        ("mamba_d_head", "mamba_n_heads"),
        f"heads x width is not the inner width {width}",
    )
    proj_key = "projectors_bias" if falcon else "mamba_proj_bias"
    return Mamba2(
        heads=heads,
        head_dim=head_dim,
        state=config.need("mamba_d_state"),
        groups=config.get("mamba_n_groups", 1, why, low=1),
        conv_kernel=config.get("mamba_d_conv", 4, why, low=1),
        conv_bias=config.flag("mamba_conv_bias", default=True, why=why),
        proj_bias=config.flag(proj_key, default=False, why=why),
        gated_norm=config.flag("mamba_rms_norm", default=False, why=why) if falcon else True,
        chunk=config.get("mamba_chunk_size", 256, why, low=1),
    )
