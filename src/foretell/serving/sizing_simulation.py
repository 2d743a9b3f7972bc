"""One instance of a sized service, simulated: latencies at a percentile under its share of the rate.

Prefill and decode of a disaggregated service are simulated one by one: what one of them meets depends on its
own share of the requests alone. The same draws are used for every load (requests only come sooner or later),
so that latencies grow with the load and the fewest replicas are well defined. Requests of a trace or of
sessions go to all replicas of a side at once, as they are routed.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from foretell.records import dataclass
from foretell.serving.memory import memory_of
from foretell.serving.requests.levels import ServiceLevels, levels
from foretell.serving.requests.records import Fleet, Requests
from foretell.serving.requests.run import play
from foretell.serving.serve import ServeQuestion
from foretell.serving.simulated_fleet import Play, clock_of, requests_of, rules_of, with_lengths
from foretell.serving.simulation import is_unstable
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Requests of a trace or of sessions, which all replicas of a service share."""

    requests: Requests
    """The whole service's."""
    how: Play
    """How they are simulated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSide:
    """What of a service is simulated, and what counts of it."""

    side: Side
    """What an instance does."""
    percentile: str
    """Percentile of its latencies."""
    demand: Demand | None = None
    """Its requests; None: each replica has its share of ones drawn by chance."""


def side_ms(q: ServeQuestion, layout: Deployment, what: SimulatedSide, replicas: int) -> Latencies:
    """Latencies of a service of so many replicas."""
    if what.demand is None:
        return simulated_ms(q, layout, (q.rate or 1.0) / replicas, what.side, what.percentile)
    own, requests = replace(q, deployment=layout), what.demand.requests
    if what.side == "prefill":
        requests = replace(requests, osl=[1] * len(requests))
    found, _ = _run(with_lengths(own, requests), requests, what.demand.how, what.side, replicas)
    return _latencies(found, what.percentile)


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
    found, grows = _run(asked, requests_of(asked, how), how, side, 1)
    return (math.inf, math.inf) if grows else _latencies(found, percentile)


def _run(
    q: ServeQuestion, requests: Requests, how: Play, side: Side, replicas: int
) -> tuple[ServiceLevels, bool]:
    """Figures of one side of a service, and whether its queue grows."""
    memory = memory_of(q.model, q.system, q.deployment, q.profile)
    rules = replace(rules_of(q, q.deployment, memory, how), decode_only=side == "decode")
    fleet = Fleet(rules=rules, replicas=replicas, routing=how.routing)
    played = play(requests, fleet, clock_of(q, q.deployment, rules))
    return levels(played), is_unstable(played)


def _latencies(found: ServiceLevels, percentile: str) -> Latencies:
    if not found.answered or found.refused:
        return math.inf, math.inf
    return found.ttft_ms[percentile], found.tpot_ms.get(percentile, 0.0)


def fewest(
    q: ServeQuestion,
    layout: Deployment,
    what: SimulatedSide,
    counts: tuple[int, float],
    targets_ms: Latencies,
) -> tuple[int, Latencies] | None:
    """The fewest replicas, within `counts`, whose simulated latencies meet the targets, and these.

    None where none do.
    """
    tried: dict[int, Latencies] = {}

    def miss(replicas: int) -> float:
        """Logarithm of the latency that is furthest above its target, over that."""
        found = side_ms(q, layout, what, replicas)
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
    for turn in range(TRIES):
        few += max(few // GROWTH, 1)
        if miss(few) <= 0.0:
            return few
        if not turn and miss(LIGHT * few) > 0.0:
            return None
    return None


def sized_question(q: ServeQuestion, wanted: ServiceTargets) -> ServeQuestion:
    """The question of a whole service under a rate."""
    traffic = Traffic(
        isl=wanted.isl, osl=wanted.osl, concurrency=1.0, waves=1e9, cached=wanted.cached,
        lengths=wanted.lengths,
    )  # fmt: skip
    return replace(q, traffic=traffic, rate=wanted.rate)
