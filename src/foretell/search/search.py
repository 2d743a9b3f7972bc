"""Exhaustive search: enumerate, skip what cannot lead, evaluate in batches, rank."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from foretell.errors import Infeasible, Problem, wrong
from foretell.records import dataclass, later, with_values
from foretell.schedules.rules import is_looped
from foretell.search.choices import BY_STAGE, bases_of, worth_trying
from foretell.search.frameworks import launchable_with, launcher_of, runs_on
from foretell.search.leading import NEAR, NONE, burden, is_equal, leader, leading_plans, near_rows
from foretell.search.space import Space, enumerate_plans, space_key, take_candidates
from foretell.sharding.rules import layers_of
from foretell.specs.arrays import Array, Index
from foretell.specs.plan import BLANK, QUANTISED, Plan, Plans, batch_of
from foretell.specs.plan_forms import EVEN, GENERIC, even_sizes, layout_form
from foretell.specs.result import StepEstimate
from foretell.specs.scenario import Scenario
from foretell.training.answer import answer_of, estimate_json
from foretell.training.feasibility import NO, TOO_CLOSE, YES, verdict_codes
from foretell.training.tables import tail_layers
from foretell.units import format as show


def lighter_words(plan: Plan) -> str:
    """What makes a training step hold less where no layout does: words that the plan does not have."""
    stored = plan.weights in QUANTISED
    if plan.lora:
        words = [] if stored else ["weights=nf4"]
        words += [] if plan.recompute == "full" else ["recompute=full"]
        words += ["offload=weights"] if plan.offload == "none" else []
    else:
        words = [] if plan.optimizer == "adam8bit" else ["optimizer=adam8bit"]
        words += ["offload=optimizer"] if plan.offload == "none" else []
        words += ["lora=16", "lora=16 weights=nf4"]
    return f"a lighter recipe (--plan {', '.join(words)})" if words else "a smaller model"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The plans of a search, best first, and how it went."""

    plans: tuple[StepEstimate, ...]
    """The best plans: those that clearly fit by step time, then borderline ones."""
    plans_evaluated: int
    """Candidates whose step time and memory were both computed."""
    plans_feasible: int
    """Of these, candidates that fit or are borderline."""
    plans_pruned: int = 0
    """Candidates that were not evaluated: a bound on their step is longer than what leads."""
    evaluation_seconds: float
    """Wall time from enumeration to ranking."""
    rejected: Mapping[str, int]
    """Rule -> candidates skipped as invalid."""
    assumptions: tuple[str, ...]
    """Every default or guess."""
    equal: tuple[bool, ...] = ()
    """For each plan, whether it is equal to the fastest one within nine in ten cases."""
    smallest: Plan | None = None
    """The candidate that holds least; none: no candidate."""
    smallest_bytes: float = 0.0
    """What that one holds."""
    memory_bytes: float = 0.0
    """What a chip has."""
    asked: Scenario | None = None
    """What was asked."""

    @property
    def best(self) -> StepEstimate:
        """The best plan; Infeasible where there is none."""
        if not self.plans:
            raise Infeasible([self.why_none])
        return self.plans[0]

    @property
    def why_none(self) -> Problem:
        """Why no plan came back: the rules that failed, or the plan that holds least."""
        if self.smallest is None:
            reasons = ", ".join(f"{rule} ({count})" for rule, count in self.rejected.items())
            message, allowed = f"no plan satisfies the rules: {reasons}", "other chips or batch"
            return wrong("plan", None, message, allowed)
        message = (
            f"none of {self.plans_evaluated} plans fits: the smallest, `{self.smallest}`, needs "
        )
        message += f"{show(self.smallest_bytes, 'bytes')} of {show(self.memory_bytes, 'bytes')}"
        lighter = lighter_words(self.smallest)
        asked, smallest, need = self.asked, self.smallest, self.smallest_bytes

        def ways_out() -> str:
            from foretell.search.instead import instead_words  # it searches itself

            return lighter if asked is None else f"{instead_words(asked, smallest, need)}{lighter}"

        problem = wrong("plan (memory)", None, message)
        return with_values(problem, allowed=later(cache(ways_out)))

    def to_dict(self) -> dict[str, Any]:
        """The search as JSON; plans without their trees."""
        trees = ("breakdown", "memory", "memory_by_stage")
        plans = [
            {name: value for name, value in estimate_json(plan).items() if name not in trees}
            | {"launchable_with": list(launchers_of(plan))}
            for plan in self.plans
        ]
        return {
            "plans": plans,
            "equal": list(self.equal),
            "plans_evaluated": self.plans_evaluated,
            "plans_pruned": self.plans_pruned,
            "plans_feasible": self.plans_feasible,
            "evaluation_seconds": self.evaluation_seconds,
            "rejected": dict(self.rejected),
            "assumptions": list(self.assumptions),
        }


