"""Finite what-ifs: results on systems of which one number is better or worse by a factor.

The plan is held (one batch of systems, as elasticities are) or chosen anew on each system. A plan that is
chosen anew is the better one of the search's best and the plan held, where that still fits: never worse.
Near the system as it is both have the same slope, since a best plan does not gain from small changes to
itself (the envelope theorem); they part with the size of the change, and where memory decides.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from foretell.search.search import search_plans
from foretell.search.sensitivity import (
    ALL_HARDWARE,
    LESS,
    SOFTWARE,
    SOFTWARE_WORDS,
    STEP,
    Number,
    chip_number,
    joint_number,
    numbers_of,
)
from foretell.specs.arrays import Array
from foretell.specs.plan import Plan, batch_of
from foretell.specs.result import Fits
from foretell.specs.scenario import Scenario
from foretell.training.answer import answer_of
from foretell.training.feasibility import VERDICTS, verdict_codes
from foretell.training.variants import SystemBatch, evaluate_systems

Side = Literal["better", "worse"]

SIDES: tuple[Side, ...] = ("better", "worse")
"""A number times a factor, or over it; times the other way round."""
CAPACITY = "chip.memory_bytes"
"""What a plan that is held does not feel, until it no longer fits."""
NETWORK = "network"
"""Path of the bandwidths of all tiers together."""
ROWS = 4
"""Systems for each number: a little lower and higher, better, worse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What is looked at on one system."""

    step_s: float
    """Time of a step."""
    energy_joules: float
    """Energy of a step."""
    fits: Fits
    """Whether the plan fits there; where it does not, the numbers are those it would have."""
    plan: str
    """The plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedPlan:
    """One plan on the system as it is and on those that differ in one number."""

    numbers: tuple[Number, ...]
    """What was varied."""
    now: Results
    """On the system as it is."""
    slopes: dict[str, dict[str, float]]
    """Path -> d ln(step_s) and d ln(energy_joules) over d ln(number)."""
    changed: dict[tuple[str, Side], Results]
    """Path and side -> on that system."""


def varied_numbers(scenario: Scenario, plan: Plan) -> tuple[Number, ...]:
    """The numbers of sensitivity.py, with the memory's size and all bandwidths of the network at once."""
    known = numbers_of(scenario, plan)
    tiers = [n for n in known if n.path.endswith(".bandwidth_bytes_per_s")]
    capacity = chip_number(scenario.system.chip, "memory_bytes", "memory of a chip", "size")
    network = joint_number(NETWORK, "bandwidth of all tiers of the network", tiers)
    return (*known, capacity, *([network] if len(tiers) > 1 else []))


def factor_of(number: Number, side: Side, by: float) -> float:
    """What a number is multiplied with: shorter times are better, and slower hardware, for fixed times."""
    up = number.kind != "time" and number.path not in (ALL_HARDWARE, *LESS)
    return by if up == (side == "better") else 1.0 / by


def held_results(scenario: Scenario, plan: Plan, by: float) -> FixedPlan:
    """The plan held on every changed system: one batch."""
    numbers = varied_numbers(scenario, plan)
    moved = tuple(n for n in numbers if n.path != CAPACITY)
    batch = _batch(scenario, plan, moved, by)
    step_s, joules = batch.result("step_s"), batch.result("energy_joules")
    capacity = float(scenario.system.chip.memory_bytes)

    def at(row: int, memory: float) -> Results:
        fit, held_s = VERDICTS[verdict_codes(batch.rows.held, memory)[row]], float(step_s[row])
        return Results(step_s=held_s, energy_joules=float(joules[row]), fits=fit, plan=str(plan))

    slopes, changed = {}, {}
    for i, number in enumerate(moved):
        rows = [1 + ROWS * i + j for j in range(ROWS)]
        slopes[number.path] = {
            "step_s": _slope(step_s, rows),
            "energy_joules": _slope(joules, rows),
        }
        for side, row in zip(SIDES, rows[2:], strict=True):
            changed[number.path, side] = at(row, capacity)
    slopes[CAPACITY] = {"step_s": 0.0, "energy_joules": 0.0}
    for side in SIDES:
        factor = factor_of(_named(numbers, CAPACITY), side, by)
        changed[CAPACITY, side] = at(0, factor * capacity)
    held = FixedPlan(numbers=numbers, now=at(0, capacity), slopes=slopes, changed=changed)
    return _with_software(held, by)


