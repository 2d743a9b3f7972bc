"""Layers on stages."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foretell.sharding.pipeline import (
    chunk_layers,
    chunk_sizes,
    sizes_by_cost,
    stage_names,
    stage_table,
    stages_of,
)
from foretell.specs.plan_forms import even_sizes


def test_llama_405b_has_the_fewer_layers_on_the_outer_stages() -> None:
    assert chunk_sizes(126, 16).tolist() == [7] + [8] * 14 + [7]


@given(st.integers(1, 300), st.data())
def test_chunks_are_even_and_lose_nothing(layers: int, data: st.DataObject) -> None:
    chunks = data.draw(st.integers(1, layers))
    sizes = chunk_sizes(layers, chunks)
    assert sizes.sum() == layers
    assert sizes.max() - sizes.min() <= 1
    if chunks > 2:
        assert sizes[1:-1].max() >= max(sizes[0], sizes[-1])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.data())
def test_stages_hold_every_layer_once(order: list[int], data: st.DataObject) -> None:
    pp = data.draw(st.integers(1, len(order)))
    vpp = data.draw(st.integers(1, len(order) // pp))
    counts, times, first = stages_of(tuple(order), 4, pp, vpp)
    total = (counts * times[:, None]).sum(axis=0)
    assert total[:4].tolist() == [order.count(k) for k in range(4)]
    assert total[4:].tolist() == [1.0, 1.0]
    assert times.sum() == pp
    assert (np.diff(first) > 0).all()


def test_a_table_is_its_rows_padded() -> None:
    order = (0,) * 10 + (1,) * 3
    table = stage_table(order, 2, ((1, 1), (4, 1), (4, 3), (13, 1)))
    for row, (pp, vpp) in enumerate(((1, 1), (4, 1), (4, 3), (13, 1))):
        counts, times, _ = stages_of(order, 2, pp, vpp)
        assert (table.counts[row, : len(times)] == counts).all()
        assert table.multiplicity[row].sum() == pp
        assert (table.counts[row, len(times) :] == 0).all()


@given(st.integers(1, 130), st.integers(1, 16), st.floats(0.0, 8.0))
def test_stages_by_cost(layers: int, pp: int, head: float) -> None:
    """Every layer stands somewhere; no stage but the last takes more than its share and one layer, and the
    first is never short of its share."""
    sizes = sizes_by_cost(layers, pp, head)
    assert sizes.sum() == layers
    share = (layers + head) / pp
    assert sizes[:-1].max(initial=0) <= share + 1.0 + 1e-9
    assert sizes[0] >= min(layers, np.floor(share + 1e-9))


def test_stages_by_cost_as_nanotron_prints_them() -> None:
    """Llama 3 8B on 8 stages: five layers on the first, four on the second (its documentation), and the head
    of a 1.3B model counts as four of sixteen layers (its logs: 10 and 5 layers on the first of 2 and 4)."""
    assert sizes_by_cost(32, 8, 2.16)[:2].tolist() == [5, 4]
    assert [sizes_by_cost(16, pp, 3.999)[0] for pp in (2, 4, 8)] == [10, 5, 3]


@given(
    st.lists(st.integers(0, 2), min_size=8, max_size=40),
    st.sampled_from([(2, 1, "loop"), (4, 2, "loop"), (2, 3, "loop"), (4, 2, "v"), (4, 1, "both")]),
    st.sampled_from([0.0, 2.5]),
)
def test_layers_of_each_rank_are_its_counts(
    order: list[int], form: tuple[int, int, str], head: float
) -> None:
    pp, vpp, layout = form
    layers = chunk_layers(tuple(order), pp, vpp, layout, head)  # type: ignore[arg-type]
    counts, times, first = stages_of(tuple(order), 3, pp, vpp, layout, head)  # type: ignore[arg-type]
    share = 0.5 if layout == "both" else 1.0
    for row, rank in zip(counts, first, strict=True):
        here = [kind for chunk in layers[int(rank)] for kind in chunk]
        assert (share * np.bincount(here, minlength=3)).tolist() == row[:3].tolist()
    assert times.sum() == pp


def test_stages_of_one_kind_are_named_as_a_run_only_where_they_are_one() -> None:
    assert stage_names([0, 1, 3], [1, 2, 1]) == ["stage 0", "stages 1 to 2", "stage 3"]
    assert stage_names([0], [4]) == ["stages 0 to 3"]
    # 0 1 0 1 2: kinds take turns.
    apart = ["stage 0 and 1 others like it", "stage 1 and 1 others like it", "stage 4"]
    assert stage_names([0, 1, 4], [2, 2, 1]) == apart


@given(st.integers(1, 200), st.integers(1, 64), st.integers(0, 9))
def test_blocks_behind_the_last_layer_take_places_of_layers(
    layers: int, chunks: int, tail: int
) -> None:
    sizes = even_sizes(layers, chunks, tail)
    assert sum(sizes) == layers
    assert min(sizes) >= 0
    assert even_sizes(layers, chunks, 0) == even_sizes(layers, chunks)
    # With the places that the blocks take, no chunk has two layers more than another.
    taken = [0] * chunks
    left = tail
    whole = even_sizes(layers + tail, chunks)
    for at in reversed(range(chunks)):
        taken[at] = min(left, whole[at])
        left -= taken[at]
    assert [size + place for size, place in zip(sizes, taken, strict=True)] == [*whole]


def test_layouts_of_megatron_bridge_for_deepseek_v3() -> None:
    # recipes/deepseek/deepseek_v3.py: 61 layers, the block of prediction and the loss on the last chunk.
    assert even_sizes(61, 16, 3) == (*[4] * 15, 1)
    assert even_sizes(61, 8, 3) == (*[8] * 7, 5)
    assert even_sizes(61, 4, 3) == (16, 16, 16, 13)
    assert sorted(even_sizes(61, 32, 3)) == sorted((1, *[2] * 30, 0))
