"""Answers of api/: the engines' records with more to ask, in fields, equality, pickles and JSON the same."""

import pickle
import re
from dataclasses import fields, replace
from typing import Any

import pytest

import foretell
from foretell.api.answers import Estimate, estimate_answer
from foretell.api.search_answers import Search, search_answer
from foretell.api.service_answers import ServeAnswer, serve_answer
from foretell.errors import BadInput, Infeasible
from foretell.search.search import SearchResult
from foretell.specs.result import StepEstimate
from foretell.specs.service import ServiceEstimate

STEP: dict[str, Any] = {
    "system": "h100-sxm",
    "gpus": 8,
    "global_batch": 32,
    "plan": "tp2 zero1 mbs1",
}


@pytest.fixture(scope="module")
def step() -> Estimate:
    return foretell.estimate("llama-3.1-8b", **STEP)


@pytest.fixture(scope="module")
def found() -> Search:
    return foretell.search("gpt2", system="h100-sxm", gpus=8, global_batch=32, top=3)


@pytest.fixture(scope="module")
def service() -> ServeAnswer:
    return foretell.serve("qwen3-32b", system="h100-sxm", gpus=4, isl=1000, osl=100)


def bare(answer: Any, record: type) -> Any:
    """The engine's record under an answer."""
    return record(**{field.name: getattr(answer, field.name) for field in fields(answer)})


def test_answers_are_records_and_travel(
    step: Estimate, found: Search, service: ServeAnswer
) -> None:
    """Sweeps send them from process to process."""
    made: list[tuple[Any, Any, Any]] = [
        (step, StepEstimate, estimate_answer),
        (found, SearchResult, search_answer),
        (service, ServiceEstimate, serve_answer),
    ]
    for answer, record, wrap in made:
        plain = bare(answer, record)
        assert isinstance(answer, record)
        assert type(plain) is record
        assert wrap(plain) == answer
        assert plain != answer
        again = pickle.loads(pickle.dumps(answer))
        assert type(again) is type(answer)
        assert again == answer
        assert again.to_dict() == answer.to_dict()
        assert repr(answer).startswith(type(answer).__name__ + "(")
        with pytest.raises(AttributeError):
            answer.assumptions = ()
    assert type(replace(step, step_s=1.0)) is Estimate
    assert all(type(plan) is Estimate for plan in found.plans)
    assert found.best is found.plans[0]


def test_what_comes_with_another_answer_can_be_asked_too() -> None:
    asked = {**STEP, "model": "llama-3.1-8b"}
    assert type(foretell.simulate(**asked).estimate) is Estimate
    assert type(foretell.memory(**asked).estimate) is Estimate
    assert type(foretell.explain(**asked).estimate) is Estimate
    assert (
        type(foretell.compare_plans("tp2 zero1 mbs1", "zero3 mbs1", **_less(asked)).a) is Estimate
    )
    with pytest.raises(Infeasible) as error:
        foretell.estimate("llama-3.1-70b", **STEP)
    assert type(error.value.answer) is Estimate
    assert error.value.answer.explain().to_dict()


def _less(asked: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in asked.items() if name != "plan"}


def test_an_estimate_without_its_question_says_so(step: Estimate, tmp_path: Any) -> None:
    alone = replace(step, scenario=None)
    for ask in (
        alone.explain,
        lambda: alone.export("megatron"),
        lambda: alone.to_chrome_trace(tmp_path / "step.json"),
    ):
        with pytest.raises(BadInput, match="its question is not known"):
            ask()


def test_an_answer_is_one_line_as_a_value() -> None:
    found = foretell.estimate("llama-3.1-8b", gpus="8xH100", plan="zero3")
    assert re.fullmatch(r"Estimate\([\d.]+ s a step, fits: llama-3.1-8b on .*\)", repr(found))
    assert "\n" not in repr(found)
    assert len(repr(found)) < 200
