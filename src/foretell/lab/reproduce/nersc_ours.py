"""Our model on the systems of the 2024 study: the same chips, links, domains, models and batch.

Every number that the study states replaces ours; what it does not state (kernel efficiencies, power limits,
latencies of collectives, memory held by the framework) stays as the catalogue has it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any, TypeVar

import numpy as np

from foretell.api.training import estimate
from foretell.errors import Infeasible
from foretell.inputs.question import ask, plan_of
from foretell.lab.reference.records import CHIPS, MODELS, StudyChip
from foretell.lab.reference.study import STUDY_GLOBAL_BATCH
from foretell.lab.reproduce.records import described
from foretell.records import dataclass
from foretell.search.leading import NONE, leading_plans
from foretell.search.search import rank
from foretell.search.space import Space, enumerate_plans, take_candidates
from foretell.specs.arrays import Array
from foretell.specs.plan import Plan
from foretell.specs.result import StepEstimate
from foretell.specs.scenario import Scenario
from foretell.training.feasibility import NO, PlanTotals, verdict_codes
from foretell.training.step import evaluate_plans

OUR_SYSTEMS = {"A100": "dgx-a100", "H200": "dgx-h200", "B200": "dgx-b200"}
"""The study's chips and the systems of our catalogue that carry them."""
OUR_MODELS = {"gpt3_1T": "gpt3-1t", "vit_era5": "vit-era5", "gpt3": "gpt3-175b"}
"""The study's models and those of our catalogue."""
OUR_GPUS = (256, 1024, 4096, 16384)
"""GPU counts of our side on every system."""
SECONDS_PER_DAY = 86400.0
SHARES: Mapping[str, str] = described("nersc-2024")["shares"]
"""Leaves of our breakdown, and the study's column for each; others are `other`."""
CORNER_SHARE = 1.3
"""A map searches plans that come within so many times the fastest at one of its corners."""

Floats = Array


@dataclass(frozen=True, slots=True, kw_only=True)
class OurTask:
    """One search of our model."""

    model: str
    """As the study spells it."""
    chip: str
    """As the study spells it."""
    domain: int
    """GPUs of a fast domain."""
    gpus: int
    """GPUs."""
    capacity: float = 1.0
    """Times the chip's memory."""
    bandwidth: float = 1.0
    """Times its memory's bandwidth."""

    @property
    def study_chip(self) -> StudyChip:
        """The chip as the study has it, with that memory."""
        chip = CHIPS[self.chip]
        return replace(
            chip,
            hbm_bytes=self.capacity * chip.hbm_bytes,
            hbm_bytes_per_s=self.bandwidth * chip.hbm_bytes_per_s,
        )

    @property
    def question(self) -> dict[str, Any]:
        """The question to our model."""
        return {
            "model": OUR_MODELS[self.model],
            "system": OUR_SYSTEMS[self.chip],
            "gpus": self.gpus,
            "global_batch": STUDY_GLOBAL_BATCH,
            "seq_len": MODELS[self.model].seq_len,
            "set": settings(self.study_chip, self.domain),
        }


def settings(chip: StudyChip, domain: int) -> tuple[str, ...]:
    """The study's numbers as settings of ours."""
    return (
        f"chip.matrix_flop_per_s.bf16={chip.matrix_flop_per_s:.17g}",
        f"chip.memory_bandwidth_bytes_per_s={chip.hbm_bytes_per_s:.17g}",
        f"chip.memory_bytes={chip.hbm_bytes:.17g}",
        f"network.node.size={domain}",
        f"network.node.bandwidth_bytes_per_s={chip.fast_bytes_per_s:.17g}",
        f"network.cluster.bandwidth_bytes_per_s={chip.slow_bytes_per_s:.17g}",
    )


@lru_cache(maxsize=256)
def scenario_of(task: OurTask) -> Scenario:
    """The question to our model."""
    return ask(**task.question)


def days_of(model: str, step_s: float) -> float:
    """Days of the study's training run at this step time."""
    return step_s * MODELS[model].samples / STUDY_GLOBAL_BATCH / SECONDS_PER_DAY


