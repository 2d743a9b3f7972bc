"""Offloading: copies, what they hide behind, what stays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.sharding.offload import (
    LINK_SHARE,
    StateBytes,
    exposed_copies,
    host_copies,
    on_chip,
)
from foretell.specs.plan_forms import OFFLOADS, join_names
from tests.builders import make_chip

CHIP = make_chip(host_bytes_per_s=63e9)
SIZE = st.floats(0.0, 1e12)
TIME = st.floats(0.0, 100.0)
SOME = st.lists(st.sampled_from(OFFLOADS), unique=True, min_size=1).map(
    lambda names: join_names("+".join(names), OFFLOADS)
)


def held(weights: float, states: float, kept: float) -> StateBytes:
    return StateBytes(weight_bytes=weights, state_bytes=states, kept_bytes=kept)


def test_nothing_offloaded_copies_nothing_even_without_a_link() -> None:
    copies = host_copies("none", held(1e9, 1e10, 1e8))
    exposed = exposed_copies(copies, make_chip(host_bytes_per_s=0.0), 0.0, 0.0, 0.0)
    assert (exposed.forward_s, exposed.backward_s, exposed.update_s) == (0.0, 0.0, 0.0)
    assert on_chip("none", "weights", 5.0, 1.0) == 5.0


def test_by_hand() -> None:
    """12 bytes of 1e9 weights' states: 12e9 each way at 53.55 GB/s is 224 ms, less the 20 of the update."""
    copies = host_copies("optimizer", held(2e9, 12e9, 1e9))
    found = exposed_copies(copies, CHIP, 0.1, 0.2, 0.02)
    assert float(found.update_s) == pytest.approx(12e9 / (0.85 * 63e9) - 0.02)
    assert float(found.forward_s) == float(found.backward_s) == 0.0


def test_directions() -> None:
    copies = host_copies("optimizer+activations+weights", held(2.0, 12.0, 5.0))
    assert copies.forward_bytes == 5.0  # 5 out beside 2 in
    assert copies.backward_bytes == 7.0  # both in
    assert copies.update_bytes == 14.0  # states and new weights out
    stays = host_copies("weights", held(2.0, 12.0, 5.0), backward_gathers=False)
    assert stays.backward_bytes == 0.0


@given(SOME, SIZE, SIZE, SIZE, TIME, TIME)
def test_exposed_is_between_nothing_and_the_copy(
    offload: str, weights: float, states: float, kept: float, one_s: float, two_s: float
) -> None:
    copies = host_copies(offload, held(weights, states, kept))
    short = exposed_copies(copies, CHIP, min(one_s, two_s), 0.0, 0.0)
    long = exposed_copies(copies, CHIP, max(one_s, two_s), 0.0, 0.0)
    assert 0.0 <= long.forward_s <= short.forward_s
    assert short.forward_s <= copies.forward_bytes / (LINK_SHARE * 63e9)
    assert short.forward_s + max(one_s, two_s) >= copies.forward_bytes / (LINK_SHARE * 63e9) - 1e-9


@given(SOME, SIZE, SIZE)
def test_never_more_on_the_chip(offload: str, all_bytes: float, layer: float) -> None:
    for name in OFFLOADS:
        stays = on_chip(offload, name, all_bytes, layer)
        assert stays <= all_bytes
        assert name in offload or stays == all_bytes


def test_arrays_are_each_of_their_elements() -> None:
    sizes = np.array([[1e9, 2e9], [3e9, 0.0]])
    copies = host_copies("weights+optimizer", held(sizes, 6.0 * sizes, 0.0 * sizes))  # type: ignore[arg-type]
    many = exposed_copies(copies, CHIP, 0.01, 0.02, 0.03)
    for place in np.ndindex(2, 2):
        one = host_copies("weights+optimizer", held(sizes[place], 6.0 * sizes[place], 0.0))
        each = exposed_copies(one, CHIP, 0.01, 0.02, 0.03)
        assert many.forward_s[place] == each.forward_s
        assert many.update_s[place] == each.update_s
