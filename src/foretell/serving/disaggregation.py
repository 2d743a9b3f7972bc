"""The closed form of prefill and decode on instances of their own, and the caches that go between them.

X requests a second, x prefill and y decode instances, prompts of L tokens, answers of O:

    t_m(k)  = a step with k prompts                    of a prefill instance, nothing decodes beside them
    k       = X / x t_m(k), from 1 to what its token budget takes
    P       = the step under way / 2 + t_m + queue     X / x prompts a second at each; in the first waves of
              a loop, which were sent at once, so many times as near (crowding)
    T       = the cache over the network: a latency, and the bytes of each token
    n       = X / y (O - 1) TPOT                       sequences of a decode instance, at most what it holds
    TPOT    = t_d(n) / tokens of a step                no prompt interrupts it
    TTFT    = way + P + T + the rest of the decode step under way + its first step + late steps

The first token reaches the user through the instance that decodes, so that TTFT is one span over both
(NVIDIA Dynamo, SGLang's PD disaggregation: the client's stream is the decode worker's). In a loop with c in
flight c = X (TTFT + (O - 1) TPOT): n is what makes it so, and where prompts or places are the bottleneck the
rest of c / X is a queue before the first token. All of it broadcasts over concurrency and lengths.
"""

from dataclasses import replace

import numpy as np

from foretell.records import dataclass
from foretell.serving.arrivals import HIGHEST, queue_s
from foretell.serving.fullest_rank import StepLoad
from foretell.serving.memory import Memory, kv_bytes
from foretell.serving.steady import UNEVENLY, Loop, SteadyState, loop_of, way_s
from foretell.serving.steps import StepTimes
from foretell.specs.arrays import Array
from foretell.specs.deployment import Deployment, Traffic
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model
from foretell.specs.system import System, Tier

HALVINGS = 40
"""Rounds in which the number of decoding sequences is found."""
LEAST_SPREAD = 0.03
"""Least that the times of requests differ by, over their mean: by how they meet each other, where their
lengths are all alike (a guess)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillPool:
    """Instances that do prefill alone."""

    system: System
    """Their chips and network."""
    deployment: Deployment
    """How each is laid out."""
    profile: EngineProfile
    """By which engine."""
    gpus: int
    """Chips of all of them."""
    usd_per_chip_hour: float = 0.0
    """Rent of one of their chips; 0 where none is known."""
    given: bool = True
    """Whether its layout was given; else it follows that of the instances that decode."""

    @property
    def replicas(self) -> int:
        """Instances side by side."""
        return max(self.gpus // self.deployment.gpus, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Prefill and decode instances that share the requests."""

    front: StepTimes
    """Steps of a prefill instance."""
    fronts: int
    """How many of them."""
    back: StepTimes
    """Steps of a decode instance."""
    backs: int
    """How many of them."""

    def moved_s(self, length: Array) -> Array:
        """A cache of so many tokens on its way."""
        fixed_s, token_s = transfer(
            self.front.model, self.back.system, self.front.deployment, self.back.deployment,
            self.front.system,
        )  # fmt: skip
        return np.asarray(fixed_s + token_s * length)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSide:
    """What prompts meet at a prefill instance."""

    k: Array
    """Prompts of a step."""
    span_s: Array
    """Steps of one prompt."""
    busy: Array
    """Share of the time in them."""
    spent_s: Array
    """From arrival at the instance to the end of its prompt's steps."""


def prompt_loop(pair: Pair, traffic: Traffic) -> Loop:
    """The traffic as prefill instances meet it: token budget and chunks are theirs."""
    open_memory = Memory(
        card_bytes=1.0, weight_bytes=0.0, step_bytes=0.0, reserve_bytes=0.0, kv_bytes=1e30
    )
    return loop_of(pair.front, open_memory, replace(traffic, concurrency=traffic.concurrency))


