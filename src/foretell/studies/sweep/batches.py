"""Points that differ in the plan's numbers alone, or in the system's: one batch, evaluated together."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.errors import ProblemsError
from foretell.inputs.overrides import Setting, apply_settings
from foretell.inputs.question import named_by, plan_of
from foretell.kernels.memory import CLOSE_SHARE
from foretell.records import dataclass
from foretell.schedules.rules import ALL_RULES, all_broken
from foretell.search.plan_checks import check_choices
from foretell.sharding.rules import cuts_of
from foretell.specs.outputs import OUTPUTS, outputs
from foretell.specs.plan import BATCH_FIELDS, Plan, Plans, batch_of, named_fields, recompute_code
from foretell.specs.plan_forms import GENERIC
from foretell.specs.scenario import Scenario
from foretell.specs.system import System
from foretell.specs.system_batch import system_count, take_systems, varies_in_batch
from foretell.studies.plan_words import plan_texts
from foretell.studies.sweep.questions import (
    PointQuestion,
    estimate_row,
    no_row,
    rent_of,
    scenario_of,
)
from foretell.training.answer import answer_of, totals_of
from foretell.training.long_run import asked_run, conditions_of, with_run
from foretell.training.room import make_room
from foretell.training.step import evaluate_rows
from foretell.training.systems import evaluate_systems
from foretell.training.tables import CHUNK, chunks, select, tables_of

Array = NDArray[np.float64]
FITS = ("yes", "too_close", "no")


@dataclass(frozen=True, slots=True, kw_only=True)
class VariedField:
    """One field of the plans of a batch."""

    field: str
    """Which: of a plan its name, of a system its path."""
    values: tuple[Any, ...]
    """What it takes; empty where values are drawn."""
    places: NDArray[Any]
    """Of each point, the place of its value among these, or the value drawn."""

    @property
    def numbers(self) -> Array:
        """The value of each point."""
        if not self.values:
            return np.asarray(self.places, float)
        return np.asarray(self.values, float)[self.places]


def plans_of(
    scenario: Scenario, base: Plan, named: Sequence[str], varied: Sequence[VariedField]
) -> Plans:
    """The base with some of its numbers replaced, one plan for each row.

    As in a plan's text: without a word for it, dp takes the rest of the chips, and sp goes with tp
    where the software has it so.
    """
    many = len(varied[0].places) if varied else 1
    one = batch_of([base])
    arrays = {name: np.repeat(getattr(one, name), many) for name in BATCH_FIELDS}
    orders = one.orders
    for item in varied:
        numbers: Sequence[Any] = item.values
        if item.field == "order":
            texts = [tuple(str(value).split(",")) for value in item.values]
            orders = tuple(dict.fromkeys([*orders, *texts]))
            numbers = [orders.index(text) for text in texts]
        elif item.field == "recompute":
            numbers = [recompute_code(value) for value in item.values]
        arrays[item.field] = np.asarray(numbers, float)[item.places]
    given = {*named, *(item.field for item in varied)}
    if "sp" not in given:
        arrays["sp"] = np.asarray(arrays["tp"] > 1, float) * scenario.software.sequence_parallel
    if "dp" not in given:
        rest = arrays["tp"] * arrays["pp"] * arrays["cp"]
        arrays["dp"] = np.maximum(scenario.job.gpus // rest, 1.0)
    return Plans(**arrays, orders=orders, base=base)


def first_broken(scenario: Scenario, plans: Plans) -> NDArray[np.intp]:
    """Of each plan, the first rule that it breaks (from 1), or 0."""
    cuts = cuts_of(scenario.model)
    found = np.zeros(len(plans), np.intp)
    for number, rule in enumerate(ALL_RULES, start=1):
        found[(found == 0) & ~rule.holds(scenario, cuts, plans)] = number
    return found


def evaluate_columns(scenario: Scenario, plans: Plans) -> dict[str, Array]:
    """Columns of numbers of plans that keep every rule."""
    found = {name: np.empty(len(plans)) for name in OUTPUTS}
    tables = tables_of(scenario, plans)
    for rows in chunks(plans, tables):
        some, part = plans.take(rows), select(tables, rows)
        ledger = evaluate_rows(scenario, some, part)
        for name, values in outputs(totals_of(scenario, some, part, ledger)).items():
            found[name][rows] = values
    return with_rent(scenario, found)


def evaluate_system_columns(scenario: Scenario, plan: Plan, system: System) -> dict[str, Array]:
    """The same of one plan on a batch of systems."""
    many = system_count(system)
    found = {name: np.empty(many) for name in OUTPUTS}
    for start in range(0, many, CHUNK):
        rows = slice(start, min(start + CHUNK, many))
        alike = np.zeros(rows.stop - start, np.intp)
        some = evaluate_systems(scenario, batch_of([plan]).take(alike), take_systems(system, rows))
        for name, values in some.outputs().items():
            found[name][rows] = values
    return with_rent(scenario, found)


def with_rent(scenario: Scenario, found: dict[str, Array]) -> dict[str, Array]:
    """Columns of numbers with what a million tokens cost by the rent of a chip."""
    usd_per_s = rent_of(scenario) * scenario.job.gpus / 3600.0
    rate = found["tokens_per_s"]
    usd = 1e6 * usd_per_s / rate if usd_per_s else np.full(len(rate), np.nan)
    return {**found, "usd_per_million_tokens": usd}


def batched_system(system: System, varied: Sequence[VariedField]) -> System:
    """The system with some of its numbers as arrays over the points."""
    settings = [Setting(path=one.field, text="", numbers=one.numbers) for one in varied]
    chip = apply_settings(system.chip, settings, "chip")
    network = apply_settings(system.network, settings, "network")
    return replace(system, chip=chip, network=network)


def batch_frame(asked: PointQuestion, varied: Sequence[VariedField]) -> Any:
    """Answers to one question with a batch of plans, or of systems, as a table with a row for each."""
    import polars as pl

    many = len(varied[0].places)
    on_systems = varies_in_batch(varied[0].field)
    try:
        scenario = scenario_of(asked)
        scenario, base = plan_of(scenario, asked.words, asked.settings)
        check_choices(scenario, base)
        system = batched_system(scenario.system, varied if on_systems else ())
    except ProblemsError as error:
        return pl.DataFrame(no_row(error)).select(pl.all().repeat_by(many).explode())
    plans = plans_of(scenario, base, named_fields(asked.words), () if on_systems else varied)
    broken = first_broken(scenario, plans)
    good = np.flatnonzero(broken == 0)
    capacity = system.chip.memory_bytes + np.zeros(many)
    if on_systems:
        broken = np.repeat(broken, many)
        numbers = evaluate_system_columns(scenario, plans.plan(0), system) if len(good) else {}
        good = np.arange(many)
    else:
        numbers = evaluate_columns(scenario, plans.take(good)) if len(good) else {}
    whole = {}
    for name, values in numbers.items():
        whole[name] = values
        if len(good) < many:
            whole[name] = np.full(many, np.nan)
            whole[name][good] = values
    held = whole.get("peak_memory_bytes", np.full(many, np.nan))
    code = np.where(held <= CLOSE_SHARE * capacity, 0, np.where(held <= capacity, 1, 2))
    said = [None, *(f"plan ({rule.name})" for rule in ALL_RULES)]
    job = scenario.job
    fixed = {
        "model": scenario.model.id, "system": scenario.system.id, "gpus": job.gpus,
        "global_batch": job.global_batch, "seq_len": job.seq_len,
    }  # fmt: skip
    texts = pl.repeat(str(plans.plan(0)), many, eager=True) if on_systems else plan_texts(plans)
    return pl.DataFrame(
        {
            "plan": texts,
            "memory_capacity_bytes": capacity,
            "fits": pl.Series(FITS).gather(code),
            **{name: pl.Series(v, nan_to_null=True) for name, v in whole.items()},
            "problem": pl.Series(said, dtype=pl.String).gather(broken),
        }
    ).with_columns(**{name: pl.lit(value) for name, value in fixed.items()})


def plan_row(asked: PointQuestion) -> dict[str, Any]:
    """One fixed plan in full: what limits it, its interval, its run."""
    try:
        conditions = conditions_of(asked.conditions)
        scenario = scenario_of(asked)
        scenario, plan = plan_of(scenario, asked.words, asked.speed)
        check_choices(scenario, plan)
    except ProblemsError as error:
        return no_row(error)
    failed = all_broken(scenario, plan, batch_of([plan]))
    if failed:
        text = "; ".join(f"plan ({name}): {sentence}" for name, sentence in failed)
        return {"fits": "no", "plan": str(plan), "problem": text}
    if plan.framework != GENERIC:
        scenario, plan = make_room(scenario, plan, named_by(asked.words, asked.speed))
    result = answer_of(scenario, plan, chosen=False)
    if conditions is not None:
        result = with_run(result, asked_run(scenario, conditions))
    return estimate_row(asked, scenario, result)
