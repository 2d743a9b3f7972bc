"""Records in, records out: `foretell.size`, how many chips a service needs and how they are laid out.

Closed form first (serving/sizing.py), then the best of it is played (serving/simulation.py): what fails a
level at the percentile asked for gets another replica and is played again.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from foretell.api.answers import ServeAnswer, serve_answer
from foretell.api.exports import export_deployment
from foretell.api.serving import question_of
from foretell.errors import BadInput, Infeasible, Problem
from foretell.interop.launch import ToolArguments
from foretell.interop.trackers import choice_metrics, json_lines
from foretell.records import JsonRecord, dataclass
from foretell.serving.serve import ServeQuestion, divide_rent
from foretell.serving.serve import intervals as latency_intervals
from foretell.serving.simulation import Play, serve_simulated
from foretell.serving.sizing import (
    Instance,
    Option,
    ServiceTargets,
    SizingPoint,
    SizingSearch,
    place,
    search_layouts,
)
from foretell.serving.sizing_intervals import PAID, SizedNumbers, money_of, rates_of
from foretell.specs.deployment_text import deployment_text
from foretell.specs.questions.flags import asks, part
from foretell.specs.questions.serving import ServiceQuestion, SizeQuestion
from foretell.specs.service import Percentiles
from foretell.uncertainty.intervals import Interval

PERCENTILES = ("mean", "p50", "p90", "p95", "p99")
PLAYED = 1500
"""Requests of one play."""
SHORT_LIST, TRIES = 3, 4
"""Options that are played, and how often each may grow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(JsonRecord):
    """One way to serve it, with what it costs."""

    option: Option
    """Layouts and how many of each."""
    played: ServeAnswer | None
    """The same as it was played; None where the closed form alone spoke."""
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
    """Whether both levels hold at the percentile."""
    osl: float
    """Answer tokens of a request."""
    needed: float
    """Share of the replicas that the rate with its headroom takes."""
    interval: Mapping[str, Interval]
    """p50 and p90 of ttft_ms and tpot_ms, from the residuals of the profile."""
    usd_per_chip_hour_range: tuple[float, float] | None = None
    """The cheapest and the dearest offer of a chip; None where the rent is one price alone."""

    @property
    def intervals(self) -> dict[str, Interval]:
        """p50 and p90 of every predicted number; of `gpus`, as many as the rate with its headroom would take,
        were the engine as fast or as slow as that (serving/sizing_intervals.py)."""
        known = SizedNumbers(
            option=self.option,
            needed=self.needed,
            osl=self.osl,
            ttft_ms=self.ttft_ms,
            tpot_ms=self.tpot_ms,
            headroom=self.headroom,
            interval=self.interval,
        )
        return rates_of(known) | money_of(
            {name: getattr(self, name) for name in PAID},
            self.option.gpus,
            self.usd_per_chip_hour_range,
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        o = self.option
        return {
            "kind": o.kind,
            "name": o.name(),
            "gpus": o.gpus,
            "replicas": o.replicas,
            "plan": deployment_text(o.instance.deployment),
            "max_batch": o.instance.batch,
            "prefill_replicas": o.prefill_replicas,
            "prefill_plan": deployment_text(o.prefill.deployment) if o.prefill else None,
            "transfer_ms": o.transfer_ms,
            "ttft_ms": self.ttft_ms,
            "tpot_ms": self.tpot_ms,
            "meets": self.meets,
            "simulated": self.played is not None,
            "requests_per_s": o.requests_per_s,
            "headroom": self.headroom,
            "output_tokens_per_s_per_gpu": o.tokens_per_s_per_gpu(self.osl),
            "output_tokens_per_s_per_user": 1e3 / (self.tpot_ms or self.ttft_ms),
            "usd_per_hour": self.usd_per_hour,
            "usd_per_million_input_tokens": self.usd_per_million_input_tokens,
            "usd_per_million_output_tokens": self.usd_per_million_output_tokens,
            "intervals": self.intervals,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing(JsonRecord):
    """The answer: the cheapest ways to serve a rate within its levels."""

    model: str
    """Model id."""
    system: str
    """System id."""
    profile: str
    """The engine profile used."""
    wanted: ServiceTargets
    """What was asked."""
    percentile: str
    """Where the levels must hold."""
    choices: tuple[Choice, ...]
    """Played ones first, those that meet the levels before others; then by chips, headroom and time."""
    pareto: tuple[SizingPoint, ...]
    """Single instances that none beats in tokens/s of a user and of a chip."""
    evaluated: int
    """Layouts x batch limits looked at."""
    price_source: str
    """Where the rent comes from."""
    assumptions: tuple[str, ...]
    """Every default or guess."""
    question: ServeQuestion | None = field(default=None, repr=False, compare=False)
    """The question, from which launch commands are written; no part of the JSON."""

    @property
    def intervals(self) -> dict[str, Interval]:
        """Those of the best one."""
        return self.best.intervals

    @property
    def best(self) -> Choice:
        """The one with the fewest chips, and of these the one with the most headroom."""
        return self.choices[0]

    def export(self, engine: str) -> ToolArguments:
        """The commands that start the best one."""
        assert self.question is not None
        o = self.best.option
        parts = [(f"# {o.replicas} of these", o.instance)]
        if o.prefill is not None:
            parts.append((f"# and {o.prefill_replicas} of these, for prompts alone", o.prefill))
        made = [
            export_deployment(replace(self.question, deployment=one.deployment), engine, one.batch)
            for _, one in parts
        ]
        lines = [f"{said}\n{each.text}" for (said, _), each in zip(parts, made, strict=True)]
        notes = dict.fromkeys(text for each in made for text in each.notes)
        return ToolArguments(tool=made[0].tool, text="\n".join(lines), notes=tuple(notes))

    def to_flat(self) -> dict[str, float]:
        """Numbers of the best one under slash-separated keys, for experiment trackers."""
        return choice_metrics(self.best.to_dict())

    def to_config(self) -> dict[str, Any]:
        """What was asked, as the nested table that trackers keep as a run's config."""
        told = self.to_dict()
        left = ("options", "pareto", "best", "gpus", "intervals")
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
            "gpus": choices[0]["gpus"],
            "intervals": choices[0]["intervals"],
            "best": choices[0],
            "options": choices,
            "pareto": [point.to_dict() for point in self.pareto],
            "evaluated": self.evaluated,
            "price_source": self.price_source,
            "assumptions": list(self.assumptions),
        }


def _given_measured(asked: SizeQuestion, question: ServeQuestion, most: int | str) -> ServeQuestion:
    """The question on its system as the measured services have it."""
    from foretell.api.measured_serving import condition_service

    load = {"concurrency": None, "rate": float(asked.rate)}
    known, _ = condition_service(part(ServiceQuestion, asked, gpus=most, **load), asked.measured)
    first = known.questions[0]
    return replace(question, system=question.system.with_corrections(known.corrections(first)))


@asks(SizeQuestion)
def size(asked: SizeQuestion) -> Sizing:
    """How many chips answer `rate` requests a second within the levels (milliseconds), and how.

    `gpus` is the most that one instance may have. Raises Infeasible where no layout meets the levels.
    """
    problems = _problems(asked)
    most = 64 if asked.gpus is None else asked.gpus
    try:
        question, _ = question_of(part(ServiceQuestion, asked, gpus=most))
    except BadInput as error:
        raise BadInput([*error.problems, *problems]) from None
    if problems:
        raise BadInput(problems)
    wanted = ServiceTargets(
        rate=float(asked.rate), isl=float(asked.isl), osl=float(asked.osl), ttft_ms=float(asked.ttft),
        tpot_ms=float(asked.tpot), headroom=float(asked.headroom), most_gpus=question.gpus,
        degrees=degrees_of(asked.plan or ""),
    )  # fmt: skip
    q, percentile = question, asked.percentile
    if asked.measured:
        q = _given_measured(asked, question, most)
    found = search_layouts(q.model, q.system, q.deployment, q.profile, wanted)
    if not found.options:
        raise Infeasible([_nothing(found, wanted)])
    short = _distinct(found.options)
    played = _played(short[:SHORT_LIST], q, wanted, percentile) if asked.simulate else []
    rest = sorted(short[len(played) :], key=lambda o: place(o, wanted))
    choices = [*played, *(_choice(option, None, q, wanted, percentile) for option in rest)][
        : asked.top
    ]
    return Sizing(
        model=q.model.id,
        system=q.system.id,
        profile=q.profile.id,
        wanted=wanted,
        percentile=percentile,
        choices=tuple(choices),
        pareto=tuple(SizingPoint(option=one, osl=wanted.osl) for one in found.pareto),
        evaluated=found.evaluated,
        price_source=q.prices.source,
        assumptions=q.assumptions,
        question=q,
    )


def degrees_of(plan: str) -> tuple[tuple[str, int], ...]:
    """The degrees that a plan's words name."""
    words = (re.fullmatch(r"(tp|pp|dp|ep|cp)([0-9]+)", word) for word in plan.split())
    return tuple((word[1], int(word[2])) for word in words if word)


def _problems(asked: SizeQuestion) -> list[Problem]:
    problems = []
    for name, value, low, high in (
        ("ttft", asked.ttft, 1e-3, 1e12),
        ("tpot", asked.tpot, 1e-3, 1e12),
        ("headroom", asked.headroom, 0.0, 100.0),
        ("top", asked.top, 1, 1000),
    ):
        given: object = value
        plain = isinstance(given, int | float) and not isinstance(given, bool)
        if not plain or not low <= value <= high:
            problems.append(
                Problem(path=name, value=given, message="not a usable number",
                        allowed=f"a number from {low:g} to {high:g}")
            )  # fmt: skip
    if asked.percentile not in PERCENTILES:
        problems.append(
            Problem(path="percentile", value=asked.percentile, message="unknown",
                    allowed=", ".join(PERCENTILES))
        )  # fmt: skip
    return problems


def _nothing(found: SizingSearch, wanted: ServiceTargets) -> Problem:
    """What the quickest layouts reach where none is quick enough."""
    quickest = min((o.instance.tpot_ms for o in found.pareto), default=None)
    soonest = min((o.instance.ttft_ms for o in found.pareto), default=None)
    told = (
        "no layout fits in memory"
        if quickest is None or soonest is None
        else f"the quickest layouts reach a TPOT of {quickest:.3g} ms and a TTFT of {soonest:.4g} ms"
    )
    return Problem(
        path="tpot, ttft",
        value=f"{wanted.tpot_ms:g} ms, {wanted.ttft_ms:g} ms",
        message=f"no layout of at most {wanted.most_gpus} GPUs meets both: {told}",
        allowed="a longer time, a narrower format, larger instances (--gpus) or a faster chip",
    )


def _choice(
    option: Option,
    played: ServeAnswer | None,
    q: ServeQuestion,
    wanted: ServiceTargets,
    percentile: str,
) -> Choice:
    ttft, tpot = option.ttft_ms, option.tpot_ms
    if played is not None:
        ttft, tpot = _at(played.ttft_ms, percentile), _at(played.tpot_ms, percentile)
    rent = float(q.prices.usd_per_chip_hour) * option.gpus or None
    load = (wanted.rate, wanted.isl, wanted.osl)
    paid = (
        (None, None) if rent is None else divide_rent(rent, option.prompt_share(wanted.rate), load)
    )
    return Choice(
        option=option,
        played=played,
        ttft_ms=ttft,
        tpot_ms=tpot,
        headroom=option.requests_per_s / wanted.rate - 1.0,
        usd_per_hour=rent,
        usd_per_million_input_tokens=paid[0],
        usd_per_million_output_tokens=paid[1],
        meets=ttft <= wanted.ttft_ms and tpot <= wanted.tpot_ms,
        osl=wanted.osl,
        needed=min((1.0 + wanted.headroom) * wanted.rate / option.requests_per_s, 1.0),
        interval=latency_intervals(q, ttft / 1e3, tpot / 1e3),
        usd_per_chip_hour_range=q.prices.rent_range,
    )


def _at(values: Percentiles, percentile: str) -> float:
    found: float = getattr(values, percentile)
    return found


def _played(
    options: Sequence[Option], q: ServeQuestion, wanted: ServiceTargets, percentile: str
) -> list[Choice]:
    """The best options as they are played; each grows until it meets the levels, or stays as it is."""
    choices = []
    for option in options:
        choice = _choice(option, _play(option, q, wanted), q, wanted, percentile)
        for _ in range(TRIES):
            if choice.meets:
                break
            option = _grown(option, choice, wanted)
            choice = _choice(option, _play(option, q, wanted), q, wanted, percentile)
        choices.append(choice)
    return sorted(
        choices,
        key=lambda c: (not c.meets, *place(c.option, wanted)[:2], c.tpot_ms + c.ttft_ms),
    )


def _distinct(options: Sequence[Option]) -> list[Option]:
    """The best of each kind first, then the rest in their order."""
    firsts = {option.kind: option for option in reversed(options)}
    rest = [option for option in options if option not in firsts.values()]
    return [*sorted(firsts.values(), key=lambda o: o.gpus), *rest]


def _grown(option: Option, choice: Choice, wanted: ServiceTargets) -> Option:
    """One replica more of what fails: an eighth more where there are many."""
    late = choice.ttft_ms > wanted.ttft_ms
    if option.prefill is not None and late:
        more = max(option.prefill_replicas // 8, 1)
        return replace(option, prefill_replicas=option.prefill_replicas + more)
    return replace(option, replicas=option.replicas + max(option.replicas // 8, 1))


def _play(option: Option, q: ServeQuestion, wanted: ServiceTargets) -> ServeAnswer:
    """A share of the fleet under its share of the arrivals; more replicas would even out more."""
    x, y = option.prefill_replicas, option.replicas
    parts = y if option.prefill is None else max(min(x, y), 1)
    few_x, few_y = round(x / parts), max(round(y / parts), 1)
    rate = wanted.rate * few_y / y
    if option.prefill is not None:
        rate = wanted.rate * min(few_x / x, few_y / y)
    front: Instance | None = option.prefill
    layout = replace(option.instance.deployment, max_batch=option.instance.batch)
    chips = few_y * layout.gpus + (few_x * front.deployment.gpus if front else 0)
    asked = replace(q, deployment=layout, gpus=chips, rate=rate)
    how = Play(
        arrivals="poisson",
        requests=PLAYED,
        routing="least-loaded",
        ttft_ms=wanted.ttft_ms,
        tpot_ms=wanted.tpot_ms,
        prefill=None if front is None else front.deployment,
        prefill_gpus=0 if front is None else few_x * front.deployment.gpus,
    )
    return serve_answer(serve_simulated(asked, how))
