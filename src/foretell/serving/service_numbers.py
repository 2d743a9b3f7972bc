"""Numbers of a service from its steady state: latencies, rates, memory, money and energy.

Everything broadcasts: of one system the numbers are single, of a batch of systems arrays over these.
"""

from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.kernels.power import chip_power
from foretell.serving.disaggregation import prompt_joules
from foretell.serving.engine_options import batch_limit
from foretell.serving.fit import cache_report
from foretell.serving.fullest_rank import StepLoad
from foretell.serving.memory import Memory
from foretell.serving.percentiles import latency_levels_s, percentiles_ms, request_times_s
from foretell.serving.question import ServeQuestion
from foretell.serving.steady import SteadyState, request_joules
from foretell.serving.steps import StepTimes, step_times
from foretell.specs._base import Num
from foretell.specs.service import Percentiles

Array = NDArray[np.float64]


def service_numbers(
    q: ServeQuestion, times: StepTimes, memory: Memory, state: SteadyState, flight: Num
) -> dict[str, Any]:
    """Field of an estimate -> its number, for all that is one."""
    mean = 0.5 * (1.0 + q.traffic.least)
    isl, osl = float(np.asarray(q.traffic.isl)), float(np.asarray(q.traffic.osl))
    answer = max(mean * osl, 1.0)
    ttft_mean = np.asarray(state.ttft_steady_s)
    # An answer of one token has no time after its first.
    tpot_mean = np.asarray(state.tpot_s) if answer > 1.0 else np.zeros_like(ttft_mean)
    ttft, tpot, e2e = latency_levels_s(state, answer)
    e2e_mean = ttft_mean + tpot_mean * (answer - 1.0)
    rate = np.asarray(state.requests_per_s) * q.in_use
    if q.rate is not None:
        rate = np.minimum(q.rate, rate)
    usd_in, usd_out = costs(q, state, mean * isl, answer)
    in_joules, out_joules = joules_of(q, times, memory, state, (flight, rate))
    limit = batch_limit(q.deployment, q.profile, np.asarray(flight) / q.deployment.dp)
    limit = limit * q.deployment.dp
    parts = decode_parts(times, state, mean * isl + 0.5 * answer)
    report = cache_report(memory, q.model, q.deployment, q.profile)
    return {
        "isl": isl,
        "osl": osl,
        "concurrency": flight * q.in_use,
        "ttft_ms": percentiles_ms(ttft, ttft_mean),
        "tpot_ms": percentiles_ms(tpot, tpot_mean),
        "tpot_with_first_ms": percentiles_ms(e2e / answer, e2e_mean / answer),
        "e2e_ms": percentiles_ms(e2e, e2e_mean),
        "requests_per_s": rate,
        "output_tokens_per_s": rate * answer,
        "output_tokens_per_s_per_gpu": rate * answer / q.all_gpus,
        "output_tokens_per_s_per_user": 1.0 / np.where(tpot_mean > 0.0, tpot_mean, e2e_mean),
        "batch": state.batch,
        "max_batch": np.minimum(state.fit_batch, limit).astype(int),
        "max_context": np.asarray(report.max_context).astype(int),
        "kv_cache_tokens": np.asarray(report.kv_cache_tokens).astype(int),
        "max_model_len": np.asarray(report.max_model_len).astype(int),
        "max_concurrency": report.max_concurrency,
        "kv_bytes": memory.kv_bytes,
        "weight_bytes": memory.weight_bytes,
        "memory_bytes": memory.card_bytes,
        "usd_per_million_input_tokens": usd_in,
        "usd_per_million_output_tokens": usd_out,
        "usd_per_chip_hour": q.usd_per_hour / q.all_gpus or None,
        "joules_per_token": (in_joules + out_joules) / answer,
        "joules_per_input_token": in_joules / max(mean * isl, 1.0),
        "joules_per_output_token": out_joules / answer,
        "tokens_per_joule": answer / (in_joules + out_joules),
        "limited_by": limited_by(q, state, parts, limit),
        "step_ms": {name: 1e3 * value for name, value in parts.items()},
        "goodput_requests_per_s": goodput(q, state, answer, rate),
    }


def plain_number(value: Any) -> Any:
    """A number of one system as Python has it; parts of a step that take no time are left out."""
    if isinstance(value, Percentiles):
        return Percentiles(**{f.name: float(getattr(value, f.name)) for f in fields(value)})
    if isinstance(value, dict):
        found = {name: float(np.ravel(part)[0]) for name, part in value.items()}
        return {name: part for name, part in found.items() if part > 0.0}
    return np.ravel(value)[0].item() if isinstance(value, np.ndarray | np.generic) else value


