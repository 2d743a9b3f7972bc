"""Bounds and identities of the communication times."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.lab.reference import CHIPS, Quirks
from foretell.lab.reference.iteration import TierLinks, collective_s, links_of, stage_hop_s
from foretell.lab.reference.records import Kind
from tests.lab.reference.scalar_oracle import divisors

KINDS: tuple[Kind, ...] = ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce")
LINKS = links_of(CHIPS["A100"], 8, Quirks())


def seconds(kind: Kind, volume: float, group: int, inside: int, links: TierLinks = LINKS) -> float:
    one = collective_s(links, kind, np.array([volume]), np.array([group]), np.array([inside]))
    return float(one[0])


@st.composite
def groups(draw: st.DrawFn) -> tuple[int, int]:
    group = draw(st.integers(2, 512))
    return group, draw(st.sampled_from(divisors(group)))


@given(st.sampled_from(KINDS), st.floats(0, 1e12))
def test_a_group_of_one_is_free(kind: Kind, volume: float) -> None:
    assert seconds(kind, volume, 1, 1) == 0


@given(st.sampled_from(KINDS), groups())
def test_no_volume_is_free(kind: Kind, group: tuple[int, int]) -> None:
    assert seconds(kind, 0, *group) == 0


@given(st.sampled_from(KINDS), groups(), st.floats(1, 1e11), st.floats(1, 10))
def test_more_bytes_take_no_less(
    kind: Kind, group: tuple[int, int], volume: float, more: float
) -> None:
    assert seconds(kind, volume * more, *group) >= seconds(kind, volume, *group)


@given(st.sampled_from(KINDS), groups(), st.floats(1, 1e11))
def test_never_faster_than_the_bytes_on_the_fast_tier(
    kind: Kind, group: tuple[int, int], volume: float
) -> None:
    share = 1.0 if kind in ("broadcast", "reduce") else (group[0] - 1) / group[0]
    fastest = share * volume / LINKS.fast_bytes_per_s
    assert seconds(kind, volume, *group) >= fastest * (1 - 1e-12)


@given(groups(), st.floats(1, 1e11))
def test_all_reduce_moves_twice_in_every_tier_once_corrected(
    group: tuple[int, int], volume: float
) -> None:
    links = links_of(CHIPS["A100"], 8, Quirks.corrected("single_tier_all_reduce"))
    latency = seconds("all_gather", 1e-30, *group, links)
    once = seconds("all_gather", volume, *group, links) - latency
    twice = seconds("all_reduce", volume, *group, links) - latency
    assert twice == pytest.approx(2 * once, rel=1e-6, abs=1e-12)


@given(st.integers(1, 64), st.sampled_from([1, 2, 4, 8]), st.floats(1, 1e10))
def test_a_hop_is_between_free_and_slow(outer: int, inside: int, volume: float) -> None:
    def hop(quirks: Quirks) -> float:
        links = links_of(CHIPS["A100"], 8, quirks)
        stages = np.array([outer * inside])
        return float(stage_hop_s(links, np.array([volume]), stages, np.array([inside]))[0])

    published, corrected = hop(Quirks()), hop(Quirks.corrected("free_slow_p2p"))
    slow = LINKS.slow_latency_s + volume / LINKS.slow_bytes_per_s
    assert 0 <= published <= corrected <= slow * (1 + 1e-12)
    assert (published == 0) == (outer * inside == 1)
