"""The closed form of a loop of requests: a fixed number in flight, each answered one followed by the next.

With n sequences decoding, prompts of L tokens, answers of O, t_d a decode step and t_m a step with k prompts:

    TPOT   = t_d + (n - 1) / O x (t_m - t_d) / k      prompts of the others interrupt (or join) the decoding
    X      = n / ((O - 1) TPOT + t_m + W)             requests a second, at most k / t_m
    k      = X (t_m + W), at least n / O (answers that end in one decode step) and 1, at most what a step's
             token budget takes
    TTFT   = t_d / 2 + rho t_m / 2 + t_m + W + late t_d + latency, rho = X t_m / k x (c - 1) / c: a request
             of a loop finds the prompts of the c - 1 others under way, never its own
    start  = the first wave is sent at once: its prompts follow each other in steps of the token budget

TTFT is one span, from arrival to the first token; where fewer than are in flight fit, the others wait
(c - n) / X. A prefill-first engine has its prompts in steps of their own, so that the decoding waits for all
of t_m. All of it broadcasts over concurrency and lengths.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foretell.records import dataclass
from foretell.serving.memory import Memory, sequences_that_fit
from foretell.serving.steps import StepLoad, StepTimes
from foretell.serving.tables import UNEVEN
from foretell.specs.deployment import Traffic

Array = NDArray[np.float64]

HALVINGS = 40
"""Rounds in which the number in flight goes half the way to what Little's law says."""
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
    token_s: Array
    """A decode step over the tokens that it gives each sequence."""
    stall_s: Array
    """What one prompt of another request takes from a sequence that decodes."""
    prefill_s: Array
    """A step with prompts."""
    prompts: Array
    """Prompts of such a step."""
    busy: Array
    """Share of the time in steps with prompts."""
    met: Array
    """Share of requests that find such a step of others under way."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A traffic as one instance meets it; arrays over whatever the traffic has."""

    length: Array
    """Mean tokens of a prompt."""
    answer: Array
    """Mean tokens of an answer."""
    asked: Array
    """Requests in flight."""
    fit: Array
    """Sequences that memory and the engine's limit allow."""
    n: Array
    """Sequences decoding."""
    context: Array
    """Tokens that a sequence counts as having in the cache."""
    most: Array
    """Prompts that a step's token budget takes."""
    chunks: Array
    """Steps that one prompt is cut over."""
    mixed: Array
    """Sequences that decode in a step with prompts."""

    def decoding(self) -> StepLoad:
        """A decode step."""
        return StepLoad(decoding=self.n, context_tokens=self.n * self.context)

    def reading(self, k: Array) -> StepLoad:
        """A step with k prompts, or a chunk of each."""
        new = k * self.length / self.chunks
        return StepLoad(
            decoding=self.mixed,
            context_tokens=self.mixed * self.context,
            prefill_tokens=new,
            past_tokens=0.5 * (k * self.length - new),
            prompts=k,
        )


