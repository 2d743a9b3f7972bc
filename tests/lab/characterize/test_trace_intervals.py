"""Unions, overlaps and first-come shares of spans, against sets of moments."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.lab.characterize.traces.rank_trace import (
    NOTHING,
    Spans,
    covered_ns,
    difference,
    exclusive_spans,
    first_come,
    intersection,
    overlap_ns,
    union,
    union_of,
)
from foretell.lab.characterize.traces.read import own_times

SPANS = st.lists(
    st.tuples(st.integers(-30, 60), st.integers(0, 25)).map(lambda s: (s[0], s[0] + s[1])),
    max_size=14,
)
Given = list[tuple[int, int]]


def columns(spans: Given) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(spans, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def made(spans: Given) -> Spans:
    return union(*columns(spans))


def moments(spans: Given) -> set[int]:
    return {moment for start, end in spans for moment in range(start, end)}


def held(spans: Spans) -> set[int]:
    return moments([*zip(spans.starts.tolist(), spans.ends.tolist(), strict=True)])


def legal(spans: Spans) -> None:
    """Ascending, apart, none empty."""
    assert (spans.ends > spans.starts).all()
    assert (spans.starts[1:] >= spans.ends[:-1]).all()


@given(SPANS, SPANS)
def test_sets(a: Given, b: Given) -> None:
    one, other = made(a), made(b)
    assert (one.starts[1:] > one.ends[:-1]).all()  # a union joins what touches
    for found, expected in (
        (one, moments(a)),
        (union_of(one, other), moments(a) | moments(b)),
        (intersection(one, other), moments(a) & moments(b)),
        (difference(one, other), moments(a) - moments(b)),
    ):
        legal(found)
        assert held(found) == expected
        assert found.total_ns == len(expected)


@given(SPANS, SPANS)
def test_measures(a: Given, b: Given) -> None:
    spans, inside = made(a), moments(a)
    when = np.arange(-40, 100)
    assert covered_ns(spans, when).tolist() == [len({m for m in inside if m < w}) for w in when]
    found = overlap_ns(spans, *columns(b)) if b else np.empty(0)
    assert found.tolist() == [len(inside & moments([one])) for one in b]


@given(SPANS)
def test_first_come_shares_add_up(a: Given) -> None:
    order, begins, ends = first_come(*columns(a))
    assert sorted(order.tolist()) == [*range(len(a))]
    kept = [*zip(begins.tolist(), ends.tolist(), strict=True)]
    assert sum(end - begin for begin, end in kept) == len(moments(a))
    assert moments(kept) == moments(a)
    for place, (begin, end) in zip(order.tolist(), kept, strict=True):
        assert moments([(begin, end)]) <= moments([a[place]])


@given(SPANS, st.integers(-40, 90), st.integers(0, 60))
def test_windows_cut_what_is_kept(a: Given, start: int, length: int) -> None:
    kept, window = exclusive_spans(*columns(a)), {*range(start, start + length)}
    place, begins, ends = kept.cut(start, start + length)
    told = [*zip(begins.tolist(), ends.tolist(), strict=True)]
    assert moments(told) == moments(a) & window
    assert sum(end - begin for begin, end in told) == len(moments(a) & window)
    reaching = {i for i, span in enumerate(a) if moments([span]) & window}
    assert reaching <= set(place.tolist())


@given(SPANS, st.randoms())
def test_order_does_not_matter(a: Given, random: object) -> None:
    turned = list(a)
    random.shuffle(turned)  # type: ignore[attr-defined]
    assert held(made(turned)) == held(made(a))


def test_nothing() -> None:
    assert NOTHING.total_ns == 0
    assert covered_ns(NOTHING, np.array([3])).tolist() == [0]
    assert intersection(NOTHING, made([(0, 3)])).total_ns == 0
    assert difference(made([(0, 3)]), NOTHING).total_ns == 3


def test_nanoseconds_of_a_year_are_exact() -> None:
    start = 10**18
    spans = made([(start, start + 1), (start + 2, start + 7)])
    assert spans.total_ns == 6
    assert overlap_ns(spans, np.array([start + 1]), np.array([start + 4])).tolist() == [2]


@st.composite
def nested(draw: st.DrawFn, low: int = 0, high: int = 60, depth: int = 0) -> Given:
    """Events as a stack of calls leaves them: each inside another, or apart from it."""
    found: Given = []
    at = low
    while at < high and draw(st.booleans()):
        start = draw(st.integers(at, high))
        end = draw(st.integers(start, high))
        found.append((start, end))
        if depth < 3:
            found += draw(nested(start, end, depth + 1))
        at = end + 1
    return found


@given(nested(), st.randoms())
def test_innermost(a: Given, random: object) -> None:
    """A moment belongs to the shortest event around it; all of them together are the union."""
    turned = list(a)
    random.shuffle(turned)  # type: ignore[attr-defined]
    starts, ends = columns(turned)
    event, begins, finishes = own_times(starts, ends, np.zeros(len(turned), np.int64))
    found: dict[int, tuple[int, int]] = {}
    for number, begin, end in zip(event.tolist(), begins.tolist(), finishes.tolist(), strict=True):
        for moment in range(begin, end):
            assert moment not in found
            found[moment] = turned[number]
    assert set(found) == moments(turned)
    for moment, span in found.items():
        around = [s for s in turned if s[0] <= moment < s[1]]
        assert span[1] - span[0] == min(end - start for start, end in around)


def test_threads_are_apart() -> None:
    starts, ends = np.array([0, 2, 1]), np.array([10, 4, 9])
    event, begins, finishes = own_times(starts, ends, np.array([0, 0, 1]))
    assert sorted(zip(event.tolist(), begins.tolist(), finishes.tolist(), strict=True)) == [
        (0, 0, 2), (0, 4, 10), (1, 2, 4), (2, 1, 9),
    ]  # fmt: skip


@pytest.mark.parametrize("many", [0, 1, 1000])
def test_many(many: int) -> None:
    rng = np.random.default_rng(0)
    starts = rng.integers(0, 10**6, many)
    ends = starts + rng.integers(0, 10**4, many)
    spans = union(starts, ends)
    line = np.zeros(10**6 + 10**4 + 1, int)
    for start, end in zip(starts, ends, strict=True):
        line[start:end] = 1
    assert spans.total_ns == line.sum()
