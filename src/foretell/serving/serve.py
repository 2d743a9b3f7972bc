"""The spine of serving: a model on a system by an engine under a load -> what users and owners see.

Read this file to know where everything is:

    serving/tables.py        what the parts of a step take on one rank, tabulated for a deployment
      workload/                the operations of a layer, in prefill and decode
      serving/kernels.py       their kernels, as engines run them
      network/                 all-reduces, gathers, sends
    serving/steps.py         what one step of any load takes
    serving/memory.py        what a chip holds, and what each engine's rule leaves to the cache
    serving/steady.py        the closed form: batch, TPOT and TTFT of a loop of requests
    serving/arrivals.py      the same of requests that come by chance
    serving/disaggregation.py  the same of both, prefill and decode on instances of their own
    serving/percentiles.py   how latencies differ from request to request
    serving/static.py        batches without an engine, and endless queues
    serving/layouts.py       the layouts that a number of chips allows
    catalog/engines.toml     engine profiles: overheads, limits, rules
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.errors import Infeasible, Problem
from foretell.kernels.power import chip_power
from foretell.records import dataclass
from foretell.serving.arrivals import with_rate
from foretell.serving.disaggregation import (
    Pair,
    PrefillPool,
    loop_state,
    open_state,
    prompt_joules,
)
from foretell.serving.evidence import evidence_for, interval_of, residual_class
from foretell.serving.memory import Memory, longest_context, memory_of, sequences_that_fit
from foretell.serving.percentiles import first_token_s, percentiles_ms, token_s
from foretell.serving.steady import SteadyState, request_joules, steady
from foretell.serving.steps import StepLoad, StepTimes, step_times
from foretell.serving.transfer import transfer
from foretell.serving.wide_experts import first_experts, wide_notes
from foretell.specs.deployment import Deployment, Traffic
from foretell.specs.deployment_text import deployment_text
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model
from foretell.specs.prices import Prices
from foretell.specs.service import Interval, ServiceEstimate
from foretell.specs.system import System
from foretell.units import format as show

Array = NDArray[np.float64]

OVERLOAD = 1.02
"""Arrivals over what an instance can answer from which its queue grows without end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeQuestion:
    """What is asked of one deployment."""

    model: Model
    """What is served."""
    system: System
    """On what."""
    gpus: int
    """Chips of all instances; where prefill is apart, of those that decode."""
    deployment: Deployment
    """How one instance is laid out."""
    profile: EngineProfile
    """By which engine."""
    traffic: Traffic
    """The load of all instances together."""
    rate: float | None
    """Requests a second; None under a fixed concurrency."""
    prices: Prices
    """What is paid."""
    plan_chosen: bool = False
    """Whether the deployment was chosen."""
    assumptions: tuple[str, ...] = ()
    """Defaults and guesses made on the way."""
    overrides: tuple[tuple[str, object], ...] = ()
    """Fields set by hand."""
    warnings: tuple[str, ...] = ()
    """What bears on the answer and is not in it."""
    targets_ms: tuple[float | None, float | None] = (None, None)
    """Time to the first token and time per output token that are good service; None: any."""
    prefill: PrefillPool | None = None
    """Instances that do prefill alone; None: prompts and answers have the same ones."""

    @property
    def all_gpus(self) -> int:
        """Chips of all instances, those of prefill included."""
        return self.gpus + (0 if self.prefill is None else self.prefill.gpus)

    @property
    def usd_per_hour(self) -> float:
        """Rent of all chips; 0 where a rent is not known."""
        own = float(self.prices.usd_per_chip_hour) * self.gpus
        if self.prefill is None:
            return own
        front = self.prefill.usd_per_chip_hour * self.prefill.gpus
        return own + front if own and front else 0.0

    @property
    def replicas(self) -> int:
        """Instances side by side."""
        return self.gpus // self.deployment.gpus

    @property
    def in_use(self) -> float:
        """Instances that have anything to do: under a fixed concurrency, no more than its requests."""
        if self.rate is not None or self.prefill is not None:
            return float(self.replicas)
        return min(float(self.replicas), float(np.asarray(self.traffic.concurrency)))


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


def state_of(q: ServeQuestion, times: StepTimes, memory: Memory) -> tuple[SteadyState, float]:
    """One instance under its share of the load, and the requests in flight there."""
    if q.prefill is not None:
        return state_apart(q, q.prefill, times, memory)
    if q.rate is not None:
        return with_rate(times, memory, q.traffic, q.rate / q.replicas)
    flight = np.maximum(np.asarray(q.traffic.concurrency) / q.replicas, 1.0)
    return steady(times, memory, replace(q.traffic, concurrency=flight)), float(flight)


def pair_of(q: ServeQuestion, pool: PrefillPool, times: StepTimes) -> Pair:
    """Prefill and decode instances of a question."""
    front = step_times(q.model, pool.system, pool.deployment, pool.profile)
    return Pair(front=front, fronts=pool.replicas, back=times, backs=q.replicas)


