"""Columns of a study's results: names with unit suffixes, the same for every shard."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from foretell.catalog.files import read_table
from foretell.economics.answer import CostAnswer
from foretell.errors import Problem, unknown
from foretell.specs.plan import BATCH_FIELDS, RECOMPUTE
from foretell.specs.result import OUTPUTS, StepEstimate
from foretell.specs.service import ServiceEstimate
from foretell.specs.study import BEST, Axis, Study, Verb
from foretell.specs.system import varies_in_batch
from foretell.studies.axes import PAID, RUN, point_count

ColumnType = Literal["text", "float", "int", "bool"]
Columns = dict[str, ColumnType]


FEW_SYSTEMS = 256
"""Points over numbers of a system up to which each is an estimate of its own, with its interval and limit."""
POINT = "point"
"""The column that numbers the points."""


TABLES: Mapping[Verb, tuple[str, ...]] = {
    "serve": ("serving",),
    "size": ("sizing",),
    "cost chip": ("silicon",),
    "cost package": ("silicon",),
    "cost system": ("cluster",),
    "cost run": ("work", "work-of-run"),
    "cost token": ("work", "work-of-tokens"),
}
"""Tables of columns.toml for each verb but estimate, whose columns depend on what is asked."""


@cache
def table_columns(*names: str) -> Columns:
    """The columns of some tables of columns.toml; not to be changed by who reads them."""
    tables = read_table(Path(__file__).with_name("columns.toml"))
    return {
        column: kind
        for name in names
        for kind, columns in tables[name]["columns"]
        for column in columns.split()
    }


def training_columns() -> Columns:
    """Columns of every study of training."""
    return table_columns("training") | dict.fromkeys((*OUTPUTS, "usd_per_million_tokens"), "float")


def batch_axes(study: Study) -> tuple[int, ...]:
    """Axes whose values are numbers of one batch: of plans, or of systems where they are many.

    None where the plan is not fixed. Points that are evaluated one by one tell what limits them, too: few
    systems are.
    """
    if study.verbs == ("serve",) and not study.workloads and is_closed_form(study):
        return system_axes(study) if point_count(study) > 1 else ()
    own_plans = any("plan" in workload.base for workload in study.workloads)
    if study.verbs != ("estimate",) or study.plan == BEST or own_plans:
        return ()
    if has_run(study) or is_paid(study):
        return ()
    paths = [axis.path for axis in study.axes]
    # Which schedule it is may decide what chunks mean.
    scheduled = "plan.schedule" in paths or "schedule=" in study.plan
    of_plans = tuple(
        place for place, axis in enumerate(study.axes) if _in_batch(axis, scheduled=scheduled)
    )
    if of_plans or point_count(study) <= FEW_SYSTEMS:
        return of_plans
    return system_axes(study)


def is_closed_form(study: Study) -> bool:
    """Whether services of a study are asked so that systems may be a batch: at a concurrency, unpaid."""
    closed = {"model", "system", "gpus", "engine", "isl", "osl", "concurrency", "spread", "price",
              "prefix_hit", "plan", "prices"}  # fmt: skip
    return {name for name in _given(study) if "." not in name} <= closed


def system_axes(study: Study) -> tuple[int, ...]:
    """Axes whose values are numbers of a system that formulas take as arrays."""
    return tuple(
        place
        for place, axis in enumerate(study.axes)
        if varies_in_batch(axis.path) and axis_type(axis) != "text"
    )


def _in_batch(axis: Axis, *, scheduled: bool) -> bool:
    root, _, field = axis.path.partition(".")
    if root != "plan" or field not in BATCH_FIELDS or field == "tp2" or not axis.values:
        return False
    if field == "vpp" and scheduled:
        return False
    return field != "recompute" or all(value in RECOMPUTE for value in axis.values)


def has_run(study: Study) -> bool:
    """Whether a whole run is asked for."""
    return bool(_given(study) & {*RUN})


def is_paid(study: Study) -> bool:
    """Whether it is stated how work is paid for."""
    given = _given(study)
    return bool(given & {*PAID}) or (study.verbs == ("estimate",) and "price" in given)


def _given(study: Study) -> set[str]:
    """Every flag and path that the study gives."""
    varied = [axis.path for axis in study.axes]
    return {*study.base, *varied, *(name for w in study.workloads for name in w.base)}


def searches(study: Study) -> bool:
    """Whether every point is a search of its own."""
    varied = any(axis.path == "plan" for axis in study.axes)
    return "estimate" in study.verbs and study.plan == BEST and not varied


def result_columns(study: Study) -> Columns:
    """Columns of the answers, problems last."""
    found: Columns = {}
    for verb in study.verbs:
        found |= columns_of(study, verb)
    if study.limits:
        found |= {"within_limits": "bool"}
    return found | {"problem": "text"}


def columns_of(study: Study, verb: Verb) -> Columns:
    """Columns of the answers of one verb."""
    found = training_columns() if verb == "estimate" else dict(table_columns(*TABLES[verb]))
    if verb == "estimate":
        if not batch_axes(study):
            found |= table_columns("detail")
        if searches(study):
            found |= {"plans_evaluated": "int", "plans_pruned": "int"}
        if has_run(study):
            found |= table_columns("run")
    if verb in ("estimate", "serve") and is_paid(study):
        found |= table_columns("bill")
    return found


def point_columns(study: Study) -> Columns:
    """Columns that say which point it is: its number, the workload, what varies."""
    found: Columns = {POINT: "int"}
    if study.workloads:
        found |= {"workload": "text", "weight": "float"}
    return found | {axis.path: axis_type(axis) for axis in study.axes}


def axis_type(axis: Axis) -> ColumnType:
    """The type that holds all values of an axis."""
    kinds = {type(value) for value in axis.values}
    if not kinds:
        return "int" if axis.whole else "float"
    if kinds == {bool}:
        return "bool"
    if kinds == {int}:
        return "int"
    return "float" if kinds <= {int, float} else "text"


def all_columns(study: Study) -> Columns:
    """Every column in its place; what varies goes before an answer's column of the same name."""
    own = point_columns(study)
    return own | {n: kind for n, kind in result_columns(study).items() if n not in own}


