"""The same question as the closed form's, answered by simulating requests through the engine.

    serving/simulated_fleet.py  the requests, and the replicas that answer them

What users saw of a run is its levels: times to tokens as percentiles, rates, and how many were served well.
Rates, memory, cost and energy are stated as the closed form tells them, at the rate that was simulated; the
latencies are those of the requests.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.errors import Infeasible, wrong
from foretell.records import dataclass
from foretell.serving.memory import Memory, memory_of
from foretell.serving.requests.records import Fleet, RequestOutcomes, Requests, ScaledPool
from foretell.serving.requests.run import play
from foretell.serving.serve import (
    ServeQuestion,
    check_memory,
    intervals,
    service_estimate,
    state_of,
)
from foretell.serving.simulated_fleet import Play, fleet_of, requests_of, with_classes, with_lengths
from foretell.serving.steps import step_times
from foretell.specs.arrays import Array
from foretell.specs.service import Percentiles, ServiceEstimate

GROWING, GROWING_S = 1.5, 0.1
"""Waits of the last quarter of requests over those of the second, and seconds besides, from which a queue is
stated to grow."""


PERCENTILES = (50, 90, 95, 99)
EDGE, FEW, LEAST_SHARE = 0.1, 50, 0.25
"""Share of the answers that are a run's beginning; requests, and the share of the time between beginning and
drain, from which a run has a middle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLevels:
    """A run in figures; the times in milliseconds, each with mean and percentiles."""

    ttft_ms: Mapping[str, float]
    """From arrival to the first token."""
    tpot_ms: Mapping[str, float]
    """Time per output token, the first excluded: (last - first) / (osl - 1)."""
    tpot_with_first_ms: Mapping[str, float]
    """Time per output token, the first included: (last - arrival) / osl."""
    e2e_ms: Mapping[str, float]
    """From arrival to the last token."""
    requests_per_s: float
    """Requests answered a second in the middle of the run, between its beginning and its drain (`middle`)."""
    output_tokens_per_s: float
    """Tokens of their answers a second."""
    whole_run_output_tokens_per_s: float
    """Tokens of all answers over the time from the first arrival to the last answer, beginning and drain
    included: what benchmark tools print."""
    goodput_per_s: float | None
    """Requests within every level asked for: their share of the rate; None where none was asked for."""
    utilisation: float
    """Share of the time that replicas are in a step."""
    answered: int
    """Requests."""
    refused: int
    """Requests that are longer than a cache."""


def levels(
    played: RequestOutcomes, ttft_ms: float | None = None, tpot_ms: float | None = None
) -> ServiceLevels:
    """Figures of a run, with the share served within the levels asked for."""
    ok = np.isfinite(played.done_s)
    times = latencies_ms(played, ok)
    ttft, tpot = times["ttft_ms"], times["tpot_ms"]
    osl = played.osl[ok]
    more = osl > 1.0
    span = _span_s(played, ok)
    good = np.ones(len(ttft), bool)
    if ttft_ms is not None:
        good &= ttft <= ttft_ms
    if tpot_ms is not None:
        good[more] &= tpot <= tpot_ms
    asked = ttft_ms is not None or tpot_ms is not None
    rate, tokens = middle(played, ok, span)
    return ServiceLevels(
        **{name: spread(values) for name, values in times.items()},
        requests_per_s=rate,
        output_tokens_per_s=tokens,
        whole_run_output_tokens_per_s=float(osl.sum()) / span,
        goodput_per_s=rate * float(good.mean()) if asked and len(good) else 0.0 if asked else None,
        utilisation=float(np.mean(played.busy_s)) / span,
        answered=int(ok.sum()),
        refused=int(played.refused.sum()),
    )


def latencies_ms(played: RequestOutcomes, counted: NDArray[np.bool_]) -> dict[str, Array]:
    """Latency -> those of the requests that are counted and were answered; time per token of those that
    have more than one."""
    ok = counted & np.isfinite(played.done_s)
    ttft = 1e3 * (played.first_s - played.arrival_s)[ok]
    e2e = 1e3 * (played.done_s - played.arrival_s)[ok]
    osl = played.osl[ok]
    more = osl > 1.0
    tpot = (e2e - ttft)[more] / (osl[more] - 1.0)
    return {"ttft_ms": ttft, "tpot_ms": tpot, "tpot_with_first_ms": e2e / osl, "e2e_ms": e2e}


