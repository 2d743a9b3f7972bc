"""Tables read between their points: whatever is straight along every axis comes back exactly."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.serving.table_points import axis_of, corners, read

POINTS = (
    np.array([1.0, 2.0, 4.0, 16.0]),
    np.array([-3.0, 0.0, 0.5]),
    np.array([10.0, 1000.0]),
)


@given(
    slopes=st.lists(st.floats(-5.0, 5.0), min_size=3, max_size=3),
    at=st.tuples(st.floats(0.0, 40.0), st.floats(-3.0, 9.0), st.floats(10.0, 5000.0)),
    many=st.integers(0, 3),
)
def test_a_product_of_straight_lines_is_read_exactly(
    slopes: list[float], at: tuple[float, ...], many: int
) -> None:
    """Between points and beyond the last one; below the first one it is the first one's."""
    points = POINTS[:many]
    lines = [1.0 + slope * axis for slope, axis in zip(slopes, points, strict=False)]
    table = reduce(np.multiply.outer, lines, np.array(1.0))
    axes = [axis_of(np.array([x]), axis) for x, axis in zip(at, points, strict=False)]
    held = [max(x, axis[0]) for x, axis in zip(at, points, strict=False)]
    want = np.prod([1.0 + slope * x for slope, x in zip(slopes, held, strict=False)])
    scale = np.prod([1.0 + abs(s) * max(abs(x), 16.0) for s, x in zip(slopes, held, strict=False)])
    got = read(table, axes)
    np.testing.assert_allclose(got, want, rtol=0.0, atol=1e-12 * float(scale))
    if many:
        np.testing.assert_allclose(corners(table, axes), got, rtol=0.0, atol=1e-12 * float(scale))


@pytest.mark.parametrize(
    ("value", "low", "share"),
    [(0.0, 0, 0.0), (1.0, 0, 0.0), (1.5, 0, 0.5), (2.0, 1, 0.0), (10.0, 2, 0.5), (28.0, 2, 2.0)],
)  # fmt: skip
def test_where_a_value_is_on_an_axis(value: float, low: int, share: float) -> None:
    found_low, found_share = axis_of(np.array([value]), POINTS[0])
    assert (int(found_low[0]), float(found_share[0])) == (low, share)
