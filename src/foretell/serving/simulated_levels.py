"""Tails of a closed form's latencies from simulated requests, where these take a moment.

What differs from request to request (prompts that meet, a queue that comes and goes) has tails that a closed
form does not have; what a mean request meets it does. So means and medians stay those of the closed form,
which searches rank by, and higher percentiles are as far from the mean as those of simulated requests.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.serving.engine_options import step_tokens
from foretell.serving.memory import memory_of
from foretell.serving.question import ServeQuestion
from foretell.serving.requests.levels import latencies_ms, levels, spread
from foretell.serving.requests.records import RequestOutcomes
from foretell.serving.requests.run import play
from foretell.serving.simulated_fleet import Play, fleet_of, requests_of, with_lengths
from foretell.serving.simulation import percentiles_of
from foretell.specs.service import BenchmarkFigures, Percentiles, ServiceEstimate

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

MANY = 2000
"""Requests that are simulated of a steady service, behind those of its beginning."""
MOST = 6000
"""Requests, each with the steps that its prompt is cut over, that take about 0.3 s."""
FEW_WAVES = 4.0
"""Requests over concurrency below which beginning and drain are most of a benchmark."""
BEGINNING = 2.0
"""Waves of requests that are a loop's beginning."""
TAIL = ("p90", "p95", "p99")
"""Percentiles that are simulated."""


def with_tails(found: ServiceEstimate, q: ServeQuestion) -> ServiceEstimate:
    """An estimate with percentiles from simulated requests; unchanged where they would take too long."""
    if q.batching != "continuous":
        return found
    if found.benchmark is not None and not is_short(q) and is_quick(q, found.benchmark.requests):
        found = replace(found, benchmark=benchmark_tails(found.benchmark, q))
    if not is_quick(q, MANY):
        return found
    flight = round(float(np.asarray(q.traffic.concurrency)))
    begun = round(BEGINNING * flight) if q.rate is None else 0
    run = simulated(q, MANY + begun)
    times = latencies_ms(run, np.arange(len(run.isl)) >= begun)
    shown: Any = {
        name: with_tail(getattr(found, name), scaled(values, getattr(found, name).mean))
        for name, values in times.items()
    }
    return replace(found, **shown, percentiles_from="simulation")


def is_short(q: ServeQuestion) -> bool:
    """Whether a benchmark has no steady middle that a closed form could tell: requests that come at a rate,
    and a few waves of a fixed concurrency."""
    if q.requests is None or q.batching != "continuous":
        return False
    return q.rate is not None or float(q.requests) < FEW_WAVES * float(
        np.max(q.traffic.concurrency)
    )


def short_benchmark(q: ServeQuestion) -> BenchmarkFigures:
    """What a benchmark of a few requests prints: each of them simulated, the drain included."""
    requests = round(float(q.requests or MANY))
    run = simulated(q, requests)
    times = latencies_ms(run, np.arange(requests) >= q.warmup)
    shown: Any = {name: percentiles_of(values) for name, values in times.items()}
    shown.pop("tpot_with_first_ms")
    found = levels(run)
    return BenchmarkFigures(
        requests=requests,
        warmup=q.warmup,
        steady_ttft_ms=shown["ttft_ms"].mean,
        output_tokens_per_s=found.whole_run_output_tokens_per_s,
        duration_s=run.end_s,
        **shown,
    )


def benchmark_tails(told: BenchmarkFigures, q: ServeQuestion) -> BenchmarkFigures:
    """The figures of a benchmark with percentiles from its simulated requests.

    The first wave is as the closed form has it: engines compile kernels then, which no simulation does.
    """
    run = simulated(q, told.requests)
    place = np.arange(len(run.isl))
    counted = place >= told.warmup
    times = latencies_ms(run, counted)
    ttft = times["ttft_ms"]
    wave = (place < float(np.asarray(q.traffic.concurrency)))[counted & np.isfinite(run.done_s)]
    if wave.any() and not wave.all():
        share = float(wave.mean())
        start = (told.ttft_ms.mean - (1.0 - share) * told.steady_ttft_ms) / share
        ttft = np.concatenate([scaled(ttft[wave], start), scaled(ttft[~wave], told.steady_ttft_ms)])
    return replace(
        told,
        ttft_ms=with_tail(told.ttft_ms, ttft),
        tpot_ms=with_tail(told.tpot_ms, scaled(times["tpot_ms"], told.tpot_ms.mean)),
        e2e_ms=with_tail(told.e2e_ms, scaled(times["e2e_ms"], told.e2e_ms.mean)),
    )


def is_quick(q: ServeQuestion, requests: int) -> bool:
    """Whether so many requests are simulated in a moment."""
    begun = BEGINNING * float(np.asarray(q.traffic.concurrency)) if q.rate is None else 0.0
    pieces = float(np.asarray(q.traffic.isl)) / step_tokens(q.profile, q.deployment)
    return (requests + begun) * (1.0 + pieces) <= MOST


def simulated(q: ServeQuestion, requests: int) -> RequestOutcomes:
    """What becomes of so many requests."""
    how = Play(arrivals="closed" if q.rate is None else "poisson", requests=requests)
    memory = memory_of(q.model, q.system, q.deployment, q.profile)
    drawn = requests_of(q, how)
    fleet, clock, front = fleet_of(with_lengths(q, drawn), how, memory)
    return play(drawn, fleet, clock, front)


def scaled(values: Array, mean: float) -> Array:
    """Values brought to a mean."""
    own = float(values.mean()) if len(values) else 0.0
    return values * (mean / own) if own > 0.0 else values


def with_tail(told: Percentiles, values: Array) -> Percentiles:
    """Mean and median of a closed form with the tail of some values."""
    levels: Mapping[str, float] = spread(values)
    shown: Any = {name: max(levels[name], told.p50) for name in TAIL if name in levels}
    return replace(told, **shown)
