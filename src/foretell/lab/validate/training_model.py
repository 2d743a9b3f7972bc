"""From the architecture cells of a run to a model.

dense           attention with its key-value heads; the feed-forward part gated or not, the head tied or
                not, by which of the four reproduces the printed number of weights; by the name where none
                is printed
experts         the catalogue's model where it has one of that name and the cells agree (cut to as many
                layers as the cells say), else plain experts of the cells
no cells        the catalogue's model of that name
blank cells     kv_heads as heads; ffn 4 x hidden; vocabulary 50,304 rows
"""

import math
import re
from dataclasses import replace
from functools import lru_cache

from foretell.catalog.models import catalogue_model, find_model, model_entries, plain_key
from foretell.errors import BadInput
from foretell.lab.validate.training_rows import TrainingRow
from foretell.records import dataclass
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention, LatentAttention, Mixer
from foretell.specs.model import Embedding, Head, Layer, Model, Stack

VOCAB = 50_304
"""Rows of GPT-2's table padded to a multiple of 128: what Megatron takes where nothing is said."""
PLAIN_NAMES = re.compile(
    r"gpt|mpt|opt|bloom|megatron|turing|nemotron-?4|falcon|mt-?nlg", re.IGNORECASE
)
"""Families whose feed-forward parts are not gated, for runs that print no number of weights."""
LATENT_NAMES = re.compile(r"deepseek|kimi", re.IGNORECASE)
"""Families with latent attention (DeepSeek-V2 and later)."""
NOISE = re.compile(
    r"\(.*?\)|\b(bf16|fp8|fp16|mxfp8|nvfp4|lora|sft|finetuning|pretrain|maxtext|paxml|nemo|megatron|"
    r"dropless|tokendrop|proxy|cut to \d+ layers)\b|\b\d\d\.\d\d(\.\d\d)?\b",
    re.IGNORECASE,
)
"""What stands beside a model's name in tables: precision, tool, release."""
HEAD_DIMS = (
    (re.compile(r"qwen.?3", re.IGNORECASE), 128),
    (re.compile(r"gpt.?oss", re.IGNORECASE), 64),
)
"""Families whose heads are not hidden / heads wide."""
LATENT = LatentAttention(
    heads=128, q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128
)
"""Latent attention of DeepSeek-V2, V3 and Kimi K2."""
DENSE_AHEAD, DENSE_WIDTH = 3, 18_432
"""DeepSeek-V3: leading dense layers and their width."""


ROUNDED = 0.008
"""Weights in print are rounded by as much, in logarithm."""


class UnsupportedRun(Exception):
    """A row that cannot be predicted, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """What a model is made from; equal cells give one and the same model."""

    name: str
    """What the source calls it."""
    family: str
    """dense, moe or hybrid."""
    params_b: float | None
    """Weights in billions."""
    layers: int | None
    """Layers."""
    hidden: int | None
    """Width."""
    heads: int | None
    """Query heads."""
    kv_heads: int | None
    """Key and value heads."""
    ffn: int | None
    """Inner width."""
    experts: int | None
    """Routed experts."""
    top_k: int | None
    """Experts per token."""
    vocab: int | None
    """Rows of the token table."""
    positions: int
    """Tokens per sequence: rows of a table of learned positions."""


def model_of(row: TrainingRow, seq_len: int) -> tuple[Model, tuple[str, ...]]:
    """The model of a row, and a sentence for each cell that was filled; Unsupported with the reason."""
    return _model(
        Cells(
            name=row.model,
            family=row.family,
            params_b=row.params_b,
            layers=row.layers,
            hidden=row.hidden,
            heads=row.heads,
            kv_heads=row.kv_heads,
            ffn=row.ffn,
            experts=row.experts,
            top_k=row.top_k,
            vocab=row.vocab,
            positions=seq_len,
        )
    )


@lru_cache(maxsize=1024)
def _model(cells: Cells) -> tuple[Model, tuple[str, ...]]:
    if cells.layers is None or cells.hidden is None or cells.heads is None:
        known = find_named_model(cells.name)
        if known is None:
            raise UnsupportedRun(
                "the architecture is not in the table and the catalogue has no such model"
            )
        return known, (f"architecture: {known.id} of the catalogue",)
    if cells.experts or cells.family == "hybrid":
        known = find_named_model(cells.name)
        if known is not None and agrees(known, cells):
            return first_layers(known, cells.layers), (
                f"architecture: {known.id} of the catalogue",
            )
    if cells.experts:
        return _with_experts(cells)
    model, said = _dense(cells)
    mixed = (
        ("hybrid layers: as attention with as many weights",) if cells.family == "hybrid" else ()
    )
    return model, said + mixed


@lru_cache(maxsize=4096)
def find_named_model(name: str) -> Model | None:
    """The catalogue's model of a name in a table, None where it has none."""
    plain = re.sub(r"[\s_]+", " ", NOISE.sub(" ", name)).strip()
    # Prediction blocks are trained only where the table says so.
    bare = "mtp" not in name.lower() or "w/o" in name.lower()
    try:
        found = find_model(plain) if plain else None
    except BadInput:
        found = None
    key = None if found is None else found.id
    if key is None:
        # `Qwen3 235B` and `Grok 1` leave out how the name goes on: taken where only one does.
        start = plain_key(plain)
        longer = [e.id for e in model_entries() if plain_key(e.id).startswith(start)]
        key = longer[0] if len(start) > 4 and len(longer) == 1 else None
    if key is None:
        return None
    model = catalogue_model(key)
    return replace(model, prediction=None, towers=()) if bare else model


