"""Links shared by several groups at once."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foretell.network.placement import fair_rates, shared_taper

RATE = 50e9


@given(st.floats(0.05, 1.0), st.integers(1, 64), st.integers(1, 64))
def test_a_tapered_unit_gives_no_more_than_it_has(taper: float, unit: int, busy: int) -> None:
    busy = min(busy, unit)
    each = RATE * float(shared_taper(taper, unit, busy))
    assert each <= RATE
    assert each * busy <= unit * RATE * taper * (1 + 1e-12) or each == RATE
    assert each * busy <= unit * RATE * taper * (1 + 1e-12)
    if busy < unit:
        assert each >= RATE * float(shared_taper(taper, unit, busy + 1))


def test_taper_does_not_hurt_one_group_alone() -> None:
    assert float(shared_taper(0.25, 8, 1)) == 1.0
    assert float(shared_taper(0.25, 8, 8)) == 0.25


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
