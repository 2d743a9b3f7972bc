"""A service on many systems or under many loads at once: every layout for all, and for each the best one.

A row of a batch is a system and a load (requests in flight); where all rows share one of them, that stays a
single number. One load asks tables for few of their points (lengths, pasts and contexts are the load's own,
whatever the system), so that these alone are tabulated: a thousandth of a second is enough for several
systems.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.errors import Infeasible
from foretell.records import Later, dataclass
from foretell.serving.engine_options import step_tokens
from foretell.serving.evidence import sure_share
from foretell.serving.layouts import merit, refuse
from foretell.serving.memory import Memory, memory_of, sequences_that_fit
from foretell.serving.question import ServeQuestion
from foretell.serving.serve import check_memory, estimate_of
from foretell.serving.service_numbers import service_numbers
from foretell.serving.steady import steady
from foretell.serving.steps import step_times
from foretell.serving.table_points import (
    CONTEXTS,
    LENGTHS,
    PASTS,
    PROMPTS,
    SEQUENCES,
    TOKENS,
    WHOLE,
    TablePoints,
    points_near,
)
from foretell.serving.tables import UNEVEN
from foretell.serving.wide_experts import WideExperts, halved, wide_experts
from foretell.specs.arrays import Array, Index
from foretell.specs.deployment import Deployment
from foretell.specs.service import Percentiles, ServiceEstimate
from foretell.specs.system import one_system, system_count, take_systems

TOGETHER = 1024
"""Systems that are evaluated together: large enough to amortise calls, small enough for the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutNumbers:
    """One layout on all rows of a batch."""

    question: ServeQuestion
    """The question with the layout; arrays in its system and its load are over the batch."""
    memory: Memory
    """What a chip holds."""
    fits: NDArray[np.bool_]
    """Whether weights and one request do."""
    numbers: dict[str, Any]
    """Field of an estimate -> its numbers, whether it fits or not."""

    def at(self, name: str, row: int) -> Any:
        """One number of one row."""
        return _at(self.numbers[name], row)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSystems:
    """The best layout of each row of a batch."""

    layouts: tuple[LayoutNumbers, ...]
    """All that were tried."""
    best: Index
    """Which of them is best; -1 where none fits."""

    def estimate(self, row: int) -> ServiceEstimate:
        """The service of one row; Infeasible where nothing fits."""
        best = int(self.best[row])
        if best < 0:
            refused = [(one.question.deployment, self._why_not(one, row)) for one in self.layouts]
            q = self.layouts[0].question
            raise refuse(refused, q.gpus) if q.plan_chosen else refused[0][1]
        found = self.layouts[best]
        asked = found.question
        load = replace(asked.traffic, concurrency=_at(asked.traffic.concurrency, row))
        asked = replace(asked, system=one_system(asked.system, row), traffic=load)
        return estimate_of(asked, {name: found.at(name, row) for name in found.numbers})

    def _why_not(self, one: LayoutNumbers, row: int) -> Infeasible:
        memory = one.memory
        names = ("card_bytes", "reserve_bytes", "kv_bytes")
        held = replace(memory, **{name: _at(getattr(memory, name), row) for name in names})
        try:
            check_memory(one.question, held)
        except Infeasible as error:
            return error
        raise AssertionError("it fits")

    def column(self, name: str) -> NDArray[Any]:
        """A number, or a text, of the best layout of each row; NaN where none fits."""
        values = [np.asarray(one.numbers[name]) for one in self.layouts]
        wide = [np.broadcast_to(value, self.best.shape) for value in values]
        found = np.stack(wide)[np.maximum(self.best, 0), np.arange(len(self.best))]
        return found if found.dtype.kind == "U" else np.where(self.best < 0, np.nan, found)

    def latencies(self, name: str) -> dict[str, Array]:
        """Mean and percentiles of a latency, as columns."""
        rows = np.arange(len(self.best))
        names = ("mean", "p50", "p90", "p95", "p99")
        records = [one.numbers[name] for one in self.layouts]
        tables = {
            part: np.stack([np.broadcast_to(getattr(r, part), rows.shape) for r in records])
            for part in names
        }
        return {
            part: np.where(self.best < 0, np.nan, table[np.maximum(self.best, 0), rows])
            for part, table in tables.items()
        }


def serve_systems(q: ServeQuestion, layouts: Sequence[Deployment]) -> Iterator[ServedSystems]:
    """The best of some layouts for every row of a batch, in chunks of TOGETHER rows."""
    for start in range(0, row_count(q), TOGETHER):
        rows = slice(start, start + TOGETHER)
        flight = q.traffic.concurrency
        many = isinstance(flight, np.ndarray) and flight.ndim > 0
        load = replace(q.traffic, concurrency=np.asarray(flight)[rows]) if many else q.traffic
        yield _served(replace(q, system=take_systems(q.system, rows), traffic=load), layouts)


