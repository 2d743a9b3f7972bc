"""Models typed as a text: `llama:layers=48,hidden=6144,heads=48,kv_heads=8,ffn=16384,vocab=32000`.

    llama       gated feed-forward part, RMS norms, rotary positions, no biases, a head of its own
    gpt         plain feed-forward part, layer norms, a table of positions, biases, the head tied
    MODEL       a model of the catalogue: cut to its first `layers`, `dense_layers` of them without experts,
                without `prediction` blocks or `towers`

What a text leaves out: kv_heads as heads; head_dim hidden / heads; ffn four times hidden; vocabulary 50,304
rows; positions GPT-2's 1,024, or 2,048 of the first LLaMA. With `params` (weights in billions, as in print)
the feed-forward part is gated or not and the head tied or not by which of the four comes nearest; `gated` and
`tied` overrule this. `experts` are in every layer but the first `dense_layers`; `latent=yes` is DeepSeek's
attention. What was filled in is stated.
"""

import math
import re
from dataclasses import fields, replace
from functools import lru_cache
from typing import Literal

from foretell.errors import BadInput, Problem, nearest_name, wrong
from foretell.records import dataclass
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention, LatentAttention, Mixer
from foretell.specs.model import Embedding, Head, Layer, Model, Stack

KINDS = ("llama", "gpt")
"""What a text may begin with beside a model of the catalogue."""
VOCAB, POSITIONS = 50_304, {"gpt": 1024, "llama": 2048}
"""Rows of GPT-2's table padded to a multiple of 128, and longest sequences, where nothing is stated."""
LATENT = LatentAttention(
    heads=128, q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128
)
"""Latent attention of DeepSeek-V2, V3 and Kimi K2."""
ROUNDED = 0.008
"""Weights in print are rounded by as much, in logarithm."""
MOST, LAYERS_MOST = 10**9, 10_000
"""Largest number of a text, and most layers."""
NEEDED = ("layers", "hidden", "heads")
"""Numbers that a text cannot leave out."""
CHANGES = ("layers", "dense_layers", "prediction", "towers")
"""What can be stated of a model of the catalogue."""
SWITCHES = {"yes": True, "no": False}
TYPED = re.compile(r"([^:=\s][^:=]*):\s*([a-z_0-9]+\s*=.*)")
"""A kind or a model, then words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedShape:
    """What a typed model is made from; equal shapes give one and the same model."""

    kind: str = "llama"
    """llama or gpt."""
    name: str = ""
    """What the model is called; empty: as it was typed."""
    layers: int
    """Layers."""
    hidden: int
    """Width of the residual stream."""
    heads: int
    """Query heads."""
    kv_heads: int = 0
    """Key and value heads; 0: as many as heads."""
    head_dim: int = 0
    """Width of a head; 0: hidden / heads."""
    ffn: int = 0
    """Inner width of the feed-forward part, or of one expert; 0: four times hidden."""
    vocab: int = 0
    """Rows of the token table; 0: 50,304."""
    positions: int = 0
    """Longest sequence, rows of a table of learned positions; 0: GPT-2's 1,024, or LLaMA's 2,048."""
    experts: int = 0
    """Routed experts of a layer; 0: none."""
    top_k: int = 1
    """Routed experts per token."""
    shared: int = 0
    """Shared experts, each as wide as a routed one."""
    dense_layers: int = 0
    """Layers at the start without experts."""
    dense_ffn: int = 0
    """Their inner width; 0: four times hidden."""
    latent: bool = False
    """Whether attention is DeepSeek's latent attention."""
    gated: bool | None = None
    """Whether feed-forward parts are gated; None: as the kind, or as the weights in print tell."""
    tied: bool | None = None
    """Whether the head is the token table; None: the same."""
    params: float = 0.0
    """Weights in billions, as in print; 0: not stated."""


def typed_words(text: str) -> tuple[str, str] | None:
    """What a typed model begins with, and its words; None where a text is none."""
    found = TYPED.fullmatch(text.strip())
    return None if found is None else (found[1].strip(), found[2])


@lru_cache(maxsize=1024)
def typed_model(text: str) -> Model:
    """The model of a typed text; every problem at once as BadInput."""
    found = typed_words(text)
    assert found is not None, "asked of texts that are typed models alone"
    head, words = found
    if head.lower() in KINDS:
        return build_model(_shape(head.lower(), words, text), text)
    from foretell.catalog.models import model as catalogue

    return change_model(catalogue(head), words)


