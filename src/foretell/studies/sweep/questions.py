"""The question of one point of a study, and its answer as a row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from foretell.api import training as api
from foretell.api.cost import (
    Payment,
    RunQuestion,
    TokenQuestion,
    check_payment,
    estimate_bill,
    run_cost,
    service_bill,
    speed_settings,
    token_cost,
)
from foretell.api.serving import closed_form, closed_forms, serve, with_own_tails
from foretell.api.serving_questions import question_of
from foretell.api.size import size
from foretell.catalog.names import exists
from foretell.catalog.prices import price
from foretell.economics.ask import PackageQuestion, chip_cost, package_cost
from foretell.economics.ask_system import SystemQuestion, system_cost
from foretell.errors import BadInput, ForetellError, ProblemsError, Shortfall, wrong
from foretell.inputs.overrides import apply_settings, parse_settings
from foretell.inputs.question import ask, plan_of
from foretell.search.search import SearchResult
from foretell.serving.serve import ServeQuestion
from foretell.specs.cost import Prices
from foretell.specs.questions.flags import fields_of
from foretell.specs.questions.serving import ServiceQuestion
from foretell.specs.questions.training import RunConditions
from foretell.specs.result import StepEstimate
from foretell.specs.scenario import Scenario
from foretell.specs.service import ServiceEstimate
from foretell.specs.study import BEST, Axis, Study, Verb, Workload
from foretell.studies.axes import FLAGS, PAID, RUN
from foretell.studies.plan_words import with_words
from foretell.studies.study_file import settings_of, text_of
from foretell.studies.sweep.columns import (
    TABLES,
    bill_row,
    cost_row,
    serving_row,
    table_columns,
    training_row,
    work_row,
)
from foretell.training.long_run import asked_run, conditions_of, with_run

RENT = "prices.usd_per_chip_hour"
"""The rent of a chip, which is a flag of serving."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointQuestion:
    """What one point asks."""

    verb: Verb
    """Of whom."""
    flags: Mapping[str, Any]
    """Flags but for plan and settings."""
    settings: tuple[str, ...]
    """`path=value` texts."""
    plan: str
    """The plan's words, or best."""
    fields: tuple[tuple[str, Any], ...]
    """Fields of the plan that the point has on top."""

    @property
    def words(self) -> str:
        """The plan with its further fields as words; empty where nothing is fixed."""
        return with_words("" if self.plan == BEST else self.plan, self.fields)

    @property
    def place(self) -> dict[str, Any]:
        """Flags of a training step."""
        apart = (*RUN, *PAID, "price")
        return {name: value for name, value in self.flags.items() if name not in apart}

    @property
    def conditions(self) -> RunConditions:
        """Those of a whole run."""
        return RunConditions(**{name: self.flags[name] for name in RUN if name in self.flags})

    @property
    def payment(self) -> Payment | None:
        """How work is paid for; none where nothing says so."""
        by_price = self.verb == "estimate" and "price" in self.flags
        if not by_price and not {*PAID} & {*self.flags}:
            return None
        given = {name: self.flags[name] for name in (*PAID, "price") if name in self.flags}
        return Payment(**given, set=self.settings)

    @property
    def speed(self) -> tuple[str, ...]:
        """Settings that a question of speed understands: where it is paid for, money goes elsewhere."""
        return self.settings if self.payment is None else speed_settings(self.settings)


def question(
    study: Study, workload: Workload | None, chosen: Sequence[tuple[Axis, Any]]
) -> PointQuestion:
    """The question that values of some axes come to."""
    own = {} if workload is None else dict(workload.base)
    flags = {**study.base, **{n: v for n, v in own.items() if "." not in n and n != "set"}}
    settings = dict(text.partition("=")[::2] for text in (*study.settings, *settings_of(own)))
    fields = []
    for axis, value in chosen:
        if axis.is_flag:
            flags[axis.path] = value
        elif axis.path.startswith("plan."):
            fields.append((axis.path.removeprefix("plan."), value))
        else:
            settings[axis.path] = text_of(value)
    # The words of a plan for one kind of question say nothing to another.
    alike = workload is None or workload.kind in ("", study.kind)
    plan = str(flags.pop("plan", study.plan if alike else BEST))
    verb = study.verb_of(workload)
    flags = {name: value for name, value in flags.items() if name in FLAGS[verb]}
    if verb in ("estimate", "cost run") and plan == BEST:
        settings |= {f"plan.{name}": text_of(value) for name, value in fields}
    if verb in ("serve", "size") and RENT in settings:
        flags["price"] = float(settings.pop(RENT))
    return PointQuestion(
        verb=verb,
        flags=flags,
        settings=tuple(f"{path}={text}" for path, text in settings.items()),
        plan=plan,
        fields=tuple(fields),
    )