def loop_of(times: StepTimes, memory: Memory, traffic: Traffic) -> Loop:
    """Mean lengths, and how many sequences and prompts go together."""
    p, d = times.profile, times.deployment
    mean = 0.5 * (1.0 + traffic.least)
    isl, osl = np.asarray(traffic.isl, float), np.asarray(traffic.osl, float)
    length, answer = mean * isl, np.maximum(mean * osl, 1.0)
    # An engine that reserves lets a request in where its longest answer fits; others fill as they go.
    held = isl + osl if p.whole_admission else length + 0.5 * answer
    room = np.floor(sequences_that_fit(memory, times.model, d, p, held))
    fit = np.maximum(np.minimum(float(d.max_batch or p.max_batch) * d.dp, room), 1.0)
    asked, budget = np.asarray(traffic.concurrency, float), float(d.max_tokens or p.max_tokens)
    n = np.minimum(asked, fit)
    whole = np.zeros_like(n * length)
    own_steps = p.policy == "prefill-first"
    return Loop(
        length=length + whole,
        answer=answer + whole,
        asked=asked + whole,
        fit=fit + whole,
        n=n + whole,
        context=length + UNEVEN * answer + whole,
        most=np.maximum(np.floor(budget * d.dp / np.maximum(length, 1.0)), 1.0) + whole,
        chunks=np.maximum(np.ceil(length / budget), 1.0) + whole,
        mixed=whole if own_steps else np.maximum(n - 1.0, 0.0) + whole,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One round of the fixed point."""

    k: Array
    """Prompts of a step."""
    span_s: Array
    """Steps of one prompt."""
    stall_s: Array
    """What one prompt takes from a sequence that decodes."""
    tpot_s: Array
    """Time per output token."""
    rate: Array
    """Requests a second."""


def point_of(times: StepTimes, loop: Loop, k: Array, token_s: Array, wait_s: Array) -> Point:
    """Times and rate with k prompts in a step."""
    d = times.deployment
    span = loop.chunks * times.seconds(loop.reading(k))
    # A step that decodes as well takes from a sequence only what it takes longer.
    shared = token_s * (1.0 + d.accepted) * loop.chunks * (times.profile.policy == "mixed")
    stall = (span - shared) / k / d.pp
    tpot = token_s + np.maximum(loop.n - 1.0, 0.0) / loop.answer * stall
    rate = loop.n / ((loop.answer - 1.0) * tpot + span + wait_s)
    return Point(k=k, span_s=span, stall_s=stall, tpot_s=tpot, rate=rate)


def steady(
    times: StepTimes, memory: Memory, traffic: Traffic, others: float | None = None
) -> Steady:
    """The steady state of one instance under a fixed concurrency.

    `others` is the share of the prompts' steps that a request may find under way: those of the others in
    its loop, where nothing is said.
    """
    p, d = times.profile, times.deployment
    loop = loop_of(times, memory, traffic)
    step = times.seconds(loop.decoding())
    token = step / (1.0 + d.accepted)
    own_wait = p.dp_wait_steps if d.dp > 1 else p.wait_steps
    wait = (own_wait if d.wait_steps is None else d.wait_steps) * step
    # Answers that end, by chance, in one decode step make room for as many prompts, which go in together.
    ended = loop.n / loop.answer * (1.0 + d.accepted) / d.pp
    ended = ended / -np.expm1(-ended)
    most = np.minimum(loop.most, loop.n)
    at = point_of(times, loop, np.maximum(np.minimum(ended, most), 1.0), token, wait)
    for _ in range(ROUNDS):
        wanted = np.maximum(at.rate * (at.span_s + wait), ended)
        at = point_of(times, loop, np.maximum(np.minimum(wanted, most), 1.0), token, wait)
    # A stage is free again when its share of the step is over.
    able = d.pp * at.k / at.span_s
    busy = np.minimum(at.rate / able, 1.0)
    # A step takes no more prompts than k: of very short answers, prompts wait for prompts.
    rate = np.minimum(at.rate, able)
    crowd = loop.n / rate - loop.n / at.rate
    met = busy * (1.0 - 1.0 / np.maximum(loop.asked, 1.0) if others is None else others)
    # The rest of the step under way is part of what they wait for each other.
    under_way = np.maximum(0.5 * step + 0.5 * met * at.span_s - crowd, 0.0)
    queued = np.maximum(loop.asked - loop.n, 0.0) / rate + crowd
    late = (p.late_steps + d.stream_interval - 1.0) * step
    after = late + p.latency_s + p.latency_s_per_token * loop.length + queued
    settled = under_way + at.span_s + wait + after
    start = start_s(times, loop) + after
    first = 1.0 / max(traffic.waves, 1.0)
    return Steady(
        batch=loop.n,
        fit_batch=loop.fit,
        decode_s=step,
        token_s=token,
        stall_s=at.stall_s,
        prefill_s=at.span_s,
        prompts=at.k,
        busy=busy,
        met=met,
        tpot_s=at.tpot_s,
        ttft_steady_s=settled,
        ttft_start_s=start,
        ttft_s=(1.0 - first) * settled + first * start,
        queued_s=queued,
        requests_per_s=rate,
    )


def request_joules(
    times: StepTimes, memory: Memory, traffic: Traffic, state: Steady
) -> tuple[Array, Array]:
    """Joules of all chips for one request's prompt, beyond the decoding beside it, and for its answer."""
    loop = loop_of(times, memory, traffic)
    both = times.joules(loop.reading(state.prompts))
    beside = times.joules(StepLoad(decoding=loop.mixed, context_tokens=loop.mixed * loop.context))
    prompt = np.maximum(both - beside, 0.0) * loop.chunks / state.prompts
    kept = 1.0 + times.deployment.accepted
    return prompt, times.joules(loop.decoding()) * (loop.answer - 1.0) / (loop.n * kept)


def start_s(times: StepTimes, loop: Loop) -> Array:
    """Mean completion of n prompts that are there at once, packed in steps of the token budget."""
    packed = np.minimum(loop.most, loop.n)
    steps = np.ceil(loop.n / packed) * loop.chunks
    # Those that are through decode meanwhile: half of them on the mean.
    half = 0.5 * loop.n * (steps > 1.0)
    load = replace(loop.reading(packed), decoding=half, context_tokens=half * loop.length)
    return np.asarray(times.seconds(load) * (steps + loop.chunks) / 2.0)


def with_rate(
    times: StepTimes, memory: Memory, traffic: Traffic, rate: float
) -> tuple[Steady, float]:
    """The state under `rate` requests a second, and the number in flight by Little's law.

    n = rate x time in the system; above the rate that the instance can sustain it grows without end, and
    is held at four times what fits. Numbers are rounded to what a loop can hold: at least one. Arrivals at
    random find as much under way as there is on the mean, and of a loop of one their share of the time.
    """
    flight = 1.0
    found = steady(times, memory, replace(traffic, concurrency=flight, waves=1e9), others=1.0)
    answer = 0.5 * (1.0 + traffic.least) * float(traffic.osl)
    for _ in range(HALVINGS):
        spent = float(found.ttft_steady_s + (answer - 1.0) * found.tpot_s)
        wanted = min(rate * spent, 4.0 * float(found.fit_batch))
        flight = max(0.5 * (flight + wanted), 1e-3)
        load = replace(traffic, concurrency=max(flight, 1.0), waves=1e9)
        found = steady(times, memory, load, others=min(flight, 1.0))
    return found, flight