def prompt_s(times: StepTimes, loop: Loop, k: Array) -> Array:
    """Steps of k prompts, or of a chunk of each after the other."""
    new, past = loop.prompt_tokens(k)
    load = StepLoad(prefill_tokens=new, past_tokens=past, prompts=k)
    return np.asarray(loop.chunks * times.seconds(load))


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSteps:
    """Steps of a prefill instance, straight between one prompt and as many as its token budget takes."""

    one_s: Array
    """With one prompt."""
    each_s: Array
    """What each further prompt adds."""
    most: Array
    """Prompts of a full step."""
    stages: float
    """Pipeline stages: a step keeps each busy for its share of it alone."""

    def span_s(self, k: Array) -> Array:
        """Steps of k prompts."""
        return np.asarray(self.one_s + self.each_s * (k - 1.0))

    @property
    def limit_per_s(self) -> Array:
        """Prompts that the instance can read a second."""
        return np.asarray(self.stages * self.most / self.span_s(self.most))


def prompt_steps(times: StepTimes, loop: Loop) -> PromptSteps:
    """The steps of a prefill instance for prompts of a loop."""
    most = loop.most(np.zeros(()))
    one, widest = (prompt_s(times, loop, k) for k in (np.ones_like(most), most))
    each = (widest - one) / np.maximum(most - 1.0, 1e-9)
    return PromptSteps(one_s=one, each_s=each, most=most, stages=float(times.deployment.pp))


def crowding(traffic: Traffic) -> float:
    """Times the mean rate at which a request of a loop finds others arriving; 1 once the loop is steady.

    All requests of the first wave are sent at once. Those of wave j follow as answers end, which differ by
    s = sd(length) / mean: they are spread over about s sqrt(j) of a request's time, and two of them are as
    near as 1 / (2 sqrt(pi) s sqrt(j)) times the mean rate says. The mean over the waves behind the first.
    """
    mean = 0.5 * (1.0 + traffic.least)
    spread = max((1.0 - traffic.least) / np.sqrt(12.0) / mean, LEAST_SPREAD)
    most = 0.5 / np.sqrt(np.pi) / spread
    behind = max(traffic.waves - 1.0, 1.0)
    crowded = np.arange(1.0, min(behind, most**2) + 1.0)
    found = np.maximum(most / np.sqrt(crowded), 1.0).sum() + max(behind - len(crowded), 0.0)
    return float(found / max(behind, len(crowded)))


def prompt_side(
    steps: PromptSteps, loop: Loop, rate: Array, asked: Array | None, crowd: float = 1.0
) -> PromptSide:
    """`rate` prompts a second at one instance; `asked` in flight in a loop, None: they come by chance.

    `crowd`: times the rate at which those of a loop come where others are.
    """
    most, pp = steps.most, steps.stages
    left = np.maximum(1.0 - rate / pp * steps.each_s, 1e-9)
    k = np.clip(rate / pp * (steps.one_s - steps.each_s) / left, 1.0, most)
    span = steps.span_s(k)
    busy = np.minimum(rate * span / k / pp, 1.0)
    there = 1.0 if asked is None else 1.0 - 1.0 / np.maximum(asked, 1.0)
    met = np.minimum(crowd * busy, 1.0) * there
    widest, servers = steps.span_s(most), most * pp
    load = np.minimum(rate * widest / servers, HIGHEST)
    if asked is None:
        queued = queue_s(load, servers, widest, 0.5)
    else:
        # Requests of a loop come more evenly than by chance (serving/steady.py: line_s).
        power = np.sqrt(2.0 * (servers + 1.0)) + 1.0
        queued = UNEVENLY * widest * load**power / (servers * (1.0 - load))
    own_k = np.minimum(1.0 + crowd * rate * 0.5 * met * span, most)
    own = steps.span_s(np.maximum(own_k, k))
    spent = 0.5 * met * span / loop.chunks + own + queued
    return PromptSide(k=k, span_s=span, busy=busy, spent_s=np.asarray(spent))


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSide:
    """A decode instance with so many sequences."""

    n: Array
    """Sequences."""
    step_s: Array
    """A decode step."""
    tpot_s: Array
    """Time per output token."""
    rate: Array
    """Requests a second that it answers."""