def _pairs(words: str, known: tuple[str, ...], problems: list[Problem]) -> dict[str, str]:
    """`key=value` words with commas between them; a wrong one is a problem."""
    given: dict[str, str] = {}
    for word in words.split(","):
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not value or key not in known:
            near = nearest_name(key, known)
            problems.append(_problem(word.strip(), "no such word", ", ".join(known), near))
        elif key in given:
            problems.append(_problem(word.strip(), f"`{key}` is given twice", "each word once"))
        else:
            given[key] = value
    return given


def _problem(value: str, message: str, allowed: str, nearest: str | None = None) -> Problem:
    return wrong("model", value, message, allowed, nearest)


def _value(key: str, text: str, problems: list[Problem]) -> object:
    """A word's value by the field that it sets."""
    if key == "name":
        return text
    if key in ("latent", "gated", "tied", "prediction", "towers"):
        if text not in SWITCHES:
            problems.append(_problem(f"{key}={text}", "not a switch", "yes, no"))
        return SWITCHES.get(text)
    try:
        number = float(text) if key == "params" else int(text)
    except ValueError:
        number = -1
    most = LAYERS_MOST if key in ("layers", "dense_layers") else MOST
    low = 0 if key in ("params", "experts", "shared", "dense_layers") else 1
    if not low <= number <= most:
        problems.append(_problem(f"{key}={text}", "no number in range", f"{low} to {most}"))
    return number


def _shape(kind: str, words: str, text: str) -> TypedShape:
    known = tuple(field.name for field in fields(TypedShape) if field.name != "kind")
    problems: list[Problem] = []
    given = {key: _value(key, v, problems) for key, v in _pairs(words, known, problems).items()}
    problems += [
        _problem(text, f"{name} is missing", ", ".join(NEEDED))
        for name in NEEDED
        if name not in given
    ]
    if problems:
        raise BadInput(problems)
    shape = TypedShape(kind=kind, **given)  # type: ignore[arg-type]
    if shape.heads % (shape.kv_heads or shape.heads):
        message = f"{shape.heads} heads cannot share {shape.kv_heads} kv_heads evenly"
        problems.append(_problem(text, message, "kv_heads that divide heads"))
    if shape.experts and shape.top_k > shape.experts:
        problems.append(_problem(text, f"top_k {shape.top_k} of {shape.experts} experts", "fewer"))
    if shape.dense_layers > shape.layers:
        problems.append(_problem(text, "more dense_layers than layers", f"up to {shape.layers}"))
    if problems:
        raise BadInput(problems)
    return shape


def build_model(shape: TypedShape, text: str = "") -> Model:
    """The model of a shape, with a sentence for everything that the shape leaves open."""
    said = _blanks(shape)
    gated, tied = shape.kind == "llama", shape.kind == "gpt" and not shape.experts
    if shape.experts:
        gated = True
    elif shape.params and (shape.gated is None or shape.tied is None):
        # Of choices that round to the number in print, the first is the kind's.
        options = [(gated, tied), (gated, not tied), (not gated, tied), (not gated, not tied)]
        gated, tied = min(options, key=lambda o: max(_misses(shape, *o), ROUNDED))
    gated = gated if shape.gated is None else shape.gated
    tied = tied if shape.tied is None else shape.tied
    if shape.gated is None or shape.tied is None:
        part, head = "gated" if gated else "plain", "tied" if tied else "its own"
        why = f"the {shape.params:g} billion weights in print" if shape.params else shape.kind
        said.append(f"feed-forward part {part}, head {head}: as {why}")
    model = _whole(shape, _layers(shape, gated), gated, tied)
    return replace(model, id=shape.name or text or "typed", assumptions=tuple(said))


def _layers(shape: TypedShape, gated: bool) -> tuple[Layer, ...]:
    """Gated: RMS norms, no biases. Plain: layer norms, biases."""
    heads, bias = shape.heads, not gated
    mixer: Mixer = replace(LATENT, heads=heads)
    if not shape.latent:
        mixer = Attention(
            heads=heads,
            kv_heads=shape.kv_heads or heads,
            head_dim=head_width(shape),
            q_bias=bias,
            k_bias=bias,
            v_bias=bias,
            o_bias=bias,
        )
    norm: Literal["rms", "layer"] = "rms" if gated else "layer"
    width = shape.ffn or 4 * shape.hidden
    dense = Dense(
        width=(shape.dense_ffn or 4 * shape.hidden) if shape.experts else width,
        gated=gated,
        activation="silu" if gated else "gelu",
        up_bias=bias,
        down_bias=bias,
    )
    plain = Layer(mixers=(mixer,), ffn=dense, norm_kind=norm)
    if not shape.experts:
        return (plain,) * shape.layers
    ffn = Experts(
        experts=shape.experts, top_k=shape.top_k, width=width, shared_width=shape.shared * width
    )
    sparse = Layer(mixers=(mixer,), ffn=ffn, norm_kind=norm)
    return (plain,) * shape.dense_layers + (sparse,) * (shape.layers - shape.dense_layers)


