"""MiMo-V2-Flash: windowed layers with heads of their own and sinks, experts after a dense layer."""

from foretell.interop.huggingface.common import HeadNames, plain_decoder, read_heads
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.experts import routed_experts
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention
from foretell.specs.model import Layer, Model

WHY = "MiMoV2FlashConfig's defaults"
WINDOWED = HeadNames(
    heads=("swa_num_attention_heads",),
    kv_heads=("swa_num_key_value_heads",),
    head_dim=("swa_head_dim",),
)


def read(config: Config) -> Model:
    """Whole layers where `hybrid_layer_pattern` is 0, windowed where it is 1."""
    hidden, depth = config.need("hidden_size"), config.layers()
    pattern = config.wholes("hybrid_layer_pattern", depth)
    if pattern is None:
        config.problem("hybrid_layer_pattern", "is missing", allowed="0 or 1 per layer")
        pattern = (0,) * depth
    whole, local = _mixers(config, hidden)
    sinks = (
        config.flag("add_full_attention_sink_bias", default=False, why=WHY),
        config.flag("add_swa_attention_sink_bias", default=True, why=WHY),
    )
    layers = []
    for kind, ffn in zip(pattern, _ffns(config, depth), strict=True):
        mixer = local if kind else whole
        extra = mixer.heads if sinks[1 if kind else 0] else 0
        layers.append(Layer(mixers=(mixer,), ffn=ffn, extra_parameters=extra))
    if not config.has("num_nextn_predict_layers", "num_mtp_layers"):
        config.assume("the config names no prediction blocks: none are counted")
    return plain_decoder(config, layers, hidden, longest=262144, why=WHY)


def _mixers(config: Config, hidden: int) -> tuple[Attention, Attention]:
    """(whole, windowed) attention; values are narrower than keys."""
    whole = read_heads(config, hidden)
    local = read_heads(config, hidden, WINDOWED)
    value = config.get("v_head_dim", whole.head_dim, low=1)
    biased = config.flag("attention_bias", default=False, why=WHY)
    window = config.need("sliding_window", "sliding_window_size")
    return (
        Attention(
            heads=whole.heads,
            kv_heads=whole.kv_heads,
            head_dim=whole.head_dim,
            value_dim=value,
            q_bias=biased,
            k_bias=biased,
            v_bias=biased,
        ),
        Attention(
            heads=local.heads,
            kv_heads=local.kv_heads,
            head_dim=local.head_dim,
            value_dim=config.get("swa_v_head_dim", value, low=1),
            window=window,
            q_bias=biased,
            k_bias=biased,
            v_bias=biased,
        ),
    )


def _ffns(config: Config, depth: int) -> tuple[Dense | Experts, ...]:
    """Experts where `moe_layer_freq` is 1."""
    experts, top_k = routed_experts(config, experts=("n_routed_experts",))
    width = config.need("moe_intermediate_size")
    sparse = Experts(
        experts=experts,
        top_k=top_k,
        width=width,
        shared_width=width * config.get("n_shared_experts", 0),
        router_bias=config.text("topk_method", "noaux_tc", WHY) == "noaux_tc",
    )
    marks = config.wholes("moe_layer_freq", depth)
    if marks is None:
        config.problem("moe_layer_freq", "is missing", allowed="0 or 1 per layer")
        marks = (1,) * depth
    dense = Dense(width=config.need("intermediate_size"))
    return tuple(sparse if mark else dense for mark in marks)
