"""One instance of a sized service, simulated: latencies at a percentile under its share of the rate.

Prefill and decode of a disaggregated service are simulated one by one: what one of them meets depends on its
own share of the requests alone. The same draws are used for every load (requests only come sooner or later),
so that latencies grow with the load and the fewest replicas are well defined. Requests of a trace or of
sessions go to all replicas of a side at once, as they are routed.
"""

import math
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from foretell.records import dataclass
from foretell.serving.memory import memory_of
from foretell.serving.requests.records import Fleet, Requests
from foretell.serving.requests.run import play
from foretell.serving.serve import ServeQuestion
from foretell.serving.simulated_fleet import Play, clock_of, requests_of, rules_of, with_lengths
from foretell.serving.simulation import ServiceLevels, is_unstable, levels
from foretell.serving.sizing_records import ServiceTargets
from foretell.specs.deployment import Deployment, Traffic
from foretell.specs.service import LengthForm

Side = Literal["both", "prefill", "decode"]
"""What the instance does."""
REQUESTS = 1500
"""Requests of one simulation."""
GROWTH, MOST_GROWTH = 4, 2
"""Replicas over the step by which their number grows where queues have no end, and the most that a number
which misses its targets grows by at once."""
LIGHT = 20
"""Times the fewest replicas: a layout that misses its targets at so little load never meets them."""
Latencies = tuple[float, float]
"""Time to the first token and time per output token at a percentile, ms; infinite where the queue grows."""
ROUNDING = 1e-12
"""Share by which a latency may be above its target: that of a part is what others leave of the whole."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCounts:
    """Which numbers of replicas are looked at."""

    least: int
    """The fewest that can meet the targets."""
    most: float
    """The most that count; infinite: any number."""
    guess: int
    """What the closed form takes."""

    @property
    def first(self) -> int:
        """The number that is simulated first."""
        return int(max(min(self.guess, self.most, self.light), self.least))

    @property
    def light(self) -> int:
        """As many as leave each replica hardly any load."""
        return LIGHT * self.least


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
    counts: ReplicaCounts,
    targets_ms: Latencies,
) -> tuple[int, Latencies] | None:
    """The fewest replicas, within `counts`, whose simulated latencies meet the targets, and these.

    None where none do. Latencies fall with every replica more, so that a few numbers around the guess of
    the closed form decide.
    """
    if counts.most < counts.least:
        return None
    tried: dict[int, Latencies] = {}
    misses: dict[int, float] = {}
    low, high = counts.least - 1, math.inf
    many = counts.first
    while True:
        found = tried[many] = side_ms(q, layout, what, many)
        misses[many] = _miss(found, targets_ms)
        low, high = (many, high) if misses[many] > ROUNDING else (low, many)
        if low >= (counts.light if counts.most == high == math.inf else counts.most):
            return None
        if high - low <= 1:
            return int(high), tried[int(high)]
        many = _next_count(misses, (low, high), counts)


def _miss(found: Latencies, targets_ms: Latencies) -> float:
    """Logarithm of the latency that is furthest above its target, over that."""
    if math.inf in found:
        return math.inf
    worst = max(one / goal for one, goal in zip(found, targets_ms, strict=True))
    return math.log(max(worst, 1e-9))


def _next_count(misses: dict[int, float], between: tuple[int, float], counts: ReplicaCounts) -> int:
    """The number of replicas to simulate next, between one that misses and one that meets the targets.

    Misses are nearly straight over the rate of one replica.
    """
    low, high = between
    known = sorted(
        (n for n, miss in misses.items() if math.isfinite(miss)), key=lambda n: abs(misses[n])
    )
    if high < math.inf and len(misses) % 3 == 0:
        wanted = 0.5 * (low + high)
    elif len(known) > 1:
        one, other = known[:2]
        fallen = misses[one] - misses[other]
        inverse = 1.0 / one + misses[one] / fallen * (1.0 / other - 1.0 / one) if fallen else 0.0
        wanted = 1.0 / inverse if inverse > 0.0 else math.inf
    elif known:
        wanted = known[0] * math.exp(0.5 * misses[known[0]])
    else:
        wanted = low * (1.0 + 1.0 / GROWTH)
    if high == math.inf and wanted > MOST_GROWTH * low:
        wanted = max(counts.light, low + 1)
    wanted = min(max(wanted - 1e-9, low + 1), high - 1, counts.most)
    return math.ceil(wanted)


def sized_question(q: ServeQuestion, wanted: ServiceTargets) -> ServeQuestion:
    """The question of a whole service under a rate."""
    traffic = Traffic(
        isl=wanted.isl, osl=wanted.osl, concurrency=1.0, waves=1e9, cached=wanted.cached,
        lengths=wanted.lengths,
    )  # fmt: skip
    return replace(q, traffic=traffic, rate=wanted.rate)
