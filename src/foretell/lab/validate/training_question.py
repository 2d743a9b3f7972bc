"""A published run as the question that a user would type: model, system, settings, job and plan in words.

The scorer asks this question by the code that answers a user's; `command` is the line to type.

The model of a row: experts and hybrids are the catalogue's model where it has one of that name and the cells
agree (cut to as many layers as the cells say); without cells it is the catalogue's model of that name; else
`llama:` or `gpt:` by the name, with the cells that are printed, and the rest is left to whoever reads such a
text (catalog/typed_models.py).

The system: the catalogue's system of that chip whose name, fabric, node size and port rate agree best; where
its node or its ports still differ from the cells, the cells' numbers are set (`--set`). Blank cells are the
system's own.
"""

import math
import re
import shlex
from dataclasses import replace
from functools import lru_cache
from math import prod

from foretell.catalog import model as model_named
from foretell.catalog.files import catalogue_table
from foretell.catalog.model_names import find_model, model_entries, plain_key
from foretell.catalog.models import catalogue_model
from foretell.catalog.names import exists, find, load
from foretell.catalog.systems import named_system
from foretell.errors import BadInput
from foretell.inputs.overrides import parse_settings
from foretell.inputs.system import system_of
from foretell.lab.validate.scores import UnsupportedRun
from foretell.lab.validate.training_rows import (
    WORDS,
    TrainingRow,
    batches_of,
    degrees_of,
    option_words,
    plan_words,
)
from foretell.network.library_catalog import fabric_named, fabric_of, inner_tiers
from foretell.records import dataclass
from foretell.specs.chip import Chip
from foretell.specs.ffn import Experts
from foretell.specs.model import Model
from foretell.specs.plan_words import read_words
from foretell.specs.scenario import Job
from foretell.specs.system import System, Tier
from foretell.training.totals import step_flops, unseen_flop

NAMES = WORDS["models"]
"""Models by their names in tables."""
LATENT_WORDS = ("latent=yes", "shared=1")
"""Words of such a model: DeepSeek-V3's attention and shared expert."""
DENSE_AHEAD, DENSE_WIDTH = 3, 18_432
"""DeepSeek-V3: leading dense layers and their width."""
SAME_FLOP = 0.02
"""Difference of logarithms up to which operations per token in print are those that we count."""
LEAST_START = 4
"""Letters above which the start of a name tells a model where only one goes on."""
EARLIER, LATER, EARLY = "a100-sxm-40gb", "a100-sxm-80gb", ("2020",)
"""Runs of 2020 whose memory is not printed had the first A100, of 40 GB and slower memory."""
SAME_RATE = 0.02
"""Rates that differ by less are equal."""
ALL_SHARED = 3
"""ZeRO stage that needs no other split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedQuestion:
    """One run in words."""

    id: str
    """The row's id."""
    model: str
    """A model of the catalogue, or a typed one."""
    system: str
    """A system or a chip."""
    settings: tuple[str, ...]
    """`path=value`, of the system."""
    gpus: int
    """Chips."""
    global_batch: int | None
    """Sequences per step; None: not stated."""
    seq_len: int | None
    """Tokens per sequence; None: not stated."""
    plan: str | None
    """The plan's words; None: no split is stated, so that the best plan is searched for."""

    def flags(self) -> list[str]:
        """The arguments of `foretell estimate`."""
        words = [self.model, "--system", self.system, "--gpus", str(self.gpus)]
        if self.global_batch is not None:
            words += ["--global-batch", str(self.global_batch)]
        words += ["--seq-len", str(self.seq_len)] if self.seq_len else []
        for setting in self.settings:
            words += ["--set", setting]
        return [*words, "--plan", self.plan] if self.plan else words

    def command(self) -> str:
        """The line that a user would type."""
        return f"foretell estimate {shlex.join(self.flags())} # {self.id}"


