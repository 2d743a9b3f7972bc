"""Memory-bound kernels and copies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.catalog.chips import catalogue_chip
from foretell.kernels.families.base import engine_of
from foretell.kernels.families.choose import catalogue_surfaces
from foretell.kernels.families.pointwise import (
    STREAMING,
    PointwiseCoefficients,
    pointwise_seconds,
)

ENGINE = engine_of(catalogue_chip("a100-sxm-80gb"), "bf16")
sizes = st.floats(0.0, 1e12)


def seconds(read, written=0.0, flop=0.0, kernels=1.0, **more):
    named = {"bytes_read": read, "bytes_written": written, "flop": flop, "kernels": kernels, **more}
    return pointwise_seconds(
        {k: np.asarray(v) for k, v in named.items()}, PointwiseCoefficients(), ENGINE
    )


@given(sizes, sizes)
def test_not_faster_than_memory_but_for_what_the_cache_holds(read, written):
    floor = (read + written - ENGINE.l2_bytes) / ENGINE.bytes_per_s
    assert seconds(read, written) >= max(floor, PointwiseCoefficients().launch_s)


@given(sizes, sizes)
def test_more_bytes_cost_no_less(first, second):
    low, high = sorted((first, second))
    assert seconds(low) <= seconds(high)
    assert seconds(0.0, 0.0, bytes_gathered=low) <= seconds(0.0, 0.0, bytes_gathered=high)


def test_reading_and_writing_cost_alike_and_launches_add():
    assert seconds(1e9, 5e8) == seconds(5e8, 1e9)
    assert seconds(1e9, kernels=3.0) - seconds(1e9) == pytest.approx(
        2 * PointwiseCoefficients().launch_s
    )
    assert seconds(0.0, kernels=0.0) == 0.0


def test_arithmetic_counts_where_it_is_longer_than_memory():
    assert seconds(1.0, flop=1e12) > 1e12 / ENGINE.vector_flop_per_s


def test_a_batch_is_its_rows():
    read = np.array([[1e3, 1e6], [1e8, 1e10]])
    batch = seconds(read)
    assert batch.shape == read.shape
    assert all(batch[i] == seconds(one) for i, one in np.ndenumerate(read))


def test_no_table_shows_more_than_memory_streams():
    """Tensors that the cache holds a part of would: the fit has a bound."""
    fitted = [s for s in catalogue_surfaces() if s.family == "pointwise"]
    assert fitted
    assert all(s.coefficients["memory_share"] <= STREAMING for s in fitted)
