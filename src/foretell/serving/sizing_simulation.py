"""One instance of a sized service, simulated: latencies at a percentile under its share of the rate.

Prefill and decode of a disaggregated service are simulated one by one: what one of them meets depends on its
own share of the requests alone. The same draws are used for every load (requests only come sooner or later),
so that latencies grow with the load and the fewest replicas are well defined.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from foretell.serving.memory import memory_of
from foretell.serving.requests.levels import levels
from foretell.serving.requests.records import Fleet, Requests
from foretell.serving.requests.run import play
from foretell.serving.serve import ServeQuestion
from foretell.serving.simulation import Play, clock_of, is_unstable, requests_of, rules_of
from foretell.serving.sizing_records import ServiceTargets
from foretell.specs.deployment import Deployment, Traffic
from foretell.specs.lengths import LengthForm

Side = Literal["both", "prefill", "decode"]
"""What the instance does."""
REQUESTS = 1500
"""Requests of one simulation."""
GROWTH, TRIES = 4, 12
"""Replicas over the step by which their number grows while targets are missed, and how often it may."""
LIGHT = 16
"""Times as many replicas: a layout that misses its targets at so little load never meets them."""
Latencies = tuple[float, float]
"""Time to the first token and time per output token at a percentile, ms; infinite where the queue grows."""


def simulated_ms(
    q: ServeQuestion, layout: Deployment, rate: float, side: Side, percentile: str
) -> Latencies:
    """Latencies of one instance that meets `rate` requests a second."""
    own = replace(
        q, deployment=layout, gpus=layout.gpus, rate=None, assumptions=(), overrides=(), prefill=None,
        plan_chosen=False,
    )  # fmt: skip
    return _simulated(own, float(f"{rate:.9g}"), side, percentile)


@lru_cache(maxsize=512)
def _simulated(q: ServeQuestion, rate: float, side: Side, percentile: str) -> Latencies:
    asked = replace(q, rate=rate)
    form = q.traffic.lengths or LengthForm()
    if side == "prefill":
        asked = replace(asked, traffic=replace(q.traffic, osl=1.0))
        form = replace(form, answers=(1.0,) * len(form.answers))
    how = Play(arrivals="poisson", requests=REQUESTS, lengths=form)
    requests: Requests = requests_of(asked, how)
    memory = memory_of(q.model, q.system, q.deployment, q.profile)
    rules = replace(rules_of(asked, q.deployment, memory, how), decode_only=side == "decode")
    played = play(requests, Fleet(rules=rules), clock_of(asked, q.deployment, rules))
    found = levels(played)
    if not found.answered or found.refused or is_unstable(played):
        return float("inf"), float("inf")
    return found.ttft_ms[percentile], found.tpot_ms.get(percentile, 0.0)


def fewest(
    q: ServeQuestion,
    layout: Deployment,
    how: tuple[Side, str],
    counts: tuple[int, float],
    targets_ms: Latencies,
) -> tuple[int, Latencies] | None:
    """The fewest replicas, within `counts`, whose simulated latencies meet the targets, and these.

    None where none do.
    """
    side, percentile = how
    rate = q.rate or 1.0
    tried: dict[int, Latencies] = {}

    def miss(replicas: int) -> float:
        """Logarithm of the latency that is furthest above its target, over that."""
        found = simulated_ms(q, layout, rate / replicas, side, percentile)
        tried[replicas] = found
        if math.inf in found:
            return math.inf
        worst = max(one / goal for one, goal in zip(found, targets_ms, strict=True))
        return math.log(max(worst, 1e-9))

    least = counts[0]
    low, low_miss = least, miss(least)
    if low_miss <= 0.0:
        return least, tried[least]
    high = _enough(miss, counts)
    if high is None:
        return None
    high_miss = miss(high)
    for turn in itertools.count():
        if high - low <= 1:
            return high, tried[high]
        middle = (low + high) // 2
        if math.isfinite(low_miss) and turn % 3 < 2:  # misses are nearly straight over the rate
            share = -high_miss / (low_miss - high_miss)
            middle = math.floor(1.0 / (1.0 / high + share * (1.0 / low - 1.0 / high)))
            middle = min(max(middle, low + 1), high - 1)
        missed = miss(middle)
        if missed <= 0.0:
            high, high_miss = middle, missed
        else:
            low, low_miss = middle, missed
    return None


def _enough(miss: Callable[[int], float], counts: tuple[int, float]) -> int | None:
    """A number of replicas that meets the targets; None where none does."""
    few, most = counts
    if math.isfinite(most):
        return int(most) if most > few and miss(int(most)) <= 0.0 else None
    if miss(LIGHT * few) > 0.0:
        return None
    for _ in range(TRIES):
        few += max(few // GROWTH, 1)
        if miss(few) <= 0.0:
            return few
    return None


def sized_question(q: ServeQuestion, wanted: ServiceTargets) -> ServeQuestion:
    """The question of a whole service under a rate."""
    traffic = Traffic(
        isl=wanted.isl, osl=wanted.osl, concurrency=1.0, waves=1e9, cached=wanted.cached,
        lengths=wanted.lengths,
    )  # fmt: skip
    return replace(q, traffic=traffic, rate=wanted.rate)
