"""Models of the catalogue in other sizes, and with other forms of their factorised maps."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal

from foretell.errors import BadInput, Problem, bad_input, wrong
from foretell.records import dataclass
from foretell.specs.ffn import Dense
from foretell.specs.mixers import Attention, Mixer
from foretell.specs.model import Layer, Model, Stack
from foretell.workload.blocks.gated_attention import GatedAttention
from foretell.workload.blocks.tensor_chain import TensorChain

Form = Literal["auto", "build", "contract"]
"""Of tensor chains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationSizes:
    """What a smaller model has in the place of its own; none: its own."""

    width: int | None = None
    """Hidden width."""
    layers: int | None = None
    """Layers of the encoder, and as many of the decoder."""
    heads: int | None = None
    """Heads of every attention."""
    ffn: int | None = None
    """Inner width of a plain feed-forward part; a gated one has two thirds of it, rounded down."""
    vocab: int | None = None
    """Rows of the tables, and outputs."""


def resize_model(model: Model, sizes: TranslationSizes) -> Model:
    """The model with other sizes; shares of tensor chains stay, so that bonds follow."""
    if model.encoder is None:
        raise bad_input("model", model.id, "is no encoder-decoder, and translation needs one")
    width = sizes.width or model.stack.hidden
    vocab = sizes.vocab or model.embedding.vocab
    own = model.encoder_embedding
    found = replace(
        model,
        stack=_stack(model.stack, sizes, width),
        encoder=_stack(model.encoder, sizes, width),
        embedding=replace(model.embedding, vocab=vocab),
        encoder_embedding=None if own is None else replace(own, vocab=vocab),
        head=replace(model.head, outputs=vocab),
    )
    _check(found)
    return found


def with_form(model: Model, form: Form) -> Model:
    """The same with every tensor chain in one form: auto, build or contract."""
    changed: Model = chains(model, lambda chain: replace(chain, form=form))
    return changed


def chains(record: Any, change: Callable[[TensorChain], TensorChain]) -> Any:
    """A record with every tensor chain in it changed."""
    if isinstance(record, TensorChain):
        return change(record)
    if isinstance(record, tuple):
        return tuple(chains(item, change) for item in record)
    if not is_dataclass(record) or isinstance(record, type):
        return record
    return replace(
        record, **{f.name: chains(getattr(record, f.name), change) for f in fields(record)}
    )


def _stack(stack: Stack, sizes: TranslationSizes, width: int) -> Stack:
    many = sizes.layers or len(stack.layers)
    # Layers of a translation model are alike; more or fewer of them are copies of the first.
    layer = _layer(stack.layers[0], sizes, width)
    return replace(stack, hidden=width, layers=(layer,) * many)


def _layer(layer: Layer, sizes: TranslationSizes, width: int) -> Layer:
    feed = layer.ffn
    if isinstance(feed, Dense) and sizes.ffn is not None:
        feed = replace(feed, width=2 * sizes.ffn // 3 if feed.gated else sizes.ffn)
    return replace(layer, mixers=tuple(_mixer(m, sizes, width) for m in layer.mixers), ffn=feed)


def _mixer(mixer: Mixer, sizes: TranslationSizes, width: int) -> Mixer:
    if isinstance(mixer, GatedAttention):
        return replace(mixer, heads=sizes.heads or mixer.heads)
    if isinstance(mixer, Attention):
        heads = sizes.heads or mixer.heads
        shared = mixer.heads // mixer.kv_heads
        return replace(
            mixer, heads=heads, kv_heads=max(heads // shared, 1), head_dim=max(width // heads, 1)
        )
    return mixer


def _check(model: Model) -> None:
    """Heads must share the width, and blocks must be able to cut it; all problems at once."""
    width, problems = model.stack.hidden, list[Problem]()
    mixers = {m for layer in set(model.stack.layers) for m in layer.mixers}
    heads = {m.heads for m in mixers if isinstance(m, Attention | GatedAttention)}
    for many in sorted(heads):
        if width % many:
            problems.append(wrong("width", width, f"{many} heads cannot share it evenly"))
    if model.embedding.block is not None:
        from foretell.workload.graph import Tokens

        one = Tokens(batch=1.0, q_len=1.0, kv_len=1.0)
        try:
            model.embedding.block.graph(model.embedding.vocab, width, one)
        except BadInput as error:
            problems += error.problems
    if problems:
        raise BadInput(problems)
