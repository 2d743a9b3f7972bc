"""What to get for a model, a budget and a deadline: whole nodes or racks, bought or rented, and how sure.

Each system of the choice is tried bought and rented. A run takes about the same chip-hours on any number of
chips, so that a first estimate says how many meet the deadline; a few more make it as sure as is asked for.
Bought chips cost their years (hardware, power, space, people), rented ones the hours of the run. A service
adds the chips that `size` gives it: bought chips train first and serve then, rented ones are paid for both.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import NormalDist
from typing import Any

from foretell import catalog, units
from foretell.api.cost import Payment, run_cost
from foretell.api.size import size
from foretell.api.training import estimate
from foretell.catalog.prices import provider_offers
from foretell.catalog.prices import rent as catalog_rent
from foretell.economics.fabric import per_node_chips
from foretell.economics.work import RESERVED
from foretell.errors import BadInput, Infeasible, Problem, ProblemsError, wrong
from foretell.records import Answer, as_json, dataclass
from foretell.specs.questions.buy import BuyQuestion
from foretell.specs.questions.cost import RunQuestion
from foretell.specs.questions.flags import asks
from foretell.specs.questions.sizing import SizeQuestion
from foretell.studies.procurement.clusters import affordable, cost_of, rent_of, years_of

SYSTEMS = ("hgx-h100", "hgx-h200", "dgx-b200", "gb200-nvl72")
"""What is chosen from where nothing is named."""
RENTED = ("on-demand", "reserved", "spot")
"""Terms of rent: paid by the hour, paid ahead, or taken back when others pay more."""
WAYS: Mapping[str, tuple[str, ...]] = {
    "both": ("own", *RENTED), "buy": ("own",), "rent": RENTED, **{term: (term,) for term in RENTED},
}  # fmt: skip
"""Words of `pay` -> ways to pay that are tried."""
WORDS = {
    "own": "", "on-demand": " on demand", "spot": " at spot rents", "capacity-block": " as a capacity block",
    "1-year": " reserved for 1 year", "3-year": " reserved for 3 years",
}  # fmt: skip
"""How chips are paid, behind their name."""
SPOT_WORDS = "spot: the provider may take the GPUs back; the days do not have such interruptions"
SURE = 0.8
"""Probability of meeting the deadline that chips are added for."""
TRIES, STEP = 5, 1.2
"""Sizes that are tried for it, and how much larger each is."""
SPREAD = 2.0 * NormalDist().inv_cdf(0.95)
"""Width of a 90 % interval in standard deviations."""
TTFT_MS, TPOT_MS = SizeQuestion.ttft, SizeQuestion.tpot
"""Latency targets of the service."""
DAY_S, HOURS_PER_YEAR = 86400.0, 8766.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BuyOption:
    """One way to get the work done."""

    system: str
    """Of what."""
    paid: str
    """own, or the term of the rent."""
    gpus: int
    """Chips."""
    units: int
    """Whole nodes or racks."""
    unit: str
    """node or rack."""
    serving_gpus: int | None
    """Chips of these, or more, that the service takes; None: nothing is served."""
    days: float | None
    """How long training takes; None: nothing is trained."""
    days_interval: tuple[float, float] | None
    """Nine in ten."""
    sure: float | None
    """Probability that it is done by the deadline; None: nothing is trained, or GPUs may be taken back."""
    usd: float
    """What all of it costs."""
    usd_interval: tuple[float, float]
    """With the range of rents and of the time, nine in ten."""
    years: float
    """Over how many years."""
    plan: str
    """The plan of training."""
    price: str
    """What a chip costs, and where that is from."""
    within: bool
    """Whether it is within the budget."""
    assumptions: tuple[str, ...]
    """What it rests on."""

    @property
    def name(self) -> str:
        """What is got, in words."""
        how = "Buy" if self.paid == "own" else "Rent"
        plural = "" if self.units == 1 else "s"
        many = f"{how} {self.units} {self.unit}{plural} of {self.system} ({self.gpus:,} GPUs)"
        return many + WORDS.get(self.paid, "")

    to_dict = as_json(more=("name",))


@dataclass(frozen=True, slots=False, kw_only=True)
class Purchase(Answer):
    """What to get, what else there is, and what would change the choice."""

    verb = "buy"

    model: str
    """For what."""
    budget_usd: float | None
    """What it may cost."""
    deadline_days: float
    """When training has to be done."""
    options: tuple[BuyOption, ...]
    """The best first."""
    problems: tuple[str, ...]
    """Systems that cannot do it, with the reason."""
    changes: tuple[str, ...]
    """What would change the choice."""
    energy_mwh: float | None
    """Energy of the training run by the first option, at the meter; None: nothing is trained."""
    carbon_kg: float | None
    """Its carbon on the grid of the region, that of making the machines included."""
    rents: tuple[Mapping[str, Any], ...]
    """What providers ask for chips of the options: the offers behind each term, the cheapest first."""

    to_dict = as_json(more=("headline",))

    @property
    def headline(self) -> tuple[str, ...]:
        """What to get, what it costs, when it is done and how sure."""
        best = self.options[0]
        low, high = (money(usd) for usd in best.usd_interval)
        span = (
            f"over {best.years:g} years"
            if best.paid == "own" or best.serving_gpus
            else "for the run"
        )
        over = "" if best.within else f", above the budget of {money(self.budget_usd or 0.0)}"
        around = "" if low == high else f" (90%: {low} to {high})"
        lines = [
            f"{best.name}.",
            f"It costs {money(best.usd)} USD {span}{around}{over}.",
        ]
        if best.days is None or best.days_interval is None:
            return (*lines, f"It serves the load with {best.serving_gpus} GPUs.")
        sure = "if the provider takes no GPUs back"
        if best.sure is not None:
            sure = f"{100 * best.sure:.0f}% sure by the deadline of {self.deadline_days:.0f} days"
        low_days, high_days = best.days_interval
        done = f"Training is done in {best.days:.0f} days (90%: {low_days:.0f} to {high_days:.0f}), {sure}"
        served = (
            f"; then {best.serving_gpus} of the GPUs serve the load" if best.serving_gpus else ""
        )
        return (*lines, f"{done}{served}.")


def money(usd: float) -> str:
    """Dollars in three digits."""
    for size_of, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if usd >= size_of:
            return f"{usd / size_of:.3g}{unit}"
    return f"{usd:.3g}"


@asks(BuyQuestion)
def buy(question: BuyQuestion) -> Purchase:
    """What to get for a model: whole nodes or racks, bought or rented, when it is done, and how sure.

    `tokens` are trained by the `deadline`, `rate` requests a second or so many `users` are served; one of
    these is needed.
    """
    budget, deadline_days, systems = _checked(question)
    question = _with_rate(question)
    options: list[BuyOption] = []
    problems: list[str] = []
    for system in systems:
        try:
            options += _options(question, str(system), deadline_days, budget)
        except ProblemsError as error:
            problems.append(f"{system}: {'; '.join(p.message for p in error.problems)}")
    if not options:
        raise Infeasible([wrong("systems", None, text) for text in problems])
    options.sort(key=lambda one: (not _does(one), not one.within, one.usd))
    energy, carbon = _footprint(question, options[0])
    return Purchase(
        model=str(question.model),
        budget_usd=budget,
        deadline_days=deadline_days,
        options=tuple(options),
        problems=tuple(problems),
        changes=_changes(options, budget, deadline_days),
        energy_mwh=energy,
        carbon_kg=carbon,
        rents=tuple(_listed(options)),
    )


def _listed(options: Sequence[BuyOption]) -> Iterator[dict[str, Any]]:
    """The offers behind the rents of the options."""
    for system, term in dict.fromkeys((one.system, one.paid) for one in options):
        for offer in () if term == "own" else provider_offers(_chip_of(system), term):
            yield {
                "system": system, "term": term, "provider": offer.provider,
                "instance": offer.instance, "region": offer.region,
                "usd_per_gpu_hour": offer.latest_usd_per_chip_hour, "listed": offer.last_seen,
                "listing": offer.source,
            }  # fmt: skip


def _chip_of(system: str) -> str:
    return catalog.system(system).chip.id


def _checked(question: BuyQuestion) -> tuple[float | None, float, Sequence[Any]]:
    """Budget, deadline in days, and the systems; BadInput with all that is wrong."""
    problems: list[Problem] = []
    if question.tokens is None and question.rate is None and question.users is None:
        message, allowed = "nothing to do", "--tokens to train, --rate or --users to serve, or both"
        problems.append(wrong("tokens", None, message, allowed))
    if question.users is not None and (question.rate is not None or not 0 < question.users < 1e9):
        allowed = "a number above 0, without --rate"
        message = "is the rate in other words" if question.rate is not None else "out of range"
        problems.append(wrong("users", question.users, message, allowed))
    if question.pay not in WAYS:
        problems.append(wrong("pay", question.pay, "unknown", ", ".join(WAYS)))
    given = question.systems or SYSTEMS
    systems = given.split(",") if isinstance(given, str) else given
    budget = deadline = None
    try:
        budget = None if question.budget is None else units.parse(question.budget, "usd", "budget")
        deadline = units.parse(question.deadline, "s", "deadline") / DAY_S
    except BadInput as error:
        problems += error.problems
    if problems or deadline is None:
        raise BadInput(problems)
    return budget, deadline, [text.strip() if isinstance(text, str) else text for text in systems]


def _with_rate(question: BuyQuestion) -> BuyQuestion:
    """The question with the requests a second of so many users: each waits for its answer, at the slowest
    that is allowed, and sends the next one."""
    if question.users is None:
        return question
    answer_s = (TTFT_MS + float(question.osl) * TPOT_MS) / 1e3
    return replace(question, rate=question.users / answer_s, users=None)


def _does(option: BuyOption) -> bool:
    """Whether the deadline is more likely met than not; on spot rents nobody knows."""
    return option.days is None or (option.sure is not None and option.sure >= 0.5)


def unit_of(system: str) -> tuple[int, str]:
    """Chips that are bought at once, and what they are: a rack where the system is one, else a node."""
    made = catalog.system(system)
    chips = 1.0
    for tier in made.network.tiers:
        chips *= float(tier.size)
        if tier.name == "rack":
            return round(chips), "rack"
    return round(per_node_chips(made)), "node"


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemWork:
    """What is asked of one system."""

    question: BuyQuestion
    """The work."""
    system: str
    """Which."""
    each: int
    """Chips that are got at once."""
    unit: str
    """What these are."""
    deadline_days: float
    """When training has to be done."""
    budget: float | None
    """What it may cost."""
    served: int | None = None
    """Chips that the service takes."""

    @property
    def own(self) -> Payment:
        """How bought chips are paid."""
        asked = self.question
        return Payment(years=asked.years, utilisation=asked.utilisation, rent="own")

    @property
    def run(self) -> dict[str, Any]:
        """The run, for `estimate`, but for the chips."""
        names = ("tokens", "seq_len", "global_batch", "plan", "set")
        return {"system": self.system, **{name: getattr(self.question, name) for name in names}}


def _options(
    question: BuyQuestion, system: str, deadline_days: float, budget: float | None
) -> list[BuyOption]:
    """A system, bought and rented; where the budget does not buy what meets the deadline, what it buys."""
    each, unit = unit_of(system)
    work = SystemWork(
        question=question, system=system, each=each, unit=unit, deadline_days=deadline_days,
        budget=budget,
    )  # fmt: skip
    if question.rate is not None:
        words: Any = {"isl": question.isl, "osl": question.osl, "simulate": False}
        sized = size(question.model, rate=question.rate, system=system, **words)
        work = replace(work, served=sized.best.gpus)
    trained = None if question.tokens is None else _trained(work)
    found, problems = [], list[Problem]()
    for way in WAYS[question.pay]:
        try:
            found.append(_priced(work, way, trained))
        except BadInput as error:  # nobody knows a price of it
            problems += error.problems
    if not found:
        raise Infeasible(problems)
    if trained and budget is not None and found[0].paid == "own" and not found[0].within:
        with suppress(ProblemsError):
            gpus = affordable(system, budget, work.own)[0].gpus // each * each
            found.append(_priced(work, "own", estimate(question.model, gpus=gpus, **work.run)))
    return found


def _trained(work: SystemWork) -> Any:
    """The run on the fewest whole units that hold the model and are sure enough to meet the deadline."""
    model, each = work.question.model, work.each
    enough = math.ceil(estimate(model, **{**work.run, "tokens": None}).gpus / each) * each
    first = estimate(model, gpus=enough, **work.run)
    assert first.run is not None
    many = max(math.ceil(first.run.gpu_hours / 24.0 / work.deadline_days / each), 1)
    found = first
    for _ in range(TRIES):
        gpus = many * each
        found = first if gpus == first.gpus else estimate(model, gpus=gpus, **work.run)
        if _probability(found, work.deadline_days) >= SURE:
            return found
        many = math.ceil(many * STEP)
    return found


def _probability(found: Any, deadline_days: float) -> float:
    """That a run is done by the deadline; its interval is taken as lognormal."""
    low, high = found.run.interval["p90"]
    spread = math.log(high / low) / SPREAD
    return NormalDist().cdf(math.log(deadline_days / math.sqrt(low * high)) / spread)


def _priced(work: SystemWork, way: str, trained: Any) -> BuyOption:
    """One way to pay for a run, a service, or both."""
    system, served = work.system, work.served
    many = math.ceil(max(trained.gpus if trained else 0, served or 0) / work.each)
    gpus = many * work.each
    if way == "own":
        bill = cost_of(system, gpus, work.own)
        usd, years, said = bill.usd or 0.0, bill.years or 1.0, bill.assumptions
        interval = usd * bill.low, usd * bill.high
        price = f"{usd / gpus / years:,.0f} USD a GPU and year in all"
    else:
        years = years_of(work.own)[0]
        way, rent = rent_of(system, Payment(rent=way))
        low, _, high, source = catalog_rent(_chip_of(system), way) or (rent, rent, rent, "")
        hours = _paid_hours(way, trained, gpus, served or 0, years)
        usd, interval = rent * hours[1], (low * hours[0], high * hours[2])
        said = (source, SPOT_WORDS) if way == "spot" else (source,)
        price = f"{rent:.2f} USD a GPU and hour"
        price += f" ({low:.2f} to {high:.2f})" if high > low else ""
    days = None if trained is None else trained.run.days
    return BuyOption(
        system=system,
        paid=way,
        gpus=gpus,
        units=many,
        unit=work.unit,
        serving_gpus=served,
        days=days,
        days_interval=None if trained is None else tuple(trained.run.interval["p90"]),
        sure=None
        if trained is None or way == "spot"
        else _probability(trained, work.deadline_days),
        usd=usd,
        usd_interval=interval,
        years=years,
        plan="" if trained is None else str(trained.plan),
        price=price,
        within=work.budget is None or usd <= work.budget,
        assumptions=(*said, *(trained.assumptions if trained is not None else ())),
    )


def _paid_hours(
    term: str, trained: Any, gpus: int, served: int, years: float
) -> tuple[float, float, float]:
    """Chip-hours that are paid: those of the run, at the ends of its interval and as predicted, and of the
    service; of a reservation whole terms of all chips."""
    run = (0.0, 0.0, 0.0)
    if trained is not None:
        whole = trained.run
        low, high = (whole.gpu_hours * end / whole.days for end in whole.interval["p90"])
        run = low, whole.gpu_hours, high
    if term not in RESERVED:
        serving = served * HOURS_PER_YEAR * years
        return run[0] + serving, run[1] + serving, run[2] + serving
    each = HOURS_PER_YEAR * gpus * int(term[0])
    wanted = (years * HOURS_PER_YEAR * gpus if served else hours for hours in run)
    low, middle, high = (max(math.ceil(hours / each), 1) * each for hours in wanted)
    return low, middle, high


def _footprint(question: BuyQuestion, best: BuyOption) -> tuple[float | None, float | None]:
    """Energy and carbon of the training run that is proposed."""
    if question.tokens is None:
        return None, None
    names = ("model", "tokens", "seq_len", "global_batch", "region", "set")
    asked: Any = {name: getattr(question, name) for name in names}
    found = run_cost(RunQuestion(system=best.system, gpus=best.gpus, plan=best.plan, **asked))
    return found.facts["energy_mwh"], found.facts["carbon_kg"]


def _changes(
    options: Sequence[BuyOption], budget: float | None, deadline_days: float
) -> tuple[str, ...]:
    """What the budget does where it is too small, what the second best would have to cost to be the best, and
    what makes neither of them sure."""
    best, said = options[0], []
    if not best.within and budget is not None:
        said.append(
            f"A budget of {money(best.usd)} USD, {100 * (best.usd / budget - 1):.0f}% more, would do."
        )
        cheaper = min(
            (one for one in options if one.within and one.days is not None),
            key=lambda one: one.days or 0.0,
            default=None,
        )
        if cheaper is not None:
            said.append(
                f"Within the budget: {cheaper.name}, done in {cheaper.days:.0f} days instead of "
                f"{deadline_days:.0f}."
            )
    firm = [one for one in options if one.paid != "spot" or best.paid == "spot"]
    spot = next((one for one in options if one.paid == "spot" and one.usd < best.usd), None)
    if spot is not None and spot not in firm:
        less = 100 * (1 - spot.usd / best.usd)
        said.append(
            f"{spot.name} costs {less:.0f}% less, but the provider may take the GPUs back at any time."
        )
    if len(firm) < 2:
        return tuple(said)
    second = firm[1]
    if second.usd > best.usd:
        less = 100 * (1 - best.usd / second.usd)
        said.append(f"{second.name} would be the choice if its price fell by {less:.0f}%.")
    if second.usd_interval[0] < best.usd_interval[1]:
        said.append("The ranges of the two overlap: a quote for each decides.")
    if best.sure is not None and best.sure < SURE:
        said.append("More GPUs or a later deadline make it surer; so does one measured run.")
    return tuple(said)
