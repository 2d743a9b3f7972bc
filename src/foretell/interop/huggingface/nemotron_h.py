"""Nemotron-H and Nemotron-3: Mamba-2, attention, dense and expert layers in a given order.

Every layer is one norm and one block. The routers' balance bias is a buffer here and not counted,
as in the published totals.
"""

from foretell.interop.huggingface.config import LAYERS_MOST, Config
from foretell.interop.huggingface.decoders import layer_of, prediction_of, stack_model
from foretell.interop.huggingface.feedforward import dense_part, expert_part
from foretell.interop.huggingface.rows import Row, rules_of
from foretell.specs.model import Layer, Model

LETTERS = {"M": "mamba", "*": "attention", "E": "moe", "-": "mlp"}
"""`hybrid_override_pattern`, letter by letter."""
NAMES = {
    **{name: name for name in LETTERS.values()},
    "full_attention": "attention",
    "linear_attention": "mamba",
}
"""`layers_block_type`, name by name."""


def read(config: Config) -> Model:
    """Layers in the order of the pattern; prediction blocks in that of their own pattern."""
    row = Row(config, rules_of(config.family))
    row.known["hidden"] = row.whole("hidden")
    kinds = _pattern(config, "layers_block_type", "hybrid_override_pattern")
    ahead: tuple[str, ...] = ()
    if config.get("num_nextn_predict_layers", 0):
        ahead = _pattern(config, "mtp_layers_block_type", "mtp_hybrid_override_pattern")
    made = {kind: _layer(row, kind) for kind in dict.fromkeys((*kinds, *ahead))}
    depth = config.get("num_hidden_layers", len(kinds))
    config.check(
        depth == len(kinds),
        ("num_hidden_layers", "hybrid_override_pattern", "layers_block_type"),
        f"{depth} layers, but a pattern of {len(kinds)}",
    )
    block = prediction_of(row, tuple(made[kind] for kind in ahead)) if ahead else None
    return stack_model(row, [made[kind] for kind in kinds], block)


def _pattern(config: Config, listed: str, lettered: str) -> tuple[str, ...]:
    """The kind of each layer, from a list of names or a string of letters."""
    key, known, given = lettered, LETTERS, tuple(config.text(lettered, ""))
    if config.has(listed):
        key, known, given = listed, NAMES, config.texts(listed) or ()
    elif not given:
        config.problem(lettered, "is missing", allowed=f"letters of {''.join(LETTERS)}")
    for name in dict.fromkeys(given):
        if name not in known:
            config.problem(key, "has an unknown kind", name, allowed=" ".join(known))
    config.check(0 < len(given) <= LAYERS_MOST, (key,), f"names {len(given)} layers")
    return tuple(known.get(name, "mlp") for name in given[:LAYERS_MOST]) or ("mlp",)


def _layer(row: Row, kind: str) -> Layer:
    """A layer of one block."""
    if kind == "mamba":
        return layer_of(row.within(row.rules["mixers"]["other"]))
    if kind == "attention":
        return layer_of(row)
    return Layer(ffn=expert_part(row) if kind == "moe" else dense_part(row), norms=1)
