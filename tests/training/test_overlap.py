"""Exchanges behind work, and messages on the same links: the form solves its equation, and less work never
takes longer."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretell.training.overlap import ContendedPass, Overlap, contention_of, overlap_of, waited

Array = NDArray[np.float64]
SECONDS = st.floats(1e-4, 10.0)


def at(value: float) -> Array:
    return np.full((1, 1), value)


def under(
    work_s: float, fixed_s: float, hidden_s: float, other_s: float, still_s: float
) -> tuple[float, float, ContendedPass]:
    """A pass of so much work, with exchanges in sight and behind it, and copies that hold it up: how long it
    takes, with what the messages take beyond it, and the share of the time that these are under way."""
    own = overlap_of(at(fixed_s), at(hidden_s), at(work_s))
    moves_s = at(work_s) + waited(own, at(work_s))
    still = None if still_s == 0.0 else np.maximum(at(still_s) - moves_s, 0.0)
    pass_s = moves_s if still is None else moves_s + still
    found = contention_of(pass_s, at(other_s), own, still)
    shows_s = found.longer_s if still is None else np.maximum(found.longer_s - still, 0.0)
    whole_s = pass_s + shows_s
    beyond_s = np.maximum(other_s - found.used_s, 0.0)
    share = (whole_s - found.used_s) / (own.fixed_s + own.hidden_s)
    return float((whole_s + beyond_s)[0, 0]), float(share[0, 0]), found


@given(SECONDS, SECONDS, SECONDS, SECONDS, st.sampled_from([0.0, 3.0]))
def test_the_share_is_that_of_what_the_messages_get(
    work: float, fixed: float, hidden: float, other: float, still: float
) -> None:
    _, share, found = under(work, fixed, hidden, other, still)
    used = float(found.used_s[0, 0])
    assert used > 0.0
    assert abs(share - min(1.0, other / used)) < 1e-9


@given(SECONDS, SECONDS, SECONDS, SECONDS, st.floats(0.1, 1.0), st.sampled_from([0.0, 3.0]))
def test_less_work_never_takes_longer(
    work: float, fixed: float, hidden: float, other: float, left: float, still: float
) -> None:
    before, _, _ = under(work, fixed, hidden, other, still)
    after, _, _ = under(left * work, fixed, hidden, other, still)
    assert after <= before * (1.0 + 1e-12)


@given(SECONDS, SECONDS, SECONDS)
def test_what_is_all_in_sight_takes_half_the_links(work: float, fixed: float, other: float) -> None:
    none = at(0.0)
    found = contention_of(
        at(work + fixed), at(other), Overlap(fixed_s=at(fixed), hidden_s=none, slack_s=none)
    )
    assert found.longer_s[0, 0] == np.float64(fixed * min(1.0, other / (work + fixed)))
    assert abs(float(found.used_s[0, 0]) - (work + fixed)) < 1e-12 * (work + fixed)
