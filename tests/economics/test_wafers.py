"""Dies of a wafer: the formulas against published values, the grid against counting by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.economics.silicon import (
    OFFSETS,
    actuary_count,
    classic_count,
    dies_per_wafer,
    google_count,
    grid_count,
    panel_count,
)
from foretell.specs.package import CountRule, Wafer

AREAS = st.floats(10.0, 3000.0)
RULES: tuple[CountRule, ...] = ("grid", "actuary", "classic", "google")


def test_formulas() -> None:
    old = Wafer(edge_mm=5.0, scribe_mm=0.2)
    assert round(float(actuary_count(100.0, old)), 2) == 571.71
    area = 100.0
    expected = math.pi * 150**2 / area - math.pi * 300 / math.sqrt(2 * area)
    assert float(classic_count(area, old)) == pytest.approx(expected, rel=1e-12)
    cell = (10.0 + 0.2) ** 2
    expected = 294 * math.pi * (300 / (4 * cell) - 1 / math.sqrt(2 * cell))
    assert float(google_count(area, old)) == pytest.approx(expected, rel=1e-12)


def by_hand(area: float, wafer: Wafer) -> int:
    """Cells whose four corners lie inside, one by one, for every place of the grid."""
    radius = float(wafer.diameter_mm) / 2 - float(wafer.edge_mm)
    wide = math.sqrt(area * float(wafer.aspect)) + float(wafer.scribe_mm)
    high = math.sqrt(area / float(wafer.aspect)) + float(wafer.scribe_mm)
    best = 0
    for i in range(OFFSETS):
        for j in range(OFFSETS):
            count = 0
            reach_x, reach_y = int(radius / wide) + 2, int(radius / high) + 2
            for column in range(-reach_x, reach_x):
                for row in range(-reach_y, reach_y):
                    x, y = (column + i / OFFSETS) * wide, (row + j / OFFSETS) * high
                    corners = ((x, y), (x + wide, y), (x, y + high), (x + wide, y + high))
                    count += all(a * a + b * b <= radius * radius for a, b in corners)
            best = max(best, count)
    return best


@pytest.mark.parametrize("area", [400.0, 814.0, 1700.0, 2700.0])
def test_the_grid_is_counted_right(area: float) -> None:
    assert grid_count(area, Wafer()) == by_hand(area, Wafer())


def test_known_counts() -> None:
    """H100: 60-odd dies a wafer; some 28 of its carriers, and 16 of B200's, as the press has them."""
    assert 60 <= grid_count(814.0, Wafer()) <= 70
    assert grid_count(1694.0, Wafer()) == 28
    assert grid_count(2696.0, Wafer()) == 16


@given(AREAS, st.floats(1.0, 2.0), st.sampled_from(RULES), st.floats(1.0, 2.0))
def test_larger_dies_are_never_more(
    area: float, more: float, rule: CountRule, aspect: float
) -> None:
    wafer = Wafer(rule=rule, aspect=aspect)
    small, large = dies_per_wafer(area, wafer), dies_per_wafer(area * more, wafer)
    assert float(large) <= float(small)
    # The classic formula counts a rim of half dies: never more than the whole area over the die's.
    assert float(small) * area <= math.pi * 150.0**2


@given(st.lists(AREAS, min_size=1, max_size=5), st.sampled_from(RULES))
def test_batches_are_what_each_gives(areas: list[float], rule: CountRule) -> None:
    wafer = Wafer(rule=rule)
    together = dies_per_wafer(np.array(areas), wafer)
    assert np.array_equal(together, [float(dies_per_wafer(area, wafer)) for area in areas])


def test_what_is_larger_than_a_wafer() -> None:
    assert grid_count(46225.0, Wafer()) == 0.0
    assert float(panel_count(100.0, 510.0, 0.1)) == 50.0**2