def middle(played: RequestOutcomes, ok: NDArray[np.bool_], span_s: float) -> tuple[float, float]:
    """Requests and tokens a second between the answers of the first tenth and the last arrival.

    Before, batches fill; behind, they drain. An answer gives its tokens evenly from its first to its last.
    Of few requests, or where hardly any time is between, the whole run.
    """
    first, done, osl = played.first_s[ok], played.done_s[ok], played.osl[ok]
    begin, end = 0.0, 0.0
    if len(done) >= FEW:
        begin, end = float(np.quantile(done, EDGE)), float(np.nanmax(played.arrival_s))
    if end - begin < LEAST_SHARE * span_s:
        return len(done) / span_s, float(osl.sum()) / span_s
    inside = np.clip(done, begin, end) - np.clip(first, begin, end)
    share = np.where(
        done > first, inside / np.maximum(done - first, 1e-12), (done > begin) & (done <= end)
    )
    tokens = float((osl * share).sum()) / (end - begin)
    return tokens / float(osl.mean()), tokens


def _span_s(played: RequestOutcomes, ok: NDArray[np.bool_]) -> float:
    if not ok.any():
        return 1.0
    return max(float(played.done_s[ok].max() - np.nanmin(played.arrival_s)), 1e-9)


def spread(values: Array) -> dict[str, float]:
    """Mean and percentiles; none of nothing."""
    if not len(values):
        return {}
    found = {"mean": float(np.mean(values))}
    marks = np.percentile(values, PERCENTILES)
    return found | {f"p{p}": float(mark) for p, mark in zip(PERCENTILES, marks, strict=True)}


