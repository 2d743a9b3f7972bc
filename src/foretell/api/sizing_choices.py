"""Ways to serve a rate, the cheapest of them simulated, by money.

A layout's replicas by the closed form, with targets a little longer (`SLACK`), are fewer than it takes:
a bound. Layouts are simulated in the order of that bound until it is no cheaper than the best one found, so
that which ones are looked at never decides what is found, and targets decide only what meets them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

from foretell.api.sizing_answer import Choice
from foretell.records import dataclass
from foretell.serving.load_curves import LoadCurve
from foretell.serving.serve import ServeQuestion
from foretell.serving.serve import intervals as latency_intervals
from foretell.serving.service_numbers import divide_rent
from foretell.serving.sizing import SizingSearch, joined_ms, plain_options
from foretell.serving.sizing_records import Option, PrefillPlace, ServiceTargets
from foretell.serving.sizing_simulation import (
    Demand,
    ReplicaCounts,
    Side,
    SimulatedSide,
    fewest,
    side_ms,
)
from foretell.specs.deployment import Deployment

SLACK = {"mean": 1.5, "p50": 2.5, "p90": 1.5, "p95": 1.5, "p99": 1.5}
"""Times as long as a target a mean of the closed form may be where the percentile simulated meets it."""
EQUAL = 4
"""Layouts of one bound that are simulated, for the one with most headroom."""
REFUSED = 3
"""Candidates that the engine does not launch which are looked at, the cheapest first."""
Layouts = tuple[Deployment, Deployment | None]
"""Of an instance that decodes, and of one for prefill where these are apart."""
SHARE: Mapping[Side, float] = {"both": 0.9, "decode": 1.0, "prefill": 0.7}
"""Share of a target that a mean of the closed form usually has where the percentile simulated meets it."""
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
    demand: Demand | None = None
    """Requests of a trace or of sessions; None: drawn by chance at the rate."""

    def side(self, side: Side) -> SimulatedSide:
        """What is simulated of one side."""
        return SimulatedSide(side=side, percentile=self.percentile, demand=self.demand)


def ordered_choices(
    case: SizingCase, found: tuple[Sequence[Option], Sequence[Option]], simulate: bool
) -> list[Choice]:
    """Options by money, those that meet the targets first; the cheapest simulated. None where none does.

    `found`: options in closed form, and candidates with the fewest replicas that they may take.
    """
    options, candidates = found
    choices, known = _simulate(case, candidates) if simulate else ([], set())
    if simulate and not choices:
        return []
    least = min((choice.option.worth for choice in choices if choice.meets), default=0.0)
    choices += [
        _choice(option, None, case)
        for option in options
        if option.worth >= least and _layouts(option) not in known
    ]
    return sorted(choices, key=lambda c: (not c.meets, *_money(c)))


def alternatives(case: SizingCase, best: Choice, *, simulate: bool = True) -> list[Choice]:
    """Plain instances of one node beside the best one: in its format, and in fp8 where the chip has it."""
    q = case.question
    found = []
    forms: list[tuple[str, Deployment]] = [("plain, on one node", q.deployment)]
    wide = q.deployment.weights in ("bf16", "fp16") and q.deployment.experts in ("bf16", "fp16")
    if wide and "fp8" in q.system.chip.matrix_flop_per_s:
        narrow = replace(q.deployment, weights="fp8", experts="fp8")
        forms.append(("plain, weights in fp8", narrow))
    for what, base in forms:
        choice = _plain(case, base, simulate=simulate)
        if choice is not None and _layouts(choice.option) != _layouts(best.option):
            found.append(replace(choice, what=what))
    return found


def _plain(case: SizingCase, base: Deployment, *, simulate: bool) -> Choice | None:
    """The cheapest plain instances of one node, simulated where options are; None where none will do."""
    q, wanted = case.question, case.wanted
    slack = SLACK[case.percentile] if simulate else 1.0
    found: list[Choice] = []
    for curve, least in plain_options(q.model, q.system, base, q.profile, wanted, slack)[:2]:
        few, latencies = least, None
        if simulate:
            goals = (wanted.ttft_ms, wanted.tpot_ms)
            most = found[0].option.worth // curve.deployment.gpus if found else inf
            counts = _counts(curve, wanted, (least, most), "both")
            made_of = fewest(q, curve.deployment, case.side("both"), counts, goals)
            if made_of is None:
                continue
            few, latencies = made_of
        one = curve.at(wanted.rate / few)
        option = Option(kind="aggregated", instance=one, replicas=few)
        found.append(_choice(option, latencies, case))
    return min(found, key=_money, default=None)


def cheaper_refused(case: SizingCase, best: Choice, *, simulate: bool) -> Choice | None:
    """The cheapest way that meets the targets for less than the best one and that the engine does not launch.

    None where none of the first few does.
    """
    for option in case.found.blocked[:REFUSED]:
        if option.worth >= best.option.worth:
            break
        found = _simulated_choice(option, case, best.option.worth) if simulate else None
        choice = found if simulate else _choice(option, None, case)
        if choice is not None and choice.meets and choice.option.worth < best.option.worth:
            return choice
    return None


def _layouts(option: Option) -> Layouts:
    """What an option is made of, however many of it."""
    return option.instance.deployment, option.prefill.deployment if option.prefill else None


def _money(choice: Choice) -> tuple[float, bool, float, float]:
    """Rank of a choice: least rent (chips where none is known), simulated, most headroom of which one
    can be sure, soonest."""
    rent = choice.usd_per_hour or float(choice.option.gpus)
    late = choice.tpot_ms + choice.ttft_ms
    sure = (1.0 + choice.headroom) * choice.option.sure_per_s / choice.option.requests_per_s
    return rent, not choice.simulated, -round(sure, 2), late


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


def _simulate(case: SizingCase, candidates: Sequence[Option]) -> tuple[list[Choice], set[Layouts]]:
    """Candidates of each kind in the order of their bound, until none left can be cheaper; and the layouts
    that were looked at."""
    choices: list[Choice] = []
    tried: set[Layouts] = set()
    for kind in ("aggregated", "disaggregated"):
        best, equal = inf, 0
        for option in candidates:
            if option.kind != kind:
                continue
            equal += option.worth >= best
            if option.worth > best or equal > EQUAL:
                break
            tried.add(_layouts(option))
            choice = _simulated_choice(option, case, best)
            if choice is not None:
                choices.append(choice)
                best = min(best, choice.option.worth)
    return choices, tried


def _simulated_choice(option: Option, case: SizingCase, most: float) -> Choice | None:
    """An option with the fewest replicas that meet the targets as simulated; None where no number does, or
    none that is worth at most so much."""
    q, wanted, found = case.question, case.wanted, case.found
    back, spare = option.instance.deployment, most - option.worth
    curves = found.curves.backs if option.prefill else found.curves.together
    curve = next(c for c in curves if c.deployment == back)
    side: Side = "decode" if option.prefill else "both"
    front = None if option.prefill is None else _PrefillSide.of(option, case)
    upto = _affordable(option.replicas, spare, back.gpus)
    if front is not None and front.is_late(case, spare, (curve, upto)):
        return None
    goals = (inf if option.prefill else wanted.ttft_ms, wanted.tpot_ms)
    counts = _counts(curve, wanted, (option.replicas, upto), side)
    made_of = fewest(q, back, case.side(side), counts, goals)
    if made_of is None:
        return None
    few, (ttft, tpot) = made_of
    made = replace(option, replicas=few, instance=curve.at(wanted.rate / few))
    if front is None:
        return _choice(made, (ttft, tpot), case)
    moved, joined = front.moved_ms(case, curve, few)
    left = replace(wanted, ttft_ms=wanted.ttft_ms - moved - joined)
    upto = _affordable(front.least, most - made.worth, front.each)
    counts = _counts(front.curve, left, (front.least, upto), "prefill")
    layout = front.curve.deployment
    made_of = fewest(front.question, layout, case.side("prefill"), counts, (left.ttft_ms, inf))
    if made_of is None:
        return None
    many, (first, _) = made_of
    one = front.curve.at(wanted.rate / many)
    made = replace(made, prefill=one, prefill_replicas=many, transfer_ms=moved)
    return _choice(made, (first + moved + joined, tpot), case)


def _affordable(least: int, worth: float, each: float) -> float:
    """Instances where so much more may be paid than for the fewest; infinite: any number."""
    return inf if worth == inf else least + worth // each


def _counts(
    curve: LoadCurve, wanted: ServiceTargets, between: tuple[int, float], side: Side
) -> ReplicaCounts:
    """Numbers of replicas to look at, the closed form's at somewhat shorter targets first."""
    least, most = between
    guess = curve.replicas(wanted, SHARE[side]) or least
    return ReplicaCounts(least=least, most=most, guess=guess)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PrefillSide:
    """Prefill instances of an option, to be simulated."""

    question: ServeQuestion
    """The service on their chips."""
    place: PrefillPlace | None
    """Where they must be."""
    curve: LoadCurve
    """Their latencies in closed form."""
    least: int
    """The fewest that can meet the targets."""
    each: float
    """Rent of one, in chips that decode."""

    @classmethod
    def of(cls, option: Option, case: SizingCase) -> "_PrefillSide":
        """Those of an option that has them."""
        q, curves = case.question, case.found.curves
        place = case.place if option.prefill_placed else None
        assert option.prefill is not None
        layout = option.prefill.deployment
        fronts = curves.fronts if place is None else curves.placed
        return cls(
            question=q if place is None else replace(q, system=place.system, profile=place.profile),
            place=place,
            curve=next(c for c in fronts if c.deployment == layout),
            least=option.prefill_replicas,
            each=option.prefill_worth * layout.gpus,
        )

    def moved_ms(self, case: SizingCase, back: LoadCurve, replicas: float) -> tuple[float, float]:
        """Milliseconds of a cache on its way to so many that decode, and from there to its first token."""
        q, wanted = case.question, case.wanted
        load = (wanted.isl, wanted.rate / replicas)
        return joined_ms(q.model, (q.system, self.place), self.curve, back, load)

    def is_late(self, case: SizingCase, worth: float, backs: tuple[LoadCurve, float]) -> bool:
        """Whether first tokens are late even with the most prefill and decode instances for the money."""
        most = _affordable(self.least, worth, self.each)
        if most == inf:
            return False
        layout = self.curve.deployment
        first, _ = side_ms(self.question, layout, case.side("prefill"), int(most))
        return first + sum(self.moved_ms(case, *backs)) > case.wanted.ttft_ms
