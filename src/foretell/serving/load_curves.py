"""Latencies of one instance over the requests a second that it meets, for every layout, in closed form."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from foretell.records import dataclass
from foretell.serving.disaggregation import (
    Pair,
    answer_side,
    joined_s,
    placed_s,
    prompt_loop,
    prompt_side,
    prompt_steps,
)
from foretell.serving.evidence import sure_share
from foretell.serving.launch_rules import InstanceRole, launch_refusal
from foretell.serving.layouts import instances
from foretell.serving.memory import memory_of
from foretell.serving.sizing_records import Instance, PrefillPlace, ServiceTargets
from foretell.serving.steady import loop_of, steady, way_s
from foretell.serving.steps import StepTimes, step_times
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.deployment import Deployment, Traffic
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model
from foretell.specs.system import System

BATCHES = np.unique(np.rint(2.0 ** np.arange(0.0, 11.01, 0.25)))
"""Sequences at once at which an instance is looked at."""
BUSY = np.array([0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.93, 0.96, 0.98])
"""Shares of the time busy at which a prefill instance is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCurve:
    """Latencies of one instance over the requests a second that it meets; rising arrays."""

    deployment: Deployment
    """The layout."""
    rates: Array
    """Requests a second."""
    ttft_s: Array
    """Time to the first token; 0 where it decodes alone."""
    tpot_s: Array
    """Time per output token; 0 where it does prefill alone."""
    batch: int
    """Sequences at once at most, or prompts of a step."""
    prompt_s: float = 0.0
    """What a prompt takes beyond the decoding beside it."""
    joined_s: Array | None = None
    """From the arrival of a cache to its first token, of an instance that decodes alone."""
    refusal: str = ""
    """Why the engine does not launch it; empty: it does."""
    sure: float = 1.0
    """Share of its rates that layouts like it reach nearly always."""

    @property
    def limit_per_s(self) -> float:
        """The most requests that it can answer."""
        return float(self.rates[-1])

    def at(self, rate: float) -> Instance:
        """The instance under a load."""
        return Instance(
            deployment=self.deployment,
            batch=self.batch,
            ttft_ms=1e3 * float(np.interp(rate, self.rates, self.ttft_s)),
            tpot_ms=1e3 * float(np.interp(rate, self.rates, self.tpot_s)),
            requests_per_s=self.limit_per_s,
            prompt_s=self.prompt_s,
            sure=self.sure,
        )

    def least(self, rate: float, headroom: float) -> int:
        """Replicas that can answer a rate and its headroom, however late."""
        return max(math.ceil(rate * (1.0 + headroom) / self.limit_per_s - 1e-9), 1)

    def replicas(self, wanted: ServiceTargets, slack: float = 1.0) -> int | None:
        """The fewest that meet both targets (times `slack`) at the rate; None where no number does."""
        ok = (1e3 * self.ttft_s <= slack * wanted.ttft_ms) & (
            1e3 * self.tpot_s <= slack * wanted.tpot_ms
        )
        if not ok[0]:
            return None
        last = len(ok) - 1 if ok.all() else int(np.argmin(ok))
        least = self.least(wanted.rate, wanted.headroom)
        few = max(math.ceil(wanted.rate / float(self.rates[last]) - 1e-9), least, 1)
        while not meets(self.at(wanted.rate / few), wanted, slack):
            few += max(few // 32, 1)
        return few


def meets(one: Instance, wanted: ServiceTargets, slack: float = 1.0) -> bool:
    """Whether both latencies of an instance are within the targets."""
    return one.ttft_ms <= slack * wanted.ttft_ms and one.tpot_ms <= slack * wanted.tpot_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Every layout under every load."""

    together: tuple[LoadCurve, ...]
    """Prefill and decode together."""
    fronts: tuple[LoadCurve, ...]
    """Prefill alone."""
    backs: tuple[LoadCurve, ...]
    """Decode alone."""
    placed: tuple[LoadCurve, ...] = ()
    """Prefill alone, where it must be; empty: nothing was stated of it."""


def curves_of(
    model: Model,
    system: System,
    base: Deployment,
    profile: EngineProfile,
    wanted: ServiceTargets,
    place: PrefillPlace | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Curves:
    """Curves of every layout whose weights, and one request, fit: the same whatever is asked of them.

    `progress` is given each layout.
    """
    plain = replace(wanted, rate=1.0, ttft_ms=1.0, tpot_ms=1.0, headroom=0.0)
    return _curves(model, system, base, profile, (plain, place), Listener(progress))


class Listener:
    """Who is informed how many of how many are done: no part of a question, so that all of them are equal."""

    __slots__ = ("progress",)

    def __init__(self, progress: Callable[[int, int], None] | None) -> None:
        self.progress = progress

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Listener)

    def __hash__(self) -> int:
        return 0

    def tell(self, done: int, of: int) -> None:
        """So many of so many are done."""
        if self.progress is not None:
            self.progress(done, of)


@lru_cache(maxsize=8)
def _curves(
    model: Model,
    system: System,
    base: Deployment,
    profile: EngineProfile,
    load: tuple[ServiceTargets, PrefillPlace | None],
    listener: Listener,
) -> Curves:
    """Curves under the lengths of a load."""
    wanted, where = load
    every = instances(model, system, base, profile, wanted.most_gpus)
    given = [d for d in every if all(getattr(d, name) == n for name, n in wanted.degrees)]
    together: list[LoadCurve] = []
    fronts: list[LoadCurve] = []
    backs: list[LoadCurve] = []
    # A layout that is not among those tried is looked at as it is given.
    tried = given or [base]
    for done, layout in enumerate(tried):
        listener.tell(done, len(tried))
        times = step_times(model, system, layout, profile)
        curve = together_curve(times, wanted)
        if curve is None:
            continue
        parts: tuple[tuple[list[LoadCurve], InstanceRole, LoadCurve], ...] = (
            (together, "both", curve),
            (fronts, "prefill", _front(times, wanted)),
            (backs, "decode", _back(times, wanted)),
        )
        for some, role, found in parts:
            refusal = launch_refusal(model, layout, profile, role)
            sure = sure_share(model, system, layout, profile, apart=role != "both")
            some.append(replace(found, refusal=refusal, sure=sure))
    return Curves(
        together=tuple(together),
        fronts=tuple(fronts),
        backs=tuple(backs),
        placed=() if where is None else _placed(model, base, where, wanted),
    )


def _placed(
    model: Model, base: Deployment, place: PrefillPlace, wanted: ServiceTargets
) -> tuple[LoadCurve, ...]:
    """Prefill instances where they must be; formats are those of the decode instances."""
    plain = replace(base, tp=1, pp=1, dp=1, ep=1, cp=1, draft_tokens=0, accepted=0.0)
    every = instances(model, place.system, plain, place.profile, place.most_gpus)
    return tuple(
        replace(
            _front(step_times(model, place.system, layout, place.profile), wanted),
            refusal=launch_refusal(model, layout, place.profile, "prefill"),
        )
        for layout in every
        if all(getattr(layout, name) == n for name, n in place.degrees)
    )


def traffic_of(wanted: ServiceTargets, concurrency: Num) -> Traffic:
    """The requests that are asked for."""
    return Traffic(
        isl=wanted.isl, osl=wanted.osl, concurrency=concurrency, waves=1e9, cached=wanted.cached
    )


def together_curve(times: StepTimes, wanted: ServiceTargets) -> LoadCurve | None:
    """One layout with prefill and decode together; None where not one request fits."""
    memory = memory_of(times.model, times.system, times.deployment, times.profile)
    state = steady(times, memory, traffic_of(wanted, BATCHES))
    ok = state.fit_batch >= BATCHES
    if not ok.any():
        return None
    # After an answer of one token nothing is interrupted: what counts is a step.
    token_s = state.tpot_s if wanted.osl > 1.0 else state.token_s
    return LoadCurve(
        deployment=times.deployment,
        rates=_rising(state.requests_per_s[ok]),
        ttft_s=np.maximum.accumulate(state.ttft_steady_s[ok]),
        tpot_s=np.maximum.accumulate(token_s[ok]),
        batch=int(BATCHES[ok][-1]),
        prompt_s=float(state.stall_s[ok][-1]),
    )


def _front(times: StepTimes, wanted: ServiceTargets) -> LoadCurve:
    """One layout that does prefill alone."""
    pair = Pair(front=times, fronts=1, back=times, backs=1)
    loop = prompt_loop(pair, traffic_of(wanted, 1.0))
    steps = prompt_steps(times, loop)
    rates = BUSY * float(steps.limit_per_s)
    spent = prompt_side(steps, loop, rates, None).spent_s + way_s(times.profile, loop.length)
    return LoadCurve(
        deployment=times.deployment,
        rates=rates,
        ttft_s=np.maximum.accumulate(spent),
        tpot_s=np.zeros_like(rates),
        batch=int(steps.most),
    )


def _back(times: StepTimes, wanted: ServiceTargets) -> LoadCurve:
    """One layout that decodes alone."""
    memory = memory_of(times.model, times.system, times.deployment, times.profile)
    loop = loop_of(times, memory, traffic_of(wanted, BATCHES))
    ok = loop.fit >= BATCHES
    side = answer_side(times, loop, BATCHES)
    return LoadCurve(
        deployment=times.deployment,
        rates=_rising(side.rate[ok]),
        ttft_s=np.zeros(int(ok.sum())),
        tpot_s=np.maximum.accumulate(side.tpot_s[ok]),
        batch=int(BATCHES[ok][-1]),
        joined_s=np.maximum.accumulate(
            joined_s(times.profile, side)[ok] + placed_s(loop, side)[ok]
        ),
    )


def _rising(rates: Array) -> Array:
    """Rates that never fall, and grow a little where they would stay."""
    return np.asarray(np.maximum.accumulate(rates) * (1.0 + 1e-9 * np.arange(len(rates))))


def curve_points(curve: LoadCurve) -> list[Instance]:
    """Single instances at every load of a curve, each with what it answers there."""
    return [
        replace(curve.at(float(rate)), batch=int(BATCHES[i]), requests_per_s=float(rate))
        for i, rate in enumerate(curve.rates)
    ]