def serve_simulated(
    q: ServeQuestion,
    how: Play,
    trace: Requests | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ServiceEstimate:
    """The answer with the latencies of simulated requests."""
    memory = memory_of(q.model, q.system, q.deployment, q.profile)
    requests = trace or with_classes(requests_of(q, how), how)
    q = with_lengths(q, requests)
    check_memory(q, memory)
    fleet, clock, front = fleet_of(q, how, memory)
    played = play(requests, fleet, clock, front, progress)
    found = levels(played, how.ttft_ms, how.tpot_ms)
    if not found.answered:
        room = f"{fleet.rules.kv_tokens:.0f} tokens"
        message = f"all {found.refused} requests are longer than the cache of {room}"
        raise Infeasible([wrong("isl", max(requests.isl), message)])
    told = simulated_estimate(q, found, played, fleet, memory)
    return replace(
        told, simulation={**(told.simulation or {}), "classes": class_levels(played, requests)}
    )


def class_levels(played: RequestOutcomes, requests: Requests) -> dict[str, Any]:
    """Latencies of each class of requests, those that go first at the beginning; empty without classes."""
    if requests.priority is None:
        return {}
    classes = np.array(requests.priority)
    return {
        str(one): {
            name: spread(values) for name, values in latencies_ms(played, classes == one).items()
        }
        for one in np.unique(classes)
    }


def simulated_estimate(
    q: ServeQuestion, found: ServiceLevels, played: RequestOutcomes, fleet: Fleet, memory: Memory
) -> ServiceEstimate:
    """The record of the closed form at the rate that was simulated, with the latencies of the simulation."""
    times = step_times(q.model, q.system, q.deployment, q.profile)
    state, flight = state_of(q, times, memory)
    base = service_estimate(q, times, memory, state, flight)
    tokens = found.output_tokens_per_s
    rented = rented_share(played, q)
    usd_in, usd_out = base.usd_per_million_input_tokens, base.usd_per_million_output_tokens
    return replace(
        base,
        simulated=True,
        goodput_requests_per_s=found.goodput_per_s,
        ttft_ms=known_levels(found.ttft_ms),
        tpot_ms=known_levels(found.tpot_ms),
        tpot_with_first_ms=known_levels(found.tpot_with_first_ms),
        e2e_ms=known_levels(found.e2e_ms),
        requests_per_s=found.requests_per_s,
        output_tokens_per_s=tokens,
        output_tokens_per_s_per_gpu=tokens / q.all_gpus / rented,
        usd_per_million_input_tokens=None if usd_in is None else usd_in * rented,
        usd_per_million_output_tokens=None if usd_out is None else usd_out * rented,
        output_tokens_per_s_per_user=1e3 / (found.tpot_ms or found.e2e_ms)["mean"],
        limited_by="arrivals: the queue grows" if queue_grows(played, fleet) else base.limited_by,
        interval=intervals(q, found.ttft_ms["mean"] / 1e3, found.tpot_ms.get("mean", 0.0) / 1e3),
        simulation=with_cost(simulation(found, played, fleet), base, q),
    )


def rented_share(played: RequestOutcomes, q: ServeQuestion) -> float:
    """Share of all chips' time that is paid for: less than one where replicas are started and stopped."""
    if played.scaled is None or not played.end_s:
        return 1.0
    paid = played.scaled.replica_seconds * q.deployment.gpus
    whole = q.replicas * q.deployment.gpus
    if q.prefill is not None and played.prefill_scaled is not None:
        paid += played.prefill_scaled.replica_seconds * q.prefill.deployment.gpus
        whole += q.prefill.replicas * q.prefill.deployment.gpus
    return min(paid / (whole * played.end_s), 1.0)


def known_levels(values: Mapping[str, float]) -> Percentiles:
    """Mean and percentiles of times; zeros of none: an answer of one token has no time after its first."""
    names = ("mean", "p50", "p90", "p95", "p99")
    return Percentiles(**{name: values.get(name, 0.0) for name in names})


def simulation(found: ServiceLevels, played: RequestOutcomes, fleet: Fleet) -> dict[str, Any]:
    """What only a play tells."""
    series = played.series
    held = np.array(series.held_tokens or [0.0])
    waiting = np.array(series.waiting or [0])
    return {
        "requests": len(played.isl),
        "answered": found.answered,
        "refused": found.refused,
        "preempted": played.preempted,
        "prefix_hit_tokens": played.prefix_hits,
        "prefix_hit_share": played.prefix_hits / max(float(played.isl.sum()), 1.0),
        "tier_hit_tokens": played.tier_hits,
        "goodput_requests_per_s": found.goodput_per_s,
        "whole_run_output_tokens_per_s": found.whole_run_output_tokens_per_s,
        "utilisation": found.utilisation,
        "kv_occupancy_mean": float(held.mean() / fleet.rules.kv_tokens),
        "kv_occupancy_max": float(held.max() / fleet.rules.kv_tokens),
        "queue_mean": float(waiting.mean()),
        "queue_max": int(waiting.max()),
        "queue_grows": queue_grows(played, fleet),
        "duration_s": played.end_s,
        "autoscaling": autoscaling(played),
        "series": thin_series(played),
    }


def autoscaling(played: RequestOutcomes) -> dict[str, Any] | None:
    """Replicas over the time and what is paid for, beside as many as run at most all the time; under
    `prefill` the same of those that do prompts alone."""
    if played.scaled is None:
        return None
    front = played.prefill_scaled
    own = _scaled_facts(played.scaled, played.end_s)
    return own if front is None else own | {"prefill": _scaled_facts(front, played.end_s)}


def _scaled_facts(pool: ScaledPool, end_s: float) -> dict[str, Any]:
    most = max(many for _, many in pool.running)
    return {
        "replicas_mean": pool.replica_seconds / max(end_s, 1e-9),
        "replicas_max": most,
        "replica_hours": pool.replica_seconds / 3600.0,
        "replica_hours_fixed": most * end_s / 3600.0,
        "at_s": [at for at, _ in pool.running],
        "replicas": [many for _, many in pool.running],
    }


def with_cost(facts: dict[str, Any], base: ServiceEstimate, q: ServeQuestion) -> dict[str, Any]:
    """The facts of a simulation with what its replicas cost, where they are started and stopped."""
    scaled = facts["autoscaling"]
    pools = [(scaled, base.usd_per_chip_hour, q.deployment.gpus)]
    if q.prefill is not None and scaled:
        pools.append((scaled["prefill"], q.prefill.usd_per_chip_hour, q.prefill.deployment.gpus))
    for pool, rent, gpus in pools:
        if pool and rent:
            pool |= {
                "usd": rent * gpus * pool["replica_hours"],
                "usd_fixed": rent * gpus * pool["replica_hours_fixed"],
            }
    return facts


def is_unstable(played: RequestOutcomes) -> bool:
    """Whether requests wait longer the later they come, so that longer play would give longer waits.

    A queue without end grows straight: the last quarter waits 0.875 / 0.375 times as long as the second.
    """
    ok = np.isfinite(played.first_s)
    order = np.argsort(played.arrival_s[ok], kind="stable")
    waited = (played.first_s - played.arrival_s)[ok][order]
    quarter = len(waited) // 4
    if quarter < 8:
        return False
    early, late = waited[quarter : 2 * quarter].mean(), waited[-quarter:].mean()
    return bool(late > GROWING * early + GROWING_S)


def queue_grows(played: RequestOutcomes, fleet: Fleet) -> bool:
    """Whether the queue has no end; one with a limit has, as what is beyond is refused."""
    return not fleet.queue_limit and is_unstable(played)


def thin_series(played: RequestOutcomes, most: int = 200) -> dict[str, list[float]]:
    """The series at no more than so many moments."""
    series = played.series
    step = max(len(series.at_s) // most, 1)
    return {
        "at_s": series.at_s[::step],
        "decoding": [float(n) for n in series.decoding[::step]],
        "waiting": [float(n) for n in series.waiting[::step]],
        "held_tokens": series.held_tokens[::step],
    }
