"""Requests that are simulated, and the replicas that answer them: rules, steps and hand-over.

serving/requests/        the engine's queue, batch and cache, from event to event
serving/clock.py         what its steps take
"""

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from foretell.records import dataclass
from foretell.serving.clock import SampledClock
from foretell.serving.disaggregation import (
    PrefillPool,
    answer_side,
    prompt_loop,
    prompt_steps,
    transfer,
)
from foretell.serving.engine_options import (
    batch_limit,
    held_adapters,
    look_steps,
    prompt_wait,
    step_tokens,
)
from foretell.serving.memory import PAGE, Memory, memory_of, sequences_that_fit
from foretell.serving.requests.arrivals import Arrivals, Lengths, draw_requests
from foretell.serving.requests.prefixes import TierGiven
from foretell.serving.requests.records import (
    AutoscaleRule,
    EngineRules,
    Fleet,
    Preemption,
    Requests,
    Routing,
)
from foretell.serving.requests.sessions import Sessions, session_requests
from foretell.serving.serve import ServeQuestion, check_prefill, pair_of, state_of
from foretell.serving.steady import loop_of, steady
from foretell.serving.steps import step_times
from foretell.serving.tables import UNEVEN
from foretell.specs._base import Num
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model
from foretell.specs.service import LengthForm, LengthShape
from foretell.specs.system import System

SWAP_BYTES_PER_S = 50e9
"""Between chip and host, one way: PCIe 5 x16 as copies reach it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """How requests are simulated."""

    arrivals: str = "closed"
    """closed, poisson, gamma, burst, or the requests of a trace."""
    requests: int = 2000
    """How many."""
    seed: int = 0
    """Of everything that is drawn."""
    lengths: LengthForm = LengthForm()
    """Prompt and answer lengths: a shape, or those of a file; `spread` of the traffic below 1 makes fixed
    ones uniform."""
    prefixes: int = 0
    """Different common beginnings of prompts; 0: none."""
    prefix_tokens: int = 0
    """Tokens of one."""
    routing: Routing = "round-robin"
    """How requests are dealt to instances."""
    preemption: Preemption = "recompute"
    """What becomes of sequences for which the cache is too small."""
    ttft_ms: float | None = None
    """Latency target."""
    tpot_ms: float | None = None
    """Latency target."""
    sessions: Sessions | None = None
    """Requests as turns of sessions; None: each for itself."""
    tiers: tuple[TierGiven, ...] = ()
    """Memory behind the chips' that keeps blocks of caches, the nearest first."""
    autoscale: AutoscaleRule | None = None
    """When replicas are started and stopped; None: all run all the time."""
    queue_limit: int = 0
    """Requests that may wait at a replica; 0: any number."""
    fails_s: float = math.inf
    """When the last replica fails."""
    urgent: float = 0.0
    """Share of the requests that go before others that wait."""


def requests_of(q: ServeQuestion, how: Play) -> Requests:
    """Requests by chance as the question and the way of simulating say."""
    traffic = q.traffic
    form = how.lengths
    shape: LengthShape = "uniform" if traffic.least < 1.0 and form.shape == "fixed" else form.shape
    isl, osl = (
        Lengths(mean=float(np.asarray(mean)), shape=shape, least=traffic.least, samples=samples)
        for mean, samples in ((traffic.isl, form.prompts), (traffic.osl, form.answers))
    )
    if form.answers and not form.prompts:
        isl = replace(isl, shape="fixed")
    flight = max(round(float(np.asarray(traffic.concurrency))), 1)
    arrivals = Arrivals(
        kind=how.arrivals,  # type: ignore[arg-type]
        concurrency=flight,
        rate=q.rate or 1.0,
    )
    found = draw_requests(arrivals, isl, osl, how.requests, how.seed)
    if how.sessions is not None:
        return session_requests(found, how.sessions, how.seed)
    if not how.prefixes and traffic.cached > 0.0:
        # Every prompt begins with what the cache has.
        common = [int(traffic.cached * n) for n in found.isl]
        return replace(found, prefix=[0] * len(found), prefix_tokens=common)
    if not how.prefixes:
        return found
    names = np.random.default_rng(how.seed + 1).integers(0, how.prefixes, how.requests)
    longer = [n + how.prefix_tokens for n in found.isl]
    return replace(
        found, isl=longer, prefix=names.tolist(), prefix_tokens=[how.prefix_tokens] * len(found)
    )


def with_classes(requests: Requests, how: Play) -> Requests:
    """The requests with their classes: 0 goes first; none where none is urgent."""
    if not how.urgent:
        return requests
    drawn = np.random.default_rng(how.seed + 2).random(len(requests))
    return replace(requests, priority=(drawn >= how.urgent).astype(int).tolist())


def with_lengths(q: ServeQuestion, requests: Requests) -> ServeQuestion:
    """The question with the mean lengths of its requests, and the rate of a trace."""
    rate = q.rate
    if requests.at_s is not None:
        rate = len(requests) / max(float(requests.at_s[-1]), 1e-9)
    traffic = replace(
        q.traffic,
        isl=float(np.mean(requests.isl)),
        osl=float(np.mean(requests.osl)),
        least=1.0,
    )
    return replace(q, traffic=traffic, rate=rate if requests.at_s is not None else None)


