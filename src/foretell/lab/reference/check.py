"""Arguments to a checked question: names resolved, numbers in range, every problem at once."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from foretell.catalog.files import read_table
from foretell.catalog.models import model as catalogue_model
from foretell.catalog.systems import named_system, own_file, system_from_file
from foretell.errors import BadInput, Problem, bad_input, nearest_name, wrong
from foretell.lab.reference.iteration import ReferenceQuestion
from foretell.lab.reference.records import (
    CHIPS,
    MODELS,
    Ints,
    Quirks,
    Strategy,
    StudyChip,
    StudyModel,
)
from foretell.lab.reference.rows import PLAN_COLUMNS, Cell, plans_of
from foretell.lab.reference.space import ReferencePlans
from foretell.records import dataclass
from foretell.specs.ffn import Dense
from foretell.specs.mixers import Attention
from foretell.specs.model import Model
from foretell.specs.system import System

VECTOR_FP16 = 2.0
"""Vector rate in fp16 over that in fp32: what packed instructions give on chips since 2022."""
FULL_RATIO = 4
"""Widths of the residual stream that the solver's feed-forward is wide."""


def model_from_name(name: str, seq_len: int | None = None) -> tuple[StudyModel, tuple[str, ...]]:
    """A model's file or catalogue id as the solver's record, and what that leaves out."""
    path = own_file(name) if name.lower().endswith(".toml") else None
    if path is not None:
        table = read_table(path)
        if "embed" in table:
            usual = {"causal": True, "samples": 0.0}
            return _record(StudyModel, table, path.stem, "model", usual), ()
    return model_from_catalogue(catalogue_model(name), seq_len)


def model_from_catalogue(model: Model, seq_len: int | None) -> tuple[StudyModel, tuple[str, ...]]:
    """Width, heads and layers of a model; everything else is the solver's."""
    stack = model.stack
    heads = [m for layer in stack.layers for m in layer.mixers if isinstance(m, Attention)]
    if not heads:
        message = "has no softmax attention, and the published solver knows nothing else"
        raise bad_input("model", model.id, message)
    taken = f"equal layers of attention and a feed-forward of {FULL_RATIO} widths"
    notes = [f"{model.id}: {taken}, as the solver has them"]
    own = {layer.ffn.width for layer in stack.layers if isinstance(layer.ffn, Dense)}
    if own != {FULL_RATIO * stack.hidden}:
        notes.append(f"its own feed-forward ({sorted(own) or 'experts'}) is not what is timed")
    if heads[0].kv_heads != heads[0].heads:
        notes.append(f"its {heads[0].kv_heads} key and value heads are taken as {heads[0].heads}")
    found = StudyModel(
        name=model.id,
        seq_len=seq_len or min(model.max_positions, 4096),
        embed=stack.hidden,
        heads=heads[0].heads,
        layers=len(stack.layers),
        causal=heads[0].causal,
        samples=0.0,
    )
    return found, tuple(notes)


def chip_from_name(name: str) -> tuple[StudyChip, tuple[str, ...]]:
    """A chip's or system's file or catalogue id as the solver's record, and what was assumed."""
    path = own_file(name)
    if path is not None:
        table = read_table(path)
        if "hbm_bytes" in table:
            return _record(StudyChip, table, path.stem, "chip", {}), ()
        return chip_of_system(system_from_file(path))
    return chip_of_system(named_system(name))


def chip_of_system(system: System) -> tuple[StudyChip, tuple[str, ...]]:
    """Peaks and memory of the chip, the innermost tier as the fast one and the outermost as the slow one."""
    chip, tiers = system.chip, system.network.tiers
    matrix = chip.matrix_flop_per_s.get("bf16") or chip.matrix_flop_per_s.get("fp16")
    if not matrix:
        raise bad_input("chip", system.id, "has no matrix rate in bf16 or fp16")
    notes = (
        f"{system.id}: {tiers[0].name} links as the fast tier, {tiers[-1].name} as the slow one",
        f"vector rate in fp16: {VECTOR_FP16:g} times that in fp32",
    )
    found = StudyChip(
        name=system.id,
        matrix_flop_per_s=float(matrix),
        vector_flop_per_s=VECTOR_FP16 * float(chip.vector_flop_per_s),
        hbm_bytes_per_s=float(chip.memory_bandwidth_bytes_per_s),
        hbm_bytes=float(chip.memory_bytes),
        fast_bytes_per_s=float(tiers[0].bandwidth_bytes_per_s),
        slow_bytes_per_s=float(tiers[-1].bandwidth_bytes_per_s),
    )
    return found, notes