def state_apart(
    q: ServeQuestion, pool: PrefillPool, times: StepTimes, memory: Memory
) -> tuple[SteadyState, float]:
    """One decode instance of those that share the requests with the prefill pool."""
    pair = pair_of(q, pool, times)
    if q.rate is not None:
        found = open_state(pair, memory, q.traffic, q.rate)
        spent = found.ttft_steady_s + np.asarray(q.traffic.osl) * found.tpot_s
        return found, float(found.requests_per_s * spent)
    flight = np.asarray(q.traffic.concurrency, float)
    return loop_state(pair, memory, q.traffic), float(flight / q.replicas)


def check_memory(q: ServeQuestion, memory: Memory) -> None:
    """Raise where the weights, or one request, do not fit."""
    if not memory.fits:
        need = memory.weight_bytes + memory.step_bytes + memory.reserve_bytes
        message = (
            f"weights and steps need {show(need, 'bytes')} of {show(memory.card_bytes, 'bytes')}: "
            "nothing is left for the cache"
        )
        raise Infeasible([_no(q, "plan (memory)", message, "more chips, or a narrower format")])
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
    return Problem(path=path, value=deployment_text(q.deployment), message=message, allowed=allowed)


def service_estimate(
    q: ServeQuestion, times: StepTimes, memory: Memory, state: SteadyState, flight: float
) -> ServiceEstimate:
    """Everything that is told of one deployment."""
    mean = 0.5 * (1.0 + q.traffic.least)
    isl, osl = float(np.asarray(q.traffic.isl)), float(np.asarray(q.traffic.osl))
    answer = max(mean * osl, 1.0)
    started = 0.0 if q.rate is not None else 1.0 / q.traffic.waves
    ttft_mean = float(state.ttft_steady_s if q.rate is not None else state.ttft_s)
    # An answer of one token has no time after its first.
    tpot_mean = float(state.tpot_s) if answer > 1.0 else 0.0
    firsts = first_token_s(state, started)
    tokens = token_s(state, answer) if answer > 1.0 else np.zeros_like(firsts)
    # Long waits and slow tokens do not come together: the two are paired in unrelated orders.
    mixed = np.random.default_rng(0).permutation(len(firsts))
    whole = firsts[mixed] + tokens * (answer - 1.0)
    e2e_mean = ttft_mean + tpot_mean * (answer - 1.0)
    rate = float(state.requests_per_s) * q.in_use
    if q.rate is not None:
        rate = min(q.rate, rate)
    usd_in, usd_out = costs(q, state, mean * isl, answer)
    inside = flight if q.prefill is None else float(state.batch)
    own = replace(q.traffic, concurrency=max(inside, 1.0))
    in_joules, out_joules = (float(j) for j in request_joules(times, memory, own, state))
    if q.prefill is not None:
        pool = q.prefill
        front = step_times(q.model, pool.system, pool.deployment, pool.profile)
        in_joules = prompt_joules(front, q.traffic, float(state.prompts))
        watts = float(np.asarray(chip_power(pool.system.chip).idle_watts))
        in_joules += watts * pool.gpus * (1.0 - float(state.busy)) / rate
    out_joules += idle_joules(q, flight) / rate
    limit = float(q.deployment.max_batch or q.profile.max_batch) * q.deployment.dp
    parts = decode_parts(times, state, mean * isl + 0.5 * answer)
    return ServiceEstimate(
        model=q.model.id,
        system=q.system.id,
        gpus=q.all_gpus,
        replicas=q.replicas,
        plan=deployment_text(q.deployment),
        plan_chosen=q.plan_chosen,
        profile=q.profile.id,
        isl=isl,
        osl=osl,
        concurrency=flight * q.in_use,
        rate=q.rate,
        simulated=False,
        fits="yes",
        ttft_ms=percentiles_ms(firsts, ttft_mean),
        tpot_ms=percentiles_ms(tokens, tpot_mean),
        tpot_with_first_ms=percentiles_ms(whole / answer, e2e_mean / answer),
        e2e_ms=percentiles_ms(whole, e2e_mean),
        requests_per_s=rate,
        output_tokens_per_s=rate * answer,
        output_tokens_per_s_per_gpu=rate * answer / q.all_gpus,
        output_tokens_per_s_per_user=1.0 / (tpot_mean or e2e_mean),
        batch=float(state.batch),
        max_batch=int(min(float(state.fit_batch), limit)),
        max_context=longest_context(memory, q.model, q.deployment),
        kv_bytes=memory.kv_bytes,
        weight_bytes=memory.weight_bytes,
        memory_bytes=memory.card_bytes,
        usd_per_million_input_tokens=usd_in,
        usd_per_million_output_tokens=usd_out,
        usd_per_chip_hour=q.usd_per_hour / q.all_gpus or None,
        price_source=q.prices.source,
        joules_per_token=(in_joules + out_joules) / answer,
        joules_per_input_token=in_joules / max(mean * isl, 1.0),
        joules_per_output_token=out_joules / answer,
        tokens_per_joule=answer / (in_joules + out_joules),
        limited_by=limited_by(q, state, parts, limit),
        step_ms={name: 1e3 * value for name, value in parts.items()},
        interval=intervals(q, ttft_mean, tpot_mean),
        evidence=evidence_of(q),
        assumptions=(*q.assumptions, *wide_notes(q.deployment, times.wide, first_experts(q.model))),
        warnings=q.warnings,
        goodput_requests_per_s=goodput(q, firsts[mixed], tokens, rate),
        overrides=dict(q.overrides),
        usd_per_chip_hour_range=q.prices.rent_range,
        **prefill_facts(q, state),
    )


