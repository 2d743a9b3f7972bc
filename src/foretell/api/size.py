"""Records in, records out: `foretell.size`, how many chips a service needs and how they are laid out.

Closed form first (serving/sizing.py); then the cheapest layouts are simulated (serving/sizing_simulation.py)
with the fewest replicas that meet the targets at the percentile asked for, until no other can be cheaper.
"""

from collections.abc import Sequence
from dataclasses import replace

from foretell.api.prefill import degrees_of, prefill_place
from foretell.api.serving import question_of, rent_of
from foretell.api.sizing_answer import Choice, Sizing
from foretell.errors import BadInput, Infeasible, Problem
from foretell.inputs.question import collect, settings_of
from foretell.records import dataclass
from foretell.serving.requests.lengths import read_lengths
from foretell.serving.serve import ServeQuestion
from foretell.serving.serve import intervals as latency_intervals
from foretell.serving.service_numbers import divide_rent
from foretell.serving.sizing import SizingSearch, joined_ms, search_layouts
from foretell.serving.sizing_records import Option, PrefillPlace, ServiceTargets, SizingPoint
from foretell.serving.sizing_simulation import fewest, sized_question
from foretell.specs.deployment import Deployment
from foretell.specs.questions.flags import asks, part
from foretell.specs.questions.serving import ServiceQuestion
from foretell.specs.questions.sizing import SizeQuestion

