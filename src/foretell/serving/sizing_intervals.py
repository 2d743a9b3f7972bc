"""Intervals of a sized service: latencies by the engine's residuals, rates and chips as follows from those.

The rate is given, so that money is in doubt by its rent alone; more instances do not make a step shorter, so
that levels of latency widen nothing.
"""

import math
from collections.abc import Mapping

from foretell.records import dataclass
from foretell.serving.sizing_records import Option
from foretell.uncertainty.intervals import (
    SURE,
    Interval,
    Intervals,
    cause,
    cause_of_rent,
    inverse_cause,
    request_cause,
    times,
)

PAID = ("usd_per_hour", "usd_per_million_input_tokens", "usd_per_million_output_tokens")
"""Numbers of money of a sized service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedNumbers:
    """What a sized service is predicted to do."""

    option: Option
    """Layouts and how many of each."""
    needed: float
    """Share of the replicas that the rate with its headroom takes."""
    osl: float
    """Answer tokens of a request."""
    ttft_ms: float
    """Time to the first token."""
    tpot_ms: float
    """Time per output token."""
    headroom: float
    """Share of the rate that could come besides."""
    interval: Mapping[str, Interval]
    """p50 and p90 of both times."""


def rates_of(of: SizedNumbers) -> Intervals:
    """Times, rates, headroom, and the chips that the rate takes."""
    o = of.option
    first = cause(of.ttft_ms, of.interval["ttft_ms"])
    later = cause(of.tpot_ms, of.interval["tpot_ms"])
    whole = request_cause(of.ttft_ms, of.tpot_ms, max(of.osl - 1.0, 0.0), of.interval)
    rate = _rate_cause(o, whole, first, later)
    user = later if of.tpot_ms else first
    return {
        "gpus": _chips(of, whole, first, later),
        "ttft_ms": times(of.ttft_ms, first),
        "tpot_ms": times(of.tpot_ms, later),
        "requests_per_s": times(o.requests_per_s, rate),
        "output_tokens_per_s_per_gpu": times(o.tokens_per_s_per_gpu(of.osl), rate),
        "output_tokens_per_s_per_user": times(
            1e3 / (of.tpot_ms or of.ttft_ms), inverse_cause(user)
        ),
        "headroom": {
            key: ((1.0 + of.headroom) * low - 1.0, (1.0 + of.headroom) * high - 1.0)
            for key, (low, high) in rate.items()
        },
    }


def money_of(
    usd: Mapping[str, float | None], gpus: int, offers: tuple[float, float] | None
) -> Intervals:
    """Money of so many chips, by the offers of one."""
    hour = usd["usd_per_hour"]
    rent = SURE if hour is None else cause_of_rent(hour / gpus, offers)
    return {name: times(value, rent) for name, value in usd.items() if value is not None}


def _rate_cause(o: Option, whole: Interval, first: Interval, later: Interval) -> Interval:
    """What is answered a second, as a cause: the least of prompts and answers where they are apart."""
    if o.prefill is None:
        return inverse_cause(whole)
    front = o.prefill_replicas * o.prefill.requests_per_s / o.requests_per_s
    back = o.replicas * o.instance.requests_per_s / o.requests_per_s
    return {
        key: (
            min(front / first[key][1], back / later[key][1]),
            min(front / first[key][0], back / later[key][0]),
        )
        for key in whole
    }


def _chips(of: SizedNumbers, whole: Interval, first: Interval, later: Interval) -> Interval:
    """Chips of as many whole replicas as either end of the time takes: of a request where prompts and answers
    are together, of the first token and of the others where they are apart."""
    o = of.option

    def taken(key: str, end: int) -> float:
        if o.prefill is None:
            return o.instance.deployment.gpus * _whole(of.needed * o.replicas * whole[key][end])
        front = _whole(of.needed * o.prefill_replicas * first[key][end])
        back = _whole(of.needed * o.replicas * later[key][end])
        return o.prefill.deployment.gpus * front + o.instance.deployment.gpus * back

    return {
        key: (min(taken(key, 0), float(o.gpus)), max(taken(key, 1), float(o.gpus))) for key in whole
    }


def _whole(replicas: float) -> float:
    return float(max(math.ceil(replicas - 1e-9), 1))
