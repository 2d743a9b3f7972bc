"""Llama models pruned layer by layer (Nemotron-Super-49B, Ultra-253B, 51B): `block_configs`."""

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.decoders import shape_of, stack_model
from foretell.interop.huggingface.mixers import attention
from foretell.interop.huggingface.rows import Row, rules_of
from foretell.specs.ffn import Dense
from foretell.specs.mixers import Mixer, Replacement
from foretell.specs.model import Layer, Model

MULTIPLE = 256
"""Inner widths are rounded up to a multiple of this."""


def read(config: Config) -> Model:
    """One entry of `block_configs` per layer: each half is kept, made linear, or left out, with its norm."""
    row = Row(config, rules_of(config.family))
    depth = shape_of(row)
    layers = []
    for block in config.tables("block_configs", depth):
        mixer = _mixer(row, block.sub("attention"))
        ffn = _ffn(row, block.sub("ffn"))
        norms = (mixer is not None) + (ffn is not None)
        layers.append(Layer(mixers=() if mixer is None else (mixer,), ffn=ffn, norms=norms))
    return stack_model(row, layers)


def _mixer(row: Row, part: Config) -> Mixer | None:
    """Attention whose key and value heads serve `n_heads_in_group` queries each."""
    if part.flag("no_op", default=False):
        return None
    if part.flag("replace_with_linear", default=False):
        return Replacement(bias=row.flag("qkv_bias"))
    heads, group = row.whole("heads"), part.need("n_heads_in_group")
    part.check(
        heads % group == 0, ("n_heads_in_group",), f"{heads} heads are no multiple of {group}"
    )
    own = {"kv_heads": max(heads // group, 1), "window": part.get("window_length", None, low=1)}
    return attention(row.within(own))


def _ffn(row: Row, part: Config) -> Dense | None:
    """2/3 `ffn_mult` hidden, cut to a whole number and rounded up to a multiple of 256."""
    if part.flag("no_op", default=False):
        return None
    hidden, biased = row.whole("hidden"), row.flag("mlp_bias")
    if part.flag("replace_with_linear", default=False):
        return Dense(width=hidden, linear=True, up_bias=biased)
    width = part.get("intermediate_size", None, low=1)
    if width is None:
        if not part.has("ffn_mult"):
            part.problem("ffn_mult", "is missing", allowed="a number")
        mult = part.number("ffn_mult", 1.0)
        width = -(-int(2 * mult * hidden / 3) // MULTIPLE) * MULTIPLE
    return Dense(width=max(width, 1), up_bias=biased, down_bias=biased)
