"""Errors are one line for each problem, whatever was given, and travel between processes."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.errors import (
    BadInput,
    ForetellError,
    Infeasible,
    Problem,
    bad_input,
    nearest_name,
    wrong,
)

anything = st.none() | st.text() | st.integers() | st.floats() | st.lists(st.text())


@given(st.text(), anything, st.text(), st.none() | st.text(), st.none() | st.text())
def test_a_problem_is_one_line(
    path: str, value: object, message: str, allowed: str | None, nearest: str | None
) -> None:
    problem = Problem(path=path, value=value, message=message, allowed=allowed, nearest=nearest)
    assert len(str(problem).splitlines()) <= 1


def test_a_problem_says_all_that_it_knows() -> None:
    problem = Problem(
        path="plan.tp", value="x8", message="is not a degree", allowed="1 to 8", nearest="tp8"
    )
    assert str(problem) == (
        "plan.tp: is not a degree (got 'x8'); allowed: 1 to 8; did you mean tp8?"
    )


def test_a_problem_is_written_in_the_order_of_its_line() -> None:
    problem = wrong("plan.tp", "x8", "is not a degree", "1 to 8", "tp8")
    assert problem == Problem(
        path="plan.tp", value="x8", message="is not a degree", allowed="1 to 8", nearest="tp8"
    )
    assert bad_input("plan.tp", "x8", "is not a degree", "1 to 8", "tp8").problems == (problem,)


def test_long_and_unprintable_values_are_shortened() -> None:
    long = str(Problem(path="a", value="x" * 10_000, message="is long"))
    assert len(long) < 200
    huge = str(Problem(path="a", value=10**5000, message="is large"))
    assert huge == "a: is large (got <int>)"


@pytest.mark.parametrize("kind", [BadInput, Infeasible])
def test_an_error_is_one_line_per_problem_and_survives_pickling(kind: type) -> None:
    problems = [Problem(path=path, value=1, message="is wrong") for path in "abc"]
    error = kind(iter(problems))
    assert isinstance(error, ForetellError)
    assert error.problems == tuple(problems)
    assert str(error).splitlines() == [str(problem) for problem in problems]
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.problems) == (kind, error.problems)


@pytest.mark.parametrize(
    ("word", "nearest"),
    [
        ("H100_SXM", "h100-sxm"),
        ("h100-smx", "h100-sxm"),
        ("a100 SXM 80GB", "a100-sxm-80gb"),
        ("zzz", None),
        ("", None),
        ("!", None),
    ],
)
def test_nearest_name(word: str, nearest: str | None) -> None:
    assert nearest_name(word, ["h100-sxm", "a100-sxm-80gb", "mi300x"]) == nearest


def test_a_word_of_the_input_makes_no_line_without_end() -> None:
    long = Problem(path="import", value=None, message=f"vllm: {'a' * 100_000}", allowed="a flag")
    assert len(str(long)) < 5000
    assert str(long).startswith("import: vllm: aaa")
    assert str(long).endswith("allowed: a flag")
