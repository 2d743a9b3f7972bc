"""What works in the place of a plan that does not: the nearest plan, other numbers of chips, other chips."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from foretell.catalog import chip as chip_named
from foretell.catalog import entries
from foretell.errors import ProblemsError
from foretell.inputs.job import default_batch
from foretell.records import dataclass
from foretell.search.search import SearchResult, search_plans
from foretell.search.space import all_orders, enumerate_plans, spell_order
from foretell.sharding.rules import chips_of
from foretell.specs.arrays import Array
from foretell.specs.chip import Chip
from foretell.specs.plan import Plan, Plans, recompute_code
from foretell.specs.scenario import Scenario
from foretell.training.feasibility import NO, YES, verdict_codes
from foretell.training.step import evaluate_plans
from foretell.units import format as show

WEIGHTS = {"tp": 1.0, "pp": 1.0, "cp": 1.0, "ep": 0.7, "etp": 0.7, "micro_batch": 0.7, "vpp": 0.5}
"""Cost of doubling or halving a degree; changing a choice costs a half."""
TOO_CLOSE = 0.75
"""Cost of a plan that is borderline."""
FIRST_LOOK = 512
"""Plans that are evaluated first; four times as many each time none of them fits."""


def nearest_plan(scenario: Scenario, plan: Plan) -> Plan | None:
    """Among all plans that fit, the one with the fewest doublings and changed choices; then the fastest."""
    plans = enumerate_plans(scenario, plan).plans
    if len(plans) == 0:
        return None
    distance = np.zeros(len(plans))
    for name, weight in WEIGHTS.items():
        distance += weight * np.abs(np.log2(getattr(plans, name) / getattr(plan, name)))
    distance += 0.5 * np.abs(plans.zero - plan.zero)
    distance += 0.5 * (plans.recompute != recompute_code(plan.recompute))
    distance += 0.5 * (plans.sp != float(plan.sp))
    order = all_orders(plan).index(spell_order(plan.order, plan))
    distance = np.round(distance + 0.5 * (plans.order != order), 9)
    best = _nearest_that_fits(scenario, plans, distance)
    return None if best is None else plans.plan(best)


def _nearest_that_fits(scenario: Scenario, plans: Plans, distance: Array) -> int | None:
    """Row of the nearest plan that fits; near ones are looked at first, the rest only where none does."""
    have = scenario.system.chip.memory_bytes
    sequence = np.argsort(distance, kind="stable")
    found: tuple[float, float, int] | None = None
    start, size = 0, FIRST_LOOK
    while start < len(sequence):
        rows = sequence[start : start + size]
        if found is not None and distance[rows[0]] > found[0]:
            break
        totals = evaluate_plans(scenario, plans.take(rows))
        verdicts = verdict_codes(totals.held, have)
        far = np.round(distance[rows] + TOO_CLOSE * (verdicts != YES), 9)
        for at in np.flatnonzero(verdicts != NO):
            one = (float(far[at]), float(totals.step_s[at]), int(rows[at]))
            found = one if found is None else min(found, one)
        start, size = start + size, 4 * size
    return None if found is None else found[2]


SHRINKS = 0.5
"""Share of what a chip lacks that more chips take away at least: some of what it holds is never cut."""
TRIES = 12
"""Numbers of chips that are searched before no answer is better than a late one."""
NEAR = 0.05
"""How far from a number of chips that divides badly others are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherSize:
    """A number of chips and the best plan on them."""

    gpus: int
    """Chips."""
    plan: Plan
    """The best plan."""
    step_s: float
    """Its step."""
    tokens_per_s: float
    """Its rate."""


def on_chips(scenario: Scenario, gpus: int) -> Scenario:
    """The same job on another number of chips."""
    return replace(scenario, job=replace(scenario.job, gpus=gpus))


def sizes(scenario: Scenario) -> Iterator[int]:
    """Numbers of chips that are tried, smallest first."""
    node, most = scenario.system.node_chips, chips_of(scenario)
    n = 1
    while n < node:
        yield n
        n *= 2
    nodes = 1
    while nodes * node <= most:
        yield nodes * node
        if nodes > 1 and nodes * 3 // 2 * node <= most:
            yield nodes * 3 // 2 * node
        nodes *= 2


def fewest_chips(scenario: Scenario, base: Plan) -> OtherSize | None:
    """The smallest number of chips on which some plan of this recipe is not refused for memory."""
    least, tried = 0.0, 0
    for gpus in sizes(scenario):
        if gpus < least:
            continue
        tried += 1
        if tried > TRIES:
            return None
        found = _searched(on_chips(scenario, gpus), base)
        if found is None:
            continue
        if found.plans:
            return _size(gpus, found)
        if found.smallest_bytes and found.memory_bytes:
            least = gpus * max(1.0, SHRINKS * found.smallest_bytes / found.memory_bytes)
    return None


def sizes_beside(scenario: Scenario, base: Plan, *, batch_given: bool) -> tuple[OtherSize, ...]:
    """Of a number of chips that is no whole number of nodes, what the next ones below and above give; each
    with a batch of its own where none is given."""
    gpus, node = scenario.job.gpus, scenario.system.node_chips
    if gpus <= node or gpus % node == 0:
        return ()
    unit = node
    while 2 * unit <= NEAR * gpus:
        unit *= 2
    below = gpus // unit * unit
    found = []
    for near in (below, below + unit):
        if 0 < near <= chips_of(scenario):
            other = on_chips(scenario, near)
            if not batch_given:
                job = scenario.job
                batch = default_batch(near, job.seq_len + (job.target_len or 0))
                other = replace(other, job=replace(other.job, global_batch=batch))
            result = _searched(other, base)
            found += [_size(near, result)] if result is not None and result.plans else []
    return tuple(found)


def instead_words(scenario: Scenario, base: Plan, needs_bytes: float) -> str:
    """The fewest chips and the next larger chip, as the beginning of a list of ways out."""
    fewest, chip = fewest_chips(scenario, base), larger_chip(scenario.system.chip, needs_bytes)
    words = ""
    if fewest is not None:
        words += f"--gpus {fewest.gpus}, the fewest that hold it (`{fewest.plan}`), or "
    if chip is not None:
        gpus = scenario.job.gpus
        words += f"--gpus {gpus} --system {chip[0]}, the next larger chip that holds it "
        words += f"({show(chip[1], 'bytes')}), or "
    return words


def larger_chip(own: Chip, needs_bytes: float) -> tuple[str, float] | None:
    """The chip of the same maker with the least memory that holds so much, and its memory."""
    found = []
    for entry in entries("chip"):
        chip = chip_named(entry.id)
        memory = float(chip.memory_bytes)
        if chip.vendor == own.vendor and memory >= needs_bytes > float(own.memory_bytes):
            found.append((memory, chip.id))
    return min(found)[::-1] if found else None


def _searched(scenario: Scenario, base: Plan) -> SearchResult | None:
    """The best plan of a size; None where none keeps the rules at all."""
    try:
        return search_plans(scenario, base, top=1)
    except ProblemsError:
        return None


def _size(gpus: int, found: SearchResult) -> OtherSize:
    best = found.plans[0]
    return OtherSize(gpus=gpus, plan=best.plan, step_s=best.step_s, tokens_per_s=best.tokens_per_s)
