"""Llama models pruned layer by layer (Nemotron-Super-49B, Ultra-253B, 51B): `block_configs`."""

from foretell.interop.huggingface.common import even_heads, plain_decoder
from foretell.interop.huggingface.config import Config
from foretell.specs.ffn import Dense
from foretell.specs.mixers import Mixer, Replacement
from foretell.specs.model import Layer, Model

WHY = "DeciLMConfig's defaults"
MULTIPLE = 256
"""Inner widths are rounded up to a multiple of this."""


def read(config: Config) -> Model:
    """One entry of `block_configs` per layer: each half is kept, made linear, or left out.

    A half that is left out has no norm either.
    """
    hidden, depth = config.need("hidden_size"), config.layers()
    layers = [_layer(config, block, hidden) for block in config.tables("block_configs", depth)]
    return plain_decoder(config, layers, hidden, longest=131072, why=WHY)


def _layer(config: Config, block: Config, hidden: int) -> Layer:
    mixer = _mixer(config, block.sub("attention"), hidden)
    ffn = _ffn(config, block.sub("ffn"), hidden)
    return Layer(
        mixers=() if mixer is None else (mixer,),
        ffn=ffn,
        norms=(mixer is not None) + (ffn is not None),
    )


def _mixer(config: Config, part: Config, hidden: int) -> Mixer | None:
    """Attention whose key and value heads serve `n_heads_in_group` queries each."""
    if part.flag("no_op", default=False):
        return None
    biased = config.flag("attention_bias", default=False, why=WHY)
    if part.flag("replace_with_linear", default=False):
        return Replacement(bias=biased)
    heads, group = config.need("num_attention_heads"), part.need("n_heads_in_group")
    part.check(
        heads % group == 0, ("n_heads_in_group",), f"{heads} heads are no multiple of {group}"
    )
    return even_heads(
        config,
        hidden,
        heads,
        kv_heads=max(heads // group, 1),
    ).attention(biased=biased, window=part.get("window_length", None, low=1))


def _ffn(config: Config, part: Config, hidden: int) -> Dense | None:
    """2/3 `ffn_mult` hidden, cut to a whole number and rounded up to a multiple of 256."""
    if part.flag("no_op", default=False):
        return None
    biased = config.flag("mlp_bias", default=False, why=WHY)
    if part.flag("replace_with_linear", default=False):
        return Dense(width=hidden, linear=True, up_bias=biased)
    width = part.get("intermediate_size", None, low=1)
    if width is None:
        if not part.has("ffn_mult"):
            part.problem("ffn_mult", "is missing", allowed="a number")
        mult = part.number("ffn_mult", 1.0)
        width = -(-int(2 * mult * hidden / 3) // MULTIPLE) * MULTIPLE
    return Dense(width=max(width, 1), up_bias=biased, down_bias=biased)
