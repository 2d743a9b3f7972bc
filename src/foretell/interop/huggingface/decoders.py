"""Decoders whose family is a row of families.toml, with their prediction blocks and towers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.feedforward import parts_of
from foretell.interop.huggingface.layers import marks_of, windows_of
from foretell.interop.huggingface.mixers import FORMS
from foretell.interop.huggingface.multimodal import with_towers
from foretell.interop.huggingface.rows import Row, rules_of, table
from foretell.interop.huggingface.storage import dtype
from foretell.specs.model import Embedding, Head, Layer, Model, Projection, Stack, TokenPrediction


def read(config: Config) -> Model:
    """The text model of a config, and the towers that it describes."""
    return with_towers(config, rules_of(config.family), decoder)


def decoder(row: Row) -> Model:
    """The model of a row's layers."""
    depth = shape_of(row)
    layers = full_layers(row, depth)
    for place, own in layer_overrides(row.config, depth):
        other = Row(row.config.over(own, f"per_layer_config.{place}"), row.rules)
        shape_of(other)
        layers = (*layers[:place], full_layers(other, depth)[place], *layers[place + 1 :])
    return stack_model(row, layers, prediction_block(row, layers))


def full_layers(row: Row, depth: int) -> tuple[Layer, ...]:
    """Layers with their feed-forward parts."""
    bases, parts = layers_of(row, depth), parts_of(row, depth)
    return tuple(replace(base, ffn=part) for base, part in zip(bases, parts, strict=True))


def layer_overrides(config: Config, depth: int) -> list[tuple[int, Mapping[str, object]]]:
    """`per_layer_config`: layers whose numbers differ from the config's, as releases from 5 on write them."""
    table = config.raw("per_layer_config")
    if not isinstance(table, Mapping):
        return []
    found = [
        (int(place), own)
        for place, own in table.items()
        if str(place).isdecimal() and isinstance(own, Mapping) and own
    ]
    inside = [(place, own) for place, own in found if place < depth]
    config.check(len(found) == len(inside), ("per_layer_config",), f"names layers beyond {depth}")
    return inside


def shape_of(row: Row) -> int:
    """The number of layers; what the rules of all parts may need is known from here on."""
    if sentence := row.word("assume"):
        row.config.assume(sentence)
    row.known["hidden"] = row.whole("hidden")
    row.known["depth"] = row.config.layers(*row.rules["depth"][1:], key=row.rules["depth"][0])
    return row.known["depth"]


def layers_of(row: Row, depth: int) -> Sequence[Layer]:
    """The layers without their feed-forward parts: of one mixer and its windows, of two kinds in turn, or of
    both at once."""
    mixers = row.rules.get("mixers")
    if mixers is None:
        heads = row.config.wholes(row.rules.get("heads_by_layer", ""), depth, low=1)
        own = [
            {"window": seen, **({"heads": heads[i]} if heads else {})}
            for i, seen in enumerate(windows_of(row, depth))
        ]
        made = {(*kind.values(),): layer_of(row.within(kind)) for kind in own}
        return [made[(*kind.values(),)] for kind in own]
    if row.rules.get("both"):
        one, two = (layer_of(row.within(mixers[name])) for name in ("marked", "other"))
        return (replace(one, mixers=one.mixers + two.mixers),) * depth
    names = ["marked" if mark else "other" for mark in marks_of(row, row.rules["layers"], depth)]
    kinds = {name: layer_of(row.within(mixers[name])) for name in dict.fromkeys(names)}
    return [kinds[name] for name in names]


def layer_of(row: Row) -> Layer:
    """A layer of a mixer alone, with its norms."""
    made = FORMS[row.rules["form"]](row)
    return replace(
        made,
        norms=row.whole("norms"),
        norm_kind=row.word("norm"),
        parallel=row.flag("parallel"),
        extra_parameters=made.extra_parameters + row.whole("layer_extra", 0),
    )


def stack_model(row: Row, layers: Sequence[Layer], block: TokenPrediction | None = None) -> Model:
    """A causal model of these layers between a token table and its scores."""
    config, hidden = row.config, row.whole("hidden")
    vocab, length = row.whole("vocab"), row.whole("length")
    width = row.whole("embedding_width")
    narrow = width != hidden
    into = Projection(name="embedding.project_in", inputs=width, outputs=hidden)
    out = Projection(name="head.project_out", inputs=hidden, outputs=width)
    return Model(
        id=config.id,
        family=config.family,
        kind="decoder",
        stack=Stack(
            hidden=hidden,
            layers=tuple(layers),
            final_norm=row.word("final_norm" if "final_norm" in row.rules else "norm"),
        ),
        embedding=Embedding(
            vocab=vocab,
            width=width if narrow else None,
            positions=length + row.rules["more_positions"] if row.flag("learned") else 0,
            norm=row.word("embedding_norm"),
            projections=(into,) if narrow else (),
        ),
        head=Head(
            outputs=vocab,
            tied=row.flag("tied"),
            bias=row.flag("head_bias"),
            projections=(out,) if narrow else (),
        ),
        prediction=block,
        max_positions=length,
        dtype=dtype(config),
    )


def prediction_block(row: Row, layers: Sequence[Layer]) -> TokenPrediction | None:
    """The prediction blocks of a row: around the last layer, with the marked mixer where there are two."""
    if "prediction" not in row.rules:
        return None
    last = layers[-1]
    if "mixers" in row.rules:
        last = replace(layer_of(row.within(row.rules["mixers"]["marked"])), ffn=last.ffn)
    return prediction_of(row, (last,))


def prediction_of(row: Row, layers: tuple[Layer, ...]) -> TokenPrediction | None:
    """Multi-token prediction as DeepSeek-V3 has it: two norms, a joint of 2 hidden -> hidden, layers, a norm.

    `tables` are the copies of embedding and head that a checkpoint stores with each block, those of models
    of fewer positions than `tables_below`; `note` is what the assumptions say.
    """
    rules = row.rules["prediction"]
    own = row.within(rules, table()["defaults"]["prediction"])
    repeats = own.whole("repeats", 0)
    if repeats == 0 or not own.flag("used"):
        return None
    each = own.whole("each")
    own.config.check(
        repeats * each <= 100, (own.keys("repeats"),), "is more than any model has (at most 100)"
    )
    hidden, tables, note = row.whole("hidden"), own.whole("tables", 0), rules.get("note")
    if row.whole("length") >= rules.get("tables_below", row.whole("length") + 1):
        tables, note = 0, rules["note_above"]
    if note:
        own.config.assume(note)
    return TokenPrediction(
        layers=layers * min(each, 100),
        repeats=min(repeats, 100),
        norm_kind=layers[-1].norm_kind,
        projections=(Projection(name="prediction.joint", inputs=2 * hidden, outputs=hidden),),
        own_tables=tables * row.whole("vocab") * hidden,
    )
