"""Closed forms of the schedules: equal to the events for equal ranks, and to what was published."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.kernels.memory import in_flight
from foretell.schedules import schedule_named, schedules
from foretell.schedules.base import WEIGHT_SHARE, Pipe, RankTimes, fill_and_drain_s
from foretell.simulation.events import even_chunks, play
from foretell.specs.plan_words import CHOICES
from tests.simulation.pipes import (
    NAMES,
    SECONDS,
    chunk_times,
    closed_s,
    equal_times,
    pipe,
    sizes,
)


def played(name: str, size: tuple[int, int, int], f: float, b: float, w: float, saved: float = 0.0):
    """A step of equal ranks."""
    schedule = schedule_named(name)
    pp, vpp, many = size
    even = even_chunks(schedule, *(np.full(pp, x) for x in (f, b, w)), vpp=vpp)
    parts = even.forward_s, even.input_s, even.weight_s
    return play(schedule, chunk_times(*parts, saved_s=saved), many)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_equal_ranks_take_what_the_closed_form_says(name: str, data: st.DataObject) -> None:
    size = data.draw(sizes(name))
    f, b, w = (data.draw(SECONDS) for _ in range(3))
    saved = data.draw(st.floats(0.0, 1.0)) * min(f, b + w) if name == "dualpipe" else 0.0
    timeline = played(name, size, f, b, w, saved)
    closed = closed_s(name, equal_times(size[0], f, b, w), pipe(*size), saved)
    assert closed == pytest.approx(timeline.step_s, rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_ranks_that_begin_when_they_can(name: str, data: st.DataObject) -> None:
    size = data.draw(sizes(name))
    pp, _, many = size
    f, b, w = (data.draw(SECONDS) for _ in range(3))
    timeline = played(name, size, f, b, w)
    waits = schedule_named(name).apart_s(equal_times(pp, f, b, w), pipe(*size))
    if many >= pp:
        assert many * (f + b + w) + waits[0] == pytest.approx(timeline.longest_span_s, rel=1e-9)
    assert (
        waits[0] <= schedule_named(name).bubble_s(equal_times(pp, f, b, w), pipe(*size))[0] + 1e-9
    )


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_what_a_rank_holds(name: str, data: st.DataObject) -> None:
    size = data.draw(sizes(name))
    position = np.arange(float(size[0]))[None]
    held = schedule_named(name).in_flight(pipe(*size), position)[0]
    assert held == pytest.approx(played(name, size, 1.0, 1.1, 0.9).peak_held())


@given(st.integers(2, 32), st.integers(1, 8), SECONDS, SECONDS, SECONDS)
def test_published_bubbles(pp: int, more: int, f: float, b: float, w: float) -> None:
    """Narayanan et al. 2021; Qi et al. 2024, table 2: with B = b + w it is (p - 1)(F + B - 2 W)."""
    many, times = float(pp * more), equal_times(pp, f, b, w)

    def bubble(name: str, vpp: int = 1, micro_batches: float = many) -> float:
        return float(schedule_named(name).bubble_s(times, pipe(pp, vpp, int(micro_batches)))[0])

    whole = (pp - 1) * (f + b + w)
    assert bubble("1f1b") == pytest.approx(whole)
    assert bubble("gpipe") == pytest.approx(whole)
    assert bubble("interleaved", 4) == pytest.approx(whole / 4)
    least = min(f, b, w)
    short = equal_times(pp, f, b, least)
    h1 = schedule_named("zb-h1").bubble_s(short, pipe(pp, 1, int(many)))[0]
    assert h1 == pytest.approx((pp - 1) * (f + (b + least) - 2 * least))


@pytest.mark.parametrize("pp", [2, 4, 8, 16])
def test_the_balanced_case(pp: int) -> None:
    """f = b = w = 1: ZB-H1 a third of 1F1B, ZB-V none, DualPipe (p/2 - 1)(F&B + B - 3 W) = p - 2."""
    size = pipe(pp, 1, 4 * pp)
    times = equal_times(pp, 1.0, 1.0, 1.0)
    assert schedule_named("zb-h1").bubble_s(times, size)[0] == pp - 1
    assert schedule_named("zb-v").apart_s(times, pipe(pp, 2, 4 * pp))[0] == 0.0
    assert schedule_named("zb-v").bubble_s(times, pipe(pp, 2, 4 * pp))[0] == 0.5 * (pp - 1)
    assert schedule_named("dualpipe").bubble_s(times, size)[0] == (pp / 2 - 1) * (3 + 2 - 3)
    timeline = played("zb-v", (pp, 2, 4 * pp), 1.0, 1.0, 1.0)
    assert timeline.longest_span_s == pytest.approx(timeline.busy_s.max())


@given(st.integers(1, 12), SECONDS, SECONDS, SECONDS, st.floats(0.0, 1.0))
def test_dualpipe_is_within_one_forward_of_the_report(
    half: int, x: float, y: float, z: float, share: float
) -> None:
    """DeepSeek-V3 report, table 2, for W <= F <= B; idle time of the middle ranks, pairs shortened."""
    w, f, b = sorted((x, y, z))
    pp, n, saved = 2 * half, half - 1, share * f
    timeline = played("dualpipe", (pp, 1, 4 * pp), f, b, w, saved)
    reported = n * ((f + b + w - saved) + (b + w) - 3 * w)
    idle = timeline.waiting_s[half]
    assert reported - f - 1e-9 <= idle <= reported + 1e-9


def test_published_memory() -> None:
    """Micro-batches held on the first and last of 8 ranks, and copies of the weights."""
    ends = np.array([[0.0, 7.0]])

    def held(name: str, vpp: int = 1) -> list[float]:
        return schedule_named(name).in_flight(pipe(8, vpp, 64), ends)[0].tolist()

    assert held("gpipe") == [64.0, 64.0]
    assert held("1f1b") == [8.0, 1.0]
    assert held("interleaved", 2) == [(2 * 7 + 8 + 1) / 2, (8 + 1) / 2]
    assert held("zb-h1") == [8.0, 1.0 + 7.0 * WEIGHT_SHARE]  # (p - i + 1) M_B + (i - 1) M_W
    assert held("zb-v", 2) == [8.0, 8.0]
    assert held("dualpipe") == [9.0, 9.0]
    assert [s.weight_copies for s in schedules()] == [1.0, 1.0, 2.0, 1.0, 1.0, 1.0]


@given(st.integers(0, 2**32 - 1))
def test_1f1b_and_interleaving_are_bit_for_bit_what_they_were(seed: int) -> None:
    rng = np.random.default_rng(seed)
    whole, vpp = rng.random((9, 3)), rng.integers(1, 5, 9).astype(float)
    count, slowest = rng.integers(0, 4, (9, 3)).astype(float), rng.integers(0, 3, 9)
    many = rng.integers(1, 99, 9).astype(float)
    pp, position = rng.integers(1, 33, 9).astype(float), rng.integers(0, 9, (9, 3)).astype(float)
    times = RankTimes(whole_s=whole, multiplicity=count, slowest=slowest)
    all_sizes = Pipe(micro_batches=many, pp=pp, vpp=vpp)
    for name in ("1f1b", "interleaved"):
        schedule = schedule_named(name)
        expected = fill_and_drain_s(whole, count, slowest, vpp)
        assert (schedule.bubble_s(times, all_sizes) == expected).all()
        expected = in_flight(many[:, None], pp[:, None], vpp[:, None], position)
        assert (schedule.in_flight(all_sizes, position) == expected).all()
        assert (schedule.pairs(all_sizes) == 0).all()


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_batch_is_its_plans(name: str, data: st.DataObject) -> None:
    """Plans with other sizes and padded ranks beside it change nothing."""
    schedule = schedule_named(name)
    drawn = [data.draw(sizes(name)) for _ in range(4)]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    f, b, w = (rng.uniform(0.5, 1.5, (4, 3)) for _ in range(3))
    count = np.array([[1.0, max(pp - 2.0, 0.0), float(pp > 1)] for pp, _, _ in drawn])
    slowest = ((f + b + w) * (count > 0)).argmax(axis=1)
    columns = np.array(drawn, dtype=float).T
    together = schedule.bubble_s(
        RankTimes(whole_s=f + b + w, multiplicity=count, slowest=slowest, forward_s=f, weight_s=w),
        Pipe(pp=columns[0], vpp=columns[1], micro_batches=columns[2]),
    )
    for i, size in enumerate(drawn):
        shown = count[i] > 0
        parts = [x[i : i + 1, shown] for x in (f, b, w)]
        alone = RankTimes(
            whole_s=parts[0] + parts[1] + parts[2],
            multiplicity=count[i : i + 1, shown],
            slowest=np.array([int(np.flatnonzero(np.flatnonzero(shown) == slowest[i])[0])]),
            forward_s=parts[0],
            weight_s=parts[2],
        )
        assert schedule.bubble_s(alone, pipe(*size))[0] == pytest.approx(together[i], rel=1e-12)
        assert together[i] >= 0.0


def test_every_word_of_a_plan_has_its_schedule() -> None:
    words = CHOICES["schedule"]
    assert [s.name for s in schedules()] == list(words)
    assert set(words) == set(NAMES)
    assert words[:2] == ("1f1b", "interleaved")
    with pytest.raises(BadInput, match="did you mean zb-v"):
        schedule_named("zbv")


@pytest.mark.parametrize(
    ("name", "size", "allowed"),
    [
        ("1f1b", (4, 1, 3), True), ("1f1b", (4, 2, 8), False), ("interleaved", (4, 1, 8), False),
        ("interleaved", (4, 2, 6), False), ("interleaved", (1, 2, 6), False), ("zb-v", (4, 2, 7), True),
        ("zb-v", (4, 2, 6), False), ("zb-v", (4, 1, 9), False), ("dualpipe", (4, 1, 8), True),
        ("dualpipe", (3, 1, 8), False), ("dualpipe", (4, 1, 9), False), ("dualpipe", (4, 1, 6), False),
    ],
)  # fmt: skip
def test_sizes_without_an_order(name: str, size: tuple[int, int, int], allowed: bool) -> None:
    """The rule that prunes is the rule that the player refuses by."""
    assert schedule_named(name).allows(pipe(*size))[0] == allowed
    if allowed:
        assert played(name, size, 1.0, 1.0, 1.0).step_s > 0.0
    elif name != "dualpipe" or size[1] == 1:
        with pytest.raises(BadInput, match="needs"):
            played(name, size, 1.0, 1.0, 1.0)
