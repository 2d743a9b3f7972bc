"""The spine of serving: a model on a system by an engine under a load -> what users and owners see.

Read this file to know where everything is:

    serving/tables.py        what the parts of a step take on one rank, tabulated for a deployment
      serving/step_costs.py    each of them
      workload/                the operations of a layer, in prefill and decode
      serving/kernels.py       their kernels, as engines run them
      network/                 all-reduces, gathers, sends
    serving/steps.py         what one step of any load takes
    serving/memory.py        what a chip holds, and what each engine's rule leaves to the cache
    serving/steady.py        the closed form: batch, TPOT and TTFT of a loop of requests
    serving/arrivals.py      the same of requests that come by chance
    serving/disaggregation.py  the same of both, prefill and decode on instances of their own
    serving/service_numbers.py  latencies, rates, money and energy of it
      serving/service_numbers.py   how latencies differ from request to request
    serving/static.py        static batches, and endless queues
    serving/benchmark.py     the same service as a benchmark that begins all at once measures it
    serving/layouts.py       the layouts that a number of chips allows
    serving/systems.py       the same on many systems at once
    catalog/engines.toml     engine profiles: overheads, limits, rules
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from foretell.errors import Infeasible, Problem, wrong
from foretell.serving.arrivals import Stream, with_rate
from foretell.serving.disaggregation import (
    Pair,
    PrefillPool,
    loop_state,
    open_state,
    transfer,
)
from foretell.serving.engine_options import option_notes
from foretell.serving.evidence import evidence_for, facts_of, interval_of, service_reason
from foretell.serving.launch_rules import launch_refusal
from foretell.serving.memory import (
    Memory,
    fraction_for,
    longest_context,
    memory_of,
    sequences_that_fit,
)
from foretell.serving.question import ServeQuestion as ServeQuestion
from foretell.serving.service_numbers import plain_number, service_numbers
from foretell.serving.static import offline_state, static_state
from foretell.serving.steady import SteadyState, steady
from foretell.serving.steps import StepTimes, step_times
from foretell.serving.wide_experts import first_experts, wide_experts, wide_notes
from foretell.specs._base import Num
from foretell.specs.deployment_text import deployment_text
from foretell.specs.service import Interval, ServiceEstimate
from foretell.units import format as show

OVERLOAD = 1.02
"""Arrivals over what an instance can answer from which its queue grows without end."""


def serve_one(q: ServeQuestion) -> ServiceEstimate:
    """The answer of the closed form; Infeasible where nothing fits or the queue grows without end."""
    times = step_times(q.model, q.system, q.deployment, q.profile)
    memory = memory_of(q.model, q.system, q.deployment, q.profile)
    check_memory(q, memory)
    check_prefill(q)
    state, flight = state_of(q, times, memory)
    if q.rate is not None:
        check_load(q, state)
    return service_estimate(q, times, memory, state, flight)


def state_of(q: ServeQuestion, times: StepTimes, memory: Memory) -> tuple[SteadyState, Num]:
    """One instance under its share of the load, and the requests in flight there."""
    if q.prefill is not None:
        return state_apart(q, q.prefill, times, memory)
    if q.rate is not None:
        stream = Stream(rate=q.rate / q.replicas, dealt=q.replicas)
        return with_rate(times, memory, q.traffic, stream)
    flight = np.maximum(np.asarray(q.traffic.concurrency) / q.replicas, 1.0)
    own = replace(q.traffic, concurrency=flight)
    match q.batching:
        case "static":
            return static_state(times, own), flight
        case "offline":
            endless = offline_state(times, memory, own)
            return endless, endless.batch
        case _:
            return steady(times, memory, own), flight


def pair_of(q: ServeQuestion, pool: PrefillPool, times: StepTimes) -> Pair:
    """Prefill and decode instances of a question."""
    front = step_times(q.model, pool.system, pool.deployment, pool.profile)
    return Pair(front=front, fronts=pool.replicas, back=times, backs=q.replicas)


def state_apart(
    q: ServeQuestion, pool: PrefillPool, times: StepTimes, memory: Memory
) -> tuple[SteadyState, Num]:
    """One decode instance of those that share the requests with the prefill pool."""
    pair = pair_of(q, pool, times)
    if q.rate is not None:
        found = open_state(pair, memory, q.traffic, q.rate)
        spent = found.ttft_steady_s + np.asarray(q.traffic.osl) * found.tpot_s
        return found, float(found.requests_per_s * spent)
    flight = np.asarray(q.traffic.concurrency, float)
    return loop_state(pair, memory, q.traffic), flight / q.replicas


def check_memory(q: ServeQuestion, memory: Memory) -> None:
    """Raise where the weights, or one request, do not fit."""
    if not memory.fits:
        need = memory.weight_bytes + memory.step_bytes + memory.reserve_bytes
        own = q.deployment.cache_gb
        parts = "weights and steps" if own is None else f"weights, steps and {own:g} GB of cache"
        left = "nothing is left for the cache" if own is None else "they do not fit"
        whole = show(need + 1e9 * (own or 0.0), "bytes")
        message = f"{parts} need {whole} of {show(memory.card_bytes, 'bytes')}: {left}"
        allowed = "more chips, or a narrower format"
        if own is None and need < memory.card_bytes:
            # The card has the room: it is the engine's share of it that is too small.
            least = fraction_for(q.profile.memory_rule, replace(memory, kv_bytes=0.0))
            message += f" by {q.profile.engine}'s share of the memory"
            allowed = f"memory_fraction above {least:.3f}, {allowed}"
        raise Infeasible([_no(q, "plan (memory)", message, allowed)])
    started_for = q.deployment.max_context
    if started_for is not None and q.profile.engine == "vllm":
        room = longest_context(memory, q.model, q.deployment)
        if room < started_for:
            message = (
                f"the cache holds {room} tokens, vLLM is started for {started_for} and refuses"
            )
            raise Infeasible([_no(q, "plan.max_context", message, f"at most {room}")])
    longest = float(np.max(np.asarray(q.traffic.isl) + np.asarray(q.traffic.osl)))
    if float(sequences_that_fit(memory, q.model, q.deployment, q.profile, longest)) < 1.0:
        room = longest_context(memory, q.model, q.deployment)
        message = f"the cache holds {room} tokens, one request has {longest:.0f}"
        raise Infeasible([_no(q, "isl", message, "shorter requests, or more chips")])


def check_prefill(q: ServeQuestion) -> None:
    """Raise where the weights, or one prompt, do not fit on a prefill instance."""
    pool = q.prefill
    if pool is None:
        return
    room = memory_of(q.model, pool.system, pool.deployment, pool.profile)
    one = replace(
        q, system=pool.system, deployment=pool.deployment, profile=pool.profile, prefill=None,
        traffic=replace(q.traffic, osl=1.0),
    )  # fmt: skip
    check_memory(one, room)


def check_load(q: ServeQuestion, state: SteadyState) -> None:
    """Raise where requests arrive faster than they can be answered."""
    able = float(state.requests_per_s) * q.replicas
    if q.rate is not None and q.rate > OVERLOAD * able and float(state.queued_s) > 0.0:
        message = f"{q.rate:g} requests/s arrive, {able:.3g} can be answered: the queue has no end"
        raise Infeasible([_no(q, "rate", message, f"at most {able:.3g}, or more chips")])


def _no(q: ServeQuestion, path: str, message: str, allowed: str) -> Problem:
    return wrong(path, deployment_text(q.deployment), message, allowed)


def service_estimate(
    q: ServeQuestion, times: StepTimes, memory: Memory, state: SteadyState, flight: Num
) -> ServiceEstimate:
    """Everything that is stated of one deployment."""
    numbers = service_numbers(q, times, memory, state, flight)
    return replace(estimate_of(q, numbers), **prefill_facts(q, state))


def estimate_of(q: ServeQuestion, numbers: Mapping[str, Any]) -> ServiceEstimate:
    """The record of one deployment, given its numbers."""
    found = {name: plain_number(value) for name, value in numbers.items()}
    means = found["ttft_ms"].mean / 1e3, found["tpot_ms"].mean / 1e3
    wide = wide_experts(q.system, q.deployment, q.profile)
    return ServiceEstimate(
        **found,
        model=q.model.id,
        system=q.system.id,
        gpus=q.all_gpus,
        replicas=q.replicas,
        plan=deployment_text(q.deployment),
        plan_chosen=q.plan_chosen,
        profile=q.profile.id,
        rate=q.rate,
        batching=q.batching,
        simulated=False,
        fits="yes",
        price_source=q.prices.source,
        interval=intervals(q, *means),
        interval_reason=service_reason(facts_of(q)),
        evidence=evidence_of(q),
        assumptions=(
            *q.assumptions,
            *wide_notes(q.deployment, wide, first_experts(q.model)),
            *engine_notes(q),
            *context_notes(q, found["max_model_len"]),
        ),
        warnings=q.warnings,
        overrides=dict(q.overrides),
        usd_per_chip_hour_range=q.prices.rent_range,
    )


def context_notes(q: ServeQuestion, longest: int) -> list[str]:
    """What vLLM must be asked to start where the cache cannot hold one request of the model's own limit."""
    if q.profile.engine != "vllm" or q.deployment.max_context or longest >= q.model.max_positions:
        return []
    limit = f"{q.model.max_positions:,} tokens"
    return [f"the cache cannot hold the model's {limit}: started with --max-model-len {longest}"]


