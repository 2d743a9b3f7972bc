"""A service as a benchmark measures it: a fixed concurrency, whose first requests are all sent at once.

Of N requests at a concurrency of c, W not counted because they are a warm-up:

    first    = max(min(c, N) - W, 0) / (N - W)     share of the first wave among those that are counted
    TTFT     = (1 - first) x steady + first x start    start: prompts of c requests that came together
    TPOT     as in the steady state
    tokens/s = c O / E2E / (1 + DRAIN c / N)        the last answers end with fewer and fewer beside them

Tools that wait until their warm-up has drained start with all requests at once all the same (W = 0).

Higher percentiles are those of simulated requests, where these take a moment: prompts that meet and queues
that come and go have tails that a closed form does not. Means and medians, which searches rank by, stay those
of the closed form.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from foretell.records import dataclass
from foretell.serving.disaggregation import loop_state
from foretell.serving.engine_options import step_tokens
from foretell.serving.memory import Memory, memory_of
from foretell.serving.question import ServeQuestion
from foretell.serving.requests.records import RequestOutcomes
from foretell.serving.requests.run import play
from foretell.serving.serve import pair_of
from foretell.serving.service_numbers import latency_levels_s, percentiles_ms
from foretell.serving.simulated_fleet import Play, fleet_of, requests_of, with_lengths
from foretell.serving.simulation import known_levels, latencies_ms, levels, spread
from foretell.serving.steady import SteadyState
from foretell.serving.steps import StepTimes
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.service import BenchmarkFigures, Percentiles, ServiceEstimate

WAVES = 10.0
"""Requests over concurrency where their number is not given: what public benchmarks send."""
DRAIN = 0.235
"""Mean times of a request that the end of such a run lasts longer than its steady part would: ten waves of
recorded rows took 1.023 times as long as their requests, whatever engine, chip and concurrency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstWave:
    """How much of what is counted was sent at once; arrays over concurrencies."""

    requests: Array
    """Requests of the benchmark."""
    waves: Array
    """Requests over concurrency."""
    share: Array
    """Of the requests that are counted, those of the first wave."""
    skipped: Array
    """Share of the first wave that is not counted."""


def first_wave(q: ServeQuestion, concurrency: Num) -> FirstWave:
    """The first wave of a question's benchmark at a concurrency of all instances."""
    flight = np.asarray(concurrency, float)
    many = np.asarray(WAVES * flight if q.requests is None else q.requests + 0.0 * flight)
    at_once = np.minimum(flight, many)
    counted = np.maximum(at_once - q.warmup, 0.0)
    return FirstWave(
        requests=many,
        waves=np.maximum(many / flight, 1.0),
        share=counted / np.maximum(many - q.warmup, 1.0),
        skipped=1.0 - counted / at_once,
    )


def begun_at_once(
    q: ServeQuestion, times: StepTimes, memory: Memory, state: SteadyState
) -> SteadyState:
    """The state of a benchmark: of prefill apart the first waves crowd the prefill instances longer."""
    if q.prefill is None:
        return state
    waves = float(np.max(first_wave(q, q.traffic.concurrency).waves))
    return loop_state(pair_of(q, q.prefill, times), memory, replace(q.traffic, waves=waves))


def benchmark_ttft_s(q: ServeQuestion, state: SteadyState) -> Array:
    """Mean time to the first token over the requests that are counted."""
    wave = first_wave(q, q.traffic.concurrency)
    waited = np.maximum(state.ttft_start_s - state.prefill_s, 0.0)
    # The first wave is answered one after the other: its later requests wait longest.
    start = state.ttft_start_s + waited * wave.skipped
    return np.asarray((1.0 - wave.share) * state.ttft_steady_s + wave.share * start)


def benchmark_tokens_per_s(q: ServeQuestion, ttft_s: Array, tpot_s: Array, answer: Num) -> Array:
    """Output tokens a second of all instances, over the whole time."""
    wave, flight = first_wave(q, q.traffic.concurrency), np.asarray(q.traffic.concurrency)
    e2e = ttft_s + tpot_s * np.maximum(answer - 1.0, 0.0)
    return np.asarray(flight * answer / e2e / (1.0 + DRAIN / wave.waves))


def benchmark_figures(
    q: ServeQuestion, times: StepTimes, memory: Memory, state: SteadyState
) -> BenchmarkFigures | None:
    """What a benchmark of the question prints; None under a rate, and of batches."""
    if q.rate is not None or q.batching != "continuous":
        return None
    state = begun_at_once(q, times, memory, state)
    wave = first_wave(q, q.traffic.concurrency)
    answer = max(0.5 * (1.0 + q.traffic.least) * float(np.asarray(q.traffic.osl)), 1.0)
    ttft_s, tpot_s = benchmark_ttft_s(q, state), np.asarray(state.tpot_s) * (answer > 1.0)
    rate = float(benchmark_tokens_per_s(q, ttft_s, tpot_s, answer))
    ttft, tpot, e2e = latency_levels_s(state, answer, float(wave.share), float(wave.skipped))
    return BenchmarkFigures(
        requests=round(float(wave.requests)),
        warmup=q.warmup,
        ttft_ms=percentiles_ms(ttft, float(ttft_s)),
        steady_ttft_ms=1e3 * float(state.ttft_steady_s),
        tpot_ms=percentiles_ms(tpot, float(tpot_s)),
        e2e_ms=percentiles_ms(e2e, float(ttft_s + tpot_s * (answer - 1.0))),
        output_tokens_per_s=rate,
        duration_s=float(wave.requests) * answer / rate,
    )


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
    shown: Any = {name: known_levels(spread(values)) for name, values in times.items()}
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
