"""Several models on the same chips: each engine has its weights there, part of the cache, and its turns.

An engine has a step to run while it has a request. Engines of one chip take turns (the driver's time slices),
so that a step of engine i takes s_i times as long:

    s_i = 1 + sum over the others of b_j          b_j: how often engine j has a request
    b_j = 1 - exp(-n_j)                           n_j = its requests at once, which come by chance
    n_j = rate_j x (TTFT_j + (O_j - 1) TPOT_j)

At a percentile q of requests an engine that is busy more often than 1 - q counts as busy all the time: so
many requests meet it. An engine whose every step takes s times as long answers a rate R as it would answer
s R, each time s times as long: curves of one instance (serving/load_curves.py) serve for all. The cache that
all weights and workspaces leave is shared out by the requests at once.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foretell.records import dataclass
from foretell.serving.boot_memory import default_fraction
from foretell.serving.load_curves import LoadCurve, together_curve
from foretell.serving.memory import Memory, cache_bytes, fraction_for, kv_bytes, memory_of
from foretell.serving.serve import ServeQuestion
from foretell.serving.sizing_records import ServiceTargets
from foretell.serving.steps import step_times
from foretell.specs.deployment import Deployment

ROUNDS = 40
"""Rounds in which how busy the engines are is found."""
SHARES = {"mean": 1.0, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
"""Percentile -> share of the requests; of the mean every engine counts as often as it is busy."""
DIVISIBLE = ("vllm", "trtllm", "sglang")
"""Rules of memory that can be asked to leave room for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """One model of those that share chips."""

    question: ServeQuestion
    """The model, its engine and its formats."""
    wanted: ServiceTargets
    """What it must do."""
    curve: LoadCurve
    """One instance of it alone on the chips."""

    @property
    def request_bytes(self) -> float:
        """Cache of one request on one chip."""
        d, w = self.curve.deployment, self.wanted
        each = float(kv_bytes(self.question.model, d, w.isl + 0.5 * w.osl))
        return each / (d.dp * d.cp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """Engines on the same chips under their rates."""

    stretch: tuple[float, ...]
    """Of each, how many times as long a step takes at the percentile."""
    taken: tuple[float, ...]
    """Of each, its rate over the most that it can answer at that stretch."""
    ttft_ms: tuple[float, ...]
    """Mean time to the first token at that stretch."""
    tpot_ms: tuple[float, ...]
    """Mean time per output token at that stretch."""

    def meets(self, tenants: Sequence[Tenant]) -> bool:
        """Whether all targets are met with the headroom."""
        return all(
            full * (1.0 + one.wanted.headroom) <= 1.0
            and first <= one.wanted.ttft_ms
            and later <= one.wanted.tpot_ms
            for one, full, first, later in zip(
                tenants, self.taken, self.ttft_ms, self.tpot_ms, strict=True
            )
        )


def shared_layouts(tenants: Sequence[Tenant]) -> list[Deployment] | None:
    """Layouts with a share of the memory each; None where all together leave no room for a cache."""
    rooms = [_memory(one) for one in tenants]
    rules = {one.question.profile.memory_rule for one in tenants}
    if len(rules) > 1 or not rules <= set(DIVISIBLE):
        return None
    fraction = min(_fraction(one) for one in tenants)
    weights = sum(room.weight_bytes for room in rooms)
    left = float(
        cache_bytes(
            rules.pop(),
            fraction,
            card=rooms[0].card_bytes,
            weights=weights,
            step=sum(room.step_bytes for room in rooms),
            reserve=sum(room.reserve_bytes for room in rooms),
        )
    )
    needs = [_flight(one, float(len(tenants))) * one.request_bytes for one in tenants]
    least = sum(_longest_bytes(one) for one in tenants)
    if left < least:
        return None
    spare, whole = left - least, max(sum(needs), 1e-9)
    found = []
    for one, room, need in zip(tenants, rooms, needs, strict=True):
        own = replace(room, kv_bytes=_longest_bytes(one) + spare * need / whole)
        share = fraction_for(one.question.profile.memory_rule, own)
        found.append(replace(one.curve.deployment, memory_fraction=share))
    return found


def with_share(tenant: Tenant, layout: Deployment) -> Tenant | None:
    """A tenant with its share of the memory; None where not one request fits."""
    q = tenant.question
    curve = together_curve(step_times(q.model, q.system, layout, q.profile), tenant.wanted)
    return None if curve is None else replace(tenant, curve=curve)


def turns(tenants: Sequence[Tenant], replicas: int, percentile: str) -> Turns:
    """All engines on each of so many instances."""
    rates = np.array([one.wanted.rate / replicas for one in tenants])
    busy = np.ones(len(tenants))
    for _ in range(ROUNDS):
        mean = 1.0 + busy.sum() - busy
        flights = [_flight(t, s, r) for t, s, r in zip(tenants, mean, rates, strict=True)]
        busy = np.minimum(busy, -np.expm1(-np.array(flights)))
    mean = 1.0 + busy.sum() - busy
    share = SHARES[percentile]
    met = busy if percentile == "mean" else np.where(busy > 1.0 - share, 1.0, 0.0)
    stretch = np.maximum(1.0 + met.sum() - met, mean)
    found = [t.curve.at(s * r) for t, s, r in zip(tenants, stretch, rates, strict=True)]
    return Turns(
        stretch=tuple(map(float, stretch)),
        taken=tuple(
            float(s * r / t.curve.limit_per_s)
            for t, s, r in zip(tenants, stretch, rates, strict=True)
        ),
        ttft_ms=tuple(float(s * one.ttft_ms) for s, one in zip(stretch, found, strict=True)),
        tpot_ms=tuple(float(s * one.tpot_ms) for s, one in zip(stretch, found, strict=True)),
    )


def _flight(tenant: Tenant, stretch: float, rate: float | None = None) -> float:
    """Requests at once of an engine whose steps take so many times as long."""
    own = tenant.wanted.rate if rate is None else rate
    one = tenant.curve.at(min(stretch * own, tenant.curve.limit_per_s))
    span_ms = one.ttft_ms + max(tenant.wanted.osl - 1.0, 0.0) * one.tpot_ms
    return own * stretch * span_ms / 1e3


def _memory(tenant: Tenant) -> Memory:
    """What an instance of one model holds alone."""
    q = tenant.question
    return memory_of(q.model, q.system, tenant.curve.deployment, q.profile)


def _fraction(tenant: Tenant) -> float:
    """The engine's own fraction, or the one given."""
    q, layout = tenant.question, tenant.curve.deployment
    if layout.memory_fraction is not None:
        return layout.memory_fraction
    return float(default_fraction(q.model, q.system.chip, layout, q.profile))


def _longest_bytes(tenant: Tenant) -> float:
    """Cache of one whole request on one chip, and a little more."""
    d, w = tenant.curve.deployment, tenant.wanted
    return 1.1 * float(kv_bytes(tenant.question.model, d, w.isl + w.osl + 16.0))
