"""Arguments to a checked question: names resolved, numbers in range, every problem at once."""

import contextlib
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from foretell.errors import BadInput, Problem, nearest_name, wrong
from foretell.lab.reference.inputs import chip_from_name, model_from_name
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

MAX_GPUS = 1 << 20
"""Largest job; beyond it ring latencies alone make the model meaningless, and products stay in
int64."""
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


def check_search(
    *,
    model: str | StudyModel,
    strategy: str,
    chip: str | StudyChip,
    fast_domain: int,
    gpus: int,
    global_batch: int,
    top: int,
    quirks: Quirks | None,
) -> tuple[ReferenceQuestion, int, int]:
    """The question, the GPU count and the number of plans wanted, or BadInput with all problems."""
    problems: list[Problem] = []
    found_model = _model(model, problems)
    found_chip = _chip(chip, problems)
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
    return question, count, kept


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
        Problem(path=f"plans.{i}.{name}", value=int(values[i]), message=message)
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
        problems.append(
            Problem(path=path, value=value, message="is not a usable count", allowed=allowed)
        )
        return 0
    return number


def check_quirks(quirks: object, problems: list[Problem]) -> None:
    """A Quirks record or nothing."""
    if quirks is not None and not isinstance(quirks, Quirks):
        problems.append(
            Problem(path="quirks", value=quirks, message="is not a Quirks record", allowed="Quirks")
        )


def _partial_domain(gpus: int, fast_domain: int) -> Problem:
    """A job larger than its domain must fill whole domains: placements multiply to the domain
    exactly."""
    near = max(round(gpus / fast_domain), 1) * fast_domain
    return Problem(
        path="gpus",
        value=gpus,
        message=f"does not fill whole fast domains of {fast_domain}",
        allowed=f"at most {fast_domain}, or a multiple of it",
        nearest=str(near),
    )


def find_word(
    path: str, word: object, table: Mapping[str, _Value], problems: list[Problem]
) -> _Value | None:
    """What the word names, case and punctuation forgiven; None and a problem where it names
    nothing."""
    if isinstance(word, str):
        plain = {_plain(name): value for name, value in table.items()}
        if _plain(word) in plain:
            return plain[_plain(word)]
    problems.append(
        Problem(
            path=path,
            value=word,
            message="is not a name of the reference study",
            allowed=", ".join(table),
            nearest=nearest_name(word, table) if isinstance(word, str) else None,
        )
    )
    return None


def _plain(word: str) -> str:
    """Lower case without dashes, underscores and blanks."""
    return word.lower().translate({ord(ch): None for ch in "-_ "})


def resolve(
    model: str | StudyModel, chip: str | StudyChip, seq_len: object = None
) -> tuple[str | StudyModel, str | StudyChip, tuple[str, ...]]:
    """Models and chips of the catalogue and of files as the solver's records, with notes on them.

    A name of the study stays a name; one that names nothing stays too, and `check_search` says so.
    """
    problems: list[Problem] = []
    length = None if seq_len is None else whole("seq_len", seq_len, MAX_GPUS, problems)
    if problems:
        raise BadInput(problems)
    notes: tuple[str, ...] = ()
    named: list[Problem] = []
    if isinstance(model, str) and find_word("model", model, MODEL_NAMES, named) is None:
        with contextlib.suppress(BadInput):
            model, notes = model_from_name(model, length)
    if isinstance(chip, str) and find_word("chip", chip, CHIP_NAMES, named) is None:
        try:
            chip, more = chip_from_name(chip)
            notes += more
        except BadInput:
            pass
    if length is not None:
        known = (
            model if isinstance(model, StudyModel) else find_word("model", model, MODEL_NAMES, [])
        )
        model = model if known is None else replace(known, seq_len=length)
    return model, chip, notes


def _other(
    path: str,
    word: object,
    table: Mapping[str, _Value],
    read: Callable[[str], _Value],
    problems: list[Problem],
) -> _Value | None:
    """What a word names in the study, else in the catalogue or a file; None and the problems."""
    found: list[Problem] = []
    named = find_word(path, word, table, found)
    if named is not None or not isinstance(word, str):
        problems += found if named is None else []
        return named
    try:
        return read(word)
    except BadInput as error:
        elsewhere = ", an id of the catalogue, or a file"
        own = word.endswith((".toml", ".json")) or all(
            problem.path.startswith(f"{path}.") for problem in error.problems
        )
        problems += error.problems if own else [
            replace(one, allowed=f"{one.allowed}{elsewhere}") for one in found
        ]  # fmt: skip
        return None


def _model(model: object, problems: list[Problem]) -> StudyModel | None:
    """A named model, a file, or a record of whole positive sizes."""
    if not isinstance(model, StudyModel):
        model = _other("model", model, MODEL_NAMES, lambda name: model_from_name(name)[0], problems)
        if not isinstance(model, StudyModel):
            return None
    for name in ("seq_len", "embed", "heads", "layers"):
        whole(f"model.{name}", getattr(model, name), MAX_GPUS, problems)
    return model


def _chip(chip: object, problems: list[Problem]) -> StudyChip | None:
    """A named chip, a file, or a record of positive finite rates; only latencies may be zero."""
    if not isinstance(chip, StudyChip):
        chip = _other("chip", chip, CHIP_NAMES, lambda name: chip_from_name(name)[0], problems)
        if not isinstance(chip, StudyChip):
            return None
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
    return chip
