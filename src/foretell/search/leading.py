"""Plans that may lead a search, evaluated; the others are skipped, since a bound on their step is too long.

Bounds (training/pace.py) depend on a few fields, and never on the ZeRO stage: one candidate stands for all
of its stages until it is evaluated. Candidates are evaluated in the order of their bounds, some thousands at
first, until the bound of the next is beyond what can still come first: the last of the best plans that
clearly fit, and those that simplicity may put in front. Spaces of other structural
choices that were searched before count: what leads there is to be beaten.

The fastest plan is often one of many that no measurement could tell apart. Two plans are equal where nine in
ten cases of their difference, errors that both share drawn once (search/differences.py), have either sign.
Among the plans equal to the fastest one the simplest leads: fewer kinds of parallelism, tensor parallelism
inside a node, equal stages, the usual placement.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise
from math import prod

import numpy as np

from foretell.network.library_catalog import inner_tiers
from foretell.records import dataclass
from foretell.search.interrupts import end_at_once, hold_interrupts
from foretell.search.space import Space, all_stages
from foretell.sharding.rules import layers_of
from foretell.specs.arrays import Array, Index, Mask
from foretell.specs.plan import Plans, join_plans
from foretell.specs.result import StepEstimate
from foretell.specs.scenario import Scenario
from foretell.training.feasibility import YES, PlanTotals, empty_totals, join_totals, verdict_codes
from foretell.training.pace import least_seconds
from foretell.training.step import evaluate_chunks, evaluate_plans
from foretell.training.tables import Tables, select, tables_of

NEAR = 1.02
"""A plan that is expected to take longer than this times the fastest does not lead: simplicity is worth no
more."""
MOST = 12
"""Plans that are laid beside the fastest one, the simplest first."""


def burden(scenario: Scenario, plans: Plans) -> Array:
    """How much a plan asks of who runs it: kinds of parallelism, and what is unusual about them."""
    kinds = sum((degree > 1).astype(float) for degree in (plans.tp, plans.pp, plans.cp, plans.ep))
    uneven = np.mod(layers_of(scenario.model), plans.pp * plans.vpp) > 0
    tiers = scenario.system.network.tiers
    inner = inner_tiers(tuple(tier.name for tier in tiers))
    beyond = plans.tp > prod(float(tier.size) for tier in tiers[:inner])
    odd = (plans.order > 0).astype(float) + (plans.vpp > 1) + (plans.recompute == 3)
    split = (plans.tp > 1) & (plans.sp == 0)
    return np.asarray(4.0 * kinds + 4.0 * beyond + 3.0 * uneven + odd + 0.5 * split)


def near_rows(step_s: Array, fits: Mask, weight: Array) -> Index:
    """Rows that may be equal to the fastest plan that fits, the simplest first."""
    if not fits.any():
        return np.empty(0, dtype=np.intp)
    least = step_s[fits].min()
    rows = np.flatnonzero(fits & (step_s <= NEAR * least))
    order = np.lexsort((step_s[rows], weight[rows]))
    return np.asarray(rows[order][:MOST])


def is_equal(fastest: StepEstimate, other: StepEstimate) -> bool:
    """Whether neither is faster in nine of ten cases."""
    if fastest.breakdown is None or other.breakdown is None:
        return False
    # What compares plans also searches for better ones: it is loaded where it is used.
    from foretell.search.differences import interval_of

    low, high = interval_of(fastest.breakdown, other.breakdown)["p90"]
    return low <= 0.0 <= high


def leader(fastest: StepEstimate, simpler: Iterable[StepEstimate]) -> StepEstimate:
    """The first of some plans, the simplest first, that is equal to the fastest; else that one."""
    return next((one for one in simpler if is_equal(fastest, one)), fastest)


FIRST = 4096
"""Candidates of the first round; each later one has as many again as all before it, three times."""
ALIKE = 2e-9
"""Share within which two steps count as equally long, twice that of a ranking."""
NONE: Array = np.empty(0)
"""No steps."""
SHARED = 1 << 16
"""Plans of a round from which several processes share them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadingPlans:
    """The plans of a space that were evaluated, in its order."""

    plans: Plans
    """The plans."""
    totals: PlanTotals
    """Their step times and memory."""
    skipped: int
    """Plans that were not evaluated: their bounds are longer than what leads."""
    lead_s: Array
    """Steps of the best plans that clearly fit, those of spaces before included; at most `top`."""


def leading_plans(
    scenario: Scenario,
    space: Space,
    top: int,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
    lead_s: Array = NONE,
) -> LeadingPlans:
    """Plans that can be among the `top` of a space and of others before (`lead_s`), or nearly as fast."""
    tables = tables_of(scenario, space.plans, zeros=space.zeros)
    least_s = least_seconds(scenario, space.plans, tables)
    capacity, done_s, many = float(scenario.system.chip.memory_bytes), -1.0, FIRST
    limit_s = _limit_s(lead_s, top)
    rounds: list[tuple[Plans, PlanTotals, Index]] = []
    done = 0
    while done_s < limit_s:
        far = many >= len(least_s)
        until_s = np.inf if far else float(np.partition(least_s, many)[many])
        until_s = min(until_s, limit_s)
        rows = np.flatnonzero((least_s > done_s) & (least_s <= until_s))
        plans, of_rows, places = all_stages(space, rows)
        found = _evaluated(scenario, plans, tables, of_rows, workers)
        rounds.append((plans, found, places))
        done += len(plans)
        clear_s = found.step_s[verdict_codes(found.held, capacity) == YES]
        lead_s = np.sort(np.concatenate([lead_s, clear_s]))[:top]
        limit_s, done_s, many = _limit_s(lead_s, top), until_s, 4 * many
        if progress is not None:
            progress(done)
    places = np.concatenate([one[2] for one in rounds])
    order = np.argsort(places, kind="stable")
    if progress is not None:
        progress(space.count)
    return LeadingPlans(
        plans=join_plans([one[0] for one in rounds]).take(order),
        totals=join_totals([one[1] for one in rounds]).take(order),
        skipped=space.count - len(order),
        lead_s=lead_s,
    )


def _limit_s(lead_s: Array, top: int) -> float:
    """The longest step that can still be among those looked for; inf where too few clearly fit."""
    if len(lead_s) < top:
        return np.inf
    return max(float(lead_s[-1]) * (1.0 + ALIKE), NEAR * float(lead_s[0]))


def _evaluated(
    scenario: Scenario, plans: Plans, tables: Tables, of_rows: Index, workers: int
) -> PlanTotals:
    """Step times and memory of some plans, here or on several processes."""
    if workers > 1 and len(plans) >= SHARED:
        return _evaluate_parallel(scenario, plans, workers)
    return (
        evaluate_chunks(scenario, plans, select(tables, of_rows)) if len(plans) else join_totals([])
    )


def _evaluate_parallel(scenario: Scenario, plans: Plans, workers: int) -> PlanTotals:
    """Step times and memory of some plans on several processes, in contiguous shares."""
    from concurrent.futures import ProcessPoolExecutor, as_completed

    edges = np.linspace(0, len(plans), 4 * workers + 1).astype(int)
    shares = [np.arange(int(a), int(b)) for a, b in pairwise(edges) if b > a]
    found = empty_totals(len(plans))
    # An interrupt ends the workers at once; left alone they would take up the next share.
    with ProcessPoolExecutor(workers, initializer=end_at_once) as pool:
        with hold_interrupts():
            futures = {pool.submit(evaluate_plans, scenario, plans.take(s)): s for s in shares}
        for future in as_completed(futures):
            found.put(futures[future], future.result())
    return found
