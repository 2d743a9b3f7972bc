"""Mixture-of-experts layers and grouped products."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.catalog.chips import catalogue_chip
from foretell.kernels.families.base import engine_of
from foretell.kernels.families.choose import choose
from foretell.kernels.families.experts import (
    FAMILY,
    TILES,
    ExpertsCoefficients,
    NarrowExperts,
    experts_seconds,
    grouped_times,
)
from foretell.kernels.families.experts_loads import QUANTILES, SHARES, loads_of

ENGINE = engine_of(catalogue_chip("h100-sxm"), "bf16")
SHAPES = ((4096, 14336, 2, 8), (7168, 2048, 8, 256), (2048, 768, 8, 128))


def dims(shape=SHAPES[1], tokens=64.0, ep=1.0, tp=1.0, skew=0.0):
    hidden, inter, top_k, experts = shape
    named = {"hidden": hidden, "inter": inter, "top_k": top_k, "experts": experts}
    named |= {"ep": ep, "tp": tp, "skew": skew}
    return {k: np.asarray(v, dtype=float) for k, v in {**named, "tokens": tokens}.items()}


shapes = st.sampled_from(SHAPES)
tokens_drawn = st.integers(1, 65536).map(float)
skews = st.sampled_from([0.0, 0.5, 1.0, 1.01, 1.2])
ranks = st.sampled_from([1.0, 2.0, 4.0, 8.0])


@given(shapes, tokens_drawn, ranks, st.sampled_from([1.0, 4.0, 8.0]), skews)
def test_not_below_its_roofline(shape, tokens, ep, tp, skew):
    hidden, inter, top_k, _ = shape
    given_dims = dims(shape, tokens, ep, tp, skew)
    seconds = experts_seconds(given_dims, ExpertsCoefficients(), ENGINE)
    loads = loads_of(given_dims, TILES)
    flop = 6.0 * tokens * top_k / ep * hidden * inter / tp
    streamed = 3.0 * hidden * inter / tp * 2.0 * loads.distinct
    assert seconds >= flop / ENGINE.flop_per_s
    assert seconds >= streamed / ENGINE.bytes_per_s
    assert np.isfinite(seconds)


@given(shapes, tokens_drawn, ranks, skews)
def test_no_rank_gets_more_than_all_pairs_nor_less_than_its_part(shape, tokens, ep, skew):
    *_, top_k, experts = shape
    loads = loads_of(dims(shape, tokens, ep, skew=skew), TILES)
    pairs = tokens * top_k
    assert loads.rows <= max(pairs, 1.0) * (1.0 + 1e-9)
    assert loads.rows >= pairs / ep * (1.0 - 1e-9)
    assert loads.distinct <= min(experts / ep, max(loads.rows, 1.0)) * (1.0 + 1e-9)
    # A tile holds so many rows at most, and an expert that is there has one at least.
    assert np.all(loads.tiles * TILES >= loads.rows * (1.0 - 1e-9))
    assert np.all(loads.tiles >= loads.distinct * (1.0 - 1e-9))


@given(shapes, tokens_drawn, skews)
def test_one_rank_holds_all_pairs(shape, tokens, skew):
    rows = loads_of(dims(shape, tokens, skew=skew), TILES).rows
    assert rows == pytest.approx(tokens * shape[2], rel=1e-9)


def test_balanced_pairs_are_dealt_out_like_a_hand_count():
    # 128 experts, 8 of them a token: 16 tokens fill every expert once, 2 ranks have half of them each.
    loads = loads_of(dims(SHAPES[2], np.array([1.0, 4.0, 16.0, 32.0]), ep=2.0), TILES)
    assert loads.rows == pytest.approx([4.0, 16.0, 64.0, 128.0])
    assert loads.distinct == pytest.approx([4.0, 16.0, 64.0, 64.0])


def test_a_skewed_router_wakes_fewer_experts_and_overloads_a_rank():
    even, skewed = (
        loads_of(dims(SHAPES[2], np.array([16.0, 4096.0]), ep=8.0, skew=s), TILES)
        for s in (0, 1.01)
    )
    assert skewed.distinct[0] < even.distinct[0]
    # The generator of the tables gives 1.69 times the mean to the most loaded of 8 ranks at 4096 tokens.
    assert skewed.rows[1] / even.rows[1] == pytest.approx(1.69, rel=0.15)


def test_pinned_experts_get_every_token():
    plain = dims(SHAPES[2], 1024.0, ep=8.0)
    pinned = loads_of({**plain, "pinned": np.asarray(1.0)}, TILES)
    assert pinned.rows == pytest.approx(1024.0 * 7 / 8 + 1024.0)


@given(shapes, tokens_drawn, ranks)
def test_more_tokens_cost_no_less_when_balanced(shape, tokens, ep):
    less, more = (
        experts_seconds(dims(shape, n, ep), ExpertsCoefficients(), ENGINE)
        for n in (tokens, tokens * 2)
    )
    assert more >= less


@given(shapes, tokens_drawn, skews)
def test_a_faster_chip_is_no_slower(shape, tokens, skew):
    given_dims = dims(shape, tokens, skew=skew)
    fast = replace(ENGINE, flop_per_s=2 * ENGINE.flop_per_s, bytes_per_s=2 * ENGINE.bytes_per_s)
    assert experts_seconds(given_dims, ExpertsCoefficients(), fast) <= experts_seconds(
        given_dims, ExpertsCoefficients(), ENGINE
    )


def test_a_batch_is_its_rows():
    tokens = np.array([[1.0, 64.0, 4096.0], [3.0, 192.0, 12288.0]])
    batch = dims(SHAPES[1], tokens, ep=8.0, skew=1.01)
    found = experts_seconds(batch, ExpertsCoefficients(), ENGINE)
    assert found.shape == tokens.shape
    for place, one in np.ndenumerate(tokens):
        single = experts_seconds(
            dims(SHAPES[1], one, ep=8.0, skew=1.01), ExpertsCoefficients(), ENGINE
        )
        assert found[place] == single


def test_nothing_costs_nothing():
    assert experts_seconds(dims(tokens=0.0), ExpertsCoefficients(), ENGINE) == 0.0
    none = {k: np.asarray(v) for k, v in {"groups": 8.0, "m": 0.0, "n": 64.0, "k": 64.0}.items()}
    assert grouped_times(none, ExpertsCoefficients(), ENGINE)[0] == 0.0


def test_rows_are_padded_to_whole_tiles():
    # Small tiles are made dear, so that rows fill tiles of 128.
    wide = ExpertsCoefficients(launch_s=1e-9, tile_power=1.0)

    def at(m):
        sizes = {"groups": 66.0, "m": m, "n": 1024.0, "k": 4096.0}
        return grouped_times({k: np.asarray(v) for k, v in sizes.items()}, wide, ENGINE)[0]

    assert at(1152.0) / at(1025.0) < 1.02
    assert at(1025.0) / at(1024.0) > 1.05


def test_narrow_tiles_read_large_weights_more_often():
    large = dims(SHAPES[0], 16384.0)
    narrow = experts_seconds(large, NarrowExperts(tile_power=0.01), ENGINE)
    assert narrow > experts_seconds(large, ExpertsCoefficients(tile_power=0.01), ENGINE)


def test_one_product_in_costs_less_than_two():
    gated = dims(SHAPES[1], 4096.0)
    assert experts_seconds(
        {**gated, "gated": np.asarray(0.0)}, ExpertsCoefficients(), ENGINE
    ) < experts_seconds(gated, ExpertsCoefficients(), ENGINE)


def test_defaults_lie_within_their_bounds():
    record = FAMILY.record()
    for name, (low, high) in FAMILY.bounds.items():
        assert low <= getattr(record, name) <= high


def test_what_of_a_grouped_product_the_clock_stretches() -> None:
    """Large groups wait for the matrix units, single rows for the memory; never longer than the whole."""
    chip = catalogue_chip("b200-sxm")
    record, engine = choose(chip, "experts", "bf16", ("trtllm",)).record, engine_of(chip, "bf16")
    m = np.array([1.0, 64.0, 1024.0, 8192.0])
    sizes = {"groups": np.full(4, 32.0), "m": m, "n": np.full(4, 4096.0), "k": np.full(4, 7168.0)}
    seconds, matrix = grouped_times(sizes, record, engine)
    assert (matrix <= seconds).all()
    shares = matrix / seconds
    assert shares[0] < 0.2
    assert shares[-1] > 0.9
    assert np.array_equal(seconds, grouped_times(sizes, record, engine)[0])


def test_a_chip_that_lists_no_cache_reads_weights_once() -> None:
    """TPUs keep a tile's weights in memory of their own: compute binds large groups there."""
    engine = engine_of(catalogue_chip("tpu-v6e"), "bf16")
    sizes = {"groups": 8.0, "m": 4096.0, "n": 28672.0, "k": 4096.0}
    seconds = grouped_times(sizes, ExpertsCoefficients(), engine)[0]
    assert seconds < 2.0 * 2.0 * 8.0 * 4096.0 * 28672.0 * 4096.0 / engine.flop_per_s


