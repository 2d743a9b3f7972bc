"""Our model on the systems of the 2024 study: the same chips, links, domains, models and batch.

Every number that the study states replaces ours; what it does not state (kernel efficiencies, power limits,
latencies of collectives, memory held by the framework) stays as the catalogue has it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.api.training import estimate
from foretell.errors import Infeasible
from foretell.inputs.question import ask, plan_of
from foretell.lab.reference.records import CHIPS, MODELS, StudyChip
from foretell.lab.reference.study import STUDY_GLOBAL_BATCH
from foretell.records import dataclass
from foretell.search.search import rank
from foretell.search.space import enumerate_plans
from foretell.specs.plan import Plans
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
SHARES = {
    "compute": "compute",
    "memory_bound": "memory",
    "gradient_sums": "memory",
    "optimizer": "memory",
    "recompute": "recompute",
    "tensor_parallel": "tensor",
    "context_parallel": "tensor",
    "expert_parallel": "tensor",
    "data_parallel": "data",
    "pipeline_parallel": "pipeline",
    "bubble": "bubble",
}
"""Leaves of our breakdown, and the study's column for each; others are `other`."""
CORNER_SHARE = 1.3
"""A map searches plans that come within so many times the fastest at one of its corners."""

Floats = NDArray[np.float64]


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
    return ask(
        model=OUR_MODELS[task.model],
        system=OUR_SYSTEMS[task.chip],
        gpus=task.gpus,
        global_batch=STUDY_GLOBAL_BATCH,
        seq_len=MODELS[task.model].seq_len,
        set=settings(CHIPS[task.chip], task.domain),
    )


def days_of(model: str, step_s: float) -> float:
    """Days of the study's training run at this step time."""
    return step_s * MODELS[model].samples / STUDY_GLOBAL_BATCH / SECONDS_PER_DAY


def search_row(task: OurTask) -> dict[str, Any]:
    """The fastest plan of ours, and the fastest without a split sequence (the study's 1d)."""
    scenario, base = plan_of(scenario_of(task), None, ())
    plans = enumerate_plans(scenario, base).plans
    totals = evaluate_plans(scenario, plans)
    step_s, peak = totals.step_s, np.asarray(totals.held.peak_bytes)
    verdicts = verdict_codes(totals.held, float(scenario.system.chip.memory_bytes))
    row: dict[str, Any] = {
        "model": task.model,
        "chip": task.chip,
        "nvs": task.domain,
        "gpus": task.gpus,
        "plans": len(plans),
        "fit": int((verdicts != NO).sum()),
    }
    flat = np.nonzero(np.asarray(plans.cp) + np.zeros(len(plans)) == 1)[0]
    for name, rows in (("", np.arange(len(plans))), ("_1d", flat)):
        best = rank(step_s[rows], verdicts[rows], 1, plans.take(rows).recompute)
        found = int(rows[best[0]]) if len(best) else None
        row[f"days{name}"] = None if found is None else days_of(task.model, float(step_s[found]))
        row[f"plan{name}"] = "" if found is None else str(plans.plan(found))
        row[f"memory_gb{name}"] = None if found is None else float(peak[found]) / 1e9
    return row


def breakdown(task: OurTask, plan: str) -> dict[str, float]:
    """Days of each of the study's columns, by our model at one plan; they sum to the days."""
    try:
        answer = estimate(
            OUR_MODELS[task.model],
            system=OUR_SYSTEMS[task.chip],
            gpus=task.gpus,
            global_batch=STUDY_GLOBAL_BATCH,
            seq_len=MODELS[task.model].seq_len,
            plan=plan,
            set=settings(CHIPS[task.chip], task.domain),
        )
    except Infeasible:
        return {}
    tree: Mapping[str, Any] = answer.to_dict()["breakdown"]
    found: dict[str, float] = {}
    for leaf in tree["children"]:
        name = SHARES.get(leaf["name"], "other")
        found[name] = found.get(name, 0.0) + days_of(task.model, float(leaf["value"]))
    return found