def goodput(q: ServeQuestion, firsts_s: Array, tokens_s: Array, rate: float) -> float | None:
    """Requests a second within both targets; None where there are none."""
    ttft_ms, tpot_ms = q.targets_ms
    if ttft_ms is None and tpot_ms is None:
        return None
    good = np.ones(len(firsts_s), bool)
    if ttft_ms is not None:
        good &= 1e3 * firsts_s <= ttft_ms
    if tpot_ms is not None:
        good &= 1e3 * tokens_s <= tpot_ms
    return float(rate * good.mean())


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


def idle_joules(q: ServeQuestion, flight: float) -> float:
    """Joules a second of chips that have nothing to do: instances without requests, and between requests.

    Requests that come by chance leave an instance empty for exp(-n) of the time, n the mean in flight.
    """
    empty = np.exp(-flight) if q.rate is not None else 0.0
    idle = q.replicas - q.in_use * (1.0 - empty)
    watts = float(np.asarray(chip_power(q.system.chip).idle_watts))
    return float(watts * q.deployment.gpus * idle)


def decode_parts(times: StepTimes, state: SteadyState, context: float) -> dict[str, float]:
    """A decode step of the steady batch by its parts, the host's included; seconds."""
    n = float(state.batch)
    load = StepLoad(decoding=n, context_tokens=n * context)
    found = {name: float(value) for name, value in times.parts_s(load).items()}
    found = {name: value for name, value in found.items() if value > 0.0}
    rest = float(times.seconds(load)) - sum(found.values())
    return found | ({"host": rest} if rest > 0.0 else {})


def limited_by(q: ServeQuestion, state: SteadyState, parts: dict[str, float], limit: float) -> str:
    """What more of would help most: places in the batch, prompts, or the largest part of a step."""
    if float(state.queued_s) > 0.0 and float(state.batch) >= float(state.fit_batch):
        return "max_batch" if float(state.fit_batch) >= limit else "kv memory"
    if q.prefill is not None:
        if float(state.busy) > 0.9:
            return "prefill instances"
    elif float(state.busy) > 0.5:
        return "prefill"
    largest = max(parts, key=lambda name: parts[name])
    return f"decode: {largest}"


def costs(
    q: ServeQuestion, state: SteadyState, prompt: float, answer: float
) -> tuple[float | None, float | None]:
    """Dollars for a million tokens of prompts and of answers: the share of the time that steps with prompts
    take beyond decoding pays for the prompts."""
    rent = float(q.prices.usd_per_chip_hour)
    if not rent or not q.usd_per_hour:
        return None, None
    if q.prefill is not None:
        # Prompts have chips of their own, and pay for these.
        share = 1.0 - rent * q.gpus / q.usd_per_hour
        done = float(state.requests_per_s) * q.replicas
        return divide_rent(q.usd_per_hour, share, (done, prompt, answer))
    served = float(state.requests_per_s) * q.in_use / q.replicas
    if q.rate is not None:
        served = min(q.rate / q.replicas, served)
    share = min(served * float(state.stall_s), 1.0)
    return divide_rent(rent * q.deployment.gpus, share, (served, prompt, answer))


def divide_rent(
    usd_per_hour: float, share: float, load: tuple[float, float, float]
) -> tuple[float, float]:
    """Dollars for a million tokens of prompts and of answers: a rent by the share of the time, or of the
    chips, that prompts take; `load` is requests a second, and tokens of a prompt and of an answer.

    Chips are rented all the time: what is idle the answers pay. Together they are the whole rent.
    """
    rate, prompt, answer = load
    each = 1e6 * usd_per_hour / 3600.0 / rate
    return each * share / max(prompt, 1.0), each * (1.0 - share) / answer


def evidence_of(q: ServeQuestion) -> str:
    """fitted where the profile was read from rows of the chip's generation, the model's kind and the kind of
    layout, else transferred."""
    return evidence_for(q.profile, q.model, q.system, q.deployment)


def intervals(q: ServeQuestion, ttft_s: float, tpot_s: float) -> dict[str, Interval]:
    """Where the means may lie: errors of rows whose model was left out of the fits."""
    apart = q.prefill is not None
    found = residual_class(q.profile, q.model, q.system, q.deployment, apart=apart)
    return {
        "ttft_ms": interval_of(1e3 * ttft_s, q.model, found, "ttft"),
        "tpot_ms": interval_of(1e3 * tpot_s, q.model, found, "tpot"),
    }
