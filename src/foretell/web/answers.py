"""What every verb answers to flags in snake case: exactly what the command line prints with --json.

Each function takes flags that `names.safe` has been over. What is left out has the verb's own default.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import foretell
from foretell.errors import BadInput, bad_input, unknown
from foretell.specs.questions import arguments, question_type
from foretell.specs.questions.flags import fields_of
from foretell.web.limits import MOST_ROWS, Limits, TooMuch, too_much
from foretell.web.names import check_counts, check_points, safe_fleet, safe_study
from foretell.web.progress import report

if TYPE_CHECKING:
    from foretell.api.cost_questions import Priced

Given = dict[str, Any]
Answer = dict[str, Any]


def search(given: Given, limits: Limits) -> Answer:
    """`foretell search`; too many plans are refused as soon as they have been counted."""
    from foretell.api import training as api
    from foretell.report.refusal import no_as_dict

    export, launcher = _tool(given)

    def watch(done: int, total: int) -> None:
        report(done, total)
        if total > limits.plans:
            most = f"at most {limits.plans:,} plans".replace(",", " ")
            raise TooMuch([too_much("over", total, most)])

    found = api.search(**{**given, "progress": watch})
    if not found.plans:
        return {**found.to_dict(), **no_as_dict([found.why_none])}
    return {**found.to_dict(), **_written(found.best.export(export, launcher) if export else None)}


def improve(given: Given, limits: Limits) -> Answer:
    """`foretell improve`: the text of a launch, never a file."""
    from foretell.api.improve import improved
    from foretell.specs.questions.improve import ImproveQuestion

    launcher = given.pop("launcher", None)
    return improved(ImproveQuestion(**given), launcher=launcher).to_dict()


def sensitivity(given: Given, limits: Limits) -> Answer:
    """`foretell sensitivity`: of a training step, or with a load of a service."""
    from foretell.studies.sensitivity import sensitivities

    found: Answer = sensitivities(**given).to_dict()
    return found


def post_train(given: Given, limits: Limits) -> Answer:
    """`foretell post-train`."""
    from foretell.api.post_training import post_train as ask
    from foretell.interop.post_training_write import POST_TRAINING

    export = given.pop("export", None)
    if export is not None and export not in POST_TRAINING:
        raise BadInput([unknown("export", export, POST_TRAINING)])
    found = ask(**given)
    return {**found.to_dict(), **_written(found.export(export) if export else None)}


def scaling(given: Given, limits: Limits) -> Answer:
    """`foretell scaling`, of models or with `study` the study of our documentation."""
    from foretell.studies.scaling.run import scaling as ask
    from foretell.studies.scaling.study import study

    if given.pop("study", False):
        if given:
            raise bad_input("study", True, "has models and systems of its own")
        return study().to_dict()
    check_counts(given)
    return ask(*given.pop("models", ()), **given).to_dict()


def codesign(given: Given, limits: Limits) -> Answer:
    """`foretell codesign`, in this process; nothing is written."""
    from foretell.studies.axes import point_count
    from foretell.studies.study_file import read_study
    from foretell.studies.sweep.codesign import codesign as ask

    study = safe_study(given["study"])
    check_points(lambda: point_count(read_study(study)))
    return ask(study).to_dict()


def _tool(given: Given, *, serving: bool = False) -> tuple[str | None, str | None]:
    """(tool and release, launcher) that an answer is to be written for, taken out of the flags."""
    from foretell.interop.releases import release_of

    tool, launcher = given.pop("export", None), given.pop("launcher", None)
    if tool is not None:
        release_of(str(tool), serving=serving)
    return None if tool is None else str(tool), None if launcher is None else str(launcher)


def _written(found: Any) -> Answer:
    """The text for another tool, and what it does not say."""
    return {} if found is None else found.to_dict()


def _exported(
    name: str,
    write: Callable[..., Any] = lambda found, given, tool, launcher: found.export(tool, launcher),
    *,
    serving: bool = False,
) -> Callable[[Given, Limits], Answer]:
    """What a public function answers, and the text for another tool where one is named."""

    def answer(given: Given, limits: Limits) -> Answer:
        tool, launcher = _tool(given, serving=serving)
        found = getattr(foretell, name)(**given)
        return {
            **found.to_dict(),
            **_written(write(found, given, tool, launcher) if tool else None),
        }

    return answer


def _engine_command(found: Any, given: Given, engine: str, launcher: str | None) -> Any:
    """A deployment as the command of an engine."""
    from foretell.api.serving_commands import launch_command
    from foretell.specs.questions.serving import ServingQuestion

    return launch_command(engine, found, ServingQuestion(**given), launcher)


def _plain(
    name: str, *places: str, changed: Mapping[str, Callable[[Any], Any]] = {}, **more: Any
) -> Callable[[Given, Limits], Answer]:
    """What a public function answers: `places` are its arguments by place, `changed` are made safe before,
    `more` is in the answer besides."""

    def answer(given: Given, limits: Limits) -> Answer:
        given |= {field: safe(given[field]) for field, safe in changed.items() if field in given}
        first = [given.pop(place, ()) for place in places]
        return {**getattr(foretell, name)(*first, **given).to_dict(), **more}

    return answer


def _cost(what: "Priced") -> Callable[[Given, Limits], Answer]:
    """One cost, or a row for every combination of a sweep."""

    def answer(given: Given, limits: Limits) -> Answer:
        from foretell.api.cost_questions import VERBS as PRICED
        from foretell.economics.settings import combinations, parse_sweeps
        from foretell.economics.sweeps import sweep_answers

        _, question, ask = PRICED[what]
        sweep = tuple(given.pop("sweep", ()))
        asked = question(**given)
        if not sweep:
            found: Answer = ask(asked).to_dict()
            return found
        kept = ("set", "progress")
        flags = [field.name for field in fields_of(type(asked)) if field.name not in kept]
        rows = len(combinations(parse_sweeps(sweep, flags)))
        if rows > MOST_ROWS:
            raise TooMuch([too_much("sweep", rows, f"at most {MOST_ROWS} rows")])
        return sweep_answers(ask, asked, sweep)

    return answer


def _by_argument(
    verb: str, answer: Callable[[Given, Limits], Answer]
) -> Callable[[Given, Limits], Answer]:
    """The answer to fields under the names that the web has for them; it reports how far it is."""
    fields = {field.name for field in fields_of(question_type(verb))}
    told: Given = {"progress": report} if "progress" in fields else {}
    return lambda given, limits: answer({**arguments(verb, given), **told}, limits)


_ANSWERS: Mapping[str, Callable[[Given, Limits], Answer]] = {
    "estimate": _exported("estimate"),
    "search": search,
    "explain": _plain("explain"),
    "memory": _plain("memory", out=None),
    "simulate": _plain("simulate", trace=None),
    "compare-plans": _plain("compare_plans", "a", "b"),
    "improve": improve,
    "diagnose": _plain("diagnose", "runs"),
    "sensitivity": sensitivity,
    "serve": _exported("serve", _engine_command, serving=True),
    "size": _exported("size", serving=True),
    "fleet": _plain("fleet", "fleet", changed={"fleet": safe_fleet}),
    "post-train": post_train,
    "compare": _plain("compare", "systems", changed={"workload": safe_study}),
    "scaling": scaling,
    "codesign": codesign,
    "optimise": _plain("optimise", "study", changed={"study": safe_study}),
    "network": _plain("network"),
    "cost chip": _cost("chip"),
    "cost package": _cost("package"),
    "cost system": _cost("system"),
    "cost run": _cost("run"),
    "cost token": _cost("token"),
}
VERBS = {verb: _by_argument(verb, answer) for verb, answer in _ANSWERS.items()}
"""Verbs that are asked by POST, as the command line spells them."""