def scenario_of(asked: PointQuestion) -> Scenario:
    """The scenario of a training step."""
    return ask(**{"model": "", **asked.place}, set=asked.speed)


def rent_of(scenario: Scenario) -> float:
    """What a chip is rented for, by the hour: set by hand, or the catalogue's; 0 where unknown."""
    chip = scenario.system.chip.id
    known = price(chip) if exists(chip) else Prices()
    given = [f"{p}={v}" for p, v in scenario.overrides.items() if p.startswith("prices.")]
    return float(apply_settings(known, parse_settings(given), "prices").usd_per_chip_hour)


def answer_row(asked: PointQuestion) -> dict[str, Any]:
    """The answer as a row; where it is no, a row that says why."""
    try:
        match asked.verb:
            case "estimate":
                return _best(asked)
            case "serve":
                return _served(asked)
            case "size":
                return _sized(asked)
            case _:
                return _priced(asked)
    except ProblemsError as error:
        return no_row(error)


def no_row(error: ProblemsError) -> dict[str, Any]:
    """A row that says why there is no answer."""
    return {"fits": "no", "problem": "; ".join(str(problem) for problem in error.problems)}


def _best(asked: PointQuestion) -> dict[str, Any]:
    """The best plan found."""
    conditions = conditions_of(asked.conditions)
    found = api.search(**asked.place, set=asked.speed, top=1)
    if not found.plans:
        why = str(found.why_none)
        return {"fits": "no", **_counts(found), "problem": why}
    best: StepEstimate = found.best
    scenario = scenario_of(asked) if best.scenario is None else best.scenario
    if conditions is not None:
        best = with_run(best, asked_run(scenario, conditions))
    row = estimate_row(asked, scenario, best)
    return row | _counts(found)


def _counts(found: SearchResult) -> dict[str, int]:
    """Plans of a search by what was done with them."""
    return {"plans_evaluated": found.plans_evaluated, "plans_pruned": found.plans_pruned}


def estimate_row(asked: PointQuestion, scenario: Scenario, result: StepEstimate) -> dict[str, Any]:
    """The row of an estimate, with its bill where it is paid for."""
    if asked.payment is None:
        return training_row(result, rent_of(scenario))
    bill = estimate_bill(result, asked.payment)
    usd_per_hour = bill.facts["usd_per_gpu_hour"]
    return training_row(result, usd_per_hour) | bill_row(bill)


def _served(asked: PointQuestion) -> dict[str, Any]:
    """A service, with its bill where it is paid for: of a unit rent, tokens in and out show their shares."""
    payment = asked.payment
    if payment is None:
        return serving_row(serve(**asked.flags, plan=asked.words or None, set=asked.settings))
    question, given = load_question(asked, price=1.0)
    return paid_row(asked, question, closed_form(question, given))


def paid_row(
    asked: PointQuestion, question: ServeQuestion, served: ServiceEstimate
) -> dict[str, Any]:
    """A service as a row, with its bill where it is paid for, else with the percentiles of `serve`."""
    if asked.payment is None:
        return serving_row(with_own_tails(served, question))
    bill = service_bill(served, question, asked.payment)
    row = serving_row(served) | bill_row(bill, served.osl / (served.isl + served.osl))
    named = ("usd_per_million_input_tokens", "usd_per_million_output_tokens")
    row |= {name: bill.facts[name] for name in named}
    return row | {"usd_per_chip_hour": bill.facts["usd_per_gpu_hour"]}