def joules_of(
    q: ServeQuestion,
    times: StepTimes,
    memory: Memory,
    state: SteadyState,
    load: tuple[Num, Array],
) -> tuple[Array, Array]:
    """Joules of one request's prompt and of its answer; `load` is requests in flight and a second."""
    flight, rate = load
    inside = flight if q.prefill is None else state.batch
    own = replace(q.traffic, concurrency=np.maximum(inside, 1.0))
    in_joules, out_joules = request_joules(times, memory, own, state)
    if q.prefill is not None:
        pool = q.prefill
        front = step_times(q.model, pool.system, pool.deployment, pool.profile)
        watts = np.asarray(chip_power(pool.system.chip).idle_watts)
        in_joules = (
            prompt_joules(front, q.traffic, float(state.prompts))
            + watts * pool.gpus * (1.0 - state.busy) / rate
        )
    return in_joules, out_joules + idle_joules(q, flight) / rate


def goodput(q: ServeQuestion, state: SteadyState, answer: float, rate: Array) -> Array | None:
    """Requests a second within both targets; None where there are none."""
    ttft_ms, tpot_ms = q.targets_ms
    if ttft_ms is None and tpot_ms is None:
        return None
    firsts_s, tokens_s = request_times_s(state, answer)
    good = np.ones(firsts_s.shape, bool)
    if ttft_ms is not None:
        good &= 1e3 * firsts_s <= ttft_ms
    if tpot_ms is not None:
        good &= 1e3 * tokens_s <= tpot_ms
    return np.asarray(rate * good.mean(axis=-1))


def idle_joules(q: ServeQuestion, flight: Num) -> Array:
    """Joules a second of chips that have nothing to do: instances without requests, and between requests.

    Requests that come by chance leave an instance empty for exp(-n) of the time, n the mean in flight.
    """
    empty = np.exp(-np.asarray(flight)) if q.rate is not None else 0.0
    idle = q.replicas - q.in_use * (1.0 - empty)
    return np.asarray(chip_power(q.system.chip).idle_watts * q.deployment.gpus * idle)


def decode_parts(times: StepTimes, state: SteadyState, context: float) -> dict[str, Array]:
    """A decode step of the steady batch by its parts, the host's included; seconds."""
    load = StepLoad(decoding=state.batch, context_tokens=state.batch * context)
    found = times.parts_s(load)
    rest = times.seconds(load) - np.asarray(sum(found.values()))
    return {**found, "host": np.maximum(rest, 0.0)}


def limited_by(
    q: ServeQuestion, state: SteadyState, parts: dict[str, Array], limit: Array
) -> NDArray[np.str_]:
    """What more of would help most: places in the batch, prompts, or the largest part of a step."""
    table = np.stack(np.broadcast_arrays(*parts.values()))
    largest = np.array([f"decode: {name}" for name in parts])[table.argmax(axis=0)]
    if q.prefill is not None:
        found = np.where(np.asarray(state.busy) > 0.9, "prefill instances", largest)
    else:
        found = np.where(np.asarray(state.busy) > 0.5, "prefill", largest)
    full = (np.asarray(state.queued_s) > 0.0) & (state.batch >= state.fit_batch)
    places = float(q.deployment.max_batch or q.profile.max_batch) * q.deployment.dp
    bound = np.where(np.asarray(limit) < places, "adapter slots", "max_batch")
    why = np.where(np.asarray(state.fit_batch) >= limit, bound, "kv memory")
    return np.where(full, why, found)


def costs(
    q: ServeQuestion, state: SteadyState, prompt: float, answer: float
) -> tuple[Array | None, Array | None]:
    """Dollars for a million tokens of prompts and of answers: the share of the time that steps with prompts
    take beyond decoding pays for the prompts."""
    rent = float(q.prices.usd_per_chip_hour)
    if not rent or not q.usd_per_hour:
        return None, None
    if q.prefill is not None:
        # Prompts have chips of their own, and pay for these.
        share = 1.0 - rent * q.gpus / q.usd_per_hour
        done = state.requests_per_s * q.replicas
        return divide_rent(q.usd_per_hour, share, (done, prompt, answer))
    served = state.requests_per_s * q.in_use / q.replicas
    if q.rate is not None:
        served = np.minimum(q.rate / q.replicas, served)
    share_s = np.minimum(served * state.stall_s, 1.0)
    return divide_rent(rent * q.deployment.gpus, share_s, (served, prompt, answer))


def divide_rent(usd_per_hour: float, share: Num, load: tuple[Num, float, float]) -> tuple[Any, Any]:
    """Dollars for a million tokens of prompts and of answers: a rent by the share of the time, or of the
    chips, that prompts take; `load` is requests a second, and tokens of a prompt and of an answer.

    Chips are rented all the time: what is idle the answers pay. Together they are the whole rent. A token of
    a prompt is never dearer than one of an answer: where it would be, both have one price.
    """
    rate, prompt, answer = load
    each, prompt = 1e6 * usd_per_hour / 3600.0 / rate, max(prompt, 1.0)
    share = np.minimum(share, prompt / (prompt + answer))
    return each * share / prompt, each * (1.0 - share) / answer
