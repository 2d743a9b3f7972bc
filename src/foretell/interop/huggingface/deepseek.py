"""DeepSeek-V2 and V3 (R1, V3.1): latent attention and fine-grained experts."""

from dataclasses import replace

from foretell.interop.huggingface.common import plain_decoder
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.experts import leading_dense, routed_experts
from foretell.interop.huggingface.prediction import joined_block
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import LatentAttention
from foretell.specs.model import Layer, Model

WHY = {"deepseek_v2": "DeepseekV2Config's defaults", "deepseek_v3": "DeepseekV3Config's defaults"}


def read(config: Config) -> Model:
    """Latent attention; experts after the leading dense layers; the prediction block of V3."""
    why = WHY.get(config.family, "the library's defaults")
    return read_like_v3(config, biased=config.family != "deepseek_v2", longest=4096, why=why)


def read_like_v3(config: Config, *, biased: bool, longest: int, why: str) -> Model:
    """DeepSeek-V3's form, the router with a bias or without; `why` says whose defaults are taken."""
    hidden, depth = config.need("hidden_size"), config.layers()
    mixer = latent_attention(config, why)
    ffns = deepseek_ffns(config, depth, router_bias=biased, why=why)
    layers = tuple(Layer(mixers=(mixer,), ffn=ffn) for ffn in ffns)
    vocab = config.need("vocab_size")
    model = plain_decoder(config, layers, hidden, longest=longest, why=why)
    block = joined_block(config, layers[-1], hidden, tables=2 * vocab * hidden, default=0, why=None)
    if block is not None:
        config.assume(
            "the prediction block is counted with its stored copies of embedding and head"
        )
    return replace(model, prediction=block)


def latent_attention(config: Config, why: str) -> LatentAttention:
    """Multi-head latent attention; a null `q_lora_rank` projects queries directly."""
    if config.given("q_lora_rank"):
        rank = config.get("q_lora_rank", None, low=1)
    else:
        rank = config.get("q_lora_rank", 1536, why, low=1)
    return LatentAttention(
        heads=config.need("num_attention_heads"),
        q_rank=rank,
        kv_rank=config.need("kv_lora_rank"),
        nope_dim=config.need("qk_nope_head_dim"),
        rope_dim=config.need("qk_rope_head_dim"),
        value_dim=config.need("v_head_dim"),
        bias=config.flag("attention_bias", default=False, why=why),
    )


def deepseek_ffns(
    config: Config, depth: int, *, router_bias: bool, why: str
) -> tuple[Dense | Experts, ...]:
    """Dense parts in front, then experts on every `moe_layer_freq`-th layer."""
    if not config.has("n_routed_experts"):
        return (Dense(width=config.need("intermediate_size")),) * depth
    experts, top_k = routed_experts(config, experts=("n_routed_experts",))
    width = config.need("moe_intermediate_size")
    sparse = Experts(
        experts=experts,
        top_k=top_k,
        width=width,
        shared_width=width * config.get("n_shared_experts", 0, "no shared expert"),
        router_bias=router_bias,
    )
    first = leading_dense(config, depth, 0, why)
    every = config.get("moe_layer_freq", 1, None, low=1)
    marks = [i >= first and i % every == 0 for i in range(depth)]
    if all(marks):
        return (sparse,) * depth
    dense = Dense(width=config.need("intermediate_size"))
    return tuple(sparse if mark else dense for mark in marks)