def replan_systems(
    scenario: Scenario,
    plan: Plan,
    held: FixedPlan,
    by: float,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Results, dict[tuple[str, Side], Results]]:
    """The best plan on the system as it is and on each changed one, fixed times of the software left out."""
    wanted = [n for n in held.numbers if n.path != SOFTWARE]
    now = _better(best_results(scenario, plan), held.now)
    found: dict[tuple[str, Side], Results] = {}
    for place, number in enumerate(wanted):
        for side in SIDES:
            factor = factor_of(number, side, by)
            asked = replace(scenario, system=number.scaled(scenario.system, factor))
            stays = held.changed[number.path, side]
            found[number.path, side] = _better(best_results(asked, plan), stays)
        if progress is not None:
            progress(2 * place + 2, 2 * len(wanted))
    return now, found


def best_results(scenario: Scenario, base: Plan) -> Results | None:
    """The best plan of the whole space with the structural choices of `base`; None where none fits."""
    found = search_plans(scenario, base, top=1)
    if not found.plans:
        return None
    best = answer_of(scenario, found.plans[0].plan, chosen=True)
    assert best.energy_joules is not None
    return Results(
        step_s=best.step_s,
        energy_joules=best.energy_joules,
        fits=best.fits,
        plan=str(best.plan),
    )


def _better(found: Results | None, held: Results) -> Results:
    """The faster one of those that fit; the plan held where nothing does."""
    if found is None or (held.fits != "no" and held.step_s <= found.step_s):
        return held
    return found


def _batch(scenario: Scenario, plan: Plan, numbers: Sequence[Number], by: float) -> SystemBatch:
    """The system as it is, then each number a little lower and higher, better and worse."""
    many = 1 + ROWS * len(numbers)
    system = scenario.system
    for i, number in enumerate(numbers):
        factor = np.ones(many)
        first = 1 + ROWS * i
        factor[first : first + 2] = 1.0 - STEP, 1.0 + STEP
        factor[first + 2 : first + 4] = [factor_of(number, side, by) for side in SIDES]
        system = number.scaled(system, factor)
    return evaluate_systems(scenario, batch_of([plan] * many), system)


def _slope(values: Array, rows: Sequence[int]) -> float:
    low, high = values[rows[0]], values[rows[1]]
    return float(np.log(high / low) / np.log((1.0 + STEP) / (1.0 - STEP)))


def _with_software(held: FixedPlan, by: float) -> FixedPlan:
    """All of the hardware as the fixed times of the software.

    With every rate (watts too) s times as high and every time, the software's included, s times as short a
    step takes 1/s of the time and the same energy. So T(s t) = s T(s r) and E(s t) = E(s r).
    """
    software = Number(SOFTWARE, SOFTWARE_WORDS, "time", 1.0, "", lambda system, _: system)
    slopes = {**held.slopes}
    of_all = slopes.pop(ALL_HARDWARE)
    slopes[SOFTWARE] = {**of_all, "step_s": 1.0 + of_all["step_s"]}
    changed = {**held.changed}
    for side in SIDES:
        there = changed.pop((ALL_HARDWARE, side))
        factor = factor_of(software, side, by)
        changed[SOFTWARE, side] = replace(there, step_s=factor * there.step_s)
    kept = tuple(software if n.path == ALL_HARDWARE else n for n in held.numbers)
    return replace(held, numbers=kept, slopes=slopes, changed=changed)


def _named(numbers: Sequence[Any], path: str) -> Any:
    return next(number for number in numbers if number.path == path)
