"""Numbers of a service from its steady state: latencies, rates, memory, money and energy.

Everything broadcasts: of one system the numbers are single, of a batch of systems arrays over these.

Percentiles are of what differs from request to request. One of a steady loop finds a step under way (its rest
is even between nothing and all of it), with the share `met` one that has prompts of others in it; those of
the first wave finish one after the other. Its tokens are interrupted by as many prompts as happen to come:
about a Poisson number.
"""

from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.kernels.power import chip_power
from foretell.serving.disaggregation import prompt_joules
from foretell.serving.engine_options import batch_limit
from foretell.serving.fit import cache_report
from foretell.serving.fullest_rank import StepLoad
from foretell.serving.memory import Memory
from foretell.serving.question import ServeQuestion
from foretell.serving.steady import SteadyState, request_joules
from foretell.serving.steps import StepTimes, step_times
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.service import Percentiles


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


MANY = 2000
"""Requests that stand for all of them."""
LEVELS = (50.0, 90.0, 95.0, 99.0)
"""Percentiles given."""


def first_token_s(found: SteadyState, started: float, skipped: float = 0.0) -> Array:
    """Times to the first token of evenly chosen requests, on the last axis, with the closed form's mean.

    `started` of them are of the first wave, of which the first `skipped` (a share) are not counted.
    """
    place = (np.arange(MANY) + 0.5) / MANY
    first = max(round(MANY * started), 1) if started > 0.0 else 0
    rest = place[: MANY - first] * MANY / max(MANY - first, 1)
    decode, prefill, met = (each(x) for x in (found.decode_s, found.prefill_s, found.met))
    # The rest of the step under way: a decode step's, or a longer one's for the share that meets one.
    among = np.clip((rest - (1.0 - met)) / np.maximum(met, 1e-9), 0.0, 1.0 - 0.5 / MANY)
    longer = left_of_step(found, among) * (decode + prefill)
    if found.uneven > 0.0:
        # Prompts that come by chance wait for each other as in any such queue. A step of prompts that waited
        # for such a step themselves, a share `met` of them, is longer the more of them came meanwhile.
        queued, chain = each(found.queued_s) / np.maximum(met, 1e-9), found.uneven * met**2
        bunched = -np.log1p(-among) * (0.5 * chain * (decode + prefill) + queued)
        longer = (1.0 - chain) * longer + bunched
    waits = np.where(rest < 1.0 - met, rest / np.maximum(1.0 - met, 1e-9) * decode, longer)
    settled = each(found.ttft_steady_s)
    steady = settled + waits - waits.mean(axis=-1, keepdims=True) if waits.size else waits
    wave = (
        2.0
        * np.maximum(each(found.ttft_start_s) - prefill, 0.0)
        * (skipped + (1.0 - skipped) * (np.arange(first) + 0.5) / max(first, 1))
    )
    return np.concatenate([np.maximum(steady, 0.3 * settled), prefill + wave], axis=-1)


def left_of_step(found: SteadyState, among: Array) -> Array:
    """What is left of a step with prompts that a request meets, as a share of it, at evenly chosen places.

    By chance it is even between nothing and all. Of one of R instances, dealt to in turn, the one before
    came a time t ago with a density as t^(R - 1), so that most of its step has passed, unless steps take so
    much of the time that nearly every request meets one.
    """
    if not found.uneven:
        return among
    early = 1.0 - each(found.met) / np.maximum(each(found.busy), 1e-9)
    return np.asarray(1.0 - (1.0 - among) ** (1.0 / (1.0 + (1.0 / found.uneven - 1.0) * early)))


def each(value: Array) -> Array:
    """A number of the steady state, to be set against requests."""
    return np.asarray(value, float)[..., None]


def token_s(found: SteadyState, answer: float) -> Array:
    """Mean times per token of evenly chosen requests, the first token excluded."""
    extra, stall = each(found.tpot_s) - each(found.token_s), each(found.stall_s)
    some = np.where(stall > 0.0, stall, 1.0)
    many = np.where(stall > 0.0, extra * max(answer - 1.0, 1.0) / some, 0.0)
    spread = stall * np.sqrt(np.maximum(many, 0.0)) / max(answer - 1.0, 1.0)
    # A sequence that others slow down stays longer, and meets more of those that come by chance.
    more = extra / np.maximum(each(found.token_s), 1e-12)
    spread = spread * (1.0 + more * (found.uneven > 0.0))
    return np.asarray(
        np.maximum(each(found.tpot_s) + spread * normal_points(), each(found.token_s))
    )


