"""Step-3.5 and Step-3.7 Flash: a gate per head, windows with more heads, dense layers first."""

from dataclasses import replace

from foretell.interop.huggingface import towers
from foretell.interop.huggingface.common import HeadNames, plain_decoder, read_heads
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.experts import leading_dense, routed_experts
from foretell.interop.huggingface.multimodal import finish, has_tower, text_level
from foretell.interop.huggingface.prediction import joined_block
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention
from foretell.specs.model import Layer, Model

WHY = "Step3p7TextConfig's defaults"
NAMES = HeadNames(kv_heads=("num_key_value_heads", "num_attention_groups"))
KINDS = ("full_attention", "sliding_attention")


def read(config: Config) -> Model:
    """The text model, and Step-3.7's tower where the config describes it."""
    text = text_level(config)
    text.family = config.family
    model = _text(text)
    if config.family == "step3p5" or not has_tower(config, "vision_config", "vision"):
        return finish(config, model, ())
    biased = config.flag("projector_bias", default=False)
    tower = towers.step(config.sub("vision_config"), model.stack.hidden, biased)
    return finish(config, model, (tower,))


def _text(config: Config) -> Model:
    """Released configs list the prediction layers behind the others in `layer_types`."""
    hidden, depth = config.need("hidden_size"), config.layers()
    ahead = config.get("num_nextn_predict_layers", 0, None, "num_mtp_layers")
    kinds = _kinds(config, depth, ahead)
    whole, local = _mixers(config, hidden)
    dense = Dense(width=config.need("intermediate_size"))
    layers = [
        Layer(mixers=(local if kind == "sliding_attention" else whole,), ffn=ffn)
        for kind, ffn in zip(kinds, _ffns(config, depth, dense), strict=False)
    ]
    vocab = config.need("vocab_size")
    model = plain_decoder(config, layers, hidden, longest=128000, why=WHY)
    block = joined_block(
        config,
        Layer(mixers=(local if kinds[-1] == "sliding_attention" else whole,), ffn=dense),
        hidden,
        tables=vocab * hidden,
        default=0,
        why=None,
    )
    if block is not None:
        config.assume(
            "prediction blocks are dense windowed layers with a scoring matrix of their own, as "
            "released"
        )
    return replace(model, prediction=block)


def _kinds(config: Config, depth: int, ahead: int) -> tuple[str, ...]:
    """Kinds of the layers, and of a prediction layer behind them."""
    kinds = config.texts("layer_types")
    if kinds is None:
        config.problem("layer_types", "is missing", allowed=f"one of {', '.join(KINDS)} per layer")
        return ("full_attention",) * depth + ("sliding_attention",)
    for kind in dict.fromkeys(kinds):
        if kind not in KINDS:
            config.problem("layer_types", "has an unknown kind", kind, allowed=", ".join(KINDS))
    config.check(
        len(kinds) in (depth, depth + ahead),
        ("layer_types", "num_hidden_layers"),
        f"{len(kinds)} kinds for {depth} layers",
    )
    last = kinds[depth] if len(kinds) > depth else "sliding_attention"
    return (*kinds[:depth], last)


def _mixers(config: Config, hidden: int) -> tuple[Attention, Attention]:
    """(whole, windowed): `attention_other_setting` gives the windowed layers heads of their own."""
    shape = read_heads(config, hidden, NAMES, kv_default=8, dim_default=128, why=WHY)
    window = config.need("sliding_window")
    gated = config.flag("use_head_wise_attn_gate", default=True, why=WHY)
    whole = Attention(
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        qk_norm="head",
        output_gate="head" if gated else "none",
    )
    if not config.has("attention_other_setting"):
        heads = config.get("num_sliding_attention_heads", shape.heads, WHY, low=1)
        return whole, replace(whole, heads=heads, window=window)
    other = read_heads(config.sub("attention_other_setting"), hidden, NAMES)
    local = replace(
        whole,
        heads=other.heads,
        kv_heads=other.kv_heads,
        head_dim=other.head_dim,
        window=window,
    )
    return whole, local


def _ffns(config: Config, depth: int, dense: Dense) -> tuple[Dense | Experts, ...]:
    """Experts with a shared one on the layers that `moe_layers_enum` names, or behind the first
    `first_k_dense_replace` (3) layers."""
    experts, top_k = routed_experts(
        config,
        experts=("moe_num_experts", "num_experts", "n_routed_experts"),
        top_k=("moe_top_k", "num_experts_per_tok"),
    )
    sparse = Experts(
        experts=experts,
        top_k=top_k,
        width=config.need("moe_intermediate_size"),
        shared_width=config.need("share_expert_dim", "share_expert_dims", low=0),
        router_bias=config.flag("use_moe_router_bias", default=True, why=WHY),
    )
    marked = _marked(config)
    if marked is None:
        first = leading_dense(config, depth, 3, WHY)
        marked = frozenset(range(first, depth))
    return tuple(sparse if i in marked else dense for i in range(depth))


def _marked(config: Config) -> frozenset[int] | None:
    """`moe_layers_enum`: a list, or numbers with commas between them."""
    value = config.raw("moe_layers_enum")
    if isinstance(value, str):
        words = [word.strip() for word in value.split(",") if word.strip()]
        if not all(word.isdecimal() for word in words):
            config.problem("moe_layers_enum", "is not a list of layers", value)
            return frozenset()
        return frozenset(int(word) for word in words)
    named = config.wholes("moe_layers_enum")
    return None if named is None else frozenset(named)
