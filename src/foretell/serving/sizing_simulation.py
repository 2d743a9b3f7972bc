"""One instance of a sized service, simulated: latencies at a percentile under its share of the rate.

Prefill and decode of a disaggregated service are simulated one by one: what one of them meets depends on its
own share of the requests alone. The same draws are used for every load (requests only come sooner or later),
so that latencies grow with the load and the fewest replicas are well defined.
"""

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
    least: int,
    targets_ms: Latencies,
) -> tuple[int, Latencies] | None:
    """The fewest replicas, from `least` on, whose simulated latencies meet the targets, and these.

    None where none do.
    """
    side, percentile = how
    rate = q.rate or 1.0

    def at(replicas: int) -> Latencies:
        return simulated_ms(q, layout, rate / replicas, side, percentile)

    def good(found: Latencies) -> bool:
        return found[0] <= targets_ms[0] and found[1] <= targets_ms[1]

    few, bad = least, least - 1
    found = at(few)
    if not good(found) and not good(at(LIGHT * least)):
        return None
    for _ in range(TRIES):
        if good(found):
            break
        bad = few
        few += max(few // GROWTH, 1)
        found = at(few)
    else:
        return None
    while few - bad > 1:
        middle = (few + bad) // 2
        tried = at(middle)
        if good(tried):
            few, found = middle, tried
        else:
            bad = middle
    return few, found


def sized_question(q: ServeQuestion, wanted: ServiceTargets) -> ServeQuestion:
    """The question of a whole service under a rate."""
    traffic = Traffic(
        isl=wanted.isl, osl=wanted.osl, concurrency=1.0, waves=1e9, cached=wanted.cached,
        lengths=wanted.lengths,
    )  # fmt: skip
    return replace(q, traffic=traffic, rate=wanted.rate)