def run_searches(tasks: Sequence[OurTask], workers: int) -> list[dict[str, Any]]:
    """One row for each task, in their order."""
    if workers <= 1 or len(tasks) < 4:
        return [search_row(task) for task in tasks]
    from concurrent.futures import ProcessPoolExecutor

    order = sorted(range(len(tasks)), key=lambda i: tasks[i].gpus)  # the largest spaces first
    with ProcessPoolExecutor(max_workers=min(workers, len(tasks))) as pool:
        found = list(pool.map(search_row, [tasks[i] for i in order]))
    rows: list[dict[str, Any]] = [{}] * len(tasks)
    for i, row in zip(order, found, strict=True):
        rows[i] = row
    return rows


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


def our_map(model: str, gpus: int, x: Property, y: Property) -> Iterator[dict[str, Any]]:
    """Days over two properties of a B200 in domains of eight.

    Each cell searches the plans that are within CORNER_SHARE of the fastest that fits at a corner of the
    map, over all capacities: with FLOP/s go the watts, so that more arithmetic is not throttled.
    """
    task = OurTask(model=model, chip="B200", domain=8, gpus=gpus)
    scenario, base = plan_of(scenario_of(task), None, ())
    plans = enumerate_plans(scenario, base).plans
    capacities = _capacities(x, y, scenario)
    keep = np.zeros(len(plans), bool)
    for first in _ends(x):
        for second in _ends(y):
            at = _at(scenario, ((x, first), (y, second)))
            totals = evaluate_plans(at, plans)
            for capacity in capacities:
                fits = verdict_codes(totals.held, capacity) != NO
                if fits.any():
                    keep |= fits & (totals.step_s <= CORNER_SHARE * totals.step_s[fits].min())
    plans = plans.take(np.nonzero(keep)[0])
    yield from _cells(task, scenario, plans, x, y)


def _cells(
    task: OurTask, scenario: Scenario, plans: Plans, x: Property, y: Property
) -> Iterator[dict[str, Any]]:
    """One evaluation serves every capacity."""
    capacity = float(scenario.system.chip.memory_bytes)
    done: dict[tuple[float, float], PlanTotals] = {}
    for second in y.values:
        for first in x.values:
            pairs = tuple((p, v) for p, v in ((x, first), (y, second)) if p.name != "capacity_gb")
            key = (pairs[0][1], pairs[1][1] if len(pairs) > 1 else 0.0)
            if key not in done:
                found = evaluate_plans(_at(scenario, pairs), plans)
                done = {key: found, **dict(list(done.items())[:64])}
            totals = done[key]
            limit = next(
                (v for p, v in ((x, first), (y, second)) if p.name == "capacity_gb"), capacity
            )
            rows = rank(totals.step_s, verdict_codes(totals.held, limit), 1, plans.recompute)
            row = int(rows[0]) if len(rows) else None
            yield {
                "model": task.model,
                "side": "ours",
                "gpus": task.gpus,
                x.name: first / x.unit,
                y.name: second / y.unit,
                "days": None if row is None else days_of(task.model, float(totals.step_s[row])),
                "plan": "" if row is None else str(plans.plan(row)),
            }


def _at(scenario: Scenario, pairs: Sequence[tuple[Property, float]]) -> Scenario:
    for one, value in pairs:
        scenario = changed_scenario(scenario, one.name, value)
    return scenario


def _ends(one: Property) -> tuple[float, ...]:
    """The least and the largest value; of a capacity one, since a step does not depend on it."""
    return one.values[:1] if one.name == "capacity_gb" else (one.values[0], one.values[-1])


def _capacities(x: Property, y: Property, scenario: Scenario) -> tuple[float, ...]:
    for one in (x, y):
        if one.name == "capacity_gb":
            return one.values
    return (float(scenario.system.chip.memory_bytes),)
