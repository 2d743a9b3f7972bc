"""All strategies on one number of chips: one batch of plans and systems for each structural choice.

The batch has every plan on the system as it is, on systems whose links are a little slower, faster, or twice
as good, and on some whose bandwidths between nodes are a factor of what they are. So throughput, breakdown
and sensitivity come out of one evaluation, as in search/sensitivity.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from foretell.errors import Infeasible
from foretell.records import dataclass
from foretell.schedules.rules import all_broken
from foretell.search.explain import bound_words
from foretell.search.plan_checks import check_choices, check_size
from foretell.search.sensitivity import STEP, Number, elasticities, numbers_of
from foretell.specs.arrays import Array
from foretell.specs.plan import (
    BATCH_FIELDS,
    RECOMPUTE,
    USUAL_SCHEDULES,
    Plan,
    Plans,
    batch_of,
)
from foretell.specs.result import Leaf, rates
from foretell.specs.scenario import Scenario
from foretell.studies.scaling.records import ScalingPoint
from foretell.training.answer import one_row, totals_of
from foretell.training.breakdown import largest_share, time_tree
from foretell.training.data_parallel import sent_seconds, shares_of
from foretell.training.feasibility import VERDICTS, verdict_codes
from foretell.training.ledger import Ledger
from foretell.training.stages import stages_of_plans
from foretell.training.step import evaluate_rows
from foretell.training.tables import Tables, select, tables_of
from foretell.uncertainty.evidence import EXCHANGES, node
from foretell.uncertainty.intervals import Interval, cause, held_intervals, inverse_cause, times
from foretell.units import format as show

WORKING = ("compute", "memory_bound", "recompute", "gradient_sums", "optimizer")
"""Branches of a time tree in which kernels run."""
BANDWIDTHS = (0.25, 0.5, 2.0, 4.0, 8.0)
"""Factors on the bandwidths beyond the innermost tier."""
HARDLY = 0.01
"""A step that no link or latency, twice as good, shortens by this share follows none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyCase:
    """One strategy on one number of chips."""

    strategy: str
    """Words, as asked."""
    scenario: Scenario
    """The question, with the plan's software."""
    plan: Plan
    """The plan they make here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyBatch:
    """Plans that share their structural choices, each on all systems; a plan's rows are together."""

    scenario: Scenario
    """The question, on the system as it is."""
    numbers: tuple[Number, ...]
    """What the systems differ in."""
    plans: Plans
    """Every plan, once for each system."""
    tables: Tables
    """What they cost in parts."""
    rows: Ledger
    """What they cost in all."""
    sent_s: Array
    """Data-parallel messages, hidden or not; (rows, stages)."""

    @property
    def systems(self) -> int:
        """Systems that each plan is evaluated on."""
        return 1 + 3 * len(self.numbers) + len(BANDWIDTHS)


def points_of(asked: Sequence[StrategyCase]) -> list[ScalingPoint]:
    """A point for each strategy on one number of chips, in order; the efficiency is not known yet."""
    found: dict[str, ScalingPoint] = {}
    groups: dict[Plan, list[StrategyCase]] = {}
    for one in asked:
        reason = _forbidden(one.scenario, one.plan)
        if reason is not None:
            found[one.strategy] = _point(one.scenario, one, "no", reason)
        else:
            groups.setdefault(structure(one.plan), []).append(one)
    for group in groups.values():
        # Plans of one structure name one software.
        batch = _evaluated(group[0].scenario, [one.plan for one in group])
        for place, one in enumerate(group):
            found[one.strategy] = _told(batch, place * batch.systems, one)
    return [found[one.strategy] for one in asked]


def structure(plan: Plan) -> Plan:
    """What the plans of one batch share, as a plan: all else is at its default."""
    default = Plan()
    mixed = {name: getattr(default, name) for name in BATCH_FIELDS if name != "recompute"}
    if plan.recompute in RECOMPUTE:
        mixed["recompute"] = default.recompute
    if plan.schedule in USUAL_SCHEDULES:
        mixed["schedule"] = default.schedule
    return replace(plan, **mixed)


def _forbidden(scenario: Scenario, plan: Plan) -> str | None:
    """The rules that a plan breaks here, or None."""
    try:
        check_size(scenario)
    except Infeasible as error:
        return error.problems[0].message
    if plan.gpus != scenario.job.gpus:
        return f"takes {plan.gpus} chips or a multiple of {plan.tp * plan.pp * plan.cp}"
    check_choices(scenario, plan)
    return "; ".join(text for _, text in all_broken(scenario, plan, batch_of([plan]))) or None


