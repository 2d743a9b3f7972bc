"""The closed form of a loop of requests: a fixed number in flight, each answered one followed by the next.

With n sequences in the engine, prompts of L tokens, answers of O, t_d a decode step, t_m one with k prompts:

    D      = (O - 1) t_d + (n - 1) (O - 1) / O x D / (D + t_m + W) x (t_m - t_d) / k    of an answer: its own
             steps, and the prompts of the others that interrupt (or join) them; at most (O - 1) t_m, a
             prompt in every step
    TPOT   = D / (O - 1)
    X      = n / (D + t_m + W), at most k / t_m       requests a second
    s      = X D / n                                  share that decodes at once
    k      = X (t_m + W), at least s n / O (answers that end in one decode step) and 1, at most what a step's
             token budget takes beside the decoding
    TTFT   = c / X - D, which holds t_d / 2 + rho t_m / 2 + t_m + W + late t_d + latency, rho = X t_m / k x
             (c - 1) / c: a request of a loop finds the prompts of the c - 1 others under way, never its own
    start  = the first wave is sent at once: its prompts follow each other in steps of the token budget, and
             wait for kernels of experts that are compiled on first use (Triton, DeepGEMM, AITER)

TTFT is one span, from arrival to the first token. Where fewer than are in flight fit, or steps are full of
prompts (X = k / t_m, D = (O - 1) t_m), the rest of c / X is a queue: all that is over k O in flight. Near
there prompts wait for each other already (line_s). A prefill-first engine has its prompts in steps of their
own, so that the decoding waits for all of t_m. All of it broadcasts over concurrency and lengths.
"""

from dataclasses import fields, replace

import numpy as np

from foretell.records import dataclass
from foretell.serving.engine_options import batch_limit, look_steps, prompt_wait, step_tokens
from foretell.serving.fullest_rank import StepLoad
from foretell.serving.memory import Memory, sequences_that_fit
from foretell.serving.steps import StepTimes
from foretell.serving.tables import UNEVEN
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.deployment import Deployment, Traffic
from foretell.specs.engine import EngineProfile

ROUNDS = 30
"""Most rounds of the fixed point between prompts of a step and the rate of requests."""
STILL = 1e-6
"""Share by which the rate still moves in the last of them."""
UNEVENLY = 0.25
"""Wait for each other of prompts in a loop over that of as many servers with exponential times."""
HALVINGS = 30
"""Rounds in which that wait is found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyState:
    """A loop of requests in its steady state; arrays over whatever the traffic has."""

    batch: Array
    """Sequences in the engine at most."""
    fit_batch: Array
    """Sequences that memory and the engine's limit allow."""
    share: Array
    """Of the sequences in the engine, those that have read their prompts."""
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
    uneven: float = 0.0
    """Squared spread of the gaps between requests over their mean: 1 where they come by chance, 1 / R where
    they are dealt to R instances in turn, 0 in a loop, where one follows another's answer."""


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
    """Sequences in the engine."""
    context: Array
    """Tokens that a sequence counts as having in the cache."""
    budget: Array
    """Tokens that a step takes."""
    chunks: Array
    """Steps that one prompt is cut over."""
    fresh: Array
    """Tokens of a prompt that are computed: those that a prefix cache does not have."""
    own_steps: bool
    """Whether prompts have steps of their own."""
    ranks: float = 1.0
    """Ranks that have sequences of their own."""

    def decoding(self, share: Array) -> StepLoad:
        """A decode step of those that have read their prompts: a share of all, at least one."""
        n = np.maximum(share * self.n, 1.0)
        return StepLoad(decoding=n, context_tokens=n * self.context)

    def most(self, beside: Array) -> Array:
        """Prompts that a step's budget takes beside those that decode in it: the last one may be cut.

        Where prompts are cut over steps, every rank has a chunk of one.
        """
        left = self.budget - beside * (not self.own_steps)
        least = np.where(self.chunks > 1.0, self.ranks, 1.0)
        return np.asarray(np.maximum(left / np.maximum(self.fresh, 1.0), least))

    def others(self, share: Array) -> Array:
        """Those of them that decode while another reads its prompt."""
        return np.asarray(np.maximum(self.n - 1.0, 0.0) * share)

    def reading(self, k: Array, beside: Array) -> StepLoad:
        """A step with k prompts, or a chunk of each, beside so many that decode where they share steps."""
        (new, past), others = self.prompt_tokens(k), beside * (not self.own_steps)
        return StepLoad(
            decoding=others, context_tokens=others * self.context, prefill_tokens=new,
            past_tokens=past, prompts=k,
        )  # fmt: skip

    def prompt_tokens(self, k: Array) -> tuple[Array, Array]:
        """Tokens of a step with k prompts, or a chunk of each: those computed, and those in the cache."""
        new = k * self.fresh / self.chunks
        return new, np.asarray(k * (self.length - self.fresh) + 0.5 * (k * self.fresh - new))


