"""How many chips a service needs: layouts x batch limits x together or apart, in closed form.

An instance that decodes at most n sequences at once answers X(n) requests a second with TTFT(n) and TPOT(n)
(serving/steady.py); more at once is more for each chip and slower for each user. For every layout the
largest X within the levels asked for says how many replicas a rate takes:

    replicas = ceil(rate (1 + headroom) / X)

Apart: prompts and answers have instances of their own, x of one layout and y of another. A prompt takes s;
at a share r of the time busy its queue is that of steady work met by chance arrivals, TTFT = s (1 + r / (2
(1 - r))); decoding is undisturbed. The cache goes over the network between them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from foretell.records import JsonRecord, dataclass
from foretell.serving.instances import instances
from foretell.serving.memory import memory_of, sequences_that_fit
from foretell.serving.steady import steady
from foretell.serving.steps import StepLoad, StepTimes, step_times
from foretell.serving.transfer import transfer
from foretell.specs.deployment import Deployment, Traffic
from foretell.specs.deployment_text import deployment_text
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model
from foretell.specs.system import System

BATCHES = np.unique(np.rint(2.0 ** np.arange(0.0, 11.01, 0.5)))
"""Sequences at once that are tried."""
BUSY = np.array([0.3, 0.5, 0.6, 0.7, 0.8, 0.85])
"""Shares of the time that instances for prompts are tried at."""
PACKED = (1.0, 2.0, 4.0, 8.0)
"""Prompts that they take together."""
SHORT_LIST = 12
"""Layouts of each kind that are paired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTargets:
    """What a service must do."""

    rate: float
    """Requests a second."""
    isl: float
    """Prompt tokens."""
    osl: float
    """Answer tokens."""
    ttft_ms: float
    """Longest time to the first token."""
    tpot_ms: float
    """Longest time per output token, the first excluded."""
    headroom: float = 0.2
    """Share of the rate that must be there besides."""
    most_gpus: int = 64
    """Chips of one instance at most."""
    degrees: tuple[tuple[str, int], ...] = ()
    """Degrees of an instance that are given, such as ("tp", 2); the others are searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One layout at one batch limit."""

    deployment: Deployment
    """The layout."""
    batch: int
    """Sequences at once, or prompts of a step where it does prompts alone."""
    ttft_ms: float
    """Mean time to the first token; 0 where it does answers alone."""
    tpot_ms: float
    """Mean time per output token; 0 where it does prompts alone."""
    requests_per_s: float
    """Of one instance."""
    prompt_s: float = 0.0
    """What a prompt takes beyond the decoding beside it; 0 where prompts have other instances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A way to serve it."""

    kind: Literal["aggregated", "disaggregated"]
    """Prompts and answers together, or apart."""
    instance: Instance
    """What answers; where apart, what decodes."""
    replicas: int
    """How many of it."""
    prefill: Instance | None = None
    """What does prompts, where apart."""
    prefill_replicas: int = 0
    """How many of it."""
    transfer_ms: float = 0.0
    """What a cache takes from one to the other."""

    @property
    def gpus(self) -> int:
        """Chips of all."""
        front = self.prefill.deployment.gpus * self.prefill_replicas if self.prefill else 0
        return self.instance.deployment.gpus * self.replicas + front

    @property
    def requests_per_s(self) -> float:
        """What all of it answers."""
        back = self.replicas * self.instance.requests_per_s
        if self.prefill is None:
            return back
        return min(back, self.prefill_replicas * self.prefill.requests_per_s)

    def prompt_share(self, rate: float) -> float:
        """Share of the chips' time that is for prompts at a rate of requests; where they have chips of their
        own, the share of these."""
        if self.prefill is None:
            return min(rate / self.replicas * self.instance.prompt_s, 1.0)
        return 1.0 - self.instance.deployment.gpus * self.replicas / self.gpus

    @property
    def ttft_ms(self) -> float:
        """Mean time to the first token at the full rate."""
        return (self.prefill or self.instance).ttft_ms

    @property
    def tpot_ms(self) -> float:
        """Mean time per output token at the full rate."""
        return self.instance.tpot_ms

    def tokens_per_s_per_gpu(self, osl: float) -> float:
        """Tokens of answers a second and chip at the full rate."""
        return self.requests_per_s * osl / self.gpus

    def name(self) -> str:
        """A line that tells it apart: 2 x tp8, or 3 x tp4 + 2 x tp8 for prompts."""
        text = f"{self.replicas} x {layout_words(self.instance.deployment)}"
        if self.prefill is None:
            return text
        front = f"{self.prefill_replicas} x {layout_words(self.prefill.deployment)}"
        return f"{front} for prompts + {text} for answers"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingPoint(JsonRecord):
    """One instance on the front of tokens/s of a user and of a chip."""

    option: Option
    """The instance, once."""
    osl: float
    """Answer tokens of a request."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        one = self.option.instance
        return {
            "plan": deployment_text(one.deployment),
            "gpus": one.deployment.gpus,
            "batch": one.batch,
            "ttft_ms": one.ttft_ms,
            "tpot_ms": one.tpot_ms,
            "output_tokens_per_s_per_user": 1e3 / one.tpot_ms,
            "output_tokens_per_s_per_gpu": self.option.tokens_per_s_per_gpu(self.osl),
        }


def layout_words(d: Deployment) -> str:
    """Degrees of a layout as plan words."""
    words = [
        f"{key}{value}"
        for key, value in zip(("tp", "pp", "dp", "ep"), (d.tp, d.pp, d.dp, d.ep), strict=True)
    ]
    return " ".join(word for word in words if not word.endswith("p1")) or "tp1"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingSearch:
    """The answer of a search."""

    options: tuple[Option, ...]
    """Ways to serve it within the levels, in the order of `place`."""
    pareto: tuple[Option, ...]
    """Of one instance each, those that none beats in tokens/s of a user and of a chip."""
    evaluated: int
    """Layouts x batch limits that were looked at."""


def search_layouts(
    model: Model, system: System, base: Deployment, profile: EngineProfile, wanted: ServiceTargets
) -> SizingSearch:
    """Every layout and batch limit, together and apart."""
    table = [
        (times, found) for times, found in _instances(model, system, base, profile, wanted) if found
    ]
    together = [one for _, some in table for one in some]
    options = _aggregated(together, wanted)
    fronts = [one for times, _ in table for one in _prompts(times, wanted)]
    backs = [one for times, _ in table for one in _answers(times, wanted)]
    if wanted.osl > 1.0:
        options += _disaggregated(fronts, backs, model, system, wanted)
    options.sort(key=lambda o: place(o, wanted))
    return SizingSearch(
        options=tuple(options),
        pareto=pareto(together, wanted),
        evaluated=len(together) + len(fronts) + len(backs),
    )


def place(option: Option, wanted: ServiceTargets) -> tuple[int, float, float]:
    """Where an option stands: fewest chips, then most headroom (in percent, as shown), then soonest."""
    headroom = option.requests_per_s / wanted.rate - 1.0
    return option.gpus, -round(headroom, 2), option.tpot_ms + option.ttft_ms


def _instances(
    model: Model, system: System, base: Deployment, profile: EngineProfile, wanted: ServiceTargets
) -> Iterable[tuple[StepTimes, list[Instance]]]:
    every = instances(model, system, base, profile, wanted.most_gpus)
    given = [d for d in every if all(getattr(d, name) == n for name, n in wanted.degrees)]
    # A layout that is not among those tried is looked at as it is given.
    for layout in given or [base]:
        times = step_times(model, system, layout, profile)
        memory = memory_of(model, system, layout, profile)
        traffic = Traffic(isl=wanted.isl, osl=wanted.osl, concurrency=BATCHES, waves=1e9)
        state = steady(times, memory, traffic)
        ok = state.fit_batch >= BATCHES
        # After an answer of one token nothing is interrupted: what counts is a step.
        token_s = state.tpot_s if wanted.osl > 1.0 else state.token_s
        yield (
            times,
            [
                Instance(
                    deployment=layout,
                    batch=int(BATCHES[i]),
                    ttft_ms=1e3 * float(state.ttft_steady_s[i]),
                    tpot_ms=1e3 * float(token_s[i]),
                    requests_per_s=float(state.requests_per_s[i]),
                    prompt_s=float(state.stall_s[i]),
                )
                for i in np.flatnonzero(ok)
            ],
        )


def _aggregated(instances: Sequence[Instance], wanted: ServiceTargets) -> list[Option]:
    """Of each layout the batch limit that needs the fewest replicas."""
    best: dict[Deployment, Instance] = {}
    for one in instances:
        if one.ttft_ms > wanted.ttft_ms or one.tpot_ms > wanted.tpot_ms:
            continue
        known = best.get(one.deployment)
        if known is None or one.requests_per_s > known.requests_per_s:
            best[one.deployment] = one
    return [
        Option(kind="aggregated", instance=one, replicas=replicas(one, wanted))
        for one in best.values()
    ]


def replicas(instance: Instance, wanted: ServiceTargets) -> int:
    """How many a rate takes, headroom included."""
    return max(math.ceil(wanted.rate * (1.0 + wanted.headroom) / instance.requests_per_s), 1)


def _prompts(times: StepTimes, wanted: ServiceTargets) -> list[Instance]:
    """Instances for prompts alone, at every share of the time busy."""
    profile = times.profile
    latency = profile.latency_s + profile.latency_s_per_token * wanted.isl
    found = []
    for packed in PACKED:
        load = StepLoad(prefill_tokens=packed * wanted.isl, prompts=packed)
        span = float(times.seconds(load))
        for busy in BUSY:
            ttft = span * (1.0 + busy / (2.0 * (1.0 - busy))) + latency
            # Prompts that go together wait for each other.
            ttft += 0.5 * (packed - 1.0) * span / (busy * packed)
            found.append(
                Instance(
                    deployment=times.deployment,
                    batch=int(packed),
                    ttft_ms=1e3 * float(ttft),
                    tpot_ms=0.0,
                    requests_per_s=float(busy * packed / span),
                )
            )
    return found


def _answers(times: StepTimes, wanted: ServiceTargets) -> list[Instance]:
    """Instances for answers alone."""
    memory = memory_of(times.model, times.system, times.deployment, times.profile)
    context = wanted.isl + 0.5 * wanted.osl
    room = float(
        sequences_that_fit(
            memory, times.model, times.deployment, times.profile, wanted.isl + wanted.osl
        )
    )
    most = min(room, float(times.deployment.max_batch or times.profile.max_batch))
    batches = BATCHES[most >= BATCHES]
    load = StepLoad(decoding=batches, context_tokens=batches * context)
    step = times.seconds(load) / (1.0 + times.deployment.accepted)
    rate = batches / (max(wanted.osl - 1.0, 1.0) * step)
    return [
        Instance(
            deployment=times.deployment,
            batch=int(n),
            ttft_ms=0.0,
            tpot_ms=1e3 * float(s),
            requests_per_s=float(x),
        )
        for n, s, x in zip(batches, step, rate, strict=True)
    ]


def _disaggregated(
    fronts: Sequence[Instance],
    backs: Sequence[Instance],
    model: Model,
    system: System,
    wanted: ServiceTargets,
) -> list[Option]:
    """Pairs of what does prompts best and what does answers best within the levels."""
    quick = [one for one in fronts if one.ttft_ms <= wanted.ttft_ms]
    steady_ones = [one for one in backs if one.tpot_ms <= wanted.tpot_ms]
    found = []
    for front in _short(quick):
        for back in _short(steady_ones):
            fixed_s, token_s = transfer(model, system, front.deployment, back.deployment)
            moved = fixed_s + token_s * wanted.isl
            tpot = back.tpot_ms + 1e3 * moved / max(wanted.osl - 1.0, 1.0)
            if tpot > wanted.tpot_ms:
                continue
            found.append(
                Option(
                    kind="disaggregated",
                    instance=replace(back, tpot_ms=tpot),
                    replicas=replicas(back, wanted),
                    prefill=front,
                    prefill_replicas=replicas(front, wanted),
                    transfer_ms=1e3 * moved,
                )
            )
    return found


def _short(instances: Sequence[Instance]) -> list[Instance]:
    """Of each layout the one with the highest rate; of these the best for each chip, and the smallest."""
    best: dict[Deployment, Instance] = {}
    for one in instances:
        known = best.get(one.deployment)
        if known is None or one.requests_per_s > known.requests_per_s:
            best[one.deployment] = one
    return sorted(best.values(), key=lambda i: -i.requests_per_s / i.deployment.gpus)[:SHORT_LIST]


def pareto(instances: Sequence[Instance], wanted: ServiceTargets) -> tuple[Option, ...]:
    """Instances that none beats in tokens/s of a user and of a chip at once, fastest for users first."""
    ordered = sorted(instances, key=lambda i: (i.tpot_ms, -i.requests_per_s / i.deployment.gpus))
    best, found = -1.0, []
    for one in ordered:
        worth = one.requests_per_s * wanted.osl / one.deployment.gpus
        if worth > best:
            best = worth
            found.append(Option(kind="aggregated", instance=one, replicas=1))
    return tuple(found)
