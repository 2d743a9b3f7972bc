"""Requests by chance and from files, and the figures of a run."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.serving.requests.arrivals import (
    KINDS,
    Arrivals,
    Lengths,
    draw_requests,
)
from foretell.serving.requests.records import RequestOutcomes, Series
from foretell.serving.requests.traces import read_trace
from foretell.serving.simulation import levels
from foretell.specs.service import SHAPES


@given(st.sampled_from(KINDS), st.sampled_from(SHAPES), st.integers(0, 2**32 - 1))
def test_a_seed_gives_the_same_requests(kind: str, shape: str, seed: int) -> None:
    arrivals = Arrivals(kind=kind, concurrency=4, rate=3.0)  # type: ignore[arg-type]
    lengths = Lengths(mean=100.0, shape=shape)  # type: ignore[arg-type]
    first, second = (draw_requests(arrivals, lengths, lengths, 50, seed) for _ in range(2))
    assert first == second
    assert min(first.isl) >= 1
    assert min(first.osl) >= 1
    assert len(first) == 50


@pytest.mark.parametrize("kind", ["poisson", "gamma", "burst"])
def test_arrivals_have_the_rate_asked_for(kind: str) -> None:
    fixed = Lengths(mean=10.0)
    found = draw_requests(Arrivals(kind=kind, rate=5.0), fixed, fixed, 20_000, 1)  # type: ignore[arg-type]
    assert found.at_s is not None
    assert list(found.at_s) == sorted(found.at_s)
    assert 20_000 / found.at_s[-1] == pytest.approx(5.0, rel=0.06)


@pytest.mark.parametrize("kind", ["poisson", "gamma"])
def test_few_requests_come_at_the_rate_asked_for(kind: str) -> None:
    fixed = Lengths(mean=10.0)
    for many, seed in ((1, 0), (50, 0), (500, 3)):
        found = draw_requests(Arrivals(kind=kind, rate=5.0), fixed, fixed, many, seed)  # type: ignore[arg-type]
        assert found.at_s is not None
        assert many / found.at_s[-1] == pytest.approx(5.0, rel=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_lengths_have_the_mean_asked_for(shape: str) -> None:
    lengths = Lengths(mean=400.0, shape=shape)  # type: ignore[arg-type]
    found = np.mean(lengths.draw(np.random.default_rng(2), 40_000))
    assert found == pytest.approx(360.0 if shape == "uniform" else 400.0, rel=0.03)


def test_public_traces_are_read_by_their_own_names(tmp_path: Path) -> None:
    azure = tmp_path / "azure.csv"
    azure.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:04.5,30,7\n2023-11-16 18:17:03.0,10,5\n",
        encoding="utf-8",
    )
    found = read_trace(azure)
    assert (found.isl, found.osl, found.at_s) == ([10, 30], [5, 7], [0.0, 1.5])
    ours = tmp_path / "ours.jsonl"
    ours.write_text(
        '{"at_s": 0, "isl": 8, "osl": 2, "prefix": 1, "prefix_tokens": 4, "priority": 0}\n\n'
        '{"at_s": 2, "isl": 9, "osl": 3, "prefix": -1, "prefix_tokens": 0, "priority": 1}\n',
        encoding="utf-8",
    )
    read = read_trace(ours)
    assert (read.prefix, read.prefix_tokens, read.priority) == ([1, -1], [4, 0], [0, 1])


@pytest.mark.parametrize(
    ("name", "text", "problems"),
    [
        ("empty.csv", "at_s,isl,osl\n", 1),
        ("columns.csv", "when,what\n1,2\n", 2),
        ("numbers.csv", "isl,osl\n0,5\n7,x\n3,4\n", 2),
        ("broken.jsonl", '{"isl": 1, "osl": 2}\n{"isl": \n[1]\n', 2),
    ],
)
def test_what_is_wrong_with_a_trace_is_told_at_once(
    tmp_path: Path, name: str, text: str, problems: int
) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput) as told:
        read_trace(file)
    assert len(told.value.problems) == problems


def test_a_trace_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        read_trace(tmp_path / "none.csv")


def test_times_per_token_are_as_defined() -> None:
    played = RequestOutcomes(
        arrival_s=np.array([0.0, 1.0]),
        first_s=np.array([0.5, 1.5]),
        done_s=np.array([2.5, 1.5]),
        isl=np.array([10.0, 10.0]),
        osl=np.array([5.0, 1.0]),
        replica=np.array([0, 0]),
        refused=np.array([False, False]),
        preempted=0,
        prefix_hits=0.0,
        tier_hits={},
        end_s=2.5,
        busy_s=np.array([2.0]),
        series=Series(),
    )
    found = levels(played, ttft_ms=600.0, tpot_ms=400.0)
    assert found.tpot_ms["mean"] == pytest.approx(500.0)
    assert found.tpot_with_first_ms["mean"] == pytest.approx(500.0)
    assert found.ttft_ms["p50"] == pytest.approx(500.0)
    assert found.e2e_ms["mean"] == pytest.approx(1500.0)
    assert found.output_tokens_per_s == pytest.approx(6.0 / 2.5)
    assert found.goodput_per_s == pytest.approx(1.0 / 2.5)
    assert found.utilisation == pytest.approx(0.8)


@given(
    st.lists(st.tuples(st.integers(1, 900), st.integers(1, 900)), min_size=1, max_size=40),
    st.integers(1, 4),
    st.integers(0, 99),
)
def test_requests_of_a_file_keep_prompt_and_answer_together(
    rows: list[tuple[int, int]], times: int, seed: int
) -> None:
    isl, osl = (Lengths(mean=1.0, samples=tuple(float(row[i]) for row in rows)) for i in (0, 1))
    found = draw_requests(Arrivals(), isl, osl, times * len(rows), seed)
    assert sorted(zip(found.isl, found.osl, strict=True)) == sorted(rows * times)