def test_the_points_of_gauss_are_numpys() -> None:
    nodes, weights = np.polynomial.legendre.leggauss(8)
    np.testing.assert_array_equal(QUANTILES, (1.0 + nodes) / 2.0)
    np.testing.assert_array_equal(SHARES, weights / 2.0)


@pytest.mark.parametrize(("tokens", "ranks"), [(1, 8), (4, 8), (16, 8), (64, 32), (512, 32)])
def test_the_fullest_rank_of_a_step_has_what_chance_brings(tokens, ranks):
    """Against rows that are drawn evenly, 8 of 256 experts a token."""
    rng = np.random.default_rng(tokens)
    most = []
    for _ in range(400):
        rows = np.zeros(256)
        for _ in range(tokens):
            rows[rng.choice(256, 8, replace=False)] += 1.0
        most.append(rows.reshape(ranks, -1).sum(1).max())
    sizes = {"tokens": tokens, "experts": 256, "top_k": 8, "ep": ranks, "skew": 0.0}
    dims = {name: np.array([float(value)]) for name, value in sizes.items()}
    dealt = loads_of(dims, np.array([64.0]))
    drawn = loads_of(dims | {"drawn": np.ones(1)}, np.array([64.0]))
    assert float(dealt.rows[0]) == pytest.approx(tokens * 8 / ranks)
    assert float(drawn.rows[0]) == pytest.approx(np.mean(most), rel=0.05)


def test_a_limited_matrix_rate_costs_full_tiles_alone():
    """H20's cores are those of an H100 with a quarter of the matrix rate: small tiles lose no more time."""
    full, limited = (
        engine_of(catalogue_chip(name), "fp8-block") for name in ("h100-sxm", "h20-sxm")
    )
    assert float(full.held_back) == 1.0
    assert float(limited.held_back) == pytest.approx(4.27, rel=0.02)
    c = ExpertsCoefficients()
    few, many = (
        [float(experts_seconds(dims(tokens=tokens, ep=16.0), c, one)) for one in (full, limited)]
        for tokens in (256.0, 262144.0)
    )
    # Few rows wait for memory, of which an H20 has more; many for the matrix units.
    assert few[1] < 1.3 * few[0]
    assert many[1] > 3.0 * many[0]
