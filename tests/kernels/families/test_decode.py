"""Attention of a decode step: bounds, splits, groups and caches."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.catalog.chips import catalogue_chip
from foretell.kernels.families.base import engine_of
from foretell.kernels.families.decode import DIMS, FAMILY, Decode, missed_share, seconds, start
from foretell.specs.arrays import Array

CHIPS = ("a100-sxm-80gb", "h200-sxm", "b200-sxm", "l40s", "mi300x")
SETS = (
    Decode(),
    start("hopper", "trtllm", "bf16"),
    start("hopper", "trtllm", "fp8"),
    start("blackwell", "trtllm", "bf16"),
    start("hopper", "vllm", "bf16"),
)
H200 = engine_of(catalogue_chip("h200-sxm"), "bf16")


def sizes(batch=8, heads=64, kv_heads=8, q=1, kv=4096, width=128, kv_bytes=2.0) -> dict[str, Array]:
    """Dims of a decode step."""
    given = (batch, heads, kv_heads, q, kv, width, width, kv_bytes)
    return {n: np.asarray(v, dtype=np.float64) for n, v in zip(DIMS, given, strict=True)}


def cache_bytes(dims: dict[str, Array]) -> Array:
    """Bytes of the cache that a step reads."""
    width = dims["qk_dim"] + dims["v_dim"]
    return dims["batch"] * dims["kv_heads"] * dims["kv_len"] * width * dims["kv_bytes"]


shapes = st.fixed_dictionaries(
    {
        "batch": st.sampled_from([1, 7, 64, 1024]),
        "heads": st.sampled_from([8, 64, 128]),
        "kv_heads": st.sampled_from([1, 2, 8]),
        "q": st.sampled_from([1, 4]),
        "kv": st.sampled_from([1, 60, 300, 4096, 131072]),
        "width": st.sampled_from([64, 128, 256]),
        "kv_bytes": st.sampled_from([1.0, 2.0]),
    }
)


@given(shapes, st.sampled_from(CHIPS), st.sampled_from(SETS))
def test_a_cache_that_is_not_kept_is_read_at_most_at_bandwidth(shape, chip, record) -> None:
    engine = engine_of(catalogue_chip(chip), "bf16")
    dims = sizes(**shape)
    taken = seconds(dims, replace(record, cached=0.0), engine)
    assert np.isfinite(taken)
    assert taken > cache_bytes(dims) / engine.bytes_per_s
    assert seconds(dims, record, engine) <= taken * (1.0 + 1e-12)


@given(shapes, st.sampled_from(SETS))
def test_an_unknown_chip_keeps_the_bounds(shape, record) -> None:
    engine = replace(H200, cores=1.0, l2_bytes=0.0, sram_bytes=0.0)
    dims = sizes(**shape)
    assert cache_bytes(dims) / engine.bytes_per_s < seconds(dims, record, engine) < np.inf


@given(st.lists(shapes, min_size=2, max_size=6), st.sampled_from(SETS))
def test_a_batch_is_its_rows(rows, record) -> None:
    each = [sizes(**row) for row in rows]
    stacked = {name: np.stack([dims[name] for dims in each])[:, None] for name in DIMS}
    together = seconds(stacked, record, H200)
    np.testing.assert_allclose(together[:, 0], [seconds(d, record, H200) for d in each], rtol=1e-14)


@given(shapes, st.sampled_from(SETS), st.sampled_from(["batch", "kv", "q", "kv_bytes"]))
def test_more_never_takes_less(shape, record, name) -> None:
    # Where splitting begins a longer cache may be faster: measured, and left out here.
    shape = {**shape, "kv": max(shape["kv"], 300)}
    more = {**shape, name: 2 * shape[name]}
    small, large = (seconds(sizes(**s), record, H200) for s in (shape, more))
    assert large >= small - record.split_s - 1e-12


@pytest.mark.parametrize("name", ["batch", "kv_heads", "kv_len", "q_len"])
def test_nothing_costs_nothing(name: str) -> None:
    assert seconds({**sizes(), name: np.asarray(0.0)}, Decode(), H200) == 0.0


def test_heads_of_one_sequence_are_as_sequences() -> None:
    """64 query and 8 key-value heads at batch 1 are 8 and 1 at batch 8."""
    wide, tall = sizes(batch=1), sizes(batch=8, heads=8, kv_heads=1)
    assert seconds(wide, Decode(), H200) == pytest.approx(float(seconds(tall, Decode(), H200)))


def test_groups_that_are_not_packed_read_the_cache_once_a_head() -> None:
    record = start("hopper", "trtllm", "bf16")
    dims = {g: sizes(batch=128, heads=g, kv_heads=1, kv=8192) for g in (32, 64)}
    assert seconds(dims[64], record, H200) > 3.0 * seconds(dims[32], record, H200)


def test_splitting_fills_idle_cores() -> None:
    one = sizes(batch=1, heads=8, kv_heads=1, kv=131072)
    whole = seconds(one, Decode(splits=1.0), H200)
    assert whole > 20.0 * seconds(one, Decode(), H200)


def test_a_small_cache_is_found_again() -> None:
    room = 10e6
    shares = missed_share(np.asarray([1e5, 1e7, 1e9]), room)
    assert shares[0] < 1e-6
    assert shares[1] == pytest.approx(0.5)
    assert shares[2] > 1.0 - 1e-6
    assert missed_share(np.asarray(1.0), 0.0) == 1.0


def test_the_family_names_its_dims_and_coefficients() -> None:
    record = FAMILY.record()
    for name, (low, high) in FAMILY.bounds.items():
        assert low <= getattr(record, name) <= high


@given(shapes)
def test_coefficients_may_have_been_averaged(shape) -> None:
    """Tiles of 127.99999 are tiles of 128."""
    record = start("hopper", "trtllm", "bf16")
    blurred = replace(record, **{n: v * (1.0 - 1e-12) for n, v in asdict(record).items()})
    dims = sizes(**shape)
    taken = float(seconds(dims, record, H200))
    assert seconds(dims, blurred, H200) == pytest.approx(taken, rel=1e-9)


@pytest.mark.parametrize("chip", ["tpu-v5p", "tpu-v6e", "trainium2"])
def test_few_wide_cores_read_about_as_fast_as_many_narrow_ones(chip):
    """The cores of such a chip take many sequences side by side: a full batch is bound by the memory."""
    engine = engine_of(catalogue_chip(chip), "bf16")
    dims = sizes(batch=64, heads=32, kv_heads=8)
    ideal_s = cache_bytes(dims) / engine.bytes_per_s
    assert float(seconds(dims, start("", "vllm", "bf16"), engine)) < 3.0 * float(ideal_s)