PERCENTILES = ("mean", "p50", "p90", "p95", "p99")
SIMULATED = 6
"""Layouts of each kind that are simulated at most."""
MARGIN = 1.1
"""Chips by the closed form over those of the best simulated option, up to which a layout may be cheaper."""
EDGE = 0.03
"""Share of a target within which an option is borderline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingCase:
    """A sized service between its question and its answer: every layout in closed form."""

    question: ServeQuestion
    """The service under its rate; its deployment has the formats and the options."""
    wanted: ServiceTargets
    """What it must do."""
    percentile: str
    """Percentile at which the targets must be met."""
    place: PrefillPlace | None
    """Where prefill instances must be."""
    found: SizingSearch
    """Layouts with the replicas that they take."""
    price_source: str
    """Where the rents come from."""


@asks(SizeQuestion)
def size(asked: SizeQuestion) -> Sizing:
    """How many chips serve `rate` requests per second within the latency targets (ms), and in which layout.

    `gpus` is the most that one instance may have. Raises Infeasible where no layout meets the targets.
    """
    return sizing_of(sizing_case(asked), simulate=asked.simulate, top=asked.top)


def sizing_case(asked: SizeQuestion) -> SizingCase:
    """The question with every layout in closed form; all problems at once, Infeasible where none will do."""
    problems = _problems(asked)
    most = 64 if asked.gpus is None else asked.gpus
    own = {"gpus": most, "prefill_gpus": None, "prefill_plan": None}
    try:
        question, _ = question_of(part(ServiceQuestion, asked, **own))
    except BadInput as error:
        raise BadInput([*error.problems, *problems]) from None
    where = collect(lambda: prefill_place(asked, question), problems)
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
    q = _given_measured(asked, question, most) if asked.measured else question
    where, source = _with_rent(where, asked, q)
    found = search_layouts(q.model, q.system, q.deployment, q.profile, wanted, where)
    if not found.options:
        raise Infeasible([_nothing(found, wanted)])
    return SizingCase(
        question=sized_question(q, wanted),
        wanted=wanted,
        percentile=asked.percentile,
        place=where,
        found=found,
        price_source=source,
    )


def sizing_of(case: SizingCase, *, simulate: bool, top: int) -> Sizing:
    """The answer: the cheapest layouts simulated, all by money."""
    q, wanted, found = case.question, case.wanted, case.found
    choices = _ordered(case, found.options, simulate)
    others = _ordered(case, found.others, simulate)
    return Sizing(
        model=q.model.id,
        system=q.system.id,
        profile=q.profile.id,
        wanted=wanted,
        percentile=case.percentile,
        choices=tuple(_top(choices, top)),
        pareto=tuple(SizingPoint(option=one, osl=wanted.osl) for one in found.pareto),
        evaluated=found.evaluated,
        price_source=case.price_source,
        assumptions=(*q.assumptions, *_said(case)),
        question=q,
        elsewhere=others[0] if others else None,
    )


def _ordered(case: SizingCase, options: Sequence[Option], simulate: bool) -> list[Choice]:
    """Options by money, those that meet the targets first; the cheapest of them simulated."""
    choices = _simulate(case, options) if simulate else []
    known = {_layouts(choice.option) for choice in choices}
    least = min((choice.option.worth for choice in choices if choice.meets), default=0.0)
    choices += [
        _choice(option, None, case)
        for option in options
        if option.worth >= least and _layouts(option) not in known
    ]
    return sorted(choices, key=lambda c: (not c.meets, *_money(c)))


def _with_rent(
    where: PrefillPlace | None, asked: SizeQuestion, q: ServeQuestion
) -> tuple[PrefillPlace | None, str]:
    """Where prefill is, with what its chips cost; and where both rents come from."""
    rent = float(q.prices.usd_per_chip_hour)
    if where is None or not where.chip:
        placed = None if where is None else replace(where, usd_per_chip_hour=rent)
        return placed, q.prices.source
    listed, settings = asked.prices, settings_of(part(ServiceQuestion, asked))
    other = rent_of(where.chip, asked.price, settings, listed)
    own = float(other.usd_per_chip_hour)
    worth = own / rent if own and rent else 1.0
    source = f"{q.prices.source}; {where.chip}: {other.source}"
    return replace(where, usd_per_chip_hour=own, worth=worth), source


def _said(case: SizingCase) -> list[str]:
    """What is assumed of prefill instances on other chips."""
    where = case.place
    if where is None:
        return []
    on = f"on {where.chip} ({where.profile.id})" if where.chip else "on the same chips"
    return [f"prefill apart {on}, in instances of at most {where.most_gpus}, as asked"]


def _given_measured(asked: SizeQuestion, question: ServeQuestion, most: int | str) -> ServeQuestion:
    """The question on its system as the measured services have it."""
    from foretell.api.measured_serving import condition_service

    load = {
        "concurrency": None,
        "rate": float(asked.rate),
        "prefill_gpus": None,
        "prefill_plan": None,
    }
    known, _ = condition_service(part(ServiceQuestion, asked, gpus=most, **load), asked.measured)
    first = known.questions[0]
    return replace(question, system=question.system.with_corrections(known.corrections(first)))


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


def _choice(option: Option, simulated: tuple[float, float] | None, case: SizingCase) -> Choice:
    q, wanted = case.question, case.wanted
    ttft, tpot = simulated or (option.ttft_ms, option.tpot_ms)
    own = float(q.prices.usd_per_chip_hour)
    known = not option.prefill_chip or (case.place is not None and case.place.usd_per_chip_hour)
    rent = own * option.worth or None if known else None
    load = (wanted.rate, wanted.isl, wanted.osl)
    paid = (
        (None, None) if rent is None else divide_rent(rent, option.prompt_share(wanted.rate), load)
    )
    offers = q.prices.rent_range
    if offers is not None and option.prefill_chip:
        # Offers of the other chip are taken to spread as widely.
        offers = (offers[0] * option.worth / option.gpus, offers[1] * option.worth / option.gpus)
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
        usd_per_chip_hour_range=offers,
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


def _simulate(case: SizingCase, options: Sequence[Option]) -> list[Choice]:
    """Layouts in the order of their chips by the closed form, simulated until none left can be cheaper."""
    choices: list[Choice] = []
    for kind in ("aggregated", "disaggregated"):
        best = float("inf")
        for option in [o for o in options if o.kind == kind][:SIMULATED]:
            if option.worth > MARGIN * best:
                break
            choice = _simulated_choice(option, case)
            if choice is not None:
                choices.append(choice)
                best = min(best, choice.option.worth)
    return choices


def _simulated_choice(option: Option, case: SizingCase) -> Choice | None:
    """An option with the fewest replicas that meet the targets as simulated; None where no number does."""
    q, wanted, found, percentile = case.question, case.wanted, case.found, case.percentile
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
        return _choice(made, (ttft, tpot), case)
    elsewhere = option in found.options and case.place is not None
    where = case.place if elsewhere else None
    fronts = found.curves.fronts if where is None else found.curves.placed
    there = q if where is None else replace(q, system=where.system, profile=where.profile)
    front = next(c for c in fronts if c.deployment == option.prefill.deployment)
    load = (wanted.isl, wanted.rate / few, q.profile.late_steps)
    moved, joined = joined_ms(q.model, (q.system, where), front, curve, load)
    least = front.least(wanted.rate, wanted.headroom)
    goals = (wanted.ttft_ms - moved - joined, float("inf"))
    begin = (least, option.prefill_replicas)
    sized = fewest(there, front.deployment, ("prefill", percentile), begin, goals)
    if sized is None:
        return None
    many, (first, _) = sized
    made = replace(made, prefill=front.at(wanted.rate / many), prefill_replicas=many)
    return _choice(made, (first + moved + joined, tpot), case)