def number_columns(study: Study) -> list[str]:
    """Columns of numbers of a row."""
    return [n for n, kind in all_columns(study).items() if kind in ("float", "int") and n != POINT]


def own_columns(study: Study) -> list[str]:
    """The same of one workload of a mix, as `chat.ttft_ms_p50`."""
    return [
        f"{workload.name}.{name}"
        for workload in study.workloads
        for name, kind in columns_of(study, workload.verb).items()
        if kind in ("float", "int")
    ]


def wish_problems(study: Study) -> list[Problem]:
    """Objectives and limits of columns that there are not, or that are no numbers."""
    known = [*number_columns(study), *own_columns(study)]
    tables: dict[str, Mapping[str, Any]] = {"objectives": study.objectives, "limits": study.limits}
    return [
        unknown(f"{table}.{name}", name, known)
        for table, wishes in tables.items()
        for name in wishes
        if name not in known
    ]


def training_row(result: StepEstimate, usd_per_chip_hour: float) -> dict[str, Any]:
    """An estimate as a row."""
    row = {name: getattr(result, name) for name in training_columns() if hasattr(result, name)}
    row |= {"plan": str(result.plan), "limited_by": result.limited_by}
    for share, ends in (result.interval or {}).items():
        row |= {f"step_s_{share}_low": ends[0], f"step_s_{share}_high": ends[1]}
    usd_per_s = usd_per_chip_hour * result.gpus / 3600.0
    row["usd_per_million_tokens"] = 1e6 * usd_per_s / result.tokens_per_s if usd_per_s else None
    if result.run is not None:
        run = result.run
        row |= {
            "run_days": run.days,
            "run_gpu_hours": run.gpu_hours,
            "run_energy_joules": run.energy_joules,
            "run_goodput": run.goodput,
            "run_failures": run.failures,
            "run_usd": run.gpu_hours * usd_per_chip_hour or None,
        }
    return row


def serving_row(result: ServiceEstimate) -> dict[str, Any]:
    """A deployment under its load as a row."""
    row = {
        name: getattr(result, name) for name in table_columns("serving") if hasattr(result, name)
    }
    for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
        row |= {f"{name}_{p}": value for p, value in getattr(result, name).to_dict().items()}
    return row


def cost_row(result: CostAnswer, columns: Columns) -> dict[str, Any]:
    """What something costs as a row."""
    told = {**result.facts, "name": result.name}
    told |= {name: getattr(result, name) for name in ("usd", "low_usd", "high_usd")}
    return {name: told.get(name) for name in columns}


def bill_row(result: CostAnswer, share: float = 1.0) -> dict[str, Any]:
    """What a bill adds to the row of a step or a service; `share` of the work tokens are those it counts."""
    facts = result.facts
    row = {name: facts.get(name) for name in table_columns("bill")}
    for end in ("", "low_", "high_"):
        usd = facts[f"{end}usd_per_million_tokens"]
        row[f"{end}usd_per_million_work_tokens"] = usd * share
    per_hour = 1e6 * facts["usd_per_gpu_hour"] / row["usd_per_million_work_tokens"]
    return row | {
        "work_tokens_per_s_per_gpu": per_hour / 3600.0,
        "joules_per_work_token": share / facts["tokens_per_joule"],
        "carbon_g_per_million_work_tokens": share * facts["carbon_g_per_million_tokens"],
    }


def work_row(result: CostAnswer, columns: Columns) -> dict[str, Any]:
    """What a run or a million tokens costs as a row."""
    return {"fits": "yes", **cost_row(result, {n: k for n, k in columns.items() if n != "fits"})}
