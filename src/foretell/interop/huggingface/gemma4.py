"""Gemma-4: windowed and whole attention of different shapes, experts beside a dense part."""

from dataclasses import replace

from foretell.interop.huggingface import towers
from foretell.interop.huggingface.common import decoder, positions, tied_embeddings
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.experts import routed_experts
from foretell.interop.huggingface.multimodal import finish, has_tower, text_level
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention
from foretell.specs.model import Embedding, Head, Layer, Model, Projection

WHY = "Gemma4TextConfig's defaults"


def read(config: Config) -> Model:
    """The text model and its vision and audio towers."""
    text = text_level(config)
    text.family = config.family
    model = _text(text)
    if config.family == "gemma4_text":
        return finish(config, model, ())
    found = []
    if has_tower(config, "vision_config", "vision"):
        found.append(towers.gemma4(config.sub("vision_config"), model.stack.hidden))
    if config.has("audio_config"):
        found.append(towers.gemma4_audio(config.sub("audio_config"), model.stack.hidden))
    return finish(config, model, found)


def _text(config: Config) -> Model:
    hidden, depth = config.need("hidden_size"), config.layers()
    shared = config.get("num_kv_shared_layers", 0, WHY)
    config.check(
        shared <= depth, ("num_kv_shared_layers",), f"{shared} sharing layers of {depth} in all"
    )
    side = config.get("hidden_size_per_layer_input", 256, WHY)
    layers = [
        _layer(config, mixer, hidden, side=side, sharing=i >= depth - shared > 0)
        for i, mixer in enumerate(_mixers(config, depth, shared))
    ]
    vocab = config.need("vocab_size")
    return decoder(
        config,
        layers,
        embedding=_embedding(config, vocab, hidden, side * depth),
        head=Head(outputs=vocab, tied=tied_embeddings(config, default=True, why=WHY)),
        hidden=hidden,
        max_positions=positions(config, default=131072),
    )


def _embedding(config: Config, vocab: int, hidden: int, side: int) -> Embedding:
    """The token table and, where layers have inputs of their own, their table, map and norm."""
    if side == 0:
        return Embedding(vocab=vocab)
    rows = config.get("vocab_size_per_layer_input", 262144, WHY, low=1)
    return Embedding(
        vocab=vocab,
        projections=(Projection(name="embedding.per_layer", inputs=hidden, outputs=side),),
        extra_parameters=rows * side + config.get("hidden_size_per_layer_input", 256),
    )


def _mixers(config: Config, depth: int, shared: int) -> tuple[Attention, ...]:
    """Windowed layers of `head_dim`; whole ones of `global_head_dim`, whose values may be the keys.

    The last `num_kv_shared_layers` layers read keys and values of an earlier layer of their kind.
    """
    heads = config.need("num_attention_heads")
    kv_heads = config.get("num_key_value_heads", 4, WHY, low=1)
    biased = config.flag("attention_bias", default=False, why=WHY)
    window = config.get("sliding_window", 512, WHY, low=1)
    same = config.flag("attention_k_eq_v", default=False, why=WHY)
    local = Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=config.get("head_dim", 256, WHY, low=1),
        window=window,
        q_bias=biased,
        k_bias=biased,
        v_bias=biased,
        o_bias=biased,
        qk_norm="head",
    )
    whole = replace(
        local,
        head_dim=config.get("global_head_dim", 512, WHY, low=1),
        kv_heads=config.get("num_global_key_value_heads", kv_heads, low=1) if same else kv_heads,
        window=None,
        value_is_key=same,
    )
    kinds = config.layer_types(depth, ("sliding_attention", "full_attention"))
    if kinds is None:
        config.assume("every sixth layer sees all keys, the others their window: the library's way")
        kinds = tuple(
            "full_attention" if (i + 1) % 6 == 0 or i == depth - 1 else "sliding_attention"
            for i in range(depth)
        )
    made = [whole if kind == "full_attention" else local for kind in kinds]
    return tuple(replace(m, owns_kv=i < depth - shared) for i, m in enumerate(made))


def _layer(config: Config, mixer: Attention, hidden: int, *, side: int, sharing: bool) -> Layer:
    """Norms before and after each half; with experts, three more and the router's two scales; with
    inputs of its own, a gate down, a map up and one more norm."""
    wide = sharing and config.flag("use_double_wide_mlp", default=False, why=WHY)
    dense = Dense(
        width=config.need("intermediate_size") * (2 if wide else 1),
        activation=config.text("hidden_activation", "gelu_pytorch_tanh", WHY),
    )
    maps: tuple[Projection, ...] = ()
    if side:
        maps = (
            Projection(name="per_layer.gate", inputs=hidden, outputs=side),
            Projection(name="per_layer.up", inputs=side, outputs=hidden),
        )
    norms = 5 if side else 4
    if not config.flag("enable_moe_block", default=False, why=WHY):
        return Layer(mixers=(mixer,), ffn=dense, norms=norms, projections=maps)
    experts, top_k = routed_experts(config, experts=("num_experts",), top_k=("top_k_experts",))
    sparse = Experts(
        experts=experts,
        top_k=top_k,
        width=config.need("moe_intermediate_size"),
        activation=dense.activation,
        extra_parameters=hidden + experts,
    )
    return Layer(mixers=(mixer,), ffn=sparse, dense_beside=dense, norms=norms + 3, projections=maps)