def answer_side(times: StepTimes, loop: Loop, n: Array) -> AnswerSide:
    """n sequences decode on the mean; a step has at least one."""
    here = np.maximum(n, 1.0)
    step = times.seconds(StepLoad(decoding=here, context_tokens=here * loop.context))
    tpot = step / (1.0 + times.deployment.accepted)
    return AnswerSide(
        n=n, step_s=step, tpot_s=tpot, rate=n / np.maximum((loop.answer - 1.0) * tpot, 1e-12)
    )


def joined_s(p: EngineProfile, answers: AnswerSide) -> Array:
    """From the arrival of a cache to its first token: the step that it finds under way, its own first one,
    those that hand it over late, and what routers and polling take."""
    steps = 0.5 * np.clip(answers.n - 1.0, 0.0, 1.0) + 1.0 + p.late_steps
    return np.asarray(steps * answers.step_s + p.handover_s)


def placed_s(loop: Loop, answers: AnswerSide) -> Array:
    """Wait for one of the places of a decode instance, where requests come by chance."""
    inside = (loop.answer - 1.0) * answers.tpot_s
    return queue_s(answers.rate * inside / loop.fit, loop.fit, inside, 1.0)


def first_s(pair: Pair, front: Loop, prompts: PromptSide, answers: AnswerSide) -> Array:
    """Time to the first token: one span from arrival, over both instances."""
    p, back = pair.front.profile, pair.back.profile
    joins = front.answer > 1.0
    moved_s = np.where(joins, pair.moved_s(front.length), 0.0)
    waited_s = way_s(p, front.length) + (prompts.spent_s - prompts.span_s) + moved_s
    queueing = pair.front.system.corrections.queueing
    entered_s = np.where(joins, joined_s(back, answers), 0.0)
    return np.asarray(queueing * waited_s + prompts.span_s + entered_s)


def loop_state(pair: Pair, memory: Memory, traffic: Traffic) -> SteadyState:
    """The steady state of one decode instance of a pair, all of them under a fixed concurrency together."""
    loop, front = loop_of(pair.back, memory, traffic), prompt_loop(pair, traffic)
    asked, x, y = loop.asked, float(pair.fronts), float(pair.backs)
    steps = prompt_steps(pair.front, front)
    able, crowd = HIGHEST * x * steps.limit_per_s, crowding(traffic)
    low, high = np.full_like(asked, 1e-9), np.minimum(asked / y, loop.fit)
    for _ in range(HALVINGS):
        n = 0.5 * (low + high)
        answers = answer_side(pair.back, loop, n)
        rate = np.minimum(y * answers.rate, able)
        prompts = prompt_side(steps, front, rate / x, asked / x, crowd)
        whole = rate * (
            first_s(pair, front, prompts, answers) + (loop.answer - 1.0) * answers.tpot_s
        )
        over = (whole > asked) | (y * answers.rate > able)
        low, high = np.where(over, low, n), np.where(over, n, high)
    answers = answer_side(pair.back, loop, 0.5 * (low + high))
    rate = np.minimum(y * answers.rate, able)
    prompts = prompt_side(steps, front, rate / x, asked / x, crowd)
    first = np.maximum(asked / rate - (loop.answer - 1.0) * answers.tpot_s, 0.0)
    return state_of_pair(pair, loop, front, (prompts, answers), (rate, first, asked, traffic.waves))


def open_state(pair: Pair, memory: Memory, traffic: Traffic, rate: float) -> SteadyState:
    """The same under `rate` requests a second that come by chance to all instances together."""
    loop = loop_of(pair.back, memory, replace(traffic, concurrency=1.0))
    front = prompt_loop(pair, replace(traffic, concurrency=1.0))
    x, y, wanted = float(pair.fronts), float(pair.backs), np.full_like(loop.n, rate)
    steps = prompt_steps(pair.front, front)
    able = x * steps.limit_per_s
    low, high = np.zeros_like(loop.n), loop.fit + 0.0
    for _ in range(HALVINGS):
        n = 0.5 * (low + high)
        more = y * answer_side(pair.back, loop, n).rate < wanted
        low, high = np.where(more, n, low), np.where(more, high, n)
    answers = answer_side(pair.back, loop, 0.5 * (low + high))
    reach = np.minimum(y * answers.rate, able)
    done = np.minimum(wanted, reach)
    prompts = prompt_side(steps, front, done / x, None)
    inside = (loop.answer - 1.0) * answers.tpot_s
    places = placed_s(loop, replace(answers, rate=done / y))
    first = first_s(pair, front, prompts, answers) + np.where(loop.answer > 1.0, places, 0.0)
    flight = done * (first + inside)
    found = state_of_pair(pair, loop, front, (prompts, answers), (done, first, flight, 1e12))
    late = np.where(wanted > reach, np.maximum(first, 1.0), 0.0)
    return replace(found, queued_s=late)


