"""Lengths of answers: means that hold after cutting, tails that reach the limit, files."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.posttraining.workload import AnswerLengths, TrajectoryWorkload
from foretell.serving.requests.arrivals import read_lengths
from foretell.specs.service import SHAPES


@given(
    st.floats(8.0, 4000.0),
    st.floats(1.2, 40.0),
    st.sampled_from([s for s in SHAPES if s != "fixed"]),
)
@settings(max_examples=40, deadline=None)
def test_the_mean_after_cutting_is_the_one_given(mean: float, ratio: float, shape: str) -> None:
    if shape == "uniform" and ratio < 2.0:
        ratio = 2.0
    lengths = AnswerLengths(mean=mean, cap=mean * ratio, shape=shape)  # type: ignore[arg-type]
    found = lengths.of_many(4096)
    assert np.mean(found) == pytest.approx(mean, rel=0.02)
    assert found.max() <= mean * ratio
    assert np.all(np.diff(found) >= 0.0)


@given(st.integers(1, 4000))
@settings(max_examples=20, deadline=None)
def test_more_answers_have_a_longer_longest(many: int) -> None:
    lengths = AnswerLengths(mean=500.0, cap=8000.0)
    assert lengths.of_many(2 * many)[-1] >= lengths.of_many(many)[-1]


def test_fixed_lengths_have_no_tail() -> None:
    lengths = AnswerLengths(mean=300.0, cap=900.0, shape="fixed")
    assert set(lengths.of_many(50)) == {300.0}
    assert lengths.cut_share == 0.0


def test_packed_lengths_cost_attention_what_their_squares_cost() -> None:
    """A batch of equal sequences of E[l^2] / E[l] has as many tokens and as many pairs."""
    lengths = AnswerLengths(mean=400.0, cap=4000.0)
    work = TrajectoryWorkload(prompts=64, samples=4, prompt_tokens=100.0, answers=lengths)
    each = 100.0 + lengths.of_many(4096)
    assert work.passed_length == pytest.approx(np.sum(each**2) / np.sum(each), rel=0.01)
    assert work.passed_tokens == 256 * 500.0


def test_padded_sequences_are_as_long_as_the_limit() -> None:
    lengths = AnswerLengths(mean=400.0, cap=4000.0)
    work = TrajectoryWorkload(
        prompts=8, samples=1, prompt_tokens=100.0, answers=lengths, padded_to=4100.0
    )
    assert work.passed_tokens == 8 * 4100.0
    assert work.passed_length == 4100.0


def test_a_file_of_lengths_is_read(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "lengths.jsonl"
    file.write_text('{"osl": 10}\n{"response_length": 30}\n20\n')
    assert read_lengths(str(file)).answers == (10.0, 30.0, 20.0)


def test_columns_have_prompts_too(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "trace.csv"
    file.write_text("at_s,isl,osl\n0,7,10\n1,9,30\n")
    found = read_lengths(str(file))
    assert (found.prompts, found.answers) == ((7.0, 9.0), (10.0, 30.0))
    assert (found.prompt_mean, found.answer_mean) == (8.0, 20.0)


def test_a_long_file_is_thinned_evenly(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "lengths.txt"
    file.write_text("\n".join(str(n) for n in range(1, 50_001)))
    found = read_lengths(str(file)).answers
    assert len(found) <= 4096
    assert (min(found), max(found)) == (1.0, 50_000.0)
    assert abs(sum(found) / len(found) / 25_000.5 - 1.0) < 0.01


def test_neither_a_shape_nor_a_file_is_told_what_is_allowed() -> None:
    with pytest.raises(BadInput, match="lognormal"):
        read_lengths("gaussian")
