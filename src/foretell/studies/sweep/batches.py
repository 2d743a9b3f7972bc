"""Points that differ in the plan's numbers alone, or in the system's: one batch, evaluated together."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.api.serving import layouts_of
from foretell.catalog.engines import WIDE_CARD_BYTES
from foretell.errors import ProblemsError
from foretell.inputs.overrides import Setting, apply_settings
from foretell.inputs.question import named_by, plan_of
from foretell.kernels.memory import HeldBytes
from foretell.records import dataclass
from foretell.schedules.rules import ALL_RULES, all_broken
from foretell.search.frameworks import own_refusals
from foretell.search.plan_checks import check_choices
from foretell.serving.systems import TOGETHER, ServedSystems, serve_systems
from foretell.sharding.rules import cuts_of
from foretell.specs.arrays import Array
from foretell.specs.deployment_text import deployment_text
from foretell.specs.plan import BATCH_FIELDS, Plan, Plans, batch_of, named_fields, recompute_code
from foretell.specs.result import OUTPUTS, outputs
from foretell.specs.scenario import Scenario
from foretell.specs.system import System, system_count, take_systems, varies_in_batch
from foretell.studies.plan_words import plan_texts
from foretell.studies.sweep.columns import table_columns
from foretell.studies.sweep.questions import (
    PointQuestion,
    answer_row,
    estimate_row,
    load_question,
    no_row,
    rent_of,
    scenario_of,
)
from foretell.training.answer import answer_of, totals_of
from foretell.training.feasibility import VERDICTS, verdict_codes
from foretell.training.long_run import asked_run, conditions_of, with_run
from foretell.training.room import make_room
from foretell.training.step import evaluate_rows
from foretell.training.tables import CHUNK, chunks, select, tables_of
from foretell.training.variants import evaluate_systems


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
        return np.asarray(np.asarray(self.values, float)[self.places])


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
    whole = numbers if len(good) == many else spread_rows(numbers, good, many)
    none = np.full(many, np.nan)
    held = HeldBytes(
        allocated_bytes=whole.get("allocated_bytes", none),
        reserved_bytes=whole.get("reserved_bytes", none),
        peak_bytes=whole.get("peak_memory_bytes", none),
    )
    code = verdict_codes(held, capacity)
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
            "fits": pl.Series(VERDICTS).gather(code),
            **{name: pl.Series(v, nan_to_null=True) for name, v in whole.items()},
            "problem": pl.Series(said, dtype=pl.String).gather(broken),
        }
    ).with_columns(**{name: pl.lit(value) for name, value in fixed.items()})


def spread_rows(numbers: dict[str, Array], rows: NDArray[np.intp], many: int) -> dict[str, Array]:
    """Columns of some of many rows as columns of all, NaN elsewhere: taking is quicker than putting."""
    place, absent = np.zeros(many, np.intp), np.ones(many, bool)
    place[rows], absent[rows] = np.arange(len(rows)), False
    missing, found = np.flatnonzero(absent), {}
    for name, values in numbers.items():
        found[name] = values.take(place)
        found[name][missing] = np.nan
    return found


def served_frame(asked: PointQuestion, varied: Sequence[VariedField]) -> Any:
    """Answers to one question of a service on a batch of systems, as a table with a row for each.

    What an engine takes by default depends on whether a card is large: both kinds are a batch each.
    """
    import polars as pl

    many = len(varied[0].places)
    memory = {one.field: one.numbers for one in varied}.get(MEMORY)
    if memory is None:
        return _served_alike(asked, varied, np.arange(many))
    kinds = [np.flatnonzero(wide) for wide in (memory >= WIDE_CARD_BYTES, memory < WIDE_CARD_BYTES)]
    frames = [_served_alike(asked, varied, rows) for rows in kinds if len(rows)]
    order = np.concatenate(kinds)
    back = np.empty(many, np.int64)
    back[order] = np.arange(many)
    return pl.concat(frames, how="diagonal_relaxed")[back]


MEMORY = "chip.memory_bytes"


def _served_alike(
    asked: PointQuestion, varied: Sequence[VariedField], rows: NDArray[np.intp]
) -> Any:
    """The answers of some points, all on large cards or all on small ones."""
    import polars as pl

    some = [replace(one, places=one.places[rows]) for one in varied]
    memory = {one.field: one.numbers for one in some}.get(MEMORY)
    if memory is not None:
        most = f"{MEMORY}={float(memory.max())!r}"
        asked = replace(asked, settings=(*asked.settings, most))
    try:
        load, given = load_question(asked)
        system = batched_system(load.system, some)
    except ProblemsError as error:
        return pl.DataFrame(no_row(error)).select(pl.all().repeat_by(len(rows)).explode())
    if system_count(system) < len(rows):  # all of them are equal
        row = answer_row(asked)
        return pl.DataFrame({name: [value] * len(rows) for name, value in row.items()})
    layouts = layouts_of(load, given)
    tables = []
    for start in range(0, len(rows), TOGETHER):
        own = slice(start, start + TOGETHER)
        batch = replace(load, system=take_systems(system, own), plan_chosen=not given)
        tables += [service_table(chunk) for chunk in serve_systems(batch, layouts)]
    return pl.concat(tables)


def service_table(found: ServedSystems) -> Any:
    """The best layout of each system as rows."""
    import polars as pl

    q, best = found.layouts[0].question, found.best
    words = [(deployment_text(one.question.deployment), one.question) for one in found.layouts]
    problems: list[str | None] = [None] * len(best)
    for row in np.flatnonzero(best < 0):
        try:
            found.estimate(int(row))
        except ProblemsError as error:
            problems[row] = no_row(error)["problem"]
    there = pl.Series(best >= 0)
    columns = {
        name: found.column(name)
        for name in table_columns("serving")
        if name in found.layouts[0].numbers and found.layouts[0].numbers[name] is not None
    }
    latencies = {
        f"{name}_{part}": values
        for name in ("ttft_ms", "tpot_ms", "e2e_ms")
        for part, values in found.latencies(name).items()
    }
    texts = [text for text, _ in words]
    replicas = [one.replicas for _, one in words]
    fixed = {
        "model": q.model.id,
        "system": q.system.id,
        "gpus": q.all_gpus,
        "profile": q.profile.id,
    }
    frame = pl.DataFrame(
        {
            "plan": pl.Series(texts).gather(np.maximum(best, 0)),
            "replicas": pl.Series(replicas).gather(np.maximum(best, 0)),
            **{n: pl.Series(v, nan_to_null=True) for n, v in (columns | latencies).items()},
        }
    ).with_columns(**{name: pl.lit(value) for name, value in fixed.items()})
    # Where nothing fits a row says why, and no more.
    frame = frame.select(pl.when(there).then(pl.all()).otherwise(None))
    fits = pl.Series(["yes" if known else "no" for known in there])
    return frame.with_columns(fits=fits, problem=pl.Series(problems, dtype=pl.String))


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
    named = named_by(asked.words, asked.speed)
    scenario, plan = make_room(scenario, plan, named, own_refusals)
    result = answer_of(scenario, plan, chosen=False)
    if conditions is not None:
        result = with_run(result, asked_run(scenario, conditions))
    return estimate_row(asked, scenario, result)
