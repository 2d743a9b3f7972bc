"""Layers on stages."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foretell.sharding.pipeline import chunk_sizes, stage_table, stages_of


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
