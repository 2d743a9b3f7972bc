"""Records in, records out: `foretell.size`, how many chips a service needs and how they are laid out.

Closed form first (serving/sizing.py); then the cheapest layouts are simulated (serving/sizing_simulation.py)
with the fewest replicas that meet the targets at the percentile asked for, until no other can be cheaper.
"""

import re
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from foretell.api.serving import question_of
from foretell.errors import BadInput, Infeasible, Problem
from foretell.interop.fleets import Role
from foretell.interop.launch import ToolArguments
from foretell.interop.trackers import choice_metrics, json_lines
from foretell.records import Answer, JsonRecord, dataclass
from foretell.serving.requests.lengths import read_lengths
from foretell.serving.serve import ServeQuestion
from foretell.serving.serve import intervals as latency_intervals
from foretell.serving.service_numbers import divide_rent
from foretell.serving.sizing import SizingSearch, joined_ms, search_layouts
from foretell.serving.sizing_intervals import PAID, SizedNumbers, money_of, rates_of
from foretell.serving.sizing_records import Option, ServiceTargets, SizingPoint
from foretell.serving.sizing_simulation import fewest, sized_question
from foretell.specs.deployment import Deployment
from foretell.specs.deployment_text import deployment_text
from foretell.specs.questions.flags import asks, part
from foretell.specs.questions.serving import ServiceQuestion, SizeQuestion
from foretell.uncertainty.intervals import Interval

PERCENTILES = ("mean", "p50", "p90", "p95", "p99")
SIMULATED = 6
"""Layouts of each kind that are simulated at most."""
MARGIN = 1.1
"""Chips by the closed form over those of the best simulated option, up to which a layout may be cheaper."""
EDGE = 0.03
"""Share of a target within which an option is borderline."""


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
    question: ServeQuestion | None = field(default=None, repr=False, compare=False)
    """The question, from which launch commands are written; no part of the JSON."""

    @property
    def intervals(self) -> dict[str, Interval]:
        """Those of the best one."""
        return self.best.intervals

    @property
    def best(self) -> Choice:
        """The one that costs least, and of these the one with the most headroom."""
        return self.choices[0]

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
    """How many chips serve `rate` requests per second within the latency targets (ms), and in which layout.

    `gpus` is the most that one instance may have. Raises Infeasible where no layout meets the targets.
    """
    problems = _problems(asked)
    most = 64 if asked.gpus is None else asked.gpus
    try:
        question, _ = question_of(part(ServiceQuestion, asked, gpus=most))
    except BadInput as error:
        raise BadInput([*error.problems, *problems]) from None
    if problems:
        raise BadInput(problems)
    form = None if asked.lengths is None else read_lengths(asked.lengths)
    wanted = ServiceTargets(
        rate=float(asked.rate), isl=float(asked.isl), osl=float(asked.osl), ttft_ms=float(asked.ttft),
        tpot_ms=float(asked.tpot), headroom=float(asked.headroom), most_gpus=question.gpus,
        cached=float(asked.prefix_hit), degrees=degrees_of(asked.plan or ""), lengths=form,
    )  # fmt: skip
    if form is not None and form.answers:
        wanted = replace(wanted, osl=form.answer_mean)
        wanted = replace(wanted, isl=form.prompt_mean) if form.prompts else wanted
    q, percentile = question, asked.percentile
    if asked.measured:
        q = _given_measured(asked, question, most)
    found = search_layouts(q.model, q.system, q.deployment, q.profile, wanted, asked.progress)
    if not found.options:
        raise Infeasible([_nothing(found, wanted)])
    q = sized_question(q, wanted)
    choices = _simulate(found, q, wanted, percentile) if asked.simulate else []
    known = {_layouts(choice.option) for choice in choices}
    least = min((choice.option.gpus for choice in choices if choice.meets), default=0)
    choices += [
        _choice(option, None, q, wanted)
        for option in found.options
        if option.gpus >= least and _layouts(option) not in known
    ]
    choices = _top(sorted(choices, key=lambda c: (not c.meets, *_money(c))), asked.top)
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
        ("prefix_hit", asked.prefix_hit, 0.0, 1.0),
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


