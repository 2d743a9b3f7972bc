"""Latent attention: the prompt as fused attention, decode on the latent cache."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.catalog.chips import catalogue_chip
from foretell.kernels.families import prefill
from foretell.kernels.families.base import engine_of
from foretell.kernels.families.latent import (
    DECODE,
    DECODE_DIMS,
    PREFILL,
    LatentDecode,
    decode_start,
    prefill_start,
    seconds,
)
from foretell.specs.arrays import Array

SETS = (
    LatentDecode(),
    decode_start("hopper", "trtllm", "fp8"),
    decode_start("blackwell", "trtllm", "bf16"),
)
CHIPS = ("h200-sxm", "b200-sxm", "mi300x")
H200 = engine_of(catalogue_chip("h200-sxm"), "bf16")


def sizes(batch=8, heads=128, q=1, kv=4096, kv_bytes=2.0) -> dict[str, Array]:
    """Dims of DeepSeek's decode step."""
    given = (batch, heads, q, kv, 576.0, 512.0, kv_bytes)
    return {n: np.asarray(v, dtype=np.float64) for n, v in zip(DECODE_DIMS, given, strict=True)}


shapes = st.fixed_dictionaries(
    {
        "batch": st.sampled_from([1, 7, 64, 1024]),
        "heads": st.sampled_from([1, 16, 128]),
        "q": st.sampled_from([1, 4]),
        "kv": st.sampled_from([1, 300, 4096, 131072]),
        "kv_bytes": st.sampled_from([1.0, 2.0]),
    }
)


@given(shapes, st.sampled_from(CHIPS), st.sampled_from(SETS))
def test_not_faster_than_bytes_at_bandwidth_or_products_at_peak(shape, chip, record) -> None:
    engine = engine_of(catalogue_chip(chip), "bf16")
    dims = sizes(**shape)
    taken = seconds(dims, replace(record, cached=0.0), engine)
    assert np.isfinite(taken)
    assert taken > dims["batch"] * dims["kv_len"] * 576 * dims["kv_bytes"] / engine.bytes_per_s
    work = 2.0 * dims["batch"] * dims["heads"] * dims["q_len"] * dims["kv_len"] * 1088
    assert taken > work / engine.flop_per_s
    assert seconds(dims, record, engine) <= taken * (1.0 + 1e-12)


@given(st.lists(shapes, min_size=2, max_size=6), st.sampled_from(SETS))
def test_a_batch_is_its_rows(rows, record) -> None:
    each = [sizes(**row) for row in rows]
    stacked = {name: np.stack([dims[name] for dims in each])[:, None] for name in DECODE_DIMS}
    together = seconds(stacked, record, H200)
    np.testing.assert_allclose(together[:, 0], [seconds(d, record, H200) for d in each], rtol=1e-14)


@given(shapes, st.sampled_from(SETS), st.sampled_from(["batch", "kv", "q", "heads", "kv_bytes"]))
def test_more_never_takes_less(shape, record, name) -> None:
    shape = {**shape, "kv": max(shape["kv"], 300)}
    small, large = (
        seconds(sizes(**s), record, H200) for s in (shape, {**shape, name: 2 * shape[name]})
    )
    # Joining split keys ends once there are lanes enough.
    joins = record.split_s + 3.0 * record.join_s
    assert large >= small - joins


@given(shapes)
def test_an_unknown_chip_is_finite(shape) -> None:
    engine = replace(H200, cores=1.0, l2_bytes=0.0, sram_bytes=0.0)
    assert 0.0 < seconds(sizes(**shape), LatentDecode(), engine) < np.inf


@pytest.mark.parametrize("name", ["batch", "heads", "kv_len", "q_len"])
def test_nothing_costs_nothing(name: str) -> None:
    assert seconds({**sizes(), name: np.asarray(0.0)}, LatentDecode(), H200) == 0.0


def test_heads_share_one_cache_until_products_limit() -> None:
    """Up to 64 heads read the same bytes; 128 are bound by products on a Hopper."""
    heads = np.asarray([8.0, 64.0, 128.0])
    taken = seconds(sizes(batch=128, heads=heads, kv=32768), LatentDecode(), H200)
    assert taken[1] < 1.1 * taken[0]
    assert taken[2] > 1.4 * taken[1]


def test_the_prompt_is_fused_attention_with_its_own_sizes() -> None:
    assert PREFILL.seconds is prefill.seconds
    assert PREFILL.dims == prefill.DIMS
    assert prefill_start("blackwell", "trtllm", "bf16").tile_q == 256.0
    record = DECODE.record()
    for name, (low, high) in DECODE.bounds.items():
        assert low <= getattr(record, name) <= high


@given(shapes)
def test_coefficients_may_have_been_averaged(shape) -> None:
    """Tiles of 127.99999 are tiles of 128."""
    record = LatentDecode()
    blurred = replace(record, **{n: v * (1.0 - 1e-12) for n, v in asdict(record).items()})
    dims = sizes(**shape)
    taken = float(seconds(dims, record, H200))
    assert seconds(dims, blurred, H200) == pytest.approx(taken, rel=1e-9)
