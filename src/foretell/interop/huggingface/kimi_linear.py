"""Kimi-Linear and Kimi-K3: Kimi delta attention beside latent attention, with latent experts.

K3's weights as its released code and the serving engines have them: output gates on both kinds of
attention, routed experts in a latent width, and a learned mix over the outputs of earlier blocks
(attention residual) before each half of a layer and before the final norm.
"""

from dataclasses import replace

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.decoders import prediction_of, shape_of, stack_model
from foretell.interop.huggingface.feedforward import parts_of
from foretell.interop.huggingface.mixers import latent_attention
from foretell.interop.huggingface.multimodal import with_towers
from foretell.interop.huggingface.rows import Row, rules_of
from foretell.specs.mixers import DeltaNet, Mixer
from foretell.specs.model import Layer, Model


def read(config: Config) -> Model:
    """The text model, and K3's vision tower."""
    return with_towers(config, rules_of(config.family), _text)


def _text(row: Row) -> Model:
    depth = shape_of(row)
    # Before each half: a norm of the hidden width and a map of hidden -> 1 over earlier blocks.
    mixed = 2 * row.whole("hidden") if row.config.has("attn_res_block_size") else 0
    layers = tuple(
        Layer(mixers=(mixer,), ffn=ffn, extra_parameters=2 * mixed)
        for mixer, ffn in zip(_mixers(row, depth), parts_of(row, depth), strict=True)
    )
    model = stack_model(row, layers, prediction_of(row, layers[-1:]))
    return replace(model, head=replace(model.head, extra_parameters=mixed))


def _mixers(row: Row, depth: int) -> tuple[Mixer, ...]:
    """Latent attention where `full_attn_layers`, counted from one, or `layer_types` says."""
    config = row.config
    plain = config.has("linear_num_heads")  # the library's own names
    linear = config if plain else config.sub("linear_attn_config")
    before = "linear_" if plain else ""
    heads, dim = linear.need(f"{before}num_heads"), linear.need(f"{before}head_dim")
    delta = DeltaNet(
        key_heads=heads,
        value_heads=heads,
        key_dim=dim,
        value_dim=dim,
        conv_kernel=linear.need("linear_conv_kernel_dim" if plain else "short_conv_kernel_size"),
        decay="channel",
        decay_rank=dim,
        gate_rank=None if linear.flag("use_full_rank_gate", default=False) else dim,
    )
    gated = config.flag("mla_use_output_gate", default=False)
    latent = replace(latent_attention(row), output_gate="element" if gated else "none")
    kinds = config.layer_types(depth, ("full_attention", "linear_attention")) if plain else None
    if kinds:
        return tuple(latent if kind == "full_attention" else delta for kind in kinds)
    full = set(linear.wholes("full_attn_layers", low=1) or ())
    named = linear.wholes("kda_layers", low=1)
    whole = set(range(1, depth + 1))
    linear.check(
        full <= whole and (named is None or set(named) == whole - full),
        ("full_attn_layers", "kda_layers"),
        f"do not name each of the {depth} layers once",
    )
    return tuple(latent if i in full else delta for i in range(1, depth + 1))