def row_count(q: ServeQuestion) -> int:
    """Systems of a batch, or loads."""
    return max(system_count(q.system), np.size(q.traffic.concurrency))


def _served(q: ServeQuestion, layouts: Sequence[Deployment]) -> ServedSystems:
    many = row_count(q)
    found = tuple(layout_numbers(replace(q, deployment=layout)) for layout in layouts)
    best, merits = np.full(many, -1), [(-np.inf, -np.inf)] * many
    for place, one in enumerate(found):
        rates = np.broadcast_to(one.numbers["output_tokens_per_s"], many).tolist()
        waits = np.broadcast_to(one.numbers["e2e_ms"].mean, many).tolist()
        sure = sure_share(q.model, q.system, one.question.deployment, q.profile, apart=False)
        for row in np.flatnonzero(np.broadcast_to(one.fits, many)):
            here = merit(rates[row], waits[row], sure, rated=False)
            if here > merits[row]:
                best[row], merits[row] = place, here
    return ServedSystems(layouts=found, best=best)


def layout_numbers(q: ServeQuestion) -> LayoutNumbers:
    """One layout under a fixed concurrency."""
    memory = memory_of(q.model, q.system, q.deployment, q.profile)
    # The tables of a single system are whole, and kept.
    points = points_of(q) if system_count(q.system) > 1 else WHOLE
    times = step_times(q.model, q.system, q.deployment, q.profile, points)
    flight = np.maximum(np.asarray(q.traffic.concurrency) / q.replicas, 1.0)
    state = steady(times, memory, replace(q.traffic, concurrency=flight))
    longest = float(np.max(np.asarray(q.traffic.isl) + np.asarray(q.traffic.osl)))
    room = sequences_that_fit(memory, q.model, q.deployment, q.profile, longest)
    return LayoutNumbers(
        question=q,
        memory=memory,
        fits=(np.asarray(memory.kv_bytes) > 0.0) & (room >= 1.0),
        numbers=service_numbers(q, times, memory, state, flight if flight.ndim else float(flight)),
    )


def points_of(q: ServeQuestion) -> TablePoints:
    """Points of tables around what the steps of a load can ask for (serving/steady.py): of several, of the
    largest, since steps of fewer sequences are between.

    Steps of n sequences that decode have few tokens, those with prompts at least a prompt's, or a chunk's:
    nothing is between. Where a step runs in two halves, so may a prompt.
    """
    d, p, traffic = q.deployment, q.profile, q.traffic
    mean = 0.5 * (1.0 + traffic.least)
    length, answer = mean * float(np.asarray(traffic.isl)), mean * float(np.asarray(traffic.osl))
    answer, fresh = max(answer, 1.0), max((1.0 - traffic.cached) * length, 1.0)
    n = max(float(np.max(traffic.concurrency)) / q.replicas, 1.0)
    budget = step_tokens(p, d)
    chunks = max(np.ceil(fresh / budget) if d.chunked is not False else 1.0, 1.0)
    new = float(fresh / chunks)
    past = length - fresh + 0.5 * (fresh - new)
    most = min(max(budget * d.dp / fresh, float(d.dp) if chunks > 1.0 else 1.0), n)
    rows = n * (2.0 + d.draft_tokens)
    few = points_near(TOKENS, 1.0, rows)
    many = points_near(TOKENS, 0.5 * new / d.cp / d.dp, most * new + rows)
    return TablePoints(
        tokens=np.union1d(few, many),
        sequences=points_near(SEQUENCES, 1.0, n),
        contexts=points_near(CONTEXTS, length, length + 0.5 * answer, length + UNEVEN * answer),
        prompts=points_near(PROMPTS, 1.0, most),
        lengths=points_near(
            LENGTHS, 0.5 * new / d.cp if halved(d, wide_of(q)) else new / d.cp, new
        ),
        pasts=points_near(PASTS, 0.5 * past if halved(d, wide_of(q)) else past, past),
    )


def wide_of(q: ServeQuestion) -> WideExperts | None:
    """Kernels that dispatch tokens to experts; None where none do."""
    return wide_experts(q.system, q.deployment, q.profile)


def _at(value: Any, row: int) -> Any:
    """One system's part of a number, of percentiles or of parts of a step."""
    if isinstance(value, Later):
        value = value()
    if isinstance(value, Percentiles):
        names = ("mean", "p50", "p90", "p95", "p99")
        return Percentiles(**{name: _at(getattr(value, name), row) for name in names})
    if isinstance(value, dict):
        return {name: _at(part, row) for name, part in value.items()}
    return value[row] if np.ndim(value) else value
