"""The closed form of requests that come by chance: so many a second, whatever the engine does.

A request meets what is there on the mean (arrivals by chance see time averages), not one less as in a loop.
With rate X, answers of O tokens, n = X (O - 1) TPOT others decoding, t_d a decode step of n + 1, t_m a step
with k prompts, b the share of the time in steps with prompts:

    TPOT  = t_d / (1 - X (t_m - t_d) / k)           every prompt of another takes its part of a step
    k     = X (t_m + t_d exp(-X t_m) / (1 - exp(-X t_d)))    a step reads what came in the one before
    L     = (1 - b) t_d + b t_m                     the step under way: long ones are found more often
    TTFT  = L / 2 + t_m(1 + X L) + W + late t_d + latency + queues

its own step has the prompts that came while it waited, X L of them. Queues, for the prompts that a step's
token budget takes and for the sequences that fit, are those of c servers that each take S,

    S rho^(sqrt(2 (c + 1)) - 1) / (c (1 - rho)) x (1 + v^2) / 2,   v the spread of S over its mean

(Sakasegawa, Annals of the Institute of Statistical Mathematics 29, 1977). One of R instances to which
requests are dealt in turn gets every R-th: they come more evenly, their gaps the sum of R. Then (1 + v^2) / 2
is (1 / R + v^2) / 2, and a request meets within a time t as many others as `met_within` says. Where nearly
all places are taken the state is that of the loop that answers as many (serving/steady.py).
"""

from dataclasses import replace

import numpy as np

from foretell.records import dataclass
from foretell.serving.engine_options import look_steps, prompt_wait
from foretell.serving.fullest_rank import StepLoad
from foretell.serving.memory import Memory
from foretell.serving.steady import (
    Loop,
    SteadyState,
    loop_of,
    met_together,
    start_s,
    steady,
    waited_steps,
    way_s,
)
from foretell.serving.steps import StepTimes
from foretell.specs.arrays import Array
from foretell.specs.deployment import Traffic

FULL = 4.0
"""Requests in flight over those that fit, where more come than can be answered."""
ROUNDS = 40
"""Most rounds in which the time per token, or the number in flight, goes to where it asks for itself."""
STILL = 1e-10
"""Share by which it still moves in the last of them."""
STEEPEST = 0.9
"""Largest slope of what is asked for over what is, in such a round: the step is at most ten times the gap."""
CROWDED = 0.95
"""Share of the time, or of the places, from which the next request waits for one to go."""
MOST_DEALT = 64
"""Instances from which on requests come as evenly as from so many."""
HIGHEST = 0.999
"""Largest share of the time that prompts may take: beyond it nothing is left for answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """What a request meets."""

    beside: Array
    """Others that decode."""
    step_s: Array
    """A decode step with it."""
    k: Array
    """Prompts of a step that has any."""
    span_s: Array
    """Steps of one prompt, with those of k."""
    stall_s: Array
    """What another's prompt takes from a sequence that decodes."""
    taken: Array
    """Share of the time that prompts take from decoding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Requests that come to one instance."""

    rate: float
    """Requests a second."""
    dealt: int = 1
    """Instances to which all are dealt in turn."""

    def met_within(self, span_s: Array) -> Array:
        """Others that come within a time of a request: the renewal function of gaps that are sums of `dealt`.

            m(t) = X t + 1 / R sum over k < R of w^k / (1 - w^k) (1 - exp(-R X t (1 - w^k)))

        with w = exp(2 pi i / R)

        (Cox, Renewal Theory, 1962, chapter 4); X t where R is 1.
        """
        many = min(self.dealt, MOST_DEALT)
        passed, turns = self.rate * np.asarray(span_s, float), np.arange(1, many)
        root = np.exp(2j * np.pi * turns / many)
        held = root / (1.0 - root) * -np.expm1(-many * passed[..., None] * (1.0 - root))
        return np.asarray(np.maximum(passed + held.sum(axis=-1).real / many, 0.0))


def with_rate(
    times: StepTimes, memory: Memory, traffic: Traffic, stream: Stream
) -> tuple[SteadyState, float]:
    """The state of an instance under a stream of requests, and the number in flight by Little's law."""
    loop, rate = loop_of(times, memory, replace(traffic, concurrency=1.0)), stream.rate
    at, tpot = settle(times, loop, stream)
    full = (at.taken >= CROWDED) | (rate * (loop.answer - 1.0) * tpot >= CROWDED * loop.fit)
    if bool(np.any(full)):
        return crowded_state(times, memory, traffic, rate)
    found = open_state(times, loop, (at, tpot), stream)
    spent = found.ttft_steady_s + (loop.answer - 1.0) * found.tpot_s
    return found, float(rate * spent)


def crowded_state(
    times: StepTimes, memory: Memory, traffic: Traffic, rate: float
) -> tuple[SteadyState, float]:
    """The loop that answers as many: where nearly all places are taken, who comes waits for who goes.

    Above the rate that an instance can sustain the number in flight is held at four times what fits.
    """
    flight, answer = 1.0, 0.5 * (1.0 + traffic.least) * float(traffic.osl)
    found = steady(times, memory, replace(traffic, concurrency=flight, waves=1e9))
    last = None
    for _ in range(ROUNDS):
        spent = float(found.ttft_steady_s + (answer - 1.0) * found.tpot_s)
        here = np.array(flight), np.array(min(rate * spent, FULL * float(found.fit_batch)))
        flight = max(float(nearer(*here, last)), 1.0)
        last = here
        found = steady(times, memory, replace(traffic, concurrency=flight, waves=1e9))
        if abs(flight - float(here[0])) <= STILL * flight:
            break
    return found, flight


