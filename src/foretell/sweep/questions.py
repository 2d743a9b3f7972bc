"""The question of one point of a study, and its answer as a row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foretell import api
from foretell.catalog.prices import price
from foretell.economics.ask import PackageQuestion, chip_cost, package_cost
from foretell.economics.ask_system import SystemQuestion, system_cost
from foretell.errors import BadInput, ForetellError, ProblemsError
from foretell.long_run import asked_run, conditions_of, with_run
from foretell.overrides import apply_settings, parse_settings
from foretell.question import ask, plan_of
from foretell.search.plan_words import with_words
from foretell.search.study import RUN, settings_of, text_of
from foretell.serve import question_of, serve
from foretell.size import size
from foretell.specs.scenario import Scenario
from foretell.specs.study import BEST, Axis, Study, Verb, Workload
from foretell.sweep.columns import OF_VERB, cost_row, serving_row, training_row

RENT = "prices.usd_per_chip_hour"
"""The rent of a chip, which is a flag of serving."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
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
        return {name: value for name, value in self.flags.items() if name not in RUN}


def question(
    study: Study, workload: Workload | None, chosen: Sequence[tuple[Axis, Any]]
) -> Question:
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
    plan = str(flags.pop("plan", study.plan))
    if study.verb == "estimate" and plan == BEST:
        settings |= {f"plan.{name}": text_of(value) for name, value in fields}
    if study.kind == "serving" and RENT in settings:
        flags["price"] = float(settings.pop(RENT))
    return Question(
        verb=study.verb,
        flags=flags,
        settings=tuple(f"{path}={text}" for path, text in settings.items()),
        plan=plan,
        fields=tuple(fields),
    )


def scenario_of(asked: Question) -> Scenario:
    """The scenario of a training step."""
    return ask(**{"model": "", **asked.place}, settings=asked.settings)


def rent_of(scenario: Scenario) -> float:
    """What a chip is rented for, by the hour: set by hand, or the catalogue's; 0 where unknown."""
    known = price(scenario.system.chip.id)
    given = [f"{p}={v}" for p, v in scenario.overrides.items() if p.startswith("prices.")]
    return float(apply_settings(known, parse_settings(given), "prices").usd_per_chip_hour)


def answer_row(asked: Question) -> dict[str, Any]:
    """The answer as a row; where it is no, a row that says why."""
    try:
        match asked.verb:
            case "estimate":
                return _best(asked)
            case "serve":
                return serving_row(
                    serve(**asked.flags, plan=asked.words or None, set=asked.settings)
                )
            case "size":
                return _sized(asked)
            case _:
                return _priced(asked)
    except ProblemsError as error:
        return no_row(error)


def no_row(error: ProblemsError) -> dict[str, Any]:
    """A row that says why there is no answer."""
    return {"fits": "no", "problem": "; ".join(str(problem) for problem in error.problems)}


def _best(asked: Question) -> dict[str, Any]:
    """The best plan found."""
    given = {name: asked.flags.get(name) for name in RUN}
    conditions = conditions_of(given.pop("tokens"), given)
    found = api.search(**asked.place, set=asked.settings, top=1)
    if not found.plans:
        reasons = "no plan satisfies the rules"
        if found.plans_evaluated:
            reasons = f"none of {found.plans_evaluated} plans fits in memory"
        return {"fits": "no", "plans_evaluated": found.plans_evaluated, "problem": reasons}
    best = found.best
    scenario = scenario_of(asked) if best.scenario is None else best.scenario
    if conditions is not None:
        best = with_run(best, asked_run(scenario, conditions))
    row = training_row(best, rent_of(scenario))
    return row | {"plans_evaluated": found.plans_evaluated}


def _sized(asked: Question) -> dict[str, Any]:
    """How many chips a service takes."""
    found = size(**asked.flags, plan=asked.words or None, set=asked.settings, top=1)
    told = found.to_dict()
    return {
        **told["best"],
        **{n: told[n] for n in ("model", "system", "profile", "rate", "isl", "osl")},
    }


def _priced(asked: Question) -> dict[str, Any]:
    """What a chip, a package or a system costs."""
    columns = OF_VERB[asked.verb]
    if asked.verb == "cost system":
        return cost_row(system_cost(SystemQuestion(**asked.flags, set=asked.settings)), columns)
    silicon = PackageQuestion(**asked.flags, set=asked.settings)
    return cost_row((chip_cost if asked.verb == "cost chip" else package_cost)(silicon), columns)


def check(asked: Question) -> None:
    """Raise BadInput where the question cannot be understood; whether the answer is no, is not asked."""
    missing = [] if asked.verb.startswith("cost") or "model" in asked.flags else ["model"]
    if missing:
        raise BadInput([_missing(name) for name in missing])
    try:
        match asked.verb:
            case "estimate":
                given = {name: asked.flags.get(name) for name in RUN}
                conditions_of(given.pop("tokens"), given)
                scenario = scenario_of(asked)
                plan_of(scenario, asked.words or None, asked.settings)
            case "serve" | "size":
                _check_load(asked)
            case _:
                _priced(asked)
    except BadInput:
        raise
    except ForetellError:
        return


def _missing(name: str) -> Any:
    from foretell.errors import Problem

    return Problem(path=name, value=None, message="missing", allowed="in [base] or [vary]")


def _check_load(asked: Question) -> None:
    """The flags of serving, without serving anything."""
    names = ("isl", "osl", "concurrency", "rate", "price", "spread")
    usual = {"isl": 1024, "osl": 1024, "spread": 1.0}
    question_of(
        asked.flags["model"],
        system=asked.flags.get("system"),
        gpus=asked.flags.get("gpus"),
        plan=asked.words or None,
        engine=str(asked.flags.get("engine", "vllm")),
        settings=asked.settings,
        load={name: asked.flags.get(name, usual.get(name)) for name in names},
    )
