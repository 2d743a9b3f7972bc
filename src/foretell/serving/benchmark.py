"""A service as a benchmark measures it: a fixed concurrency, whose first requests are all sent at once.

Of N requests at a concurrency of c, W not counted because they are a warm-up:

    first    = max(min(c, N) - W, 0) / (N - W)     share of the first wave among those that are counted
    TTFT     = (1 - first) x steady + first x start    start: prompts of c requests that came together
    TPOT     as in the steady state
    tokens/s = c O / E2E / (1 + DRAIN c / N)        the last answers end with fewer and fewer beside them

Tools that wait until their warm-up has drained start with all requests at once all the same (W = 0).
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foretell.records import dataclass
from foretell.serving.disaggregation import loop_state
from foretell.serving.memory import Memory
from foretell.serving.percentiles import latency_levels_s, percentiles_ms
from foretell.serving.question import ServeQuestion
from foretell.serving.serve import pair_of
from foretell.serving.steady import SteadyState
from foretell.serving.steps import StepTimes
from foretell.specs._base import Num
from foretell.specs.service import BenchmarkFigures

Array = NDArray[np.float64]

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