def search_plans(
    scenario: Scenario,
    base: Plan,
    top: int = 10,
    progress: Callable[[int, int], None] | None = None,
    workers: int = 1,
    fixed: Collection[str] = (),
    over: Sequence[str] = (),
) -> SearchResult:
    """The `top` best of all candidates; fields of `fixed` are as in `base`.

    A candidate is evaluated unless a bound on its step shows that it is none of them (search/leading.py).

    `over` names structural choices that are tried too, each combination a batch of its own.
    """
    start = time.perf_counter()
    capacity = float(scenario.system.chip.memory_bytes)
    rejected: Counter[str] = Counter()
    kept: list[BatchBest] = []
    evaluated = feasible = pruned = 0
    smallest, smallest_bytes = None, np.inf
    lead_s = NONE
    for space in _spaces(scenario, base, fixed, over, rejected):
        report = _shifted(progress, evaluated + pruned, space.count)
        found = leading_plans(scenario, space, top, workers, report, lead_s)
        plans, totals, lead_s = found.plans, found.totals, found.lead_s
        verdicts, peak = verdict_codes(totals.held, capacity), np.asarray(totals.held.peak_bytes)
        evaluated, pruned = evaluated + len(plans), pruned + found.skipped
        if not len(plans):
            continue
        feasible += int((verdicts != NO).sum())
        least = int(peak.argmin())
        if peak[least] < smallest_bytes:
            smallest, smallest_bytes = plans.plan(least), float(peak[least])
        rows = rank(totals.step_s, verdicts, top, plans.recompute)
        near = near_rows(totals.step_s, verdicts == YES, burden(scenario, plans))
        rows = np.concatenate([rows, near[~np.isin(near, rows)]])
        kept.append(
            BatchBest(plans=plans.take(rows), step_s=totals.step_s[rows], verdicts=verdicts[rows])
        )
    best = _best_of(kept, top)
    seconds = time.perf_counter() - start
    estimates, alike = _simplest_first(scenario, [_laid_out(scenario, plan) for plan in best], kept)
    return SearchResult(
        equal=alike,
        plans=estimates,
        plans_evaluated=evaluated,
        plans_pruned=pruned,
        plans_feasible=feasible,
        evaluation_seconds=seconds,
        rejected=dict(rejected),
        assumptions=estimates[0].assumptions if estimates else scenario.assumptions,
        smallest=smallest,
        smallest_bytes=smallest_bytes if smallest else 0.0,
        memory_bytes=capacity,
        asked=scenario,
    )


def _spaces(
    scenario: Scenario,
    base: Plan,
    fixed: Collection[str],
    over: Sequence[str],
    rejected: Counter[str],
) -> Iterator[Space]:
    """The candidates of each combination of structural choices; what a rule leaves out is counted."""
    # Which frameworks and which further choices a plan allows may depend on its ZeRO stage.
    staged = base.framework == GENERIC and not {*over} & {*BY_STAGE}
    spaces: dict[tuple[object, ...], Space] = {}
    for variant, changed in bases_of(scenario, base, over):
        key = space_key(variant)
        if key not in spaces:
            spaces[key] = enumerate_plans(scenario, variant, fixed, staged=staged)
            rejected.update(spaces[key].rejected)
        space = replace(spaces[key], plans=replace(spaces[key].plans, base=variant))
        runs, lost = runs_on(scenario, space.plans, variant.framework)
        if lost:
            rejected.update(lost)
            space = take_candidates(space, np.flatnonzero(runs))
        if changed:
            space = take_candidates(space, np.flatnonzero(worth_trying(space.plans, changed)))
        if space.count:
            yield space


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchBest:
    """The best plans of one batch."""

    plans: Plans
    """The plans."""
    step_s: Array
    """Their times."""
    verdicts: Index
    """Whether they fit (training/feasibility.py)."""