def state_of_pair(
    pair: Pair,
    loop: Loop,
    front: Loop,
    sides: tuple[PromptSide, AnswerSide],
    load: tuple[Array, Array, Array, float],
) -> SteadyState:
    """The record of one decode instance, its prompts read elsewhere."""
    (prompts, answers), (rate, first, asked, waves) = sides, load
    x, y = float(pair.fronts), float(pair.backs)
    usual = first_s(pair, front, prompts, answers)
    queued = np.maximum(first - usual, 0.0)
    most = front.most(np.zeros(()))
    steps = np.maximum(asked / x / most, 1.0)
    packed = np.minimum(most, np.maximum(asked / x, 1.0))
    burst = prompt_s(pair.front, front, packed) * (steps + 1.0) / 2.0
    start = burst + usual - prompts.spent_s
    share = 1.0 / max(waves, 1.0)
    zero = np.zeros_like(rate)
    return SteadyState(
        batch=np.minimum(np.maximum(answers.n, np.minimum(asked / y, 1.0)), loop.fit) + zero,
        fit_batch=loop.fit + zero,
        share=np.ones_like(rate),
        decode_s=answers.step_s + zero,
        token_s=answers.tpot_s + zero,
        stall_s=zero,
        prefill_s=prompts.span_s + zero,
        prompts=prompts.k + zero,
        busy=prompts.busy + zero,
        met=prompts.busy * (1.0 - 1.0 / np.maximum(asked, 1.0)) + zero,
        tpot_s=answers.tpot_s + zero,
        ttft_steady_s=first,
        ttft_start_s=start + zero,
        ttft_s=(1.0 - share) * first + share * start,
        queued_s=queued,
        requests_per_s=rate / y,
    )


def prompt_joules(times: StepTimes, traffic: Traffic, k: float) -> float:
    """Joules of a prefill instance for one prompt, k of them in a step."""
    isl = 0.5 * (1.0 + traffic.least) * float(np.asarray(traffic.isl))
    new = (1.0 - traffic.cached) * isl
    load = StepLoad(prefill_tokens=k * new, past_tokens=k * (isl - new), prompts=k)
    return float(times.joules(load)) / k


def tier_between(system: System, front: Deployment, back: Deployment) -> Tier:
    """Instances that together fill no more than the innermost tier are on it; else the next one out."""
    tiers = system.network.tiers
    inside = front.gpus + back.gpus <= int(tiers[0].size)
    return tiers[0] if inside or len(tiers) == 1 else tiers[1]


def links_between(system: System, front: Deployment, back: Deployment, other: System) -> list[Tier]:
    """Links that a cache passes: those of one system, or of both where chips differ and share no node."""
    if other.chip.id == system.chip.id:
        return [tier_between(system, front, back)]
    return [one.network.tiers[min(1, len(one.network.tiers) - 1)] for one in (other, system)]


def transfer(
    model: Model, system: System, front: Deployment, back: Deployment, other: System | None = None
) -> tuple[float, float]:
    """Seconds that every cache takes, and seconds of each token: every chip sends its own part of it.

    `other` is the system of the prefill instances where it is another one: the slower link counts.
    """
    links = links_between(system, front, back, other or system)
    each = (float(kv_bytes(model, front, 4096.0)) - float(kv_bytes(model, front, 0.0))) / 4096.0
    state = float(kv_bytes(model, front, 0.0))
    rate = min(float(tier.bandwidth_bytes_per_s) * float(tier.efficiency) for tier in links)
    return max(float(tier.latency_s) for tier in links) + state / rate, each / rate