def question_of(row: TrainingRow) -> PublishedQuestion:
    """The question of a row; UnsupportedRun with the reason where it cannot be asked."""
    text = model_text(row)
    system, settings = system_words(row)
    _, batch = batches_of(row, degrees_of(row)[3])
    architecture = system_record(system, settings).chip.architecture
    plan = " ".join(plan_words(row, len(model_named(text).stack.layers), architecture))
    told = row.tp is not None or row.pp is not None or row.zero_stage == ALL_SHARED
    return PublishedQuestion(
        id=row.id,
        model=text,
        system=system,
        settings=settings if told else (*settings, *_as_settings(plan)),
        gpus=row.gpus or 1,
        global_batch=batch,
        seq_len=row.seq_len,
        plan=plan if told else None,
    )


def _as_settings(plan: str) -> list[str]:
    """The words of a plan as settings, which leave the rest to a search."""
    given = read_words(plan)[0].items()
    return [f"plan.{n}={str(v).lower() if isinstance(v, bool) else v}" for n, v in given]


@lru_cache(maxsize=512)
def system_record(name: str, settings: tuple[str, ...]) -> System:
    """The system of a question, kept: tables have few systems and many rows."""
    return system_of(name, parse_settings(settings), {})


def model_text(row: TrainingRow) -> str:
    """The text of a row's model; UnsupportedRun with the reason where there is none."""
    if row.layers is None and NAMES["cut"].search(row.model):
        raise UnsupportedRun("the model is cut to a number of layers that is not in the table")
    if row.layers is None or row.hidden is None or row.heads is None:
        known = find_named_model(row.model)
        if known is None:
            message = "the architecture is not in the table and the catalogue has no such model"
            raise UnsupportedRun(message)
        return changed_text(known, row)
    if row.experts or row.family == "hybrid":
        known = find_named_model(row.model)
        if known is not None and agrees(catalogue_model(known), row):
            return changed_text(known, row)
    return typed_text(row)


def typed_text(row: TrainingRow) -> str:
    """The cells of a row as words."""
    kind = "gpt" if NAMES["plain"].search(row.model) and not row.experts else "llama"
    cells = {
        "layers": row.layers,
        "hidden": row.hidden,
        "heads": row.heads,
        "kv_heads": row.kv_heads,
        "head_dim": next(iter(option_words("head_dims", row.model)), None),
        "ffn": row.ffn,
        "vocab": row.vocab,
        "experts": row.experts,
        "top_k": row.top_k if row.experts else None,
        "positions": row.seq_len,
    }
    words = [f"{name}={value}" for name, value in cells.items() if value]
    words += [f"params={row.params_b!r}"] if row.params_b and not row.experts else []
    if row.experts and NAMES["latent"].search(row.model):
        ahead = min(DENSE_AHEAD, (row.layers or 1) - 1)
        words = [word for word in words if not word.startswith("kv_heads")]
        words += [*LATENT_WORDS, f"dense_layers={ahead}", f"dense_ffn={DENSE_WIDTH}"]
    return f"{kind}:{','.join(words)}"


def changed_text(id: str, row: TrainingRow) -> str:
    """A model of the catalogue with as many layers as the cells say, prediction blocks where stated."""
    model = catalogue_model(id)
    words = [f"layers={row.layers}"] if row.layers not in (None, len(model.stack.layers)) else []
    words += [f"dense_layers={told[1]}" for told in [NAMES["dense-cut"].search(row.notes)] if told]
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
    plain = re.sub(r"[\s_]+", " ", NAMES["noise"].sub(" ", name)).strip()
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


def system_words(row: TrainingRow) -> tuple[str, tuple[str, ...]]:
    """The system of a row and its settings; UnsupportedRun where the catalogue lacks the chip."""
    if not row.chip_id or not exists(row.chip_id, ("chip",)):
        raise UnsupportedRun(f"the chip {row.chip_id or '(blank)'} is not in the catalogue")
    chip = find(row.chip_id, ("chip",)).id
    if (
        chip == LATER
        and row.memory_gb is None
        and any(y in f"{row.framework} {row.source}" for y in EARLY)
    ):
        # The one with 80 GB came in November 2020.
        chip = EARLIER
    return _words(chip, row.domain, row.port_gbytes_per_s, row.interconnect, row.gpus or 1)