def _best_of(kept: Sequence[BatchBest], top: int) -> list[Plan]:
    """The best of all batches' best, in the same order as one batch has."""
    if not kept:
        return []
    found = [k.plans.plan(row) for k in kept for row in range(len(k.plans))]
    step, effort = (
        np.concatenate(values)
        for values in ([k.step_s for k in kept], [k.plans.recompute for k in kept])
    )
    verdicts = np.concatenate([k.verdicts for k in kept])
    return [found[int(row)] for row in rank(step, verdicts, top, effort)]


def launchers_of(found: StepEstimate) -> tuple[str, ...]:
    """The frameworks that can run an estimate's plan; none known where its question is not."""
    return () if found.scenario is None else launchable_with(found.scenario, found.plan)


def _laid_out(scenario: Scenario, plan: Plan) -> Plan:
    """The plan as its framework states it: a layout where layers do not divide, no unused choices of cp."""
    if plan.cp == 1 and plan.framework != GENERIC:
        plan = replace(plan, cp_mode=BLANK.cp_mode, cp_cut=BLANK.cp_cut)
    chunks, layers = plan.pp * plan.vpp, layers_of(scenario.model)
    told = plan.layout != EVEN or not is_looped(plan.schedule)
    tail = tail_layers(scenario.model)
    even = layers % chunks == 0 and not tail
    if chunks == 1 or even or told or launcher_of(plan.framework) is None:
        return plan
    sizes = ",".join(map(str, even_sizes(layers, chunks, tail)))
    return replace(plan, layout=layout_form(sizes) or EVEN)


def _simplest_first(
    scenario: Scenario, best: Sequence[Plan], kept: Sequence[BatchBest]
) -> tuple[tuple[StepEstimate, ...], tuple[bool, ...]]:
    """The best plans as estimates, led by the simplest that is equal to the fastest; and which are equal."""
    found = [answer_of(scenario, plan, chosen=True) for plan in best]
    clear = [one for one in found if one.fits == "yes"]
    if not clear:
        return tuple(found), tuple(is_equal(found[0], one) for one in found)
    fastest, first = clear[0], burden(scenario, batch_of([clear[0].plan]))[0]
    step, weight = (
        np.concatenate(values)
        for values in ([k.step_s for k in kept], [burden(scenario, k.plans) for k in kept])
    )
    verdicts = np.concatenate([k.verdicts for k in kept])
    plans = [k.plans.plan(row) for k in kept for row in range(len(k.plans))]
    rows = near_rows(step, (verdicts == YES) & (weight < first), weight)
    simpler = (
        answer_of(scenario, _laid_out(scenario, plans[int(row)]), chosen=True)
        for row in rows
        if step[row] <= NEAR * fastest.step_s
    )
    lead = leader(fastest, simpler)
    rest = [one for one in found if one.plan != lead.plan]
    ordered = (lead, *rest)[: len(found)]
    return ordered, tuple(is_equal(fastest, one) for one in ordered)


def _shifted(
    progress: Callable[[int, int], None] | None, before: int, many: int
) -> Callable[[int], None] | None:
    """Progress of one batch as that of the search: of what is known so far."""
    return None if progress is None else lambda done: progress(before + done, before + many)


def rank(step_s: Array, verdicts: Index, top: int, effort: Array | None = None) -> Index:
    """Rows of the best plans: clear ones by time, then borderline ones; of equal times the least `effort`."""
    more = np.zeros_like(step_s) if effort is None else effort
    chosen: list[Index] = []
    for code in (YES, TOO_CLOSE):
        rows = np.flatnonzero((verdicts == code) & np.isfinite(step_s))
        if len(rows) > top:
            last = np.partition(step_s[rows], top - 1)[top - 1]
            rows = rows[step_s[rows] <= last * (1.0 + 1e-9)]
        tie = np.round(np.log(step_s[rows]) * 1e9)
        chosen.append(rows[np.lexsort((rows, step_s[rows], more[rows], tie))])
    return np.concatenate(chosen)[:top]