def loop_of(times: StepTimes, memory: Memory, traffic: Traffic) -> Loop:
    """Mean lengths, and how many sequences and prompts go together."""
    p, d = times.profile, times.deployment
    mean = 0.5 * (1.0 + traffic.least)
    isl, osl = np.asarray(traffic.isl, float), np.asarray(traffic.osl, float)
    length, answer = mean * isl, np.maximum(mean * osl, 1.0)
    # An engine that reserves lets a request in where its whole answer fits; others fill as they go.
    held = length + (1.0 if p.whole_admission else 0.5) * answer
    room = np.floor(sequences_that_fit(memory, times.model, d, p, held))
    asked, budget = np.asarray(traffic.concurrency, float), step_tokens(p, d)
    fit = np.maximum(np.minimum(batch_limit(d, p, asked / d.dp) * d.dp, room), 1.0)
    n = np.minimum(asked, fit)
    whole = np.zeros_like(n * length)
    # The last token of a prompt is always computed.
    fresh = np.maximum((1.0 - traffic.cached) * length, 1.0)
    return Loop(
        length=length + whole,
        answer=answer + whole,
        asked=asked + whole,
        fit=fit + whole,
        n=n + whole,
        context=length + UNEVEN * answer + whole,
        budget=budget * d.dp + whole,
        chunks=np.maximum(np.ceil(fresh / budget) if d.chunked is not False else 1.0, 1.0) + whole,
        fresh=fresh + whole,
        own_steps=p.policy == "prefill-first",
        ranks=float(d.dp),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyPoint:
    """One round of the fixed point."""

    k: Array
    """Prompts of a step."""
    share: Array
    """Of the sequences in the engine, those that have read their prompts."""
    step_s: Array
    """A decode step of these."""
    span_s: Array
    """Steps of one prompt."""
    stall_s: Array
    """What one prompt takes from a sequence that decodes."""
    tpot_s: Array
    """Time per output token."""
    rate: Array
    """Requests a second."""


def waited_steps(longest: float, enough: float, came: Array) -> Array:
    """Decode steps that prompts wait for others, `came` of them in each step, until there are enough."""
    if not longest or enough == np.inf:
        return np.asarray(longest)
    return np.asarray(np.minimum(longest, enough / np.maximum(came, 1e-12)))


def point_of(times: StepTimes, loop: Loop, k: Array, share: Array, waits: Array) -> SteadyPoint:
    """Times and rate with k prompts in a step and a share of the sequences decoding."""
    d = times.deployment
    step = times.seconds(loop.decoding(share))
    token = step / (1.0 + d.accepted)
    span = loop.chunks * times.seconds(loop.reading(k, loop.others(share)))
    # A step that decodes as well takes from a sequence only what it takes longer.
    stall = (span - step * loop.chunks * (not loop.own_steps)) / k / d.pp
    # The answer's time D: its own steps, and its share D / (D + rest) of the others' prompts.
    steps, rest = loop.answer - 1.0, span + waits * step
    prompts_s = np.maximum(loop.n - 1.0, 0.0) * stall * steps / loop.answer
    half = 0.5 * (steps * token + prompts_s - rest)
    answer_s = half + np.sqrt(half**2 + steps * token * rest)
    if not loop.own_steps:
        # Every step gives a token: with a prompt in each of them, an answer takes as many of those.
        answer_s = np.minimum(answer_s, steps * span / loop.chunks / (1.0 + d.accepted))
    whole = answer_s + rest
    # As many decode as the time of an answer brings, at the rate that prompts can be read.
    able = d.pp * k / span
    share = np.minimum(answer_s / whole, able * answer_s / loop.n)
    tpot = answer_s / np.maximum(steps, 1e-9)
    return SteadyPoint(
        k=k, share=share, step_s=step, span_s=span, stall_s=stall, tpot_s=tpot,
        rate=loop.n / whole,
    )  # fmt: skip


def steady(times: StepTimes, memory: Memory, traffic: Traffic) -> SteadyState:
    """The steady state of one instance under a fixed concurrency."""
    p, d = times.profile, times.deployment
    loop = loop_of(times, memory, traffic)
    longest, enough = prompt_wait(p, d)
    waits = np.asarray(longest)
    at = point_of(times, loop, prompts_together(loop, d, np.ones(())), np.ones(()), waits)
    moving = np.ones(np.shape(at.rate), bool)
    for _ in range(ROUNDS):
        before = at
        # Of those in flight the engine has what is not on its way to it or back.
        inside = loop.n / np.minimum(at.rate, able_per_s(d, at))
        there = loop.asked * inside / (inside + outside_s(times, loop, at))
        loop = replace(loop, n=np.where(moving, np.minimum(there, loop.fit), loop.n))
        waits = waited_steps(longest, enough, at.rate * at.step_s)
        reading_s = at.span_s + waits * at.step_s
        came = met_together(at.rate / d.pp, look_steps(d) * at.step_s, reading_s)
        wanted = np.maximum(came, prompts_together(loop, d, at.share))
        most = np.minimum(loop.most(loop.others(at.share)), loop.n)
        k = np.maximum(np.minimum(wanted, most), 1.0)
        at = point_of(times, loop, k, at.share, waits)
        if not moving.all():
            # What stands still keeps its numbers, whatever is beside it.
            at = SteadyPoint(
                **{
                    f.name: np.where(moving, getattr(at, f.name), getattr(before, f.name))
                    for f in fields(SteadyPoint)
                }
            )
        moving = moving & (np.abs(at.rate - before.rate) > STILL * before.rate)
        if not moving.any():
            break
    step, able = at.step_s, able_per_s(d, at)
    inside, outside = loop.n / at.rate, outside_s(times, loop, at)
    line = line_s(times, loop, at, inside + outside) * times.system.corrections.queueing
    outside = outside + line
    # As many as are in flight, as fit, or as steps can read prompts of: what is least.
    rate = np.minimum(np.minimum(loop.asked / (inside + outside), loop.fit / inside), able)
    # Little's law: those in flight over the rate are the time of one, of which its answer is a part.
    settled = loop.asked / rate - (loop.answer - 1.0) * at.tpot_s
    queued = np.maximum(settled - at.span_s - waits * step - outside, 0.0)
    beyond = outside - under_way_s(times, loop, at) - line
    beyond = beyond + np.minimum(queued, np.maximum(loop.asked - loop.fit, 0.0) / rate)
    start = start_s(times, loop) + beyond + (p.first_use_s if times.tables.mixtures else 0.0)
    first = 1.0 / max(traffic.waves, 1.0)
    return SteadyState(
        batch=np.minimum(loop.asked, loop.fit),
        fit_batch=loop.fit,
        share=at.share,
        decode_s=step,
        token_s=step / (1.0 + d.accepted),
        stall_s=at.stall_s,
        prefill_s=at.span_s,
        prompts=at.k,
        busy=np.minimum(at.rate / able, 1.0),
        met=met_share(times, loop, at),
        tpot_s=at.tpot_s,
        ttft_steady_s=settled,
        ttft_start_s=start,
        ttft_s=(1.0 - first) * settled + first * start,
        queued_s=queued,
        requests_per_s=rate,
    )


def line_s(times: StepTimes, loop: Loop, at: SteadyPoint, whole_s: Array) -> Array:
    """What prompts wait for each other where steps are nearly full of them; a request is `whole_s` without.

    The queue of m servers (serving/arrivals.py), m prompts to a step, where the wait makes its own load less:

        w = UNEVENLY t_m rho^(sqrt(2 (m + 1)) + 1) / (m (1 - rho)),   rho = (c - 1) t_m / m / (whole + w)

    Requests of a loop come in the order in which others were answered, more evenly than by chance: factor
    and the two powers more of rho are as simulates of 135 loops have it.
    """
    others = loop.n * (1.0 - 1.0 / np.maximum(loop.asked, 1.0))
    servers = np.minimum(loop.most(loop.others(at.share)), loop.n) * times.deployment.pp
    widest = loop.chunks * times.seconds(
        loop.reading(servers / times.deployment.pp, loop.others(at.share))
    )
    work, power = others * widest / servers, np.sqrt(2.0 * (servers + 1.0)) + 1.0
    low, high = np.zeros_like(whole_s), work + 0.0 * whole_s
    for _ in range(HALVINGS):
        wait = 0.5 * (low + high)
        load = np.minimum(work / (whole_s + wait), 1.0)
        asked = UNEVENLY * widest * load**power / np.maximum(servers * (1.0 - load), 1e-12)
        low, high = np.where(asked > wait, wait, low), np.where(asked > wait, high, wait)
    return np.asarray(0.5 * (low + high))


def able_per_s(d: Deployment, at: SteadyPoint) -> Array:
    """Prompts that can be read a second; a stage is free again when its share of the step is over."""
    return np.asarray(d.pp * at.k / at.span_s)


def met_share(times: StepTimes, loop: Loop, at: SteadyPoint) -> Array:
    """Share of the requests that find prompts of the c - 1 others under way, never their own."""
    busy = np.minimum(at.rate / able_per_s(times.deployment, at), 1.0)
    return np.asarray(busy * (1.0 - 1.0 / np.maximum(loop.asked, 1.0)))


def under_way_s(times: StepTimes, loop: Loop, at: SteadyPoint) -> Array:
    """The rest of the step that a request finds under way; none where it is alone."""
    rest = 0.5 * look_steps(times.deployment) * at.step_s * np.clip(loop.n - 1.0, 0.0, 1.0)
    return np.asarray(rest + 0.5 * met_share(times, loop, at) * at.span_s)


def outside_s(times: StepTimes, loop: Loop, at: SteadyPoint) -> Array:
    """What a request spends beside its prompt, its answer and any queue: on its way in, and back."""
    p = times.profile
    late = p.late_steps * at.step_s
    way = way_s(p, loop.length) * times.system.corrections.queueing
    return np.asarray(under_way_s(times, loop, at) + late + way)


def way_s(p: EngineProfile, length: Array) -> Array:
    """What a request of so many tokens meets before and after the engine."""
    return np.asarray(p.latency_s + p.latency_s_per_token * length)


def prompts_together(loop: Loop, d: Deployment, share: Array) -> Array:
    """Prompts that go in together at least: as many as answers end, by chance, between two looks for them."""
    ended = np.maximum(loop.n * share, 1e-9) / loop.answer * (1.0 + d.accepted) / d.pp
    ended = ended * look_steps(d)
    found = np.minimum(ended / -np.expm1(-ended), np.minimum(loop.most(loop.others(share)), loop.n))
    return np.asarray(np.maximum(found, 1.0))


def met_together(rate: Num, step_s: Array, reading_s: Array) -> Array:
    """Prompts of a step that has any, where they come by chance: those that came since the last look.

    Steps that read are as many as follow a step in which a prompt came: with r_d decode and r_p reading steps
    a second, r_p exp(-X t_m) = r_d (1 - exp(-X t_d)), and together they fill the time; k = X / r_p.
    """
    came = np.maximum(np.asarray(rate) * step_s, 1e-12)
    later = np.exp(-np.asarray(rate) * reading_s)
    return np.asarray(rate * reading_s + came * later / -np.expm1(-came))


def request_joules(
    times: StepTimes, memory: Memory, traffic: Traffic, state: SteadyState
) -> tuple[Array, Array]:
    """Joules of all chips for one request's prompt, beyond the decoding beside it, and for its answer."""
    loop = loop_of(times, memory, traffic)
    both = times.joules(loop.reading(state.prompts, loop.others(state.share)))
    others = loop.others(state.share) * (not loop.own_steps)
    beside = times.joules(StepLoad(decoding=others, context_tokens=others * loop.context))
    prompt = np.maximum(both - beside, 0.0) * loop.chunks / state.prompts
    decode = loop.decoding(state.share)
    kept = (1.0 + times.deployment.accepted) * np.asarray(decode.decoding)
    return prompt, times.joules(decode) * (loop.answer - 1.0) / kept


def start_s(times: StepTimes, loop: Loop) -> Array:
    """Mean completion of n prompts that are there at once, packed in steps of the token budget."""
    packed = np.minimum(loop.most(np.zeros(())), loop.n)
    steps = loop.n / packed * loop.chunks
    # Those that are through decode meanwhile: half of them on the mean.
    half = 0.5 * loop.n * (steps > 1.0)
    load = loop.reading(packed, np.zeros(()))
    load = replace(load, decoding=half, context_tokens=half * loop.length)
    return np.asarray(times.seconds(load) * (steps + loop.chunks) / 2.0)