def open_state(
    times: StepTimes, loop: Loop, met_s: tuple["QueueState", Array], stream: Stream
) -> SteadyState:
    """The state of an engine that keeps up, from what a request meets and its time per token."""
    p, d, rate = times.profile, times.deployment, stream.rate
    at, tpot = met_s
    waits_s = waited_steps(*prompt_wait(p, d), rate * at.step_s) * at.step_s
    busy = np.minimum(rate * at.span_s / at.k / d.pp, 1.0)
    met = np.minimum(stream.met_within(at.span_s) / at.k / d.pp, busy)
    under_way = (1.0 - met) * at.step_s + met * at.span_s / loop.chunks
    # With nobody there, nothing is under way.
    under_way = under_way * -np.expm1(-(at.beside + busy))
    most = loop.most(at.beside)
    own_k = np.minimum(1.0 + stream.met_within(under_way + waits_s), most)
    own_s = loop.chunks * times.seconds(loop.reading(own_k, at.beside))
    inside = own_s + waits_s + (loop.answer - 1.0) * tpot
    servers = most * d.pp
    widest = loop.chunks * times.seconds(loop.reading(most, at.beside))
    uneven = 1.0 / stream.dealt
    queued = queue_s(rate * widest / servers, servers, widest, 0.5 * uneven)
    queued = queued + queue_s(rate * inside / loop.fit, loop.fit, inside, 0.5 * (uneven + 1.0))
    looks = 0.5 * (look_steps(d) - 1.0) * -np.expm1(-at.beside)
    late = (p.late_steps + looks) * at.step_s
    first = 0.5 * under_way + own_s + waits_s + late + way_s(p, loop.length) + queued
    return SteadyState(
        batch=np.minimum(at.beside + 1.0, loop.fit),
        fit_batch=loop.fit,
        share=(loop.answer - 1.0) * tpot / inside,
        decode_s=at.step_s,
        token_s=at.step_s / (1.0 + d.accepted),
        stall_s=at.stall_s,
        prefill_s=own_s,
        prompts=at.k,
        busy=busy,
        met=met,
        tpot_s=tpot,
        ttft_steady_s=first,
        ttft_start_s=start_s(times, loop),
        ttft_s=first,
        queued_s=queued,
        requests_per_s=np.full_like(first, rate),
        uneven=uneven,
    )


def settle(times: StepTimes, loop: Loop, stream: Stream) -> tuple[QueueState, Array]:
    """What a request meets once the time per token and the batch agree, and that time."""
    d, rate = times.deployment, stream.rate
    at = queue_state(times, loop, stream, np.zeros_like(loop.n), np.zeros_like(loop.n))
    tpot, last = at.step_s / (1.0 + d.accepted), None
    for _ in range(ROUNDS):
        beside = np.minimum(rate * (loop.answer - 1.0) * tpot, loop.fit)
        # A rank reads one prompt after the other; on several ranks prompts are read side by side.
        before_s = at.span_s / (loop.chunks if d.dp == 1 else 1.0)
        at = queue_state(times, loop, stream, beside, before_s)
        token = at.step_s / (1.0 + d.accepted)
        here = tpot, token / (1.0 - np.minimum(at.taken, HIGHEST))
        tpot, last = nearer(*here, last), here
        if np.all(np.abs(tpot - here[0]) <= STILL * tpot):
            break
    return at, tpot


def nearer(value: Array, asked: Array, last: tuple[Array, Array] | None) -> Array:
    """The next value of a fixed point: where the line through this round and the last meets its own value.

    A first round goes half the way, and so does one after which nothing moved; what is asked for may fall
    with the value (no more than as fast) or grow with it (STEEPEST), so that no step runs away.
    """
    if last is None:
        return np.asarray(0.5 * (value + asked))
    moved = value - last[0]
    slope = (asked - last[1]) / np.where(moved == 0.0, np.inf, moved)
    slope = np.clip(np.where(moved == 0.0, -1.0, slope), -1.0, STEEPEST)
    return np.asarray(value + (asked - value) / (1.0 - slope))


def queue_state(
    times: StepTimes, loop: Loop, stream: Stream, beside: Array, before_s: Array
) -> QueueState:
    """Steps with so many others decoding, where the last step with prompts took `before_s`."""
    d, rate = times.deployment, stream.rate
    all_here = StepLoad(decoding=beside + 1.0, context_tokens=(beside + 1.0) * loop.context)
    step = times.seconds(all_here)
    waits = waited_steps(*prompt_wait(times.profile, d), rate * step)
    met = met_together(rate / d.pp, step, before_s + waits * step)
    k = np.minimum(met, loop.most(beside))
    span = loop.chunks * times.seconds(loop.reading(k, beside))
    stall = (span - step * loop.chunks * (not loop.own_steps)) / k / d.pp
    return QueueState(
        beside=beside, step_s=step, k=k, span_s=span, stall_s=stall, taken=rate * stall
    )


def queue_s(load: Array, servers: Array, service_s: Array, spread: float) -> Array:
    """Mean wait for one of some servers; `spread` is (1 + v^2) / 2."""
    rho = np.minimum(load, HIGHEST)
    power = np.sqrt(2.0 * (servers + 1.0)) - 1.0
    return np.asarray(spread * service_s * rho**power / (servers * (1.0 - rho)))