def _top(choices: list[Choice], many: int) -> list[Choice]:
    """The first of some choices; the cheapest of a kind that is not among them takes the last place."""
    shown = choices[:many]
    kinds = {choice.option.kind for choice in shown}
    other = next((choice for choice in choices if choice.option.kind not in kinds), None)
    return shown if other is None or many < 2 else [*shown[:-1], other]


def _layouts(option: Option) -> tuple[Deployment, Deployment | None]:
    """What an option is made of, however many of it."""
    return option.instance.deployment, option.prefill.deployment if option.prefill else None


def _money(choice: Choice) -> tuple[float, bool, float, float]:
    """Where a choice stands: least rent (chips where none is known), simulated, most headroom, soonest."""
    rent = choice.usd_per_hour or float(choice.option.gpus)
    late = choice.tpot_ms + choice.ttft_ms
    return rent, not choice.simulated, -round(choice.headroom, 2), late


def _choice(
    option: Option, simulated: tuple[float, float] | None, q: ServeQuestion, wanted: ServiceTargets
) -> Choice:
    ttft, tpot = simulated or (option.ttft_ms, option.tpot_ms)
    rent = float(q.prices.usd_per_chip_hour) * option.gpus or None
    load = (wanted.rate, wanted.isl, wanted.osl)
    paid = (
        (None, None) if rent is None else divide_rent(rent, option.prompt_share(wanted.rate), load)
    )
    return Choice(
        option=option,
        simulated=simulated is not None,
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
        borderline=_borderline((ttft, tpot), wanted),
    )


def _borderline(latencies: tuple[float, float], wanted: ServiceTargets) -> str:
    """Targets that are met, or missed, by less than three percent."""
    near = [
        f"{name} {value:.4g} ms of {target:g} ms"
        for name, value, target in zip(
            ("TTFT", "TPOT"), latencies, (wanted.ttft_ms, wanted.tpot_ms), strict=True
        )
        if abs(value / target - 1.0) < EDGE
    ]
    return ", ".join(near)


def _simulate(
    found: SizingSearch, q: ServeQuestion, wanted: ServiceTargets, percentile: str
) -> list[Choice]:
    """Layouts in the order of their chips by the closed form, simulated until none left can be cheaper."""
    choices: list[Choice] = []
    for kind in ("aggregated", "disaggregated"):
        best = float("inf")
        for option in [o for o in found.options if o.kind == kind][:SIMULATED]:
            if option.gpus > MARGIN * best:
                break
            choice = _simulated_choice(option, found, q, wanted, percentile)
            if choice is not None:
                choices.append(choice)
                best = min(best, choice.option.gpus)
    return choices


def _simulated_choice(
    option: Option, found: SizingSearch, q: ServeQuestion, wanted: ServiceTargets, percentile: str
) -> Choice | None:
    """An option with the fewest replicas that meet the targets as simulated; None where no number does."""
    back = option.instance.deployment
    curves = {c.deployment: c for c in found.curves.backs} if option.prefill else {
        c.deployment: c for c in found.curves.together
    }  # fmt: skip
    curve = curves[back]
    least = curve.least(wanted.rate, wanted.headroom)
    side = ("decode" if option.prefill else "both", percentile)
    goals = (float("inf") if option.prefill else wanted.ttft_ms, wanted.tpot_ms)
    sized = fewest(q, back, side, (least, option.replicas), goals)  # type: ignore[arg-type]
    if sized is None:
        return None
    few, (ttft, tpot) = sized
    made = replace(option, replicas=few, instance=curve.at(wanted.rate / few))
    if option.prefill is None:
        return _choice(made, (ttft, tpot), q, wanted)
    front = next(c for c in found.curves.fronts if c.deployment == option.prefill.deployment)
    moved, joined = joined_ms(q.model, q.system, front, curve, (wanted.isl, wanted.rate / few))
    least = front.least(wanted.rate, wanted.headroom)
    goals = (wanted.ttft_ms - moved - joined, float("inf"))
    begin = (least, option.prefill_replicas)
    sized = fewest(q, front.deployment, ("prefill", percentile), begin, goals)
    if sized is None:
        return None
    many, (first, _) = sized
    made = replace(made, prefill=front.at(wanted.rate / many), prefill_replicas=many)
    return _choice(made, (first + moved + joined, tpot), q, wanted)