def engine_notes(q: ServeQuestion) -> list[str]:
    """What wide instances of a question assume of their engine's options."""
    pool = q.prefill
    if pool is None:
        refused = launch_refusal(q.model, q.deployment, q.profile)
        own = option_notes(q.profile, q.deployment, prompts=True, answers=True)
    else:
        refused = launch_refusal(q.model, q.deployment, q.profile, "decode")
        refused = refused or launch_refusal(q.model, pool.deployment, pool.profile, "prefill")
        own = option_notes(pool.profile, pool.deployment, prompts=True, answers=False)
    return own + ([f"the engine does not launch this layout ({refused})"] if refused else [])


def prefill_facts(q: ServeQuestion, state: SteadyState) -> dict[str, Any]:
    """What an answer says of prefill instances; nothing where there are none."""
    pool = q.prefill
    if pool is None:
        return {}
    fixed_s, token_s = transfer(q.model, q.system, pool.deployment, q.deployment, pool.system)
    mean = 0.5 * (1.0 + q.traffic.least) * float(np.asarray(q.traffic.isl))
    return {
        "prefill_system": pool.system.id,
        "prefill_gpus": pool.gpus,
        "prefill_replicas": pool.replicas,
        "prefill_plan": deployment_text(pool.deployment),
        "prefill_busy": float(state.busy),
        "transfer_ms": 1e3 * (fixed_s + token_s * mean),
    }


def evidence_of(q: ServeQuestion) -> str:
    """fitted where this engine was seen with this kind of model on this generation of chips, else
    transferred."""
    return evidence_for(facts_of(q), q.system)


def intervals(q: ServeQuestion, ttft_s: float, tpot_s: float) -> dict[str, Interval]:
    """Where the means may lie: as far as services were that nobody had seen."""
    facts = facts_of(q)
    return {
        "ttft_ms": interval_of(1e3 * ttft_s, facts, "ttft"),
        "tpot_ms": interval_of(1e3 * tpot_s, facts, "tpot"),
    }
