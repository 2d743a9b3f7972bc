"""From names, files and flags to a scenario: defaults are filled in and said, problems collected."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from foretell.catalog import system as catalog_system
from foretell.catalog.models import model as catalog_model
from foretell.errors import BadInput, Problem
from foretell.overrides import Setting, apply_settings, parse_settings
from foretell.specs.check import problems_of
from foretell.specs.job import Job
from foretell.specs.model import Model
from foretell.specs.plan import DTYPE_BYTES, Plan, PrecisionName, parse_plan
from foretell.specs.scenario import Scenario
from foretell.specs.system import System

DEFAULT_STEP_TOKENS = 4 * 2**20
"""Tokens of a step where no global batch is given."""
DEFAULT_SEQ_LEN = 4096
"""Longest sequence taken where none is given."""
LARGEST = 10**9
"""Chips, batches and lengths above this are a typing error."""

T = TypeVar("T")


def ask(
    *,
    model: str | Path | Model,
    system: str | Path | System | None = None,
    gpus: int | str | None = None,
    global_batch: int | None = None,
    seq_len: int | None = None,
    target_len: int | None = None,
    settings: Sequence[str] = (),
) -> Scenario:
    """A scenario; every problem of every argument is reported at once."""
    problems: list[Problem] = []
    chosen = _collect(lambda: parse_settings(settings), problems) or ()
    count, named = _gpus(gpus, problems)
    system = system if system is not None else named
    if system is None:
        problems.append(
            Problem(
                path="system",
                value=None,
                message="missing",
                allowed="a system, a chip, a TOML file, or --gpus 512xH100",
            )
        )
    seen: dict[str, object] = {}
    the_model = _collect(lambda: _model(model, chosen, seen), problems)
    the_system = _collect(lambda: _system(system, chosen, seen), problems) if system else None
    numbers = {"global_batch": global_batch, "seq_len": seq_len, "target_len": target_len}
    for name, value in numbers.items():
        problems += _whole(name, value)
    if problems or the_model is None or the_system is None:
        raise BadInput(problems)
    job, said = _job(the_model, the_system, count, numbers)
    job = apply_settings(job, chosen, "job", seen)
    late = problems_of(job, "job") + [p for n in numbers for p in _whole(n, getattr(job, n))]
    late += _whole("gpus", job.gpus)
    if late:
        raise BadInput(late)
    return Scenario(
        model=the_model,
        system=the_system,
        job=job,
        assumptions=(*the_model.assumptions, *the_system.assumptions, *said),
        overrides=seen,
    )


def plan_of(scenario: Scenario, text: str | Plan | None, settings: Sequence[str] = ()) -> Plan:
    """A plan for the scenario: parsed, with the chip's precision and the settings applied."""
    chosen = parse_settings(settings)
    if isinstance(text, Plan):
        plan = text
    else:
        plan = parse_plan(text or "", scenario.job.gpus, default_precision(scenario.system))
    plan = apply_settings(plan, chosen, "plan")
    problems = problems_of(plan, "plan")
    for name in ("weights", "gradients", "master", "states"):
        value = getattr(plan, name)
        if value not in DTYPE_BYTES and (name, value) != ("master", "none"):
            problems.append(
                Problem(
                    path=f"plan.{name}",
                    value=value,
                    message="unknown dtype",
                    allowed=", ".join(DTYPE_BYTES),
                )
            )
    if problems:
        raise BadInput(problems)
    return plan


def default_precision(system: System) -> PrecisionName:
    """bf16 where the chip has it, else fp16."""
    return "bf16" if "bf16" in system.chip.matrix_flop_per_s else "fp16"


def _collect(make: Callable[[], T], problems: list[Problem]) -> T | None:
    """The value, or None with its problems added to the list."""
    try:
        return make()
    except BadInput as error:
        problems += error.problems
        return None


def _model(given: Any, settings: Sequence[Setting], seen: dict[str, object]) -> Model:
    model = given if isinstance(given, Model) else catalog_model(given)
    return _checked(apply_settings(model, settings, "model", seen), "model", settings)


def _system(given: Any, settings: Sequence[Setting], seen: dict[str, object]) -> System:
    system = given if isinstance(given, System) else catalog_system(given)
    chip = apply_settings(system.chip, settings, "chip", seen)
    network = (
        apply_settings(system.network, settings, "network", seen)
        if any(s.root == "network" and s.steps[0] == "tiers" for s in settings)
        else replace(
            system.network, tiers=apply_settings(system.network.tiers, settings, "network", seen)
        )
    )
    system = replace(system, chip=chip, network=network)
    return _checked(apply_settings(system, settings, "system", seen), "system", settings)


def _checked(record: T, root: str, settings: Sequence[Setting]) -> T:
    """The record, looked over again where something in it was set by hand."""
    if settings:
        problems = problems_of(record, root)
        if problems:
            raise BadInput(problems)
    return record


def _gpus(given: int | str | None, problems: list[Problem]) -> tuple[int | None, str | None]:
    """Chips, and the system that a text such as 512xH100 names."""
    if given is None:
        return None, None
    number: object = given
    named: str | None = None
    if isinstance(given, str):
        head, cross, tail = given.partition("x")
        if cross and head.strip().isdecimal():
            number, named = head, tail.strip() or None
        number = int(str(number)) if str(number).strip().isdecimal() else number
    found = _whole("gpus", number)
    problems += found
    return (number if isinstance(number, int) and not found else None), named


def _whole(name: str, value: object) -> list[Problem]:
    """A whole number from 1, or None."""
    if value is None:
        return []
    allowed = f"a whole number from 1 to {LARGEST:,}".replace(",", " ")
    if isinstance(value, bool) or not isinstance(value, int):
        return [Problem(path=name, value=value, message="not a whole number", allowed=allowed)]
    if not 1 <= value <= LARGEST:
        return [Problem(path=name, value=value, message="out of range", allowed=allowed)]
    return []


def _job(
    model: Model, system: System, gpus: int | None, given: dict[str, int | None]
) -> tuple[Job, list[str]]:
    """The job, and a sentence for each number that was not given."""
    said: list[str] = []
    if gpus is None:
        gpus = round(float(system.network.tiers[0].size))
        said.append(f"{gpus} chips, one {system.network.tiers[0].name}: none were given")
    seq_len = given["seq_len"]
    if seq_len is None:
        seq_len = min(model.max_positions, DEFAULT_SEQ_LEN)
        said.append(f"sequence length {seq_len}: the model's own up to {DEFAULT_SEQ_LEN}")
    target_len = given["target_len"]
    if model.kind == "encoder-decoder" and target_len is None:
        target_len = seq_len
        said.append(f"target length {target_len}: as the source")
    if model.kind != "encoder-decoder":
        target_len = None
    batch = given["global_batch"]
    if batch is None:
        batch = default_batch(gpus, seq_len + (target_len or 0))
        said.append(
            f"global batch {batch} sequences: about {DEFAULT_STEP_TOKENS / 1e6:.0f} million tokens"
        )
    return Job(gpus=gpus, global_batch=batch, seq_len=seq_len, target_len=target_len), said


def default_batch(gpus: int, tokens_per_sequence: int) -> int:
    """About DEFAULT_STEP_TOKENS, as a power of two times the odd part of the chips (so that dp divides)."""
    odd = gpus // (gpus & -gpus)
    wanted = DEFAULT_STEP_TOKENS / tokens_per_sequence / odd
    return int(odd * 2 ** max(round(math.log2(max(wanted, 1.0))), 0))
