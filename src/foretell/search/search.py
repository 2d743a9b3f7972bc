"""Exhaustive search: enumerate, evaluate in batches, rank."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.answer import answer_of
from foretell.cost.memory import CLOSE_SHARE
from foretell.errors import Infeasible, Problem
from foretell.estimate import evaluate
from foretell.search.space import enumerate_plans
from foretell.specs.plan import Plan, Plans
from foretell.specs.result import Estimate
from foretell.specs.scenario import Scenario

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The plans of a search, best first, and how it went."""

    plans: tuple[Estimate, ...]
    """The best plans: those that clearly fit by step time, then those too close to call."""
    plans_evaluated: int
    """Candidates whose step time and memory were both computed."""
    plans_feasible: int
    """Of these, candidates that fit or are too close to call."""
    evaluation_seconds: float
    """Wall time from enumeration to ranking."""
    rejected: Mapping[str, int]
    """Rule -> candidates turned away before they were evaluated."""
    assumptions: tuple[str, ...]
    """Every default or guess."""

    @property
    def best(self) -> Estimate:
        """The best plan; Infeasible where there is none."""
        if not self.plans:
            message = f"none of {self.plans_evaluated} plans fits in memory"
            raise Infeasible([Problem(path="plan (memory)", value=None, message=message)])
        return self.plans[0]

    def to_dict(self) -> dict[str, Any]:
        """The search as JSON; plans without their trees."""
        plans = []
        for estimate in self.plans:
            row = estimate.to_dict()
            del row["breakdown"], row["memory"], row["memory_by_stage"]
            plans.append(row)
        return {
            "plans": plans,
            "plans_evaluated": self.plans_evaluated,
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
) -> Search:
    """Evaluate every candidate and keep the `top` best; fields of `fixed` are as in `base`."""
    start = time.perf_counter()
    space = enumerate_plans(scenario, base, fixed)
    plans = space.plans
    if len(plans) == 0:
        step, peak = np.empty(0), np.empty(0)
    elif workers > 1:
        step, peak = _evaluate_parallel(scenario, plans, workers, progress)
    else:
        report = None if progress is None else (lambda done: progress(done, len(plans)))
        step, peak = evaluate(scenario, plans, report)
    best = rank(step, peak, float(scenario.system.chip.memory_bytes), top, plans.recompute)
    feasible = int((peak <= scenario.system.chip.memory_bytes).sum())
    seconds = time.perf_counter() - start
    estimates = tuple(answer_of(scenario, plans.plan(int(row)), chosen=True) for row in best)
    return Search(
        plans=estimates,
        plans_evaluated=len(plans),
        plans_feasible=feasible,
        evaluation_seconds=seconds,
        rejected=space.rejected,
        assumptions=estimates[0].assumptions if estimates else scenario.assumptions,
    )


def rank(
    step_s: Array, peak_bytes: Array, capacity_bytes: float, top: int, effort: Array | None = None
) -> NDArray[np.intp]:
    """Rows of the best plans: clearly fitting ones by time, then too-close ones by time.

    Of plans that take equally long (to 1e-9), the one with less `effort` (recomputation) comes first.
    """
    close = peak_bytes > CLOSE_SHARE * capacity_bytes
    key = np.where(peak_bytes <= capacity_bytes, step_s, np.inf)
    more = np.zeros_like(step_s) if effort is None else effort
    chosen: list[NDArray[np.intp]] = []
    for group in (~close, close):
        rows = np.flatnonzero(group & np.isfinite(key))
        if len(rows) > top:
            last = np.partition(key[rows], top - 1)[top - 1]
            rows = rows[key[rows] <= last * (1.0 + 1e-9)]
        tie = np.round(np.log(key[rows]) * 1e9)
        chosen.append(rows[np.lexsort((rows, key[rows], more[rows], tie))])
    return np.concatenate(chosen)[:top]


def _evaluate_parallel(
    scenario: Scenario,
    plans: Plans,
    workers: int,
    progress: Callable[[int, int], None] | None,
) -> tuple[Array, Array]:
    """The same on several processes, in contiguous shares."""
    from concurrent.futures import ProcessPoolExecutor, as_completed

    edges = np.linspace(0, len(plans), 4 * workers + 1).astype(int)
    shares = [slice(int(a), int(b)) for a, b in pairwise(edges) if b > a]
    step, peak = np.empty(len(plans)), np.empty(len(plans))
    done = 0
    # An interrupt ends the workers at once; left alone they would take up the next share.
    with ProcessPoolExecutor(workers, initializer=_end_at_once) as pool:
        futures = {pool.submit(evaluate, scenario, plans.take(share)): share for share in shares}
        for future in as_completed(futures):
            share = futures[future]
            step[share], peak[share] = future.result()
            done += share.stop - share.start
            if progress is not None:
                progress(done, len(plans))
    return step, peak


def _end_at_once() -> None:
    """Let an interrupt end this process without a word."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
