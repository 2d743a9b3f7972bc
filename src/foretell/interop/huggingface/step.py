"""Step-3.5 and Step-3.7 Flash: a gate per head, windows with more heads, dense layers first."""

from dataclasses import replace

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.decoders import prediction_of, shape_of, stack_model
from foretell.interop.huggingface.feedforward import dense_part, parts_of
from foretell.interop.huggingface.mixers import attention, read_heads
from foretell.interop.huggingface.multimodal import with_towers
from foretell.interop.huggingface.rows import Row, rules_of
from foretell.specs.mixers import Attention
from foretell.specs.model import Layer, Model

KINDS = ("full_attention", "sliding_attention")


def read(config: Config) -> Model:
    """The text model, and Step-3.7's tower where the config describes it."""
    return with_towers(config, rules_of(config.family), _text)


def _text(row: Row) -> Model:
    """Released configs list the prediction layers behind the others in `layer_types`."""
    depth = shape_of(row)
    mixers = _mixers(row)
    kinds = [mixers[kind] for kind in _kinds(row.config, depth)]
    layers = tuple(
        Layer(mixers=(mixer,), ffn=ffn)
        for mixer, ffn in zip(kinds, parts_of(row, depth), strict=False)
    )
    ahead = Layer(mixers=(kinds[-1],), ffn=dense_part(row))
    return stack_model(row, layers, prediction_of(row, (ahead,)))


def _kinds(config: Config, depth: int) -> tuple[str, ...]:
    """Kinds of the layers, and of a prediction layer behind them."""
    kinds = config.texts("layer_types")
    if kinds is None:
        config.problem("layer_types", "is missing", allowed=f"one of {', '.join(KINDS)} per layer")
        return ("full_attention",) * depth + ("sliding_attention",)
    for kind in dict.fromkeys(kinds):
        if kind not in KINDS:
            config.problem("layer_types", "has an unknown kind", kind, allowed=", ".join(KINDS))
    ahead = config.get("num_nextn_predict_layers", 0, None, "num_mtp_layers")
    config.check(
        len(kinds) in (depth, depth + ahead),
        ("layer_types", "num_hidden_layers"),
        f"{len(kinds)} kinds for {depth} layers",
    )
    known = [kind if kind in KINDS else KINDS[0] for kind in kinds]
    return (*known[:depth], known[depth] if len(known) > depth else "sliding_attention")


def _mixers(row: Row) -> dict[str, Attention]:
    """Whole and windowed attention: `attention_other_setting` gives the latter heads of their own."""
    whole, window = attention(row), row.config.need("sliding_window")
    if not row.config.has("attention_other_setting"):
        heads = row.config.get("num_sliding_attention_heads", whole.heads, row.why, low=1)
        return dict(zip(KINDS, (whole, replace(whole, heads=heads, window=window)), strict=True))
    names = {"kv_heads": ["num_key_value_heads", "num_attention_groups"], "head_dim": ["head_dim"]}
    other = row.within(names)
    other.config = row.config.sub("attention_other_setting")
    shape = read_heads(other)
    local = replace(
        whole,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        window=window,
    )
    return dict(zip(KINDS, (whole, local), strict=True))
