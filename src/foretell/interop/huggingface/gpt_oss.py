"""gpt-oss: biases everywhere, a sink per head, windows on every second layer."""

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.experts import routed_experts
from foretell.interop.huggingface.llamalike import Traits, all_but_every, read_like
from foretell.specs.ffn import Experts
from foretell.specs.model import Model

WHY = "GptOssConfig's defaults"


def read(config: Config) -> Model:
    """Experts and router with biases in every layer; sinks are one weight per head."""
    traits = Traits(
        why=WHY,
        qkv_bias=("attention_bias", True),
        o_bias=("attention_bias", True),
        kv_default=8,
        dim_default=64,
        windows=all_but_every(2, 128, WHY),
        scaled_rotary=True,
        extra_per_layer=config.need("num_attention_heads"),
    )
    experts, top_k = routed_experts(
        config, experts=("num_local_experts",), top_k=("num_experts_per_tok", "experts_per_token")
    )
    ffn = Experts(
        experts=experts,
        top_k=top_k,
        width=config.need("intermediate_size"),
        expert_bias=True,
        clamped=True,
        router_bias=True,
    )
    return read_like(config, traits, (ffn,) * config.layers())
