"""Llama-4: chunked and whole attention in turn, experts on all or every second layer, a tower."""

from foretell.interop.huggingface import towers
from foretell.interop.huggingface.common import plain_decoder, read_heads
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.experts import routed_experts
from foretell.interop.huggingface.multimodal import finish, has_tower, text_level
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention
from foretell.specs.model import Layer, Model

WHY = "Llama4TextConfig's defaults"


def read(config: Config) -> Model:
    """The text model, and the vision tower where the config describes it."""
    text = text_level(config)
    text.family = config.family
    model = _text(text)
    if config.family == "llama4_text" or not has_tower(config, "vision_config", "vision"):
        return finish(config, model, ())
    tower = towers.llama4(config.sub("vision_config"), model.stack.hidden)
    return finish(config, model, (tower,))


def _text(config: Config) -> Model:
    hidden, depth = config.need("hidden_size"), config.layers()
    layers = [
        Layer(mixers=(mixer,), ffn=ffn)
        for mixer, ffn in zip(_mixers(config, hidden, depth), _ffns(config, depth), strict=True)
    ]
    return plain_decoder(config, layers, hidden, longest=131072, why=WHY)


def _mixers(config: Config, hidden: int, depth: int) -> tuple[Attention, ...]:
    """Aligned chunks where positions are rotated, all keys where they are not (every fourth layer).

    Queries and keys are normalised without weights.
    """
    shape = read_heads(config, hidden, kv_default=8, dim_default=128, why=WHY)
    biased = config.flag("attention_bias", default=False, why=WHY)
    chunk = config.get("attention_chunk_size", 8192, WHY, low=1)
    kinds = config.layer_types(depth, ("chunked_attention", "full_attention"))
    if kinds is not None:
        marks = [kind == "chunked_attention" for kind in kinds]
    else:
        rotated = config.wholes("no_rope_layers")
        if not rotated:  # an empty list stands for the default in released configs
            every = config.get("no_rope_layer_interval", 4, WHY, low=1)
            rotated = tuple(int((i + 1) % every != 0) for i in range(depth))
        config.check(
            len(rotated) == depth,
            ("no_rope_layers", "num_hidden_layers"),
            f"{len(rotated)} entries for {depth} layers",
        )
        marks = [bool(mark) for mark in rotated[:depth]] + [False] * (depth - len(rotated))
    whole, chunked = (
        shape.attention(biased=biased, window=window, chunked=window is not None)
        for window in (None, chunk)
    )
    return tuple(chunked if mark else whole for mark in marks)


def _ffns(config: Config, depth: int) -> tuple[Dense | Experts, ...]:
    """Experts with one shared expert of the same width, on every `interleave_moe_layer_step`-th
    layer."""
    experts, top_k = routed_experts(config, experts=("num_local_experts",))
    width = config.need("intermediate_size")
    sparse = Experts(experts=experts, top_k=top_k, width=width, shared_width=width)
    step = config.get("interleave_moe_layer_step", 1, WHY, low=1)
    named = config.wholes("moe_layers")
    marked = set(range(step - 1, depth, step)) if named is None else set(named)
    if len(marked) == depth:
        return (sparse,) * depth
    dense = Dense(width=config.need("intermediate_size_mlp"))
    return tuple(sparse if i in marked else dense for i in range(depth))