SUMMA = "tp_mode=summa"
"""Word of plans whose tensor-parallel ranks are a grid, as the study's 2d."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fastest:
    """The fastest plan of one strategy."""

    strategy: str
    """As the study spells it: 1d, 2d-seqp where a sequence is split (context parallelism), 2d for SUMMA."""
    plan: Plan
    """The plan."""
    step_s: float
    """Its step."""
    peak_bytes: float
    """What it holds."""


def spaces_of(task: OurTask) -> dict[str, Space]:
    """The candidates of each of the study's strategies."""
    scenario, base = plan_of(scenario_of(task), None, ())
    rows = enumerate_plans(scenario, base, staged=True)
    flat = np.broadcast_to(rows.plans.cp == 1.0, len(rows.plans))
    grid, summa = plan_of(scenario, SUMMA, ())
    return {
        "1d": take_candidates(rows, np.flatnonzero(flat)),
        "2d-seqp": take_candidates(rows, np.flatnonzero(~flat)),
        "2d": enumerate_plans(grid, summa, staged=True),
    }


def fastest_plans(scenario: Scenario, spaces: Mapping[str, Space]) -> dict[str, Fastest]:
    """The fastest plan of 1d, and of each later strategy that is faster than those before it."""
    found: dict[str, Fastest] = {}
    capacity, lead_s = float(scenario.system.chip.memory_bytes), NONE
    for strategy, space in spaces.items():
        if not space.count:
            continue
        leading = leading_plans(scenario, space, 1, lead_s=lead_s)
        plans, totals, lead_s = leading.plans, leading.totals, leading.lead_s
        verdicts = verdict_codes(totals.held, capacity)
        for row in rank(totals.step_s, verdicts, 1, plans.recompute).tolist():
            one = Fastest(
                strategy=strategy,
                plan=plans.plan(row),
                step_s=float(totals.step_s[row]),
                peak_bytes=float(np.asarray(totals.held.peak_bytes)[row]),
            )
            if all(one.step_s < before.step_s for before in found.values()):
                found[strategy] = one
    return found


def search_row(task: OurTask) -> dict[str, Any]:
    """The fastest plan of ours, and the fastest of the study's 1d."""
    found = fastest_plans(scenario_of(task), spaces_of(task))
    best = min(found.values(), key=lambda one: one.step_s, default=None)
    row: dict[str, Any] = {
        "model": task.model,
        "chip": task.chip,
        "nvs": task.domain,
        "gpus": task.gpus,
        "strategy": best.strategy if best else "",
    }
    for name, one in (("", best), ("_1d", found.get("1d"))):
        row[f"days{name}"] = days_of(task.model, one.step_s) if one else None
        row[f"plan{name}"] = str(one.plan) if one else ""
        row[f"memory_gb{name}"] = one.peak_bytes / 1e9 if one else None
    return row


@lru_cache(maxsize=512)
def estimate_of(task: OurTask, plan: str) -> StepEstimate | None:
    """Our model at one plan; None where it does not fit."""
    try:
        return estimate(**task.question, plan=plan)
    except Infeasible:
        return None


def breakdown(task: OurTask, plan: str) -> dict[str, float]:
    """Days of each of the study's columns, by our model at one plan; they sum to the days."""
    answer = estimate_of(task, plan)
    return {} if answer is None else parts_of(task.model, answer)


def parts_of(model: str, answer: StepEstimate) -> dict[str, float]:
    """Days of each of the study's columns of an answer of ours."""
    assert answer.breakdown is not None
    found: dict[str, float] = {}
    for leaf in answer.breakdown.children:
        name = SHARES.get(leaf.name, "other")
        found[name] = found.get(name, 0.0) + days_of(model, leaf.value)
    return found


Task = TypeVar("Task")
Answer = TypeVar("Answer")


def run_tasks(work: Callable[[Task], Answer], tasks: Sequence[Task], workers: int) -> list[Answer]:
    """One answer for each task, in their order."""
    if workers <= 1 or len(tasks) < 4:
        return [work(task) for task in tasks]
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(max_workers=min(workers, len(tasks))) as pool:
        return list(pool.map(work, tasks))


