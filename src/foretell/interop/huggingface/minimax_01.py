"""MiniMax-Text-01 and M1: linear (lightning) and softmax attention in turn, experts everywhere."""

from foretell.interop.huggingface.common import plain_decoder, read_heads
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.experts import routed_experts
from foretell.specs.ffn import Experts
from foretell.specs.mixers import Attention
from foretell.specs.model import Layer, Model, Projection

WHY = "MiniMaxConfig's defaults"


def read(config: Config) -> Model:
    """A linear layer is a joint map to q, k and v, a gate, a norm of its width and a map back."""
    hidden, depth = config.need("hidden_size"), config.layers()
    shape = read_heads(config, hidden, kv_default=8, why=WHY)
    inner = shape.heads * shape.head_dim
    attention = Attention(
        heads=shape.heads, kv_heads=shape.kv_heads, head_dim=shape.head_dim, window=None
    )
    maps = (
        Projection(name="lightning.qkv", inputs=hidden, outputs=3 * inner, split="col", qkv=True),
        Projection(name="lightning.gate", inputs=hidden, outputs=inner, split="col"),
        Projection(name="lightning.out", inputs=inner, outputs=hidden, split="row"),
    )
    experts, top_k = routed_experts(config, experts=("num_local_experts",))
    ffn = Experts(
        experts=experts,
        top_k=top_k,
        width=config.need("intermediate_size"),
        shared_width=config.get("shared_intermediate_size", 0),
    )
    whole = Layer(mixers=(attention,), ffn=ffn)
    linear = Layer(ffn=ffn, projections=maps, extra_parameters=inner)
    config.assume("the linear attention's recurrence is not timed; its maps are")
    return plain_decoder(
        config,
        [whole if mark else linear for mark in _whole(config, depth)],
        hidden,
        longest=131072,
        why=WHY,
    )


def _whole(config: Config, depth: int) -> tuple[bool, ...]:
    """Layers with softmax attention: `layer_types`, or 1 in `attn_type_list`."""
    kinds = config.layer_types(depth, ("linear_attention", "full_attention"))
    if kinds is not None:
        return tuple(kind == "full_attention" for kind in kinds)
    marks = config.wholes("attn_type_list", depth)
    if marks is not None:
        return tuple(bool(mark) for mark in marks)
    config.assume("every second layer has softmax attention: the library's way")
    return tuple((i + 1) % 2 == 0 for i in range(depth))
