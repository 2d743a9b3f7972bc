"""The answer of `foretell size`: ways to serve a rate, each with what it costs.

Intervals: the rate is given, so that money is in doubt by its rent alone; more instances do not make a step
shorter, so that targets widen nothing.
"""

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from foretell.interop.fleets import Role
from foretell.interop.launch import ToolArguments
from foretell.interop.trackers import choice_metrics, json_lines
from foretell.records import Answer, JsonRecord, dataclass
from foretell.serving.evidence import beyond_measured, service_facts
from foretell.serving.serve import ServeQuestion
from foretell.serving.sizing_records import Option, ServiceTargets, SizingPoint
from foretell.serving.static import OfflineBatch
from foretell.specs.deployment import Deployment
from foretell.specs.deployment_text import deployment_text
from foretell.specs.service import BenchmarkFigures
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
class Choice(JsonRecord):
    """One way to serve it, with what it costs."""

    option: Option
    """Layouts and how many of each."""
    simulated: bool
    """Whether latencies are those of simulated requests, at the percentile; else means in closed form."""
    ttft_ms: float
    """Time to the first token at the percentile asked for."""
    tpot_ms: float
    """Time per output token at it."""
    headroom: float
    """Share of the rate that could come besides."""
    usd_per_hour: float | None
    """Rent of all chips."""
    usd_per_million_input_tokens: float | None
    """The part of the rent that prompts take of the chips' time, over their tokens at the rate asked for."""
    usd_per_million_output_tokens: float | None
    """The rest of it, over the tokens of answers."""
    meets: bool
    """Whether both latency targets are met at the percentile."""
    osl: float
    """Answer tokens of a request."""
    needed: float
    """Share of the replicas that the rate with its headroom takes."""
    interval: Mapping[str, Interval]
    """p50 and p90 of ttft_ms and tpot_ms, from the residuals of the profile."""
    usd_per_chip_hour_range: tuple[float, float] | None = None
    """The cheapest and the dearest offer of a chip; None where the rent is one price alone."""
    borderline: str = ""
    """Which target is met, or missed, by less than three percent; empty: none."""
    what: str = ""
    """Of an alternative, what it is; empty: an option."""

    @property
    def refusal(self) -> str | None:
        """Why the engine does not launch it; None where it does."""
        return self.option.refusal or None

    @property
    def intervals(self) -> dict[str, Interval]:
        """p50 and p90 of every predicted number; of `gpus`, as many as the rate with its headroom would take,
        were the engine as fast or as slow as that."""
        return rates_of(self) | money_of(self)

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        o = self.option
        return {
            "kind": o.kind,
            "what": self.what or None,
            "name": o.name(),
            "refusal": self.refusal,
            "gpus": o.gpus,
            "replicas": o.replicas,
            "plan": deployment_text(o.instance.deployment),
            "max_batch": o.instance.batch,
            "prefill_replicas": o.prefill_replicas,
            "prefill_plan": deployment_text(o.prefill.deployment) if o.prefill else None,
            "prefill_chip": o.prefill_chip or None,
            "prefill_gpus": o.prefill_gpus,
            "transfer_ms": o.transfer_ms,
            "ttft_ms": self.ttft_ms,
            "tpot_ms": self.tpot_ms,
            "meets": self.meets,
            "borderline": self.borderline or None,
            "simulated": self.simulated,
            "requests_per_s": o.requests_per_s,
            "headroom": self.headroom,
            "output_tokens_per_s_per_gpu": o.tokens_per_s_per_gpu(self.osl),
            "output_tokens_per_s_per_user": 1e3 / (self.tpot_ms or self.ttft_ms),
            "usd_per_hour": self.usd_per_hour,
            "usd_per_million_input_tokens": self.usd_per_million_input_tokens,
            "usd_per_million_output_tokens": self.usd_per_million_output_tokens,
            "intervals": self.intervals,
        }


def rates_of(of: Choice) -> Intervals:
    """Times, rates, headroom, and the chips that the rate takes."""
    o = of.option
    first = cause(of.ttft_ms, of.interval["ttft_ms"])
    later = cause(of.tpot_ms, of.interval["tpot_ms"])
    whole = request_cause(of.ttft_ms, of.tpot_ms, max(of.osl - 1.0, 0.0), of.interval)
    rate = _rate_cause(o, whole, first, later)
    user = inverse_cause(later if of.tpot_ms else first)
    return {
        "gpus": _chips(of, whole, first, later),
        "ttft_ms": times(of.ttft_ms, first),
        "tpot_ms": times(of.tpot_ms, later),
        "requests_per_s": times(o.requests_per_s, rate),
        "output_tokens_per_s_per_gpu": times(o.tokens_per_s_per_gpu(of.osl), rate),
        "output_tokens_per_s_per_user": times(1e3 / (of.tpot_ms or of.ttft_ms), user),
        "headroom": {
            key: ((1.0 + of.headroom) * low - 1.0, (1.0 + of.headroom) * high - 1.0)
            for key, (low, high) in rate.items()
        },
    }


def money_of(of: Choice) -> Intervals:
    """Money of the chips, by the offers of one."""
    usd = {name: getattr(of, name) for name in PAID}
    hour = of.usd_per_hour
    offers = of.usd_per_chip_hour_range
    rent = SURE if hour is None else cause_of_rent(hour / of.option.gpus, offers)
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