CAPACITY = "capacity_gb"
"""The property that a step does not depend on."""
Rates = tuple[tuple[str, float], ...]
"""Properties that it does depend on, and their values."""
FastestAt = Callable[[Mapping[str, float]], tuple[float | None, str]]
"""Values of two properties -> days of the fastest plan, None where nothing fits, and which it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """One property of a chip, as a map varies it."""

    name: str
    """Column of the map's table."""
    title: str
    """On the map's axis."""
    values: tuple[float, ...]
    """What it is set to, in SI."""
    unit: float
    """SI of the table's unit."""


def changed_scenario(scenario: Scenario, name: str, value: float) -> Scenario:
    """The question with another memory bandwidth or arithmetic rate; capacity is no part of a step.

    More arithmetic gets more watts, so that it is not throttled; less keeps the power limit of the chip.
    """
    chip = scenario.system.chip
    if name == "bandwidth_tb_per_s":
        chip = replace(chip, memory_bandwidth_bytes_per_s=value)
    elif name == "tflop_per_s":
        factor = value / chip.matrix_flop_per_s["bf16"]
        rates = {kind: factor * rate for kind, rate in chip.matrix_flop_per_s.items()}
        chip = replace(
            chip,
            matrix_flop_per_s=rates,
            vector_flop_per_s=factor * chip.vector_flop_per_s,
            measured_matmul_flop_per_s=factor * chip.measured_matmul_flop_per_s,
            tdp_watts=max(1.0, factor) * chip.tdp_watts,
        )
    return replace(scenario, system=replace(scenario.system, chip=chip))


def map_rows(
    model: str, side: str, gpus: int, x: Property, y: Property, best: FastestAt
) -> Iterator[dict[str, Any]]:
    """A cell for each pair of values: days of the fastest plan, and which it is."""
    for second in y.values:
        for first in x.values:
            days, plan = best({x.name: first, y.name: second})
            at = {x.name: first / x.unit, y.name: second / y.unit}
            yield {"model": model, "side": side, "gpus": gpus, **at, "days": days, "plan": plan}


def our_map(model: str, gpus: int, x: Property, y: Property) -> Iterator[dict[str, Any]]:
    """Days over two properties of a B200 in domains of eight.

    Each cell searches the plans that are within CORNER_SHARE of the fastest that fits at a corner of the
    map, over all capacities: with FLOP/s go the watts, so that more arithmetic is not throttled. One
    evaluation serves every capacity.
    """
    task = OurTask(model=model, chip="B200", domain=8, gpus=gpus)
    scenario, base = plan_of(scenario_of(task), None, ())
    plans = enumerate_plans(scenario, base).plans
    own = float(scenario.system.chip.memory_bytes)
    capacities = next((p.values for p in (x, y) if p.name == CAPACITY), (own,))
    keep = np.zeros(len(plans), bool)
    for corner in product(*({p.values[0], p.values[-1]} for p in (x, y) if p.name != CAPACITY)):
        names = [p.name for p in (x, y) if p.name != CAPACITY]
        totals = evaluate_plans(_at(scenario, tuple(zip(names, corner, strict=True))), plans)
        for capacity in capacities:
            fits = verdict_codes(totals.held, capacity) != NO
            if fits.any():
                keep |= fits & (totals.step_s <= CORNER_SHARE * totals.step_s[fits].min())
    plans = plans.take(np.nonzero(keep)[0])

    @lru_cache(maxsize=64)
    def totals_at(rates: Rates) -> PlanTotals:
        return evaluate_plans(_at(scenario, rates), plans)

    def best(values: Mapping[str, float]) -> tuple[float | None, str]:
        totals = totals_at(tuple((n, v) for n, v in values.items() if n != CAPACITY))
        verdicts = verdict_codes(totals.held, values.get(CAPACITY, own))
        rows = rank(totals.step_s, verdicts, 1, plans.recompute)
        if not len(rows):
            return None, ""
        row = int(rows[0])
        return days_of(model, float(totals.step_s[row])), str(plans.plan(row))

    yield from map_rows(model, "ours", gpus, x, y, best)


def _at(scenario: Scenario, rates: Rates) -> Scenario:
    for name, value in rates:
        scenario = changed_scenario(scenario, name, value)
    return scenario
