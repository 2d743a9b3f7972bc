"""The same question as the closed form's, answered by simulating requests through the engine.

    serving/requests/        the engine's queue, batch and cache, from event to event
    serving/clock.py         what its steps take

Rates, memory, cost and energy are stated as the closed form tells them, at the rate that was simulated; the
latencies are those of the requests.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.errors import Infeasible, Problem
from foretell.records import dataclass
from foretell.serving.clock import SampledClock
from foretell.serving.disaggregation import (
    PrefillPool,
    answer_side,
    prompt_loop,
    prompt_steps,
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
from foretell.serving.requests.autoscaler import AutoscaleRule, ScaledPool
from foretell.serving.requests.levels import ServiceLevels, latencies_ms, levels, spread
from foretell.serving.requests.records import (
    EngineRules,
    Fleet,
    Preemption,
    RequestOutcomes,
    Requests,
    Routing,
)
from foretell.serving.requests.run import play
from foretell.serving.requests.sessions import Sessions, session_requests
from foretell.serving.requests.tiers import TierGiven
from foretell.serving.serve import (
    ServeQuestion,
    check_memory,
    check_prefill,
    intervals,
    pair_of,
    service_estimate,
    state_of,
)
from foretell.serving.steady import loop_of, steady
from foretell.serving.steps import step_times
from foretell.serving.tables import UNEVEN
from foretell.serving.transfer import transfer
from foretell.specs._base import Num
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.lengths import LengthForm, LengthShape
from foretell.specs.model import Model
from foretell.specs.service import Percentiles, ServiceEstimate
from foretell.specs.system import System

SWAP_BYTES_PER_S = 50e9
"""Between chip and host, one way: PCIe 5 x16 as copies reach it."""
GROWING, GROWING_S = 1.5, 0.1
"""Waits of the last quarter of requests over those of the second, and seconds besides, from which a queue is
stated to grow."""


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
        raise Infeasible([Problem(path="isl", value=max(requests.isl), message=message)])
    told = simulated_estimate(q, found, played, fleet, memory)
    return replace(
        told, simulation={**(told.simulation or {}), "classes": class_levels(played, requests)}
    )


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
        limited_by="arrivals: the queue grows" if is_unstable(played) else base.limited_by,
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


def percentiles_of(times: NDArray[np.float64]) -> Percentiles:
    """Mean and percentiles of some times; of none (one token has no time after the first) zeros."""
    return known_levels(spread(times))


def known_levels(values: Mapping[str, float]) -> Percentiles:
    """The same of levels that are there; zeros for those that are not."""
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
        "queue_grows": is_unstable(played),
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