def served_rows(all_asked: Sequence[PointQuestion]) -> list[dict[str, Any]]:
    """Services as rows, with their bills: those that differ in numbers of their system are one batch."""
    rows: list[dict[str, Any] | None] = [None] * len(all_asked)
    loads: dict[int, tuple[ServeQuestion, bool]] = {}
    for place, asked in enumerate(all_asked):
        if not is_plain_load(asked):
            rows[place] = answer_row(asked)
            continue
        try:
            loads[place] = load_question(asked, None if asked.payment is None else 1.0)
        except ProblemsError as error:
            rows[place] = no_row(error)
    for given in (True, False):
        places = [place for place, load in loads.items() if load[1] is given]
        found = closed_forms([loads[place][0] for place in places], given)
        for place, one in zip(places, found, strict=True):
            if isinstance(one, ProblemsError):
                rows[place] = no_row(one)
                continue
            try:
                rows[place] = paid_row(all_asked[place], loads[place][0], one)
            except ProblemsError as error:
                rows[place] = no_row(error)
    return [row or {} for row in rows]


def is_plain_load(asked: PointQuestion) -> bool:
    """Whether a service is asked by its closed form alone."""
    known = {field.name for field in fields_of(ServiceQuestion)}
    return {*asked.flags} <= known | {*PAID}


def _sized(asked: PointQuestion) -> dict[str, Any]:
    """How many chips a service takes."""
    found = size(**asked.flags, plan=asked.words or None, set=asked.settings, top=1)
    told = found.to_dict()
    return {
        **told["best"],
        **{n: told[n] for n in ("model", "system", "profile", "rate", "isl", "osl")},
    }


def _priced(asked: PointQuestion) -> dict[str, Any]:
    """What a chip, a package, a system or work costs."""
    columns = table_columns(*TABLES[asked.verb])
    if asked.verb in ("cost run", "cost token"):
        plan = asked.words or None
        if asked.verb == "cost run":
            run = RunQuestion(**asked.flags, plan=plan, set=asked.settings)
            return work_row(run_cost(run), columns)
        token = TokenQuestion(**asked.flags, plan=plan, set=asked.settings)
        return work_row(token_cost(token), columns)
    if asked.verb == "cost system":
        return cost_row(system_cost(SystemQuestion(**asked.flags, set=asked.settings)), columns)
    silicon = PackageQuestion(**asked.flags, set=asked.settings)
    return cost_row((chip_cost if asked.verb == "cost chip" else package_cost)(silicon), columns)


def check(asked: PointQuestion) -> None:
    """Raise BadInput where the question cannot be understood; whether the answer is no, is not asked."""
    needs = "model" in FLAGS[asked.verb] and "model" not in asked.flags
    missing = ["model"] if needs else []
    if missing:
        raise BadInput([_missing(name) for name in missing])
    try:
        match asked.verb:
            case "estimate":
                conditions_of(asked.conditions)
                _check_payment(asked)
                scenario = scenario_of(asked)
                plan_of(scenario, asked.words or None, asked.speed)
            case "serve" | "size" | "cost token":
                _check_payment(asked)
                load_question(asked)
            case "cost run":
                _check_payment(asked)
                scenario_of(asked)
            case _:
                _priced(asked)
    except BadInput as error:
        # A chip that cannot be built is a point whose answer is no.
        wrong = [problem for problem in error.problems if not isinstance(problem, Shortfall)]
        if wrong:
            raise BadInput(wrong) from None
    except ForetellError:
        return


def _missing(name: str) -> Any:

    return wrong(name, None, "missing", "in [base] or [vary]")


def _check_payment(asked: PointQuestion) -> None:
    """How it is paid for, without paying."""
    if asked.payment is not None:
        check_payment(asked.payment)


def service_question(asked: PointQuestion, price: float | None = None) -> ServiceQuestion:
    """The flags of serving as a user would give them."""
    known = [field.name for field in fields_of(ServiceQuestion)]
    flags = {name: asked.flags[name] for name in known if name in asked.flags}
    money_apart = asked.verb == "cost token"
    settings = speed_settings(asked.settings) if money_apart else asked.speed
    given = ServiceQuestion(**flags, plan=asked.words or None, set=settings)
    return given if price is None else replace(given, price=price)


def load_question(asked: PointQuestion, price: float | None = None) -> tuple[ServeQuestion, bool]:
    """The flags of serving as its question, without serving anything; and whether a layout is given."""
    return question_of(service_question(asked, price))
