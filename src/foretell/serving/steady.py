"""The closed form of a loop of requests: a fixed number in flight, each answered one followed by the next.

With n sequences decoding, prompts of L tokens, answers of O, t_d a decode step and t_m a step with k prompts:

    TPOT   = t_d + (n - 1) / O x (t_m - t_d) / k      prompts of the others interrupt (or join) the decoding
    X      = n / (O TPOT + t_m + W)                   requests a second
    k      = X (t_m + W), between 1 and what a step's token budget takes
    TTFT   = t_d / 2 + rho t_m / 2 + t_m + W + late t_d + latency, rho = X t_m / k
    start  = the first wave is sent at once: its prompts follow each other in steps of the token budget

TTFT is one span, from arrival to the first token; where fewer than are in flight fit, the others wait
(c - n) / X. A prefill-first engine has its prompts in steps of their own, so that the decoding waits for all
of t_m. All of it broadcasts over concurrency and lengths.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foretell.serving.memory import Memory, sequences_that_fit
from foretell.serving.steps import StepLoad, StepTimes
from foretell.specs.deployment import Traffic

Array = NDArray[np.float64]

UNEVEN = 0.75
"""Of its answer what a sequence counts as having in the cache. Sequences stand anywhere between their first
token and their last, half of the answer on the mean, but kernels wait for their longest ones."""
ROUNDS = 6
"""Rounds of the fixed point between prompts of a step and the rate of requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """A loop of requests in its steady state; arrays over whatever the traffic has."""

    batch: Array
    """Sequences decoding."""
    fit_batch: Array
    """Sequences that memory and the engine's limit allow."""
    decode_s: Array
    """A decode step."""
    prefill_s: Array
    """A step with prompts."""
    prompts: Array
    """Prompts of such a step."""
    busy: Array
    """Share of the time in steps with prompts."""
    tpot_s: Array
    """Mean time per output token, the first excluded."""
    ttft_steady_s: Array
    """Mean time to the first token once the loop is steady."""
    ttft_start_s: Array
    """The same of the first wave, all sent at once."""
    ttft_s: Array
    """The mean over all requests."""
    queued_s: Array
    """What of it is waiting for a place in the batch."""
    requests_per_s: Array
    """Requests answered a second."""
    joules_per_request: Array
    """Joules of all chips of the instance for one request."""


def steady(times: StepTimes, memory: Memory, traffic: Traffic) -> Steady:
    """The steady state of one instance under a fixed concurrency."""
    p, d = times.profile, times.deployment
    mean = 0.5 * (1.0 + traffic.least)
    length = mean * np.asarray(traffic.isl, float)
    answer = np.maximum(mean * np.asarray(traffic.osl, float), 1.0)
    asked = np.asarray(traffic.concurrency, float)
    limit = float(d.max_batch or p.max_batch) * d.dp
    budget = float(d.max_tokens or p.max_tokens) * d.dp
    whole = np.asarray(traffic.isl, float) + np.asarray(traffic.osl, float)
    held = whole if p.whole_admission else length + 0.5 * answer
    room = sequences_that_fit(memory, times.model, d, p, held)
    fit = np.maximum(np.minimum(limit, np.floor(room)), 1.0)
    n = np.minimum(asked, fit)
    kept = 1.0 + d.accepted
    context = length + UNEVEN * answer
    decode = StepLoad(decoding=n, context_tokens=n * context)
    t_d = times.seconds(decode) / kept
    wait = p.wait_steps * t_d * kept
    most = np.maximum(np.floor(budget / np.maximum(length, 1.0)), 1.0)
    own = p.policy == "prefill-first"
    others = np.maximum(n - 1.0, 0.0)
    mixed = np.zeros_like(others) if own else others
    chunks = np.maximum(np.ceil(length / budget), 1.0)
    k = np.ones_like(n * length)
    for _ in range(ROUNDS):
        load = StepLoad(
            decoding=mixed, context_tokens=mixed * context,
            prefill_tokens=k * length / chunks, prompts=k,
            past_tokens=k * length * 0.5 * (1.0 - 1.0 / chunks),
        )  # fmt: skip
        t_m = times.seconds(load)
        stall = chunks * (t_m - (0.0 if own else t_d * kept)) / k / d.pp
        tpot = t_d + others / answer * stall
        rate = n / ((answer - 1.0) * tpot + chunks * t_m + wait)
        k = np.clip(rate * (chunks * t_m + wait), 1.0, np.minimum(most, n))
    span = chunks * t_m
    busy = np.minimum(rate * span / k, 1.0)
    latency = p.latency_s + p.latency_s_per_token * length
    queued = np.maximum(asked - n, 0.0) / rate
    step = t_d * kept
    steady_ttft = 0.5 * step + 0.5 * busy * span + span + wait + p.late_steps * step + latency + queued
    start = start_s(times, n, length, most, chunks) + latency + p.late_steps * step
    started = 1.0 / max(traffic.waves, 1.0)
    joules = times.joules(load) * chunks / k + times.joules(decode) * (answer - 1.0) / (n * kept)
    return Steady(
        batch=n,
        fit_batch=fit,
        decode_s=step,
        prefill_s=span,
        prompts=k,
        busy=busy,
        tpot_s=tpot,
        ttft_steady_s=steady_ttft,
        ttft_start_s=start + queued,
        ttft_s=(1.0 - started) * steady_ttft + started * (start + queued),
        queued_s=queued,
        requests_per_s=rate,
        joules_per_request=joules,
    )


def start_s(times: StepTimes, n: Array, length: Array, most: Array, chunks: Array) -> Array:
    """Mean completion of n prompts that are there at once, packed in steps of the token budget."""
    packed = np.minimum(most, n)
    steps = np.ceil(n / packed) * chunks
    load = StepLoad(
        decoding=0.5 * n * (steps > 1.0), context_tokens=0.5 * n * (steps > 1.0) * length,
        prefill_tokens=packed * length / chunks, prompts=packed,
        past_tokens=packed * length * 0.5 * (1.0 - 1.0 / chunks),
    )  # fmt: skip
    return np.asarray(times.seconds(load) * (steps + chunks) / 2.0)


def with_rate(times: StepTimes, memory: Memory, traffic: Traffic, rate: float) -> tuple[Steady, float]:
    """The state under `rate` requests a second, and the number in flight by Little's law.

    n = rate x time in the system; above the rate that the instance can sustain it grows without end.
    """
    flight = 1.0
    found = steady(times, memory, replace(traffic, concurrency=flight, waves=1e9))
    answer = 0.5 * (1.0 + traffic.least) * float(traffic.osl)
    for _ in range(60):
        spent = float(found.ttft_steady_s + (answer - 1.0) * found.tpot_s)
        wanted = min(rate * spent, 4.0 * float(found.fit_batch))
        flight = max(0.5 * (flight + wanted), 1e-3)
        found = steady(times, memory, replace(traffic, concurrency=max(flight, 1.0), waves=1e9))
    return found, flight