def _record(
    kind: Any, table: Mapping[str, Any], name: str, path: str, defaults: Mapping[str, Any]
) -> Any:
    """A record of the solver from a file's table; every wrong or missing field at once."""
    known = {field.name: field for field in fields(kind)}
    given = {"name": name, **defaults, **table}
    problems = [
        wrong(f"{path}.{key}", table[key], "is no field of the published solver", ", ".join(known))
        for key in table
        if key not in known
    ]
    problems += [
        wrong(f"{path}.{key}", None, "missing", ", ".join(known))
        for key, field in known.items()
        if key not in given and field.default is MISSING
    ]
    if problems:
        raise BadInput(problems)
    return kind(**given)


MAX_GPUS = 1 << 20
"""Largest job; beyond it ring latencies alone make the model meaningless, and products stay in int64."""
MAX_FAST_DOMAIN = 1 << 16
"""Largest fast domain."""
MAX_GLOBAL_BATCH = 1 << 30
"""Largest global batch in samples."""
MAX_TOP = 1 << 20
"""Most plans returned."""

STRATEGY_NAMES: dict[str, Strategy] = {
    "1d": "1d",
    "2d": "2d",
    "seqp": "2d-seqp",
    "2d-seqp": "2d-seqp",
}
"""Strategies by the names that the command line shows, and by the published spelling."""

MODEL_NAMES: dict[str, StudyModel] = {
    name.lower().replace("_", "-"): model for name, model in MODELS.items()
}
"""Models by the names that the command line shows."""
CHIP_NAMES: dict[str, StudyChip] = {name.lower(): chip for name, chip in CHIPS.items()}
"""Chips by the names that the command line shows."""

Bools = npt.NDArray[np.bool_]
"""One answer for each plan."""
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedSearch:
    """A search whose arguments are all usable."""

    question: ReferenceQuestion
    """What is searched."""
    gpus: int
    """GPUs of the job."""
    top: int
    """Plans wanted."""
    notes: tuple[str, ...]
    """What the solver's records leave out of a model or chip that is not the study's."""


def check_search(
    *,
    model: str | StudyModel,
    strategy: str,
    chip: str | StudyChip,
    fast_domain: int,
    gpus: int = 1,
    global_batch: int = 4096,
    top: int = 1,
    quirks: Quirks | None = None,
    seq_len: int | None = None,
) -> CheckedSearch:
    """The question, or BadInput with all problems; `seq_len` are tokens of a sample in the place of the
    model's own."""
    problems: list[Problem] = []
    length = None if seq_len is None else whole("seq_len", seq_len, MAX_GPUS, problems)
    found_model, found_chip = None, None
    notes: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    if isinstance(model, StudyModel):
        found_model = model
    else:
        read_model = partial(model_from_name, seq_len=length or None)
        found_model, notes = _named("model", model, MODEL_NAMES, read_model, problems)
    if isinstance(chip, StudyChip):
        found_chip = chip
    else:
        found_chip, more = _named("chip", chip, CHIP_NAMES, chip_from_name, problems)
    if found_model is not None:
        found_model = replace(found_model, seq_len=length) if length else found_model
        _check_model(found_model, problems)
    if found_chip is not None:
        _check_chip(found_chip, problems)
    found_strategy = find_word("strategy", strategy, STRATEGY_NAMES, problems)
    domain = whole("fast_domain", fast_domain, MAX_FAST_DOMAIN, problems)
    count = whole("gpus", gpus, MAX_GPUS, problems)
    batch = whole("global_batch", global_batch, MAX_GLOBAL_BATCH, problems)
    kept = whole("top", top, MAX_TOP, problems)
    check_quirks(quirks, problems)
    if domain and count > domain and count % domain:
        problems.append(_partial_domain(count, domain))
    if problems or found_model is None or found_chip is None or found_strategy is None:
        raise BadInput(problems)
    question = ReferenceQuestion(
        model=found_model,
        strategy=found_strategy,
        chip=found_chip,
        fast_domain=domain,
        global_batch=batch,
        quirks=quirks or Quirks(),
    )
    return CheckedSearch(question=question, gpus=count, top=kept, notes=(*notes, *more))


