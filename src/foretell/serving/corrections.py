"""A deployment under many corrections: its latencies, and how they answer to each mechanism."""

from dataclasses import fields, replace

import numpy as np

from foretell.serving.memory import Memory, memory_of
from foretell.serving.serve import ServeQuestion, state_of
from foretell.serving.steady import steady
from foretell.serving.steps import StepTimes, step_times
from foretell.specs.arrays import Array
from foretell.specs.corrections import SERVING, Corrections
from foretell.specs.system import System

STEP, STEP_OF_CACHE = 0.05, 0.25
"""Half-width of the differences of logarithms that slopes are taken from; a cache holds whole requests."""
STEPS = np.array([STEP_OF_CACHE if name == "cache_capacity" else STEP for name in SERVING])
"""The same by mechanism."""
METRICS = ("ttft_ms", "tpot_ms", "e2e_ms", "output_tokens_per_s")
"""What is asked of a deployment."""


def moved_systems(system: System, at: Array) -> System:
    """The system as it is at some log-factors, then with each mechanism a little more, and a little less."""
    many = len(SERVING)
    moves = np.zeros((1 + 2 * many, many))
    moves[1 : 1 + many], moves[1 + many :] = np.diag(STEPS), -np.diag(STEPS)
    factors = np.exp(at + moves)
    columns: dict[str, float | Array] = {f.name: 1.0 for f in fields(Corrections)}
    columns |= {name: factors[:, i] for i, name in enumerate(SERVING)}
    return system.with_corrections(Corrections(**columns))


def slopes_of(values: Array) -> tuple[float, Array]:
    """The first of some values, and d ln(value) / d ln(factor) from the others."""
    many = len(SERVING)
    up, down = values[1 : 1 + many], values[1 + many :]
    return float(values[0]), np.log(up / down) / (2.0 * STEPS)


def served_slopes(q: ServeQuestion, at: Array) -> dict[str, tuple[float, Array]]:
    """Metric -> its value at some log-factors, and its slopes to the mechanisms of serving."""
    times = step_times(q.model, q.system, q.deployment, q.profile)
    moved = moved_systems(q.system, at)
    if q.rate is None and q.prefill is None:
        memory = memory_of(q.model, moved, q.deployment, q.profile)
        ttft, tpot, rate = _at_once(q, replace(times, system=moved), memory)
    else:
        rows = 1 + 2 * len(SERVING)
        ttft, tpot, rate = np.empty(rows), np.empty(rows), np.empty(rows)
        for row in range(rows):
            known: dict[str, float] = {
                f.name: _row(getattr(moved.corrections, f.name), row) for f in fields(Corrections)
            }
            ttft[row], tpot[row], rate[row] = _one(q, times, Corrections(**known))
    answer = max(0.5 * (1.0 + q.traffic.least) * float(np.asarray(q.traffic.osl)), 1.0)
    e2e = ttft + tpot * (answer - 1.0)
    columns = (1e3 * ttft, 1e3 * tpot, 1e3 * e2e, rate * answer)
    return {name: slopes_of(column) for name, column in zip(METRICS, columns, strict=True)}


def _row(value: float | Array, row: int) -> float:
    return float(value[row]) if isinstance(value, np.ndarray) else float(value)


def _one(q: ServeQuestion, times: StepTimes, known: Corrections) -> tuple[float, float, float]:
    """TTFT and TPOT (s) and requests a second under one set of corrections: of a rate, or prefill apart."""
    system, pool = replace(q.system, corrections=known), q.prefill
    if pool is not None:
        pool = replace(pool, system=replace(pool.system, corrections=known))
    here = replace(q, system=system, prefill=pool)
    memory = memory_of(q.model, system, q.deployment, q.profile)
    state, _ = state_of(here, replace(times, system=system), memory)
    if q.rate is not None:
        return float(state.ttft_steady_s), float(state.tpot_s), q.rate
    rate = float(state.requests_per_s * q.in_use)
    return float(state.ttft_s), float(state.tpot_s), rate


def _at_once(q: ServeQuestion, times: StepTimes, memory: Memory) -> tuple[Array, Array, Array]:
    """TTFT and TPOT (s) and requests a second under a fixed concurrency, for all corrections at once."""
    flight = max(float(np.asarray(q.traffic.concurrency)) / q.replicas, 1.0)
    many = np.full(1 + 2 * len(SERVING), flight)
    state = steady(times, memory, replace(q.traffic, concurrency=many))
    return state.ttft_s, state.tpot_s, state.requests_per_s * q.in_use
