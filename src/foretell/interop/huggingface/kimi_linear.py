"""Kimi-Linear and Kimi-K3: Kimi delta attention beside latent attention, with latent experts.

K3's weights as its released code and the serving engines have them: output gates on both kinds of
attention, routed experts in a latent width, and a learned mix over the outputs of earlier blocks
(attention residual) before each half of a layer and before the final norm.
"""

from dataclasses import replace

from foretell.interop.huggingface import towers
from foretell.interop.huggingface.common import decoder, positions, tied_embeddings
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.deepseek import latent_attention
from foretell.interop.huggingface.experts import leading_dense, routed_experts
from foretell.interop.huggingface.multimodal import finish, has_tower, text_level
from foretell.interop.huggingface.prediction import joined_block
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import DeltaNet, Mixer
from foretell.specs.model import Embedding, Head, Layer, Model

WHY = "KimiLinearConfig's defaults"


def read(config: Config) -> Model:
    """The text model, and K3's vision tower."""
    text = text_level(config)
    text.family = config.family
    model = _text(text)
    if config.family != "kimi_k3" or not has_tower(config, "vision_config", "vision"):
        return finish(config, model, ())
    return finish(config, model, (towers.moonvit(config.sub("vision_config")),))


def _text(config: Config) -> Model:
    hidden, depth = config.need("hidden_size"), config.layers()
    # Before each half: a norm of the hidden width and a map of hidden -> 1 over earlier blocks.
    mixed = 2 * hidden if config.has("attn_res_block_size") else 0
    layers = [
        Layer(mixers=(mixer,), ffn=ffn, extra_parameters=2 * mixed)
        for mixer, ffn in zip(_mixers(config, depth), _ffns(config, depth), strict=True)
    ]
    vocab = config.need("vocab_size")
    model = decoder(
        config,
        layers,
        embedding=Embedding(vocab=vocab),
        head=Head(
            outputs=vocab,
            tied=tied_embeddings(config, default=False, why=WHY),
            extra_parameters=mixed,
        ),
        hidden=hidden,
        max_positions=positions(config, "model_max_length", default=1048576),
    )
    block = joined_block(config, layers[-1], hidden, tables=0, default=0, why=None)
    if block is not None:
        config.assume("the prediction block is taken as DeepSeek-V3's, around the last layer")
    return replace(model, prediction=block)


def _mixers(config: Config, depth: int) -> tuple[Mixer, ...]:
    """Latent attention where `full_attn_layers`, counted from one, or `layer_types` says."""
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
    latent = replace(latent_attention(config, WHY), output_gate="element" if gated else "none")
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


def _ffns(config: Config, depth: int) -> tuple[Dense | Experts, ...]:
    """Dense parts in front, then experts with a balance bias, in a latent width where given."""
    experts, top_k = routed_experts(
        config,
        experts=("num_experts", "n_routed_experts"),
        top_k=("num_experts_per_token", "num_experts_per_tok"),
    )
    width = config.need("moe_intermediate_size")
    latent = config.get("routed_expert_hidden_size", None, low=1)
    activation = config.text("hidden_act", "silu")
    sparse = Experts(
        experts=experts,
        top_k=top_k,
        width=width,
        activation=activation,
        shared_width=width * config.get("num_shared_experts", 0, None, "n_shared_experts"),
        router_bias=True,
        latent=latent,
        latent_norm=latent is not None and config.flag("latent_moe_use_norm", default=False),
    )
    marked = config.texts("mlp_layer_types", depth)
    first = marked.count("dense") if marked else leading_dense(config, depth, 1, WHY)
    every = config.get("moe_layer_freq", 1, None, low=1)
    dense = Dense(width=config.need("intermediate_size"), activation=activation)
    return tuple(sparse if i >= first and i % every == 0 else dense for i in range(depth))