def _chips(of: Choice, whole: Interval, first: Interval, later: Interval) -> Interval:
    """Chips of as many whole replicas as either end of the time takes: of a request where prompts and answers
    are together, of the first token and of the others where they are apart."""
    o = of.option

    def many(replicas: int, time: float) -> float:
        return float(max(math.ceil(of.needed * replicas * time - 1e-9), 1))

    def taken(key: str, end: int) -> float:
        each = o.instance.deployment.gpus
        if o.prefill is None:
            return each * many(o.replicas, whole[key][end])
        front = o.prefill.deployment.gpus * many(o.prefill_replicas, first[key][end])
        return front + each * many(o.replicas, later[key][end])

    return {
        key: (min(taken(key, 0), float(o.gpus)), max(taken(key, 1), float(o.gpus))) for key in whole
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing(JsonRecord, Answer):
    """The cheapest ways to serve a rate within its latency targets."""

    verb = "size"

    model: str
    """Model id."""
    system: str
    """System id."""
    profile: str
    """The engine profile used."""
    wanted: ServiceTargets
    """What was asked."""
    percentile: str
    """Percentile at which the targets must be met."""
    choices: tuple[Choice, ...]
    """By money, of equal money by headroom and time; none is cheaper than the best simulated one."""
    pareto: tuple[SizingPoint, ...]
    """Single instances that none beats in tokens/s of a user and of a chip."""
    evaluated: int
    """Layouts x batch limits looked at."""
    price_source: str
    """Where the rent comes from."""
    assumptions: tuple[str, ...]
    """Every default or guess."""
    cannot_launch: Choice | None = None
    """A cheaper way that the engine does not launch, and its `refusal`; None: there is none."""
    alternatives: tuple[Choice, ...] = ()
    """Plain instances of one node beside the best one, in its format and in fp8."""
    elsewhere: Choice | None = None
    """Where prefill must be on chips of its own: the cheapest way without them; else None."""
    benchmark: BenchmarkFigures | None = None
    """What a benchmark of the best one measures whose requests begin all at once, as many at a time as the
    rate has in flight."""
    batch: OfflineBatch | None = None
    """The offline batch that was asked for in the place of a rate."""
    question: ServeQuestion | None = field(default=None, repr=False, compare=False)
    """The question, from which launch commands are written; no part of the JSON."""

    @property
    def intervals(self) -> dict[str, Interval]:
        """Those of the best one."""
        return self.best.intervals

    @property
    def finish(self) -> dict[str, Any] | None:
        """When an offline batch is done on the best option and what it costs; None of a rate."""
        if self.batch is None:
            return None
        tokens_per_s = self.best.option.requests_per_s * self.wanted.osl
        return self.batch.finish(tokens_per_s, self.best.usd_per_hour)

    @property
    def best(self) -> Choice:
        """The one that costs least, and of these the one with the most headroom."""
        return self.choices[0]

    @property
    def beyond_measured(self) -> tuple[str, ...]:
        """How the best one lies beyond every measured service of its engine; empty: it does not."""
        q, option, wanted = self.question, self.best.option, self.wanted
        if q is None:
            return ()
        one = option.instance.deployment
        held_s = 1e-3 * option.e2e_ms(wanted.osl)
        if option.prefill is not None:
            held_s -= 1e-3 * option.ttft_ms
        facts = service_facts(
            engine=q.profile.engine,
            model=q.model,
            system=q.system,
            deployment=one,
            apart=option.prefill is not None,
            sequences_per_gpu=held_s * wanted.rate / (option.replicas * one.gpus),
            prompt=wanted.isl,
        )
        return beyond_measured(facts)

    def export(self, engine: str, launcher: str | None = None) -> ToolArguments:
        """The script that starts the best one: all instances, both halves of a split one, the router."""
        from foretell.api.exports import export_fleet  # it reads and writes every tool

        assert self.question is not None
        o = self.best.option
        pools: list[tuple[Role, int, Deployment, int | None]] = []
        if o.prefill is not None:
            pools.append(("prefill", o.prefill_replicas, o.prefill.deployment, o.prefill.batch))
        role: Role = "both" if o.prefill is None else "decode"
        pools.append((role, o.replicas, o.instance.deployment, o.instance.batch))
        return export_fleet(self.question, engine, pools, launcher)

    def to_flat(self) -> dict[str, float]:
        """Numbers of the best one under slash-separated keys, for experiment trackers."""
        return choice_metrics(self.best.to_dict())

    def to_config(self) -> dict[str, Any]:
        """What was asked, as the nested table that trackers keep as a run's config."""
        told = self.to_dict()
        left = ("options", "pareto", "best", "gpus", "intervals", "without_prefill_chips")
        kept = {name: value for name, value in told.items() if name not in left}
        return {"tool": "foretell", "plan": told["best"]["plan"], **kept}

    def to_json_line(self) -> str:
        """Both as one line of JSON."""
        return json_lines([(self.to_config(), self.to_flat())])

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        w, osl = self.wanted, self.wanted.osl
        choices = [choice.to_dict() for choice in self.choices]
        return {
            "model": self.model,
            "system": self.system,
            "profile": self.profile,
            "rate": w.rate,
            "isl": w.isl,
            "osl": osl,
            "ttft_target_ms": w.ttft_ms,
            "tpot_target_ms": w.tpot_ms,
            "percentile": self.percentile,
            "offline": self.finish,
            "gpus": choices[0]["gpus"],
            "intervals": choices[0]["intervals"],
            "best": choices[0],
            "options": choices,
            "cannot_launch": self.cannot_launch and self.cannot_launch.to_dict(),
            "benchmark": self.benchmark and self.benchmark.to_dict(),
            "beyond_measured": list(self.beyond_measured),
            "alternatives": [choice.to_dict() for choice in self.alternatives],
            "without_prefill_chips": None if self.elsewhere is None else self.elsewhere.to_dict(),
            "pareto": [point.to_dict() for point in self.pareto],
            "evaluated": self.evaluated,
            "price_source": self.price_source,
            "assumptions": list(self.assumptions),
        }
