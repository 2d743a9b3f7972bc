"""Percentiles of latencies from the closed form: what differs from request to request.

A request of a steady loop finds a step under way (its rest is even between nothing and all of it), with
the share `met` one that has prompts of others in it; those of the first wave finish one after the other.
Its tokens are interrupted by as many prompts as happen to come: about a Poisson number.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.serving.steady import SteadyState
from foretell.specs._base import Num
from foretell.specs.service import Percentiles

Array = NDArray[np.float64]

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
