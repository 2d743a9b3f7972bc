"""A question's record is what every surface offers: Python, the command line, the web and studies."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from importlib import import_module
from typing import Annotated, Any, get_args

import pytest
from pydantic import TypeAdapter

import foretell as foretell_package
from foretell.cli.app import make_app
from foretell.cli.command import Edges, Given, command
from foretell.errors import BadInput
from foretell.inputs.overrides import ROOTS
from foretell.records import dataclass
from foretell.search.frameworks import own_refusals
from foretell.specs.questions import QUESTIONS, every_field, question_type
from foretell.specs.questions.flags import Flag, Kind, asks, edges_of, fields_of, offered
from foretell.specs.questions.training import TrainingQuestion
from foretell.studies.axes import FLAGS, RECORDS, study_fields
from foretell.web import answers
from foretell.web.fields import KINDS, body_model
from foretell.web.limits import MOST
from foretell.web.names import FILES, NAMED
from tests.surfaces.test_contract import FLAGS as CONTRACT

FUNCTIONS = {
    "estimate": "api.training.estimate",
    "search": "api.training.search",
    "memory": "api.training.memory",
    "simulate": "api.training.simulate",
    "explain": "api.training.explain",
    "compare-plans": "api.training.compare_plans",
    "characterize trace": "lab.characterize.traces.run.characterize_trace",
    "improve": "api.improve.improve",
    "diagnose": "api.diagnose.diagnose",
    "serve": "api.serving.serve",
    "size": "api.size.size",
    "fleet": "api.fleet.fleet",
    "post-train": "api.post_training.post_train",
    "network": "api.network.collective",
    "sensitivity": "studies.sensitivity.sensitivities",
    "scaling": "studies.scaling.run.scaling",
    "buy": "studies.procurement.buy.buy",
    "compare": "studies.procurement.compare.compare",
    "sweep": "studies.sweep.run.sweep",
    "codesign": "studies.sweep.codesign.codesign",
    "optimise": "studies.sweep.optimise.optimise",
    "reproduce": "lab.reproduce.records.reproduce",
    "changed": "lab.versions.changes.version_changes",
}
"""The Python function of each verb; a cost is asked with the record itself."""


def function(verb: str) -> Callable[..., Any]:
    module, _, name = FUNCTIONS[verb].rpartition(".")
    found: Callable[..., Any] = getattr(import_module(f"foretell.{module}"), name)
    return found


def arguments(verb: str) -> Any:
    """The parser's arguments of a verb."""
    app: Any = make_app()
    for word in verb.split():
        app = app[word]
    return app.assemble_argument_collection()


@pytest.mark.parametrize("verb", QUESTIONS)
def test_the_command_line_offers_the_question(verb: str) -> None:
    known = {field.called: field for field in offered(question_type(verb), "command")}
    found = {item.names[0].lstrip("-").lower().replace("-", "_"): item for item in arguments(verb)}
    found = {name: item for name, item in found.items() if name != "*"}  # the rest of the words
    many = {name for name, field in known.items() if field.flag.kind == "names"}
    assert {*found} | many == {*known}
    for name, item in found.items():
        assert item.parameter.help.startswith(known[name].flag.help.rstrip("."))


@pytest.mark.parametrize("verb", [verb for verb in QUESTIONS if verb in answers.VERBS])
def test_the_web_offers_the_question(verb: str) -> None:
    fields = {field.called: field for field in offered(question_type(verb), "web")}
    schema = body_model(verb, question_type(verb)).model_json_schema()
    assert {*schema["properties"]} == {*fields}
    assert {*schema.get("required", ())} == {n for n, field in fields.items() if field.needed}
    for name, field in fields.items():
        said = dict(schema["properties"][name])
        assert said.pop("description").startswith(field.flag.inline or field.flag.help)
        kind = KINDS[field.flag.kind]
        typed = TypeAdapter(kind if field.needed else kind | None).json_schema()
        assert {n: v for n, v in said.items() if n not in ("title", "default")} == typed, name


@pytest.mark.parametrize("verb", FUNCTIONS)
def test_python_takes_the_question(verb: str) -> None:
    """Names, defaults and places; of `scaling`, which takes models by their places, written by hand."""
    found = inspect.signature(function(verb)).parameters
    fields = {field.name: field for field in fields_of(question_type(verb))}
    assert [*found] == sorted(fields, key=lambda name: not _first(fields[name], found))
    for name, parameter in found.items():
        if parameter.kind is not parameter.VAR_POSITIONAL:
            default = MISSING if parameter.default is parameter.empty else parameter.default
            assert default == fields[name].default, name


def _first(field: Any, found: Mapping[str, inspect.Parameter]) -> bool:
    """Whether a field has a place of its own."""
    return field.name in found and found[field.name].kind is not inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize("verb", RECORDS)
def test_a_study_takes_the_question(verb: Any) -> None:
    keys = {*FLAGS[verb]}
    for record in RECORDS[verb]:
        for field in fields_of(record):
            assert (field.called in keys) == field.on("study"), field.name
    assert keys == {name for record in RECORDS[verb] for name in study_fields(record)}


