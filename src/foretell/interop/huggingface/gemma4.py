"""Gemma-4: windowed and whole attention of different shapes, experts beside a dense part."""

from dataclasses import replace

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.decoders import shape_of, stack_model
from foretell.interop.huggingface.feedforward import dense_part, expert_part
from foretell.interop.huggingface.mixers import attention
from foretell.interop.huggingface.multimodal import with_towers
from foretell.interop.huggingface.rows import Row, rules_of
from foretell.specs.mixers import Attention
from foretell.specs.model import Layer, Model, Projection


def read(config: Config) -> Model:
    """The text model and its vision and audio towers."""
    return with_towers(config, rules_of(config.family), text_model)


def text_model(row: Row) -> Model:
    """The text model: windowed layers and whole ones, perhaps with inputs of their own."""
    depth, config = shape_of(row), row.config
    shared = config.get("num_kv_shared_layers", 0, row.why)
    config.check(
        shared <= depth, ("num_kv_shared_layers",), f"{shared} sharing layers of {depth} in all"
    )
    side = row.whole("side", 0)
    layers = [
        _layer(row, mixer, side=side, sharing=i >= depth - shared > 0)
        for i, mixer in enumerate(_mixers(row, depth, shared))
    ]
    model = stack_model(row, layers)
    if side == 0:
        return model
    rows = config.get("vocab_size_per_layer_input", 262144, row.why, low=1)
    own = replace(  # layers have inputs of their own: their table, map and norm
        model.embedding,
        projections=(
            Projection(
                name="embedding.per_layer", inputs=row.whole("hidden"), outputs=side * depth
            ),
        ),
        extra_parameters=rows * side * depth + side,
    )
    return replace(model, embedding=own)


def _mixers(row: Row, depth: int, shared: int) -> tuple[Attention, ...]:
    """Windowed layers of `head_dim`; whole ones of `global_head_dim`, whose values may be the keys.

    The last `num_kv_shared_layers` layers read keys and values of an earlier layer of their kind.
    """
    config, local = row.config, attention(row)
    same = config.flag("attention_k_eq_v", default=False, why=row.why)
    whole = replace(
        local,
        head_dim=row.whole("whole_width"),
        kv_heads=config.get("num_global_key_value_heads", local.kv_heads, low=1)
        if same
        else local.kv_heads,
        window=None,
        value_is_key=same,
    )
    kinds = config.layer_types(depth, ("sliding_attention", "full_attention"))
    if kinds is None:
        every = row.rules["whole_every"]
        config.assume(
            f"one in {every} layers sees all keys, the others their window: the library's way"
        )
        kinds = tuple(
            "full_attention" if (i + 1) % every == 0 or i == depth - 1 else "sliding_attention"
            for i in range(depth)
        )
    made = [whole if kind == "full_attention" else local for kind in kinds]
    return tuple(replace(m, owns_kv=i < depth - shared) for i, m in enumerate(made))


def _layer(row: Row, mixer: Attention, *, side: int, sharing: bool) -> Layer:
    """Norms before and after each half; with experts, three more and the router's two scales; with
    inputs of its own, a gate down, a map up and one more norm."""
    config, hidden = row.config, row.whole("hidden")
    wide = sharing and config.flag("use_double_wide_mlp", default=False, why=row.why)
    narrow = dense_part(row)
    dense = replace(narrow, width=2 * narrow.width) if wide else narrow
    maps: tuple[Projection, ...] = ()
    if side:
        maps = (
            Projection(name="per_layer.gate", inputs=hidden, outputs=side),
            Projection(name="per_layer.up", inputs=side, outputs=hidden),
        )
    norms = 5 if side else 4
    if not config.flag("enable_moe_block", default=False, why=row.why):
        return Layer(mixers=(mixer,), ffn=dense, norms=norms, projections=maps)
    experts = expert_part(row)
    sparse = replace(experts, extra_parameters=hidden + experts.experts)
    return Layer(mixers=(mixer,), ffn=sparse, dense_beside=dense, norms=norms + 3, projections=maps)
