"""Links shared by several groups at once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.network.topologies.sharing import fair_rates, finish_s, shared_bytes_per_s

RATE = 50e9


@given(st.floats(0.05, 1.0), st.integers(1, 64), st.integers(1, 64))
def test_a_tapered_unit_gives_no_more_than_it_has(taper: float, unit: int, busy: int) -> None:
    busy = min(busy, unit)
    each = float(shared_bytes_per_s(RATE, taper, unit, busy))
    assert each <= RATE
    assert each * busy <= unit * RATE * taper * (1 + 1e-12) or each == RATE
    assert each * busy <= unit * RATE * taper * (1 + 1e-12)
    if busy < unit:
        assert each >= float(shared_bytes_per_s(RATE, taper, unit, busy + 1))


def test_taper_does_not_hurt_one_group_alone() -> None:
    assert float(shared_bytes_per_s(RATE, 0.25, 8, 1)) == RATE
    assert float(shared_bytes_per_s(RATE, 0.25, 8, 8)) == RATE / 4


def _play_sharing(work: list[float]) -> list[float]:
    """Events: the link divided evenly over those not done."""
    left = dict(enumerate(work))
    now, done = 0.0, [0.0] * len(work)
    while left:
        first = min(left, key=lambda i: left[i])
        step = left[first]
        now += step * len(left)
        left = {i: w - step for i, w in left.items()}
        for i in [i for i, w in left.items() if w <= 1e-12]:
            done[i] = now
            del left[i]
    return done


@given(st.lists(st.integers(0, 1000).map(float), min_size=1, max_size=6))
def test_even_sharing_is_the_play_of_it(work: list[float]) -> None:
    assert finish_s(work).tolist() == pytest.approx(_play_sharing(work), abs=1e-6)
    assert finish_s(work).max() == pytest.approx(sum(work))


def test_sharing_in_a_batch() -> None:
    times = finish_s([np.array([1.0, 2.0]), 1.0])
    assert times.tolist() == [[2.0, 3.0], [2.0, 2.0]]


@given(st.integers(1, 5), st.integers(1, 4), st.randoms(use_true_random=False))
def test_fair_rates_are_fair(flows: int, links: int, random: object) -> None:
    seed = random.randrange(2**32)  # type: ignore[attr-defined]
    draw = np.random.default_rng(seed)
    uses = draw.integers(0, 3, (links, flows)).astype(float)
    capacities, limits = draw.uniform(1, 10, links), draw.uniform(1, 10, flows)
    rates = fair_rates(uses, capacities, limits)
    loads = uses @ rates
    assert (loads <= capacities * (1 + 1e-9)).all()
    assert (rates <= limits * (1 + 1e-9)).all()
    full = loads >= capacities * (1 - 1e-9)
    for flow in range(flows):
        # Every flow is at its limit, or has a full link on which no other is faster.
        at_limit = rates[flow] >= limits[flow] * (1 - 1e-9)
        held = [
            full[x] and rates[flow] >= rates[uses[x] > 0].max() * (1 - 1e-9)
            for x in range(links)
            if uses[x, flow] > 0
        ]
        assert at_limit or any(held)