def _evaluated(scenario: Scenario, plans: Sequence[Plan]) -> StrategyBatch:
    """One evaluation of all plans on all systems."""
    known = numbers_of(scenario, plans[0])
    numbers = tuple(n for n in known if n.path.startswith("network."))
    rows = batch_of([plan for plan in plans for _ in range(len(_factors(numbers, 0)))])
    system = scenario.system
    for place, number in enumerate(numbers):
        system = number.scaled(system, np.tile(_factors(numbers, place), len(plans)))
    there = replace(scenario, system=system)
    tables = tables_of(there, rows, apart=True)
    micro_batches = scenario.job.global_batch / (rows.dp * rows.micro_batch)
    shares = shares_of(rows, tables, stages_of_plans(rows, tables), micro_batches)
    return StrategyBatch(
        scenario=scenario,
        numbers=numbers,
        plans=rows,
        tables=tables,
        rows=evaluate_rows(there, rows, tables),
        sent_s=sent_seconds(rows, tables, shares),
    )


def _factors(numbers: Sequence[Number], place: int) -> Array:
    """What a number is multiplied by on each system: the rows of `elasticities`, then BANDWIDTHS."""
    number, first = numbers[place], numbers[0].path.rpartition(".")[0]
    single = all(n.path.startswith(first) for n in numbers)
    beyond = single or not number.path.startswith(f"{first}.")
    factor = np.ones(1 + 3 * len(numbers) + len(BANDWIDTHS))
    factor[1 + 3 * place : 4 + 3 * place] = 1.0 - STEP, 1.0 + STEP, number.better
    if beyond and number.path.endswith("bandwidth_bytes_per_s"):
        factor[-len(BANDWIDTHS) :] = BANDWIDTHS
    return factor


def _told(batch: StrategyBatch, row: int, asked: StrategyCase) -> ScalingPoint:
    """One plan of a batch as a point."""
    scenario, numbers = batch.scenario, batch.numbers
    one = np.array([row])
    plans, tables, rows = batch.plans.take(one), select(batch.tables, one), batch.rows.row(row)
    tree = time_tree(plans, tables, rows, scenario)
    shares = {child.name: child.value for child in tree.children}
    step_s, totals = tree.value, one_row(totals_of(scenario, plans, tables, rows))
    exposed_s = sum(shares.get(name, 0.0) for name in EXCHANGES)
    compute_s = sum(shares[name] for name in WORKING)
    sent_s = float(batch.sent_s[row, int(rows.slowest[0])])
    found = {name: rate for name, rate in rates(totals).items() if name in ScalingPoint.__slots__}
    peak, capacity = float(totals.peak_memory_bytes), float(totals.memory_capacity_bytes)
    steps = batch.rows.step_s[row : row + batch.systems]
    slopes = elasticities(steps[: 1 + 3 * len(numbers)], numbers)
    # A finite change: slopes may stand at a bend, where another algorithm takes over.
    twice = steps[3 : 3 + 3 * len(numbers) : 3] / steps[0]
    strongest = int(twice.argmin())
    need = f"needs {show(peak, 'bytes')} of {show(capacity, 'bytes')}"
    fit = VERDICTS[int(verdict_codes(rows.held, capacity)[0])]
    return replace(
        _point(scenario, asked, fit, need if fit == "no" else None),
        step_s=step_s,
        interval=tree.interval,
        intervals=_intervals(batch, row, asked.plan, tree, found),
        **found,
        compute_s=compute_s,
        exposed_communication_s=exposed_s,
        hidden_communication_s=max(sent_s - shares.get("data_parallel", 0.0), 0.0),
        bubble_s=shares["bubble"],
        other_s=step_s - compute_s - exposed_s - shares["bubble"],
        shares=shares,
        peak_memory_bytes=peak,
        limited_by=largest_share(tree),
        follows=bound_words(numbers[strongest].path) if twice[strongest] < 1.0 - HARDLY else None,
        elasticities={n.path: float(s) for n, s in zip(numbers, slopes, strict=True)},
        twice={n.path: float(ratio) for n, ratio in zip(numbers, twice, strict=True)},
        by_bandwidth={
            f"{factor:g}": float(steps[place - len(BANDWIDTHS)] / steps[0])
            for place, factor in enumerate(BANDWIDTHS)
        },
    )


def _intervals(
    batch: StrategyBatch, row: int, plan: Plan, tree: Leaf, rates: Mapping[str, float]
) -> dict[str, Interval]:
    """Of a point: its step, its rates, its peak, and the kernels and exchanges of the step."""
    step = cause(tree.value, tree.interval)
    asked, held = batch.scenario, batch.rows.row(row).held
    capacity = float(asked.system.chip.memory_bytes)
    parts = {
        name: node(name, [child for child in tree.children if child.name in names]).interval
        for name, names in (("compute_s", WORKING), ("exposed_communication_s", EXCHANGES))
    }
    return {
        "step_s": times(tree.value, step),
        **{name: times(value, inverse_cause(step)) for name, value in rates.items()},
        "peak_memory_bytes": held_intervals(asked, plan, held, capacity)["peak_memory_bytes"],
        **{name: ends for name, ends in parts.items() if ends},
    }


def _point(scenario: Scenario, asked: StrategyCase, fit: str, reason: str | None) -> ScalingPoint:
    return ScalingPoint(
        strategy=asked.strategy,
        gpus=scenario.job.gpus,
        global_batch=scenario.job.global_batch,
        plan=str(asked.plan),
        fits=fit,  # type: ignore[arg-type]
        reason=reason,
    )
