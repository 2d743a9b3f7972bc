"""Uneven ranks: where the closed form is exact, where it is a bound, and how far it is off elsewhere."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.schedules import schedule_named
from foretell.sharding.pipeline import chunk_sizes, chunk_waiting, stage_table, stages_of
from foretell.simulation.events import play
from foretell.specs.arrays import Array
from tests.simulation.pipes import (
    NAMES,
    SECONDS,
    chunk_times,
    closed_s,
    on_chunks,
    on_ranks,
    pipe,
    rank_times,
    sizes,
)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_gpipe_is_exact_for_any_ranks(data: st.DataObject) -> None:
    size = data.draw(sizes("gpipe"))
    f, b, w = (np.array([data.draw(SECONDS) for _ in range(size[0])]) for _ in range(3))
    timeline = play(
        schedule_named("gpipe"), chunk_times(f[:, None], b[:, None], w[:, None]), size[2]
    )
    assert closed_s("gpipe", rank_times(f, b, w), pipe(*size)) == pytest.approx(timeline.step_s)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_1f1b_takes_at_most_what_the_closed_form_says(data: st.DataObject) -> None:
    """Where ranks differ with both passes alike, and where the two ends differ in any way."""
    size = data.draw(sizes("1f1b"))
    f = np.array([data.draw(SECONDS) for _ in range(size[0])])
    b, w = f * data.draw(SECONDS), f * data.draw(SECONDS)
    if data.draw(st.booleans()):
        f, b, w = (np.full(size[0], data.draw(SECONDS)) for _ in range(3))
        for passes in (f, b, w):
            passes[0], passes[-1] = data.draw(SECONDS), data.draw(SECONDS)
    timeline = play(
        schedule_named("1f1b"), chunk_times(f[:, None], b[:, None], w[:, None]), size[2]
    )
    assert timeline.step_s <= closed_s("1f1b", rank_times(f, b, w), pipe(*size)) + 1e-9


def errors(name: str, uneven: str, seed: int = 0, count: int = 60) -> Array:
    """closed / events - 1 over random pipelines of 2 to 12 ranks and 2 p to 8 p micro-batches."""
    schedule, rng, found = schedule_named(name), np.random.default_rng(seed), []
    for _ in range(count):
        pp, vpp = int(rng.choice([2, 4, 6, 8, 12])), 2 if name == "zb-v" else 1
        many = pp * int(rng.choice([2, 4, 8]))
        along = np.ones(pp * vpp)
        if uneven == "ends":  # a layer less for the embedding; head and multi-token prediction
            along[0] += vpp * rng.uniform(-0.25, 0.1)
            along[-1] += vpp * rng.uniform(-0.25, 0.4)
        else:
            along += rng.uniform(-0.3, 0.3, len(along))
        f = on_chunks(schedule, along, pp, vpp)
        b, w = f * rng.uniform(0.9, 1.3), f * rng.uniform(0.7, 1.0)
        timeline = play(schedule, chunk_times(f, b, w), many)
        ranks = rank_times(*(on_ranks(schedule, x) for x in (f, b, w)))
        found.append(closed_s(name, ranks, pipe(pp, vpp, many)) / timeline.step_s - 1.0)
    return np.array(found)


@pytest.mark.parametrize(
    ("name", "uneven", "mean", "worst"),
    [
        ("1f1b", "ends", 0.005, 0.05),
        ("1f1b", "all", 0.025, 0.10),
        ("zb-h1", "ends", 0.01, 0.04),
        ("zb-h1", "all", 0.01, 0.04),
        ("zb-v", "ends", 0.02, 0.10),
        ("zb-v", "all", 0.02, 0.07),
        ("dualpipe", "ends", 0.01, 0.05),
        ("dualpipe", "all", 0.015, 0.06),
    ],
)
def test_how_far_the_closed_form_is_off(name: str, uneven: str, mean: float, worst: float) -> None:
    """Ends shorter and longer, or all ranks by up to 30 %: stated bounds on the step's time."""
    found = np.abs(errors(name, uneven))
    assert found.mean() <= mean
    assert found.max() <= worst


@pytest.mark.parametrize(
    ("layers", "pp", "vpp"), [(126, 16, 2), (80, 12, 2), (61, 8, 2), (96, 8, 3)]
)
def test_interleaved_chunks_that_do_not_divide(layers: int, pp: int, vpp: int) -> None:
    """Layers dealt as the estimate deals them: within 3 % at 4 p micro-batches."""
    schedule, many = schedule_named("interleaved"), 4 * pp
    f = on_chunks(schedule, chunk_sizes(layers, pp * vpp).astype(float), pp, vpp)
    timeline = play(schedule, chunk_times(f, f, f), many)
    ranks = rank_times(*[f.sum(axis=1)] * 3)
    waits = many * chunk_waiting(layers, pp, vpp) * ranks.own(ranks.whole_s)[0]
    closed = closed_s("interleaved", ranks, pipe(pp, vpp, many)) + waits
    assert closed == pytest.approx(timeline.step_s, rel=0.03)