def _whole(shape: TypedShape, layers: tuple[Layer, ...], gated: bool, tied: bool) -> Model:
    vocab = shape.vocab or VOCAB
    return Model(
        id="typed",
        family="llama" if gated else "gpt",
        kind="decoder",
        stack=Stack(hidden=shape.hidden, layers=layers, final_norm="rms" if gated else "layer"),
        embedding=Embedding(vocab=vocab, positions=0 if gated else longest(shape)),
        head=Head(outputs=vocab, tied=tied),
        max_positions=longest(shape),
    )


def longest(shape: TypedShape) -> int:
    """Longest sequence."""
    return shape.positions or POSITIONS[shape.kind]


def head_width(shape: TypedShape) -> int:
    """Width of a head."""
    return shape.head_dim or max(shape.hidden // shape.heads, 1)


def _misses(shape: TypedShape, gated: bool, tied: bool) -> float:
    """How far, in logarithm, a choice is from the weights in print."""
    hidden, heads = shape.hidden, shape.heads
    attention = hidden * head_width(shape) * 2 * (heads + (shape.kv_heads or heads))
    ffn = (3 if gated else 2) * hidden * (shape.ffn or 4 * hidden)
    tables = (1 if tied else 2) * (shape.vocab or VOCAB) * hidden
    tables += 0 if gated else longest(shape) * hidden
    total = shape.layers * (attention + ffn) + tables
    return abs(math.log(total / (shape.params * 1e9)))


def _blanks(shape: TypedShape) -> list[str]:
    said = []
    if not shape.vocab:
        said.append(f"vocabulary {VOCAB}: GPT-2's, padded")
    if not shape.kv_heads and not shape.latent:
        said.append("key and value heads: as many as heads")
    if not shape.ffn:
        said.append("feed-forward width: four times the hidden width")
    return said


def change_model(model: Model, words: str) -> Model:
    """A model of the catalogue with its first layers alone, or without what trains beside them."""
    problems: list[Problem] = []
    given = {k: _value(k, v, problems) for k, v in _pairs(words, CHANGES, problems).items()}
    have = len(model.stack.layers)
    layers = given.get("layers", have)
    if isinstance(layers, int) and layers > have:
        problems.append(_problem(f"layers={layers}", f"{model.id} has {have}", f"1 to {have}"))
    dense = [x for x in model.stack.layers if not isinstance(x.ffn, Experts)]
    ahead = given.get("dense_layers")
    if isinstance(ahead, int) and not ahead <= len(dense) < have:
        most = f"0 to {len(dense)}, of a model with experts"
        problems.append(_problem(f"dense_layers={ahead}", f"{model.id} has {len(dense)}", most))
    problems += [
        _problem(f"{name}=yes", f"{model.id} has none", "no")
        for name in ("prediction", "towers")
        if given.get(name) is True and not getattr(model, name)
    ]
    if problems or not isinstance(layers, int):
        raise BadInput(problems)
    if given.get("prediction") is False:
        model = replace(model, prediction=None)
    if given.get("towers") is False:
        model = replace(model, towers=())
    if isinstance(ahead, int) and ahead < len(dense):
        sparse = [x for x in model.stack.layers if isinstance(x.ffn, Experts)]
        stack = replace(model.stack, layers=(*dense[:ahead], *sparse))
        model = replace(model, id=f"{model.id}-d{ahead}", stack=stack)
        layers = min(layers, len(stack.layers))
    return first_layers(model, layers)


def first_layers(model: Model, layers: int) -> Model:
    """The model with its first layers alone."""
    if layers == len(model.stack.layers):
        return model
    return replace(
        model,
        id=f"{model.id}-l{layers}",
        stack=replace(model.stack, layers=model.stack.layers[:layers]),
        prediction=None,
    )
