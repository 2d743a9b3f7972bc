"""The player: every task once and after its inputs, deterministic, monotone, bounded, fast."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.schedules import Schedule, schedule_named
from foretell.schedules.base import Task, routes
from foretell.simulation.events import Timeline, even_chunks, play
from foretell.specs.arrays import Array
from tests.simulation.pipes import NAMES, chunk_times, closed_s, on_ranks, pipe, rank_times, sizes


def random_times(schedule: Schedule, pp: int, vpp: int, seed: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    chunks = 2 if schedule.layout == "both" else vpp
    f, b, w = rng.uniform(0.2, 2.0, (3, pp, chunks))
    return f, b, w


def single(task: Task) -> list[tuple[str, int, int]]:
    """The passes that a task makes."""
    first = (task.chunk, task.micro_batch)
    if task.does == "D":
        return [("B", *first), ("W", *first)]
    if task.does == "P":
        second = (task.other_chunk, task.other_micro_batch)
        return [("F", *first), ("B", *second), ("W", *second)]
    return [(task.does, *first)]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_timeline_is_legal(name: str, data: st.DataObject) -> None:
    schedule, (pp, vpp, many) = schedule_named(name), data.draw(sizes(name))
    times = random_times(schedule, pp, vpp, data.draw(st.integers(0, 999)))
    travel = data.draw(st.sampled_from([0.0, 0.3]))
    timeline = play(schedule, chunk_times(*times, travel_s=travel), many)
    begins: dict[tuple[int, str, int, int], float] = {}
    ends: dict[tuple[int, str, int, int], float] = {}
    for rank, tasks in enumerate(timeline.tasks):
        assert (timeline.start_s[rank][1:] >= timeline.end_s[rank][:-1] - 1e-12).all()
        for task, start, end in zip(
            tasks, timeline.start_s[rank], timeline.end_s[rank], strict=True
        ):
            for does, chunk, micro_batch in single(task):
                key = (rank, does, chunk, micro_batch)
                assert key not in ends
                begins[key], ends[key] = start, end
    half = many // 2 if schedule.layout == "both" else many
    assert len(ends) == 3 * half * sum(len(r) for r in routes(schedule.layout, pp, vpp))
    for route in routes(schedule.layout, pp, vpp):
        for here, there in pairwise(route):
            way = travel if here[0] != there[0] else 0.0
            for i in range(half):
                forward = begins[there[0], "F", there[1], i]
                assert forward >= ends[here[0], "F", here[1], i] + way - 1e-9
                back = begins[here[0], "B", here[1], i]
                assert back >= ends[there[0], "B", there[1], i] + way - 1e-9
        for rank, chunk in route:
            for i in range(half):
                assert begins[rank, "B", chunk, i] >= ends[rank, "F", chunk, i] - 1e-9
                # A whole backward pass is one task: its two passes begin together.
                assert begins[rank, "W", chunk, i] >= begins[rank, "B", chunk, i]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_bounds_for_any_times(name: str, data: st.DataObject) -> None:
    """Never below the work of a rank or of one micro-batch, never above ranks that all take the longest."""
    schedule, size = schedule_named(name), data.draw(sizes(name))
    pp, vpp, many = size
    f, b, w = random_times(schedule, pp, vpp, data.draw(st.integers(0, 999)))
    timeline = play(schedule, chunk_times(f, b, w), many)
    work = on_ranks(schedule, f + b + w) * many
    assert timeline.busy_s == pytest.approx(work)
    assert timeline.step_s >= work.max() - 1e-9
    for route in routes(schedule.layout, pp, vpp):
        assert timeline.step_s >= sum(f[place] + b[place] for place in route) - 1e-9
    longest = [np.full(pp, x.max() * vpp) for x in (f, b, w)]
    assert timeline.step_s <= closed_s(name, rank_times(*longest), pipe(*size)) + 1e-9
    assert timeline.longest_span_s <= timeline.step_s


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_longer_tasks_never_shorten_a_step(name: str, data: st.DataObject) -> None:
    schedule, (pp, vpp, many) = schedule_named(name), data.draw(sizes(name))
    times = random_times(schedule, pp, vpp, data.draw(st.integers(0, 999)))
    rng = np.random.default_rng(1)
    longer = [x * (1.0 + rng.random(x.shape)) for x in times]
    first = play(schedule, chunk_times(*times), many)
    assert play(schedule, chunk_times(*longer), many).step_s >= first.step_s - 1e-9
    assert play(schedule, chunk_times(*times, travel_s=0.1), many).step_s >= first.step_s
    doubled = play(schedule, chunk_times(*(2.0 * x for x in times)), many)
    assert doubled.step_s == pytest.approx(2.0 * first.step_s)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_held_begins_and_ends_with_nothing(name: str) -> None:
    schedule = schedule_named(name)
    size = {"interleaved": (4, 3, 8), "zb-v": (4, 2, 9)}.get(name, (4, 1, 12))
    timeline = play(schedule, chunk_times(*random_times(schedule, size[0], size[1], 0)), size[2])
    for rank in range(size[0]):
        moments, held = timeline.held(rank)
        assert (np.diff(moments) >= -1e-12).all()
        assert held[-1] == pytest.approx(0.0, abs=1e-9)
        assert held.min() >= -1e-9
        assert held[0] == 1.0 / size[1]


def test_a_way_between_ranks_lengthens_fill_and_drain() -> None:
    """With 1F1B and slack, p - 1 ways there and p - 1 back: one micro-batch alone shows them all."""
    ones = np.ones((4, 1))
    timeline = play(schedule_named("1f1b"), chunk_times(ones, ones, ones, travel_s=0.5), 1)
    assert timeline.step_s == pytest.approx(4 * 3.0 + 6 * 0.5)


@pytest.mark.parametrize("name", NAMES)
def test_64_ranks_and_512_micro_batches(name: str) -> None:
    schedule, one = schedule_named(name), np.ones(64)
    vpp = {"interleaved": 2, "zb-v": 2}.get(name, 1)
    timeline: Timeline = play(schedule, even_chunks(schedule, one, one, one, vpp), 512)
    assert timeline.step_s < 512 * 3.0 + 63 * 3.0 + 1e-6


def test_a_wrong_order_is_caught() -> None:
    """Backward before forward on the first rank: nobody can go on."""

    def backwards(rank: int, pp: int, vpp: int, micro_batches: int) -> list[Task]:
        order = schedule_named("gpipe").tasks(rank, pp, vpp, micro_batches)
        return order[::-1] if rank == 0 else order

    wrong = replace(schedule_named("gpipe"), tasks=backwards)
    with pytest.raises(RuntimeError, match="wait for each other"):
        play(wrong, chunk_times(*np.ones((3, 2, 1))), 2)


def test_a_step_without_micro_batches_is_refused() -> None:
    with pytest.raises(BadInput, match="at least one micro-batch"):
        play(schedule_named("1f1b"), chunk_times(*np.ones((3, 2, 1))), 0)