def interleaved_errors(seed: int, count: int = 60) -> Array:
    """closed / events - 1 of chunks that layers, embedding and head do not fill evenly."""
    schedule, rng, found = schedule_named("interleaved"), np.random.default_rng(seed), []
    for _ in range(count):
        pp, vpp = int(rng.choice([2, 4, 8, 12])), int(rng.choice([2, 3, 4]))
        layers, many = int(rng.integers(pp * vpp, 3 * pp * vpp)), pp * int(rng.choice([2, 4, 8]))
        along = chunk_sizes(layers, pp * vpp).astype(float)
        along[0] += 0.1
        along[-1] += rng.choice([0.0, 0.5, 1.5])
        f = on_chunks(schedule, along, pp, vpp)
        timeline = play(schedule, chunk_times(f, f, f), many)
        ranks = rank_times(*[f.sum(axis=1)] * 3)
        waits = many * chunk_waiting(layers, pp, vpp) * ranks.own(ranks.whole_s)[0]
        closed = closed_s("interleaved", ranks, pipe(pp, vpp, many)) + waits
        found.append(closed / timeline.step_s - 1.0)
    return np.array(found)


def test_how_far_interleaving_is_off() -> None:
    found = interleaved_errors(0)
    assert np.abs(found).mean() <= 0.03
    assert np.abs(found).max() <= 0.15
    assert abs(found.mean()) <= 0.02


def test_equal_chunks_wait_for_nothing_and_unequal_ones_for_a_share() -> None:
    assert chunk_waiting(96, 8, 3) == chunk_waiting(96, 8, 1) == chunk_waiting(97, 8, 1) == 0.0
    assert chunk_waiting(61, 8, 2, "v") == 0.0
    assert 0.0 < chunk_waiting(31, 8, 3) < 0.1
    assert all(0.0 <= chunk_waiting(n, 8, 3) < 0.5 for n in range(24, 100))


@given(st.lists(st.integers(0, 2), min_size=1, max_size=60), st.integers(1, 12))
def test_layouts_lose_nothing(order: list[int], pp: int) -> None:
    """Every layer once and both ends: on a V the first rank has both, from both ends each half of each."""
    layers = [float(order.count(k)) for k in range(3)]
    for layout, vpp in (("v", 2), ("both", 1)):
        counts, times, first = stages_of(tuple(order), 3, pp, vpp, layout)  # type: ignore[arg-type]
        assert (counts * times[:, None]).sum(axis=0).tolist() == [*layers, 1.0, 1.0]
        assert times.sum() == pp
        assert first[0] == 0.0
        ends = counts[0, 3:].tolist()
        assert ends == ([1.0, 1.0] if layout == "v" or pp == 1 else [0.5, 0.5])


def test_layouts_put_chunks_where_their_schedules_have_them() -> None:
    """One kind per layer, so that a rank's counts name its layers."""
    order = tuple(range(8))
    counts, _, _ = stages_of(order, 8, 4, 2, "v")
    assert [np.flatnonzero(row[:8]).tolist() for row in counts] == [[0, 7], [1, 6], [2, 5], [3, 4]]
    counts, times, _ = stages_of(order, 8, 4, 1, "both")
    assert [np.flatnonzero(row[:8]).tolist() for row in counts] == [[0, 1, 6, 7], [2, 3, 4, 5]]
    assert times.tolist() == [2.0, 2.0]


def test_the_default_layout_is_what_it_was() -> None:
    order, pairs = (0,) * 13 + (1,) * 4, ((1, 1), (4, 1), (4, 3), (17, 1))
    plain, loop = stage_table(order, 2, pairs), stage_table(order, 2, pairs, "loop")
    for field in ("counts", "multiplicity", "position", "layers", "waiting"):
        assert (getattr(plain, field) == getattr(loop, field)).all()
    assert stage_table(order, 2, ((4, 2),), "v").waiting.tolist() == [0.0]


@pytest.mark.parametrize("name", NAMES)
def test_the_last_rank_carries_the_head(name: str) -> None:
    """A longer last chunk makes a longer step, in the closed form as in the events."""
    schedule, vpp = schedule_named(name), 2 if name in ("interleaved", "zb-v") else 1
    steps = []
    for head in (1.0, 1.5, 2.0):
        along = np.ones(4 * vpp)
        along[-1] = head
        f = on_chunks(schedule, along, 4, vpp)
        ranks = rank_times(*[on_ranks(schedule, f)] * 3)
        timeline = play(schedule, chunk_times(f, f, f), 16)
        steps.append((closed_s(name, ranks, pipe(4, vpp, 16)), timeline.step_s))
    assert (np.diff(steps, axis=0) > 0.0).all()