def agrees(model: Model, cells: Cells) -> bool:
    """Whether a model of the catalogue has the width, the heads and the experts of the cells."""
    sizes = {
        (layer.ffn.experts, layer.ffn.top_k)
        for layer in model.stack.layers
        if isinstance(layer.ffn, Experts)
    }
    heads = {m.heads for layer in model.stack.layers for m in layer.mixers if hasattr(m, "heads")}
    return (
        model.stack.hidden == cells.hidden
        and cells.heads in heads
        and (not cells.experts or (cells.experts, cells.top_k) in sizes)
        and (cells.layers or 0) <= len(model.stack.layers)
    )


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


def head_width(cells: Cells) -> int:
    """Width of a head: the family's own, else hidden / heads."""
    for pattern, width in HEAD_DIMS:
        if pattern.search(cells.name):
            return width
    return max((cells.hidden or 1) // (cells.heads or 1), 1)


def _attention(cells: Cells, bias: bool) -> Attention:
    heads = cells.heads or 1
    return Attention(
        heads=heads,
        kv_heads=cells.kv_heads or heads,
        head_dim=head_width(cells),
        q_bias=bias,
        k_bias=bias,
        v_bias=bias,
        o_bias=bias,
    )


def _dense(cells: Cells) -> tuple[Model, tuple[str, ...]]:
    """Gated with rotary positions or plain with learned ones, tied or not, as the weights tell."""
    said = _blanks(cells)
    plain = bool(PLAIN_NAMES.search(cells.name))
    options = [(not plain, plain), (not plain, not plain), (plain, plain), (plain, not plain)]
    if cells.params_b is not None:
        # Of choices that round to the number in print, the first is the one that the name suggests.
        best = min(options, key=lambda o: max(_misses(cells, *o), ROUNDED))
        how = f"by the {cells.params_b:g} billion weights in print"
    else:
        best, how = options[0], "by the model's name"
    gated, tied = best
    said += (
        f"feed-forward part {'gated' if gated else 'plain'}, head {'tied' if tied else 'its own'}: {how}",
    )
    return dense(cells, gated, tied), said


def dense(cells: Cells, gated: bool, tied: bool) -> Model:
    """Gated: RMS norms, rotary positions, no biases. Plain: layer norms, learned positions, biases."""
    ffn = Dense(
        width=cells.ffn or 4 * (cells.hidden or 1),
        gated=gated,
        activation="silu" if gated else "gelu",
        up_bias=not gated,
        down_bias=not gated,
    )
    layer = Layer(
        mixers=(_attention(cells, not gated),), ffn=ffn, norm_kind="rms" if gated else "layer"
    )
    return _whole(cells, (layer,) * (cells.layers or 1), gated, tied)


def _misses(cells: Cells, gated: bool, tied: bool) -> float:
    """How far, in logarithm, a choice is from the weights in print."""
    hidden, heads = cells.hidden or 1, cells.heads or 1
    kv = cells.kv_heads or heads
    width = head_width(cells)
    attention = hidden * width * (2 * heads + 2 * kv)
    ffn = (3 if gated else 2) * hidden * (cells.ffn or 4 * hidden)
    tables = (1 if tied else 2) * (cells.vocab or VOCAB) * hidden
    tables += 0 if gated else cells.positions * hidden
    total = (cells.layers or 1) * (attention + ffn) + tables
    return abs(math.log(total / ((cells.params_b or 1.0) * 1e9)))


def _with_experts(cells: Cells) -> tuple[Model, tuple[str, ...]]:
    """Plain experts, or DeepSeek's attention with a shared expert."""
    said = (*_blanks(cells), "experts gated, in every layer")
    depth = cells.layers or 1
    mixer: Mixer = _attention(cells, False)
    shared = 0
    ahead: tuple[Layer, ...] = ()
    width = cells.ffn or 4 * (cells.hidden or 1)
    if LATENT_NAMES.search(cells.name):
        mixer = replace(LATENT, heads=cells.heads or 1)
        shared = width
        ahead = (Layer(mixers=(mixer,), ffn=Dense(width=DENSE_WIDTH)),) * min(
            DENSE_AHEAD, depth - 1
        )
        said += ("latent attention, one shared expert and three dense layers: as DeepSeek-V3",)
    ffn = Experts(
        experts=cells.experts or 1, top_k=cells.top_k or 1, width=width, shared_width=shared
    )
    sparse = (Layer(mixers=(mixer,), ffn=ffn),) * (depth - len(ahead))
    return _whole(cells, (*ahead, *sparse), True, False), said


def _whole(cells: Cells, layers: tuple[Layer, ...], gated: bool, tied: bool) -> Model:
    vocab = cells.vocab or VOCAB
    return Model(
        id=cells.name or "unnamed",
        family="llama" if gated else "gpt",
        kind="decoder",
        stack=Stack(
            hidden=cells.hidden or 1, layers=layers, final_norm="rms" if gated else "layer"
        ),
        embedding=Embedding(vocab=vocab, positions=0 if gated else cells.positions),
        head=Head(outputs=vocab, tied=tied),
        max_positions=cells.positions,
    )


def _blanks(cells: Cells) -> tuple[str, ...]:
    said = []
    if cells.vocab is None:
        said.append(f"vocabulary {VOCAB}: GPT-2's, padded")
    if cells.kv_heads is None:
        said.append("key and value heads: as many as heads")
    if cells.ffn is None:
        said.append("feed-forward width: four times the hidden width")
    return tuple(said)