@lru_cache(maxsize=256)
def _words(
    chip: str, domain: int | None, port: float | None, words: str, gpus: int
) -> tuple[str, tuple[str, ...]]:
    base = max(_candidates(chip), key=lambda s: _likeness(s, chip, domain, port, words))
    told: list[str] = []
    if gpus > 1 and base.id == chip:
        # The limit of the machine that has several of them.
        limit = _in_machine(base.chip).tdp_watts
        told += [f"chip.tdp_watts={_text(limit)}"] if limit != base.chip.tdp_watts else []
    tiers = list(base.network.tiers)
    inner = inner_tiers(tuple(tier.name for tier in tiers))
    if domain and gpus > domain and _domain(base) != domain and inner == 1:
        tiers[0] = replace(tiers[0], size=float(domain), shape=())
    outer = len(tiers) - 1
    if port and outer >= inner and not _same(_port(base), port * 1e9):
        tiers[outer] = replace(tiers[outer], bandwidth_bytes_per_s=port * 1e9)
    tiers = _large_enough(tiers, gpus)
    told += [
        f"network.{tier.name}.{field}={_text(getattr(tier, field))}"
        for old, tier in zip(base.network.tiers, tiers, strict=True)
        for field in ("size", "shape", "bandwidth_bytes_per_s")
        if getattr(old, field) != getattr(tier, field)
    ]
    fabric = fabric_named(words) if words else None
    if fabric is not None and fabric_of(base.id).id != fabric.id and outer >= inner:
        # No system of the catalogue has this chip on this fabric.
        told.append(f"network.fabric={fabric.id}")
    return base.id, tuple(told)


def _text(value: object) -> str:
    """A value as a setting has it."""
    return "" if value == () else repr(value).removesuffix(".0")


def _candidates(chip: str) -> tuple[System, ...]:
    """The chip's reference system, then every system of the catalogue that has this chip."""
    return (named_system(chip), *(s for s in _all_systems() if s.chip.id == chip))


def _in_machine(chip: Chip) -> Chip:
    """The chip under the power limit of its reference machine; as it is where that has none of its own."""
    machine = catalogue_table("chip", chip.id)["reference_system"].get("system")
    there = chip if machine is None else named_system(machine).chip
    return there if there.id == chip.id else chip


@lru_cache(maxsize=1)
def _all_systems() -> tuple[System, ...]:
    return tuple(named_system(name) for name in load().titles["system"])


def _likeness(
    system: System, chip: str, domain: int | None, port: float | None, words: str
) -> tuple[bool, ...]:
    """Name in the words, then fabric, its transport, node and port; the reference system among equals."""
    text = words.lower()
    parts = [part for part in system.id.split("-") if len(part) > 2 and part not in chip]
    fabric, own = fabric_named(words) if words else None, fabric_of(system.id)
    return (
        any(part in text for part in parts),
        fabric is not None and own.id == fabric.id,
        fabric is not None and own.default_transport == fabric.default_transport,
        domain is not None and _domain(system) == domain,
        port is not None and _same(_port(system), port * 1e9),
        system.id == chip,
    )


def _domain(system: System) -> int:
    """Chips inside the innermost tiers."""
    tiers = system.network.tiers
    inner = inner_tiers(tuple(tier.name for tier in tiers))
    return round(prod(float(tier.size) for tier in tiers[:inner]))


def _port(system: System) -> float:
    """What one chip can send into the outermost tier."""
    return float(system.network.tiers[-1].bandwidth_bytes_per_s)


def _same(one: float, other: float) -> bool:
    return abs(one / other - 1.0) < SAME_RATE


def _large_enough(tiers: list[Tier], gpus: int) -> list[Tier]:
    """With an outermost tier that has room for the run, which shows that there is."""
    room = prod(float(tier.size) for tier in tiers)
    if room >= gpus or len(tiers) < 2:
        return tiers
    more = -(-gpus // int(room / float(tiers[-1].size)))
    return [*tiers[:-1], replace(tiers[-1], size=float(more), shape=())]