def normal_points() -> Array:
    """Evenly chosen values of a normal distribution."""
    place = (np.arange(MANY) + 0.5) / MANY
    # Bailey's rational form of the inverse error function is exact to 5e-3, which is enough here.
    t = np.sqrt(-2.0 * np.log(np.minimum(place, 1.0 - place)))
    z = t - (2.515517 + 0.802853 * t + 0.010328 * t * t) / (
        1.0 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t**3
    )
    return np.where(place < 0.5, -z, z)


def request_times_s(found: SteadyState, answer: float) -> tuple[Array, Array]:
    """Times to the first token and per token after it of evenly chosen requests, paired."""
    firsts = first_token_s(found, 0.0)
    return mix_order(firsts), _tokens_s(found, answer, firsts)


def mix_order(firsts: Array) -> Array:
    """Times to the first token beside times per token: long waits and slow tokens do not come together."""
    return firsts.take(unrelated_order(firsts.shape[-1]), axis=-1)


def _tokens_s(found: SteadyState, answer: float, firsts: Array) -> Array:
    """Times per token; an answer of one token has none after its first."""
    return token_s(found, answer) if answer > 1.0 else np.zeros_like(firsts)


@lru_cache(maxsize=4)
def unrelated_order(many: int) -> NDArray[np.intp]:
    """An order of so many requests that has nothing to do with their own."""
    return np.random.default_rng(0).permutation(many)


def latency_levels_s(
    found: SteadyState, answer: float, started: float = 0.0, skipped: float = 0.0
) -> tuple[Array, Array, Array]:
    """The percentiles (first axis) of the time to the first token, per token after it, and to the last one.

    Over a batch of systems, some at a time: requests of all of them at once would not fit the cache.
    """
    sampled = [np.asarray(getattr(found, name), float) for name in SAMPLED]
    fields = dict(zip(SAMPLED, np.broadcast_arrays(*sampled), strict=True))
    many = fields[SAMPLED[0]].shape
    parts = []
    for start in range(0, many[0], SYSTEMS) if many else (0,):
        own: Any = {name: v[start : start + SYSTEMS] if many else v for name, v in fields.items()}
        firsts = first_token_s(replace(found, **own), started, skipped)
        parts.append(_levels_s(replace(found, **own), firsts, answer))
    ttft, tpot, e2e = (np.concatenate(levels, axis=-1) for levels in zip(*parts, strict=True))
    return ttft, tpot, e2e


SYSTEMS = 64
"""Systems whose requests are looked at together."""
SAMPLED = (
    "decode_s", "prefill_s", "met", "busy", "queued_s", "ttft_steady_s", "ttft_start_s", "tpot_s", "token_s",
    "stall_s",
)  # fmt: skip
"""What times of requests are made of."""


def _levels_s(found: SteadyState, firsts: Array, answer: float) -> tuple[Array, Array, Array]:
    tokens = _tokens_s(found, answer, firsts)
    whole = mix_order(firsts) + tokens * (answer - 1.0)
    ttft, e2e = (np.percentile(values, LEVELS, axis=-1) for values in (firsts, whole))
    return ttft, ordered_levels(tokens), e2e


def percentiles_ms(levels_s: Array, mean_s: Num) -> Percentiles:
    """Percentiles of times over requests, with the closed form's own mean; arrays as the mean is."""
    levels: Any = dict(zip(("p50", "p90", "p95", "p99"), 1e3 * levels_s, strict=True))
    return Percentiles(mean=1e3 * mean_s, **levels)  # type: ignore[arg-type]


def ordered_levels(values_s: Array) -> Array:
    """The percentiles of ascending values: straight between the two places around each."""
    place = (values_s.shape[-1] - 1.0) * np.array(LEVELS) / 100.0
    low = np.floor(place).astype(np.intp)
    share = place - low
    first, second = values_s[..., low], values_s[..., low + 1]
    gap = second - first
    # From the nearer of the two, as NumPy has it.
    found = np.where(share >= 0.5, second - gap * (1.0 - share), first + gap * share)
    return np.moveaxis(found, -1, 0)