def fleet_of(
    q: ServeQuestion, how: Play, memory: Memory
) -> tuple[Fleet, SampledClock, SampledClock | None]:
    """Replicas, and what their steps take."""
    rules = rules_of(q, q.deployment, memory, how)
    clock = clock_of(q, q.deployment, rules)
    pool = q.prefill
    if pool is None:
        fleet = Fleet(
            rules=rules,
            replicas=q.replicas,
            routing=how.routing,
            autoscale=how.autoscale,
            able_per_s=able_per_s(q, memory) if how.autoscale else 0.0,
            queue_limit=how.queue_limit,
            fails_s=how.fails_s,
        )
        return fleet, clock, None
    check_prefill(q)
    side = replace(q, system=pool.system, profile=pool.profile)
    room = memory_of(q.model, pool.system, pool.deployment, pool.profile)
    front = replace(rules_of(side, pool.deployment, room, how), prefill_only=True)
    able = pair_able_per_s(q, pool, memory) if how.autoscale else (0.0, 0.0)
    fixed_s, token_s = transfer(q.model, q.system, pool.deployment, q.deployment, pool.system)
    fixed_s += q.profile.handover_s
    fleet = Fleet(
        rules=replace(rules, decode_only=True, prefix_caching=False),
        replicas=q.replicas,
        routing=how.routing,
        prefill=front,
        prefill_replicas=pool.replicas,
        transfer_s=fixed_s,
        transfer_s_per_token=token_s,
        autoscale=how.autoscale,
        prefill_able_per_s=able[0],
        able_per_s=able[1],
        queue_limit=how.queue_limit,
        fails_s=how.fails_s,
    )
    return fleet, clock, clock_of(side, pool.deployment, front)


def able_per_s(q: ServeQuestion, memory: Memory) -> float:
    """Requests a second that one instance can answer, its batch full."""
    times = step_times(q.model, q.system, q.deployment, q.profile)
    full = replace(q.traffic, concurrency=1e6, waves=1e12)
    return float(steady(times, memory, full).requests_per_s)


def pair_able_per_s(q: ServeQuestion, pool: PrefillPool, memory: Memory) -> tuple[float, float]:
    """Prompts a second that one prefill instance can read, and requests that one instance can decode."""
    pair = pair_of(q, pool, step_times(q.model, q.system, q.deployment, q.profile))
    full = replace(q.traffic, concurrency=1e6, waves=1e12)
    loop = loop_of(pair.back, memory, full)
    prompts = prompt_steps(pair.front, prompt_loop(pair, full))
    return float(prompts.limit_per_s), float(answer_side(pair.back, loop, loop.fit).rate)


def clock_of(q: ServeQuestion, layout: Deployment, rules: EngineRules) -> SampledClock:
    """Steps of a layout."""
    longer = (UNEVEN - 0.5) * float(np.asarray(q.traffic.osl))
    return _sampled(q.model, q.system, layout, q.profile, (rules.max_batch, longer))


@lru_cache(maxsize=64)
def _sampled(
    model: Model,
    system: System,
    layout: Deployment,
    profile: EngineProfile,
    sizes: tuple[int, float],
) -> SampledClock:
    """Remembered: sizing simulates one layout with more and more replicas of it."""
    return SampledClock(step_times(model, system, layout, profile), *sizes)


def rules_of(q: ServeQuestion, layout: Deployment, memory: Memory, how: Play) -> EngineRules:
    """The engine's rules for one instance of a layout."""
    p: EngineProfile = q.profile
    longest = float(np.asarray(q.traffic.isl)) + float(np.asarray(q.traffic.osl))
    room = float(sequences_that_fit(memory, q.model, layout, p, longest))
    longest_wait, enough = prompt_wait(p, layout)
    budget = _rank_budget(q, layout)
    each = memory.kv_bytes / max(room * (longest + 0.5 * PAGE), 1e-9) * layout.dp * layout.cp
    return EngineRules(
        max_batch=most_sequences(q, layout, memory),
        max_tokens=int(budget * layout.dp),
        kv_tokens=room * (longest + 0.5 * PAGE),
        policy=p.policy,
        whole_admission=p.whole_admission,
        preemption=how.preemption,
        swap_s_per_token=each / SWAP_BYTES_PER_S,
        prefix_caching=how.prefixes > 0
        or q.traffic.cached > 0.0
        or how.arrivals == "trace"
        or how.sessions is not None,
        tiers=tuple(tier.of_tokens(each * layout.tp * layout.pp) for tier in how.tiers),
        slack_tokens=0.5 * PAGE,
        tokens_per_step=1.0 + layout.accepted,
        stages=layout.pp,
        latency_s=p.latency_s,
        latency_s_per_token=p.latency_s_per_token,
        # A request comes, on the mean, halfway between two looks for new ones.
        late_steps=p.late_steps + 0.5 * (look_steps(layout) - 1.0),
        wait_steps=longest_wait,
        wait_prompts=enough,
        rank_tokens=budget if layout.dp > 1 else math.inf,
    )


def most_sequences(q: ServeQuestion, layout: Deployment, memory: Memory) -> int:
    """Sequences at once of an instance; slots of adapters bound them by what is in flight in closed form."""
    flight: Num = 1.0
    if layout.adapters and held_adapters(layout) < layout.adapters:
        times = step_times(q.model, q.system, layout, q.profile)
        flight = state_of(replace(q, deployment=layout, prefill=None), times, memory)[1]
    return int(np.max(batch_limit(layout, q.profile, np.asarray(flight) / layout.dp)) * layout.dp)


def _rank_budget(q: ServeQuestion, layout: Deployment) -> float:
    """Tokens of a step of one rank; a prompt that is not cut goes in whole."""
    own = step_tokens(q.profile, layout)
    if layout.chunked is False:
        own = max(own, float(np.max(np.asarray(q.traffic.isl))) + 1.0)
    return own