def test_where_a_field_is_not_offered_the_record_says_why() -> None:
    """A file of the user, a function of the caller, or a reason."""
    for field in every_field():
        assert all(reason for reason in field.flag.without.values())
        for surface in ("web", "study"):
            if not field.on(surface):
                file, of_python = field.flag.names_file == "always", field.flag.kind == "function"
                assert surface in field.flag.without or file or of_python, field.name


def test_every_verb_of_the_web_and_of_studies_has_a_question() -> None:
    assert {*answers.VERBS} <= {*QUESTIONS}
    assert {*RECORDS} <= {*QUESTIONS}
    assert {*FUNCTIONS} | {
        f"cost {what}" for what in ("chip", "package", "system", "run", "token")
    } == {*QUESTIONS}
    assert {*CONTRACT} | {"sweep"} >= {*QUESTIONS}


def test_every_kind_has_a_type_in_json() -> None:
    assert {*KINDS} == {*get_args(Kind)} - {"function"}


def test_fields_that_may_name_a_file() -> None:
    """What the web looks at, and what it refuses, wherever it is named."""
    assert {*NAMED} == {
        "model", "system", "name", "gpus", "prefill_gpus", "arrivals", "launch", "lengths", "trainer_gpus",
        "rollout_gpus", "critic",
    }  # fmt: skip
    files = {
        "prices", "import", "plot", "out", "picture", "report", "trace", "storage", "jsonl", "files",
        "save", "once",
    }  # fmt: skip
    assert files == FILES
    for field in every_field():
        if field.flag.names_file == "always" and not field.flag.inline:
            assert not field.on("web"), field.name


def test_a_name_has_one_limit_everywhere() -> None:
    for field in every_field():
        if field.flag.most is not None:
            assert MOST[field.called] == field.flag.most, field.name


def test_a_short_name_of_a_path_is_none_of_a_plan() -> None:
    """Words of a plan are its short names."""
    for field in every_field():
        assert not field.flag.sets or field.flag.sets.split(".")[0] in {*ROOTS} - {
            "plan",
            "prices",
            "software",
        }


@dataclass(frozen=True, slots=False, kw_only=True)
class Louder(TrainingQuestion):
    """A question with one field more."""

    loudness: Annotated[
        int,
        Flag(help="How loud.", kind="whole", metavar="DB", most=120, without={"study": "too loud"}),
    ] = 3
    score: Annotated[str | None, Flag(help="Notes.", names_file="always")] = None


def test_a_field_more_is_offered_everywhere() -> None:
    @asks(Louder)
    def ask(question: Louder) -> Louder:
        return question

    @command(Louder)
    def run(given: Given, edges: Edges) -> int:
        assert edges.json
        return int(ask(**given).loudness)

    from cyclopts import App

    assert ask("gpt2", loudness=5).loudness == 5
    assert inspect.signature(ask).parameters["loudness"].default == 3
    app = App()
    app.default(run)
    words = ["gpt2", "--loudness", "7", "--json"]
    assert app(words, result_action="return_value", exit_on_error=False) == 7
    body = body_model("louder", Louder)
    assert body(model="gpt2", loudness=9).model_dump()["loudness"] == 9
    assert "score" not in body.model_fields
    assert {"loudness", "score"}.isdisjoint(study_fields(Louder))
    assert {"seq_len", "tokens"} < {*study_fields(Louder)}
    edges = "plot import accept_unknown hub export launcher jsonl json"
    assert [edge.name for edge in edges_of(Louder)] == edges.split()


def test_flags_for_words_of_a_plan_are_the_plan() -> None:
    typed = foretell_package.estimate(
        "llama-3.1-8b", gpus="8xH100", tp=8, mbs=2, framework="torchtitan"
    )
    words = foretell_package.estimate(
        "llama-3.1-8b", gpus="8xH100", plan="tp8 mbs2 framework=torchtitan"
    )
    assert typed.plan == words.plan
    assert typed.step_s == words.step_s
    with pytest.raises(BadInput, match="given twice"):
        foretell_package.estimate("llama-3.1-8b", gpus="8xH100", plan="tp4", tp=8)
    with pytest.raises(BadInput) as error:
        foretell_package.estimate("llama-3.1-8b", gpus="8xH100", tp="x", zero=-1)  # type: ignore[arg-type]
    assert [problem.path for problem in error.value.problems] == ["tp", "zero"]


@pytest.mark.parametrize("framework", ["megatron-core", "torchtitan", "deepspeed", "transformers"])
def test_a_plan_that_names_no_layout_is_searched_within_what_its_software_runs(
    framework: str,
) -> None:
    for answer in (
        foretell_package.estimate("llama-3.1-70b", gpus="64xH100", framework=framework),
        foretell_package.memory("llama-3.1-70b", gpus="64xH100", framework=framework).estimate,
    ):
        assert answer.fits != "no"
        assert answer.plan_chosen
        assert not own_refusals(answer.scenario, answer.plan)
    # Once a degree is named, what is silent is the tool's default.
    named = foretell_package.estimate("llama-3.1-8b", gpus="8xH100", tp=8, framework=framework)
    assert (named.plan.tp, named.plan.pp, named.plan.zero, named.plan_chosen) == (8, 1, 0, False)
