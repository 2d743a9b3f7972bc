"""From the architecture cells of a run to the text of a model, as a user would type it.

experts, hybrid   the catalogue's model where it has one of that name and the cells agree (cut to as many
                  layers as the cells say)
no cells          the catalogue's model of that name
else              `llama:` or `gpt:` by the name, with the cells that are printed; the rest is left to whoever
                  reads such a text (catalog/typed_models.py)
"""

import math
import re
from dataclasses import replace
from functools import lru_cache

from foretell.catalog.model_names import find_model, model_entries, plain_key
from foretell.catalog.models import catalogue_model
from foretell.errors import BadInput
from foretell.lab.validate.training_rows import TrainingRow
from foretell.specs.ffn import Experts
from foretell.specs.model import Model
from foretell.specs.scenario import Job
from foretell.training.totals import step_flops, unseen_flop

PLAIN_NAMES = re.compile(
    r"gpt|mpt|opt|bloom|megatron|turing|nemotron-?4|falcon|mt-?nlg", re.IGNORECASE
)
"""Families of GPT's kind: feed-forward parts that are not gated."""
LATENT_NAMES = re.compile(r"deepseek|kimi", re.IGNORECASE)
"""Families with latent attention (DeepSeek-V2 and later)."""
LATENT_WORDS = ("latent=yes", "shared=1")
"""Words of such a model: DeepSeek-V3's attention and shared expert."""
DENSE_AHEAD, DENSE_WIDTH = 3, 18_432
"""DeepSeek-V3: leading dense layers and their width."""
NOISE = re.compile(
    r"\(.*?\)|\b(bf16|fp8|fp16|mxfp8|nvfp4|lora|sft|finetuning|pretrain|maxtext|paxml|nemo|megatron|"
    r"dropless|tokendrop|proxy|cut to \d+ layers)\b|\b\d\d\.\d\d(\.\d\d)?\b",
    re.IGNORECASE,
)
"""What is beside a model's name in tables: precision, tool, release."""
HEAD_DIMS = (
    (re.compile(r"qwen.?3", re.IGNORECASE), 128),
    (re.compile(r"gpt.?oss", re.IGNORECASE), 64),
)
"""Families whose heads are not hidden / heads wide."""
CUT = re.compile(r"\(cut\)|\bcut\b", re.IGNORECASE)
"""How a table says that a model has fewer layers than its name."""
DENSE_CUT = re.compile(r"\b(\d+) dense layers? in cut model")
"""How many layers without experts a model has that was cut to a few, by the words that say so."""
SAME_FLOP = 0.02
"""Difference of logarithms up to which operations per token in print are those that we count."""
LEAST_START = 4
"""Letters above which the start of a name tells a model where only one goes on."""


class UnsupportedRun(Exception):
    """A row that cannot be predicted, with the reason."""


def model_text(row: TrainingRow) -> str:
    """The text of a row's model; UnsupportedRun with the reason where there is none."""
    if row.layers is None and CUT.search(row.model):
        raise UnsupportedRun("the model is cut to a number of layers that is not in the table")
    if row.layers is None or row.hidden is None or row.heads is None:
        known = find_named_model(row.model)
        if known is None:
            raise UnsupportedRun(
                "the architecture is not in the table and the catalogue has no such model"
            )
        return changed_text(known, row)
    if row.experts or row.family == "hybrid":
        known = find_named_model(row.model)
        if known is not None and agrees(catalogue_model(known), row):
            return changed_text(known, row)
    return typed_text(row)


def typed_text(row: TrainingRow) -> str:
    """The cells of a row as words."""
    kind = "gpt" if PLAIN_NAMES.search(row.model) and not row.experts else "llama"
    cells = {
        "layers": row.layers,
        "hidden": row.hidden,
        "heads": row.heads,
        "kv_heads": row.kv_heads,
        "head_dim": next((n for pattern, n in HEAD_DIMS if pattern.search(row.model)), None),
        "ffn": row.ffn,
        "vocab": row.vocab,
        "experts": row.experts,
        "top_k": row.top_k if row.experts else None,
        "positions": row.seq_len,
    }
    words = [f"{name}={value}" for name, value in cells.items() if value]
    words += [f"params={row.params_b!r}"] if row.params_b and not row.experts else []
    if row.experts and LATENT_NAMES.search(row.model):
        ahead = min(DENSE_AHEAD, (row.layers or 1) - 1)
        words = [word for word in words if not word.startswith("kv_heads")]
        words += [*LATENT_WORDS, f"dense_layers={ahead}", f"dense_ffn={DENSE_WIDTH}"]
    return f"{kind}:{','.join(words)}"


def changed_text(id: str, row: TrainingRow) -> str:
    """A model of the catalogue with as many layers as the cells say, prediction blocks where stated."""
    model = catalogue_model(id)
    words = [f"layers={row.layers}"] if row.layers not in (None, len(model.stack.layers)) else []
    words += [f"dense_layers={told[1]}" for told in [DENSE_CUT.search(row.notes)] if told]
    without = {"prediction": not trains_prediction(id, row), "towers": True}
    words += [f"{name}=no" for name, left in without.items() if left and getattr(model, name)]
    return f"{id}:{','.join(words)}" if words else id


def trains_prediction(id: str, row: TrainingRow) -> bool:
    """Whether the prediction blocks of a model were trained: its name says so, or the operations per token
    that the row's rates imply, under a causal mask, are nearer to those with them; else they were not."""
    name, model = row.model.lower(), catalogue_model(id)
    if "mtp" in name or model.prediction is None:
        return "w/o" not in name
    if not (row.tera_flop_per_s and row.rate and row.seq_len):
        return False
    told = 1e12 * row.tera_flop_per_s / row.rate
    plain = flop_per_token(replace(model, prediction=None), row.seq_len)
    more = flop_per_token(model, row.seq_len)
    return abs(math.log(told / more)) < min(abs(math.log(told / plain)), SAME_FLOP)


def flop_per_token(model: Model, seq_len: int) -> float:
    """Matrix operations of a token forward and backward, of attention what a causal mask leaves."""
    job = Job(gpus=1, global_batch=1, seq_len=seq_len)
    return (step_flops(model, job)[0] - 3.0 * unseen_flop(model, job)) / seq_len


@lru_cache(maxsize=4096)
def find_named_model(name: str) -> str | None:
    """The catalogue's model of a name in a table, None where it has none."""
    plain = re.sub(r"[\s_]+", " ", NOISE.sub(" ", name)).strip()
    try:
        found = find_model(plain) if plain else None
    except BadInput:
        found = None
    if found is not None:
        return found.id
    # `Qwen3 235B` and `Grok 1` leave out how the name goes on: taken where only one does.
    start = plain_key(plain)
    longer = [e.id for e in model_entries() if plain_key(e.id).startswith(start)]
    return longer[0] if len(start) > LEAST_START and len(longer) == 1 else None


def agrees(model: Model, row: TrainingRow) -> bool:
    """Whether a model of the catalogue has the width, the heads and the experts of the cells."""
    sizes = {
        (layer.ffn.experts, layer.ffn.top_k)
        for layer in model.stack.layers
        if isinstance(layer.ffn, Experts)
    }
    heads = {m.heads for layer in model.stack.layers for m in layer.mixers if hasattr(m, "heads")}
    return (
        model.stack.hidden == row.hidden
        and row.heads in heads
        and (not row.experts or (row.experts, row.top_k) in sizes)
        and (row.layers or 0) <= len(model.stack.layers)
    )