def check_plans(question: ReferenceQuestion, rows: Sequence[Mapping[str, Cell]]) -> ReferencePlans:
    """The rows as plans, or BadInput with everything that cannot be in any of them."""
    problems: list[Problem] = []
    for i, row in enumerate(rows):
        for name in PLAN_COLUMNS:
            cell = row.get(name)
            number = int(cell) if isinstance(cell, float) and cell.is_integer() else cell
            if number is not None:
                whole(f"plans.{i}.{name}", number, MAX_GLOBAL_BATCH, problems)
    if problems:
        raise BadInput(problems)
    plans = plans_of(rows, question.strategy)
    model, batch = question.model, question.global_batch
    rules: list[tuple[str, Ints, Bools, str]] = [
        ("pp", plans.pp, model.layers % plans.pp == 0, f"does not divide {model.layers} layers"),
        ("tp", plans.m1, model.heads % plans.m1 == 0, f"does not divide {model.heads} heads"),
        ("tp", plans.m1, model.embed % plans.m1 == 0, f"does not divide a width of {model.embed}"),
        ("tp2", plans.m2, plans.m2 <= model.seq_len, f"is more than {model.seq_len} tokens"),
        ("mbs", plans.b, plans.dp * plans.b <= batch, f"times dp is more than a batch of {batch}"),
        ("nv_tp", plans.t1, plans.m1 % plans.t1 == 0, "does not divide its group"),
        ("nv_tp2", plans.t2, plans.m2 % plans.t2 == 0, "does not divide its group"),
        ("nv_dp", plans.nv_dp, plans.dp % plans.nv_dp == 0, "does not divide its group"),
        ("nv_pp", plans.nv_pp, plans.pp % plans.nv_pp == 0, "does not divide its group"),
    ]
    problems = [
        wrong(f"plans.{i}.{name}", int(values[i]), message)
        for name, values, kept, message in rules
        for i in np.nonzero(~kept)[0].tolist()
    ]
    if problems:
        raise BadInput(problems)
    return plans


def whole(path: str, value: object, largest: int, problems: list[Problem]) -> int:
    """A whole number from 1 to `largest`; 0 and a problem where it is not one."""
    allowed = f"whole numbers from 1 to {largest}"
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # what is no integer raises
    except TypeError:
        number = 0
    if isinstance(value, bool) or not 1 <= number <= largest:
        problems.append(wrong(path, value, "is not a usable count", allowed))
        return 0
    return number


def check_quirks(quirks: object, problems: list[Problem]) -> None:
    """A Quirks record or nothing."""
    if quirks is not None and not isinstance(quirks, Quirks):
        problems.append(wrong("quirks", quirks, "is not a Quirks record", "Quirks"))


def _partial_domain(gpus: int, fast_domain: int) -> Problem:
    """A job larger than its domain must fill whole domains: placements multiply to the domain exactly."""
    near = max(round(gpus / fast_domain), 1) * fast_domain
    message = f"does not fill whole fast domains of {fast_domain}"
    return wrong("gpus", gpus, message, f"at most {fast_domain}, or a multiple of it", str(near))


def find_word(
    path: str, word: object, table: Mapping[str, _Value], problems: list[Problem]
) -> _Value | None:
    """What the word names, case and punctuation forgiven; None and a problem where it names nothing."""
    if isinstance(word, str):
        plain = {_plain(name): value for name, value in table.items()}
        if _plain(word) in plain:
            return plain[_plain(word)]
    near = nearest_name(word, table) if isinstance(word, str) else None
    message = "is not a name of the reference study"
    problems.append(wrong(path, word, message, ", ".join(table), near))
    return None


def _plain(word: str) -> str:
    """Lower case without dashes, underscores and blanks."""
    return word.lower().translate({ord(ch): None for ch in "-_ "})


def _named(
    path: str,
    given: object,
    table: Mapping[str, _Value],
    read: Callable[[str], tuple[_Value, tuple[str, ...]]],
    problems: list[Problem],
) -> tuple[_Value | None, tuple[str, ...]]:
    """What a word names in the study, else in the catalogue or a file, with notes on it; None and the
    problems where it names nothing."""
    found: list[Problem] = []
    named = find_word(path, given, table, found)
    if named is not None or not isinstance(given, str):
        problems += found
        return named, ()
    try:
        return read(given)
    except BadInput as error:
        elsewhere = ", an id of the catalogue, or a file"
        own = given.endswith((".toml", ".json")) or all(
            problem.path.startswith(f"{path}.") for problem in error.problems
        )
        problems += error.problems if own else [
            replace(one, allowed=f"{one.allowed}{elsewhere}") for one in found
        ]  # fmt: skip
        return None, ()


def _check_model(model: StudyModel, problems: list[Problem]) -> None:
    """Whole positive sizes."""
    for name in ("seq_len", "embed", "heads", "layers"):
        whole(f"model.{name}", getattr(model, name), MAX_GPUS, problems)


def _check_chip(chip: StudyChip, problems: list[Problem]) -> None:
    """Positive finite rates; only latencies may be zero."""
    for field in fields(chip):
        value = getattr(chip, field.name)
        if field.name == "name":
            continue
        may_be_zero = field.name.endswith("_s") and not field.name.endswith("_per_s")
        number = isinstance(value, int | float) and math.isfinite(value)
        if not number or value < 0 or (value == 0 and not may_be_zero):
            problems.append(
                wrong(f"chip.{field.name}", value, "is not a usable number", "finite and positive")
            )
