"""Placement on tiers, and collectives against their bounds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.network.collectives import (
    collective_s,
    contention_s,
    occupancy,
    outermost,
    send_s,
)
from foretell.network.library_records import Kind
from foretell.network.placement import as_filled, group_counts, tier_counts, units
from foretell.network.stack import stack_of
from foretell.specs.plan import Plan, batch_of
from foretell.specs.system import Network, Tier
from tests.builders import make_network

KINDS = ("all-reduce", "all-gather", "reduce-scatter")


@given(st.integers(1, 512), st.integers(1, 64), st.integers(1, 8), st.sampled_from([4, 6, 8, 72]))
def test_tiers_share_out_all_members(size: int, stride: int, outer: int, node: int) -> None:
    gpus = size * stride * outer
    filled = units(make_network(node), gpus)
    counts = tier_counts(np.array([float(size)]), np.array([float(stride)]), filled, gpus)
    assert counts.prod() == pytest.approx(size)
    assert (counts >= 1).all()
    assert counts[0, 0] * stride <= node or counts[0, 0] == 1


@pytest.mark.parametrize(
    ("plan", "group", "expected"),
    [
        (Plan(tp=8, dp=4), "tp", [8, 1]),
        (Plan(tp=8, dp=4), "dp", [1, 4]),
        (Plan(tp=2, dp=16), "dp", [4, 4]),
        (Plan(tp=16, dp=2), "tp", [8, 2]),
        (Plan(tp=3, dp=8), "tp", [1, 3]),
        (Plan(tp=3, dp=2), "tp", [3, 1]),
        (Plan(tp=1, dp=7), "dp", [7, 1]),
        (Plan(tp=1, dp=997), "dp", [8, 997 / 8]),
        (Plan(tp=2, pp=4, dp=4, order=("tp", "cp", "pp", "dp")), "pp", [4, 1]),
    ],
)
def test_where_members_stand(plan: Plan, group: str, expected: list[float]) -> None:
    counts = group_counts(batch_of([plan]), make_network(8), plan.gpus)[group]
    assert counts[:, 0].tolist() == expected


@pytest.mark.parametrize(("gpus", "expected"), [
    (8, (8, 8)), (64, (64, 64)), (72, (72, 72)), (128, (64, 128)), (144, (72, 144)), (1, (1, 1)),
    (997, (72, 997)),
])  # fmt: skip
def test_a_job_fills_racks_evenly(gpus: int, expected: tuple[float, ...]) -> None:
    """64 chips of a rack of 72 are in one rack, and 128 are 64 in each of two."""
    assert units(make_network(72), gpus) == expected


@given(
    st.sampled_from(KINDS),
    st.integers(1, 8),
    st.integers(1, 64),
    st.floats(1.0, 1e11),
    st.floats(1.0, 10.0),
)
def test_collectives_keep_their_bounds(
    kind: str, inside: int, nodes: int, size: float, more: float
) -> None:
    network = make_network(8)
    counts = np.array([[float(inside)], [float(nodes)]])
    members = inside * nodes
    placed = stack_of(counts, network, KINDS)
    time = collective_s(kind, size, placed)[0]  # type: ignore[arg-type]
    if members == 1:
        assert time == 0.0
        return
    passes = 2.0 if kind == "all-reduce" else 1.0
    # Every member must receive (g-1)/g of the buffer over its own fastest link.
    fastest = max(t.bandwidth_bytes_per_s for t in network.tiers)
    assert time >= passes * size * (members - 1) / members / fastest
    # Some member must wait for the hops between the farthest two.
    slowest_hop = network.tiers[1 if nodes > 1 else 0].latency_s
    assert time >= slowest_hop
    assert collective_s(kind, size * more, placed)[0] >= time  # type: ignore[arg-type]
    assert collective_s(kind, 0.0, placed)[0] == 0.0  # type: ignore[arg-type]


def test_large_gathers_go_at_the_pace_of_the_slowest_tier() -> None:
    """8 members a node share the fabric's ports: (g-1)/g V over 8 of them, or V over NVLink."""
    network = make_network(8)
    one = stack_of(np.array([[8.0], [1.0]]), network, KINDS)
    assert collective_s("all-gather", 1e12, one)[0] == pytest.approx(
        7 / 8 * 1e12 / (0.75 * 450e9), rel=1e-4
    )
    two = stack_of(np.array([[8.0], [4.0]]), network, KINDS)
    inside, outside = 7 / 8 * 1e12 / (0.75 * 450e9), 3 / 4 * 1e12 / 8 / (0.75 * 50e9)
    assert collective_s("all-gather", 1e12, two)[0] == pytest.approx(max(inside, outside), rel=1e-4)


@given(
    st.lists(st.sampled_from([1.0, 2.0, 3.0, 4.0, 8.0]), min_size=1, max_size=12),
    st.floats(1, 1e11),
)
def test_many_groups_at_once_equal_each_alone(inside: list[float], size: float) -> None:
    network = make_network(8)
    counts = np.array([inside, inside[::-1]])
    together = collective_s(
        "all-reduce", np.full(len(inside), size), stack_of(counts, network, KINDS)
    )
    for i in range(len(inside)):
        alone = collective_s("all-reduce", size, stack_of(counts[:, [i]], network, KINDS))[0]
        assert together[i] == pytest.approx(alone, rel=1e-12)


def test_a_torus_gathers_over_all_its_axes() -> None:
    """A 4 x 4 x 4 torus has six links a chip, and large buckets use them all."""
    pod = Tier(name="pod", size=64, bandwidth_bytes_per_s=600e9, latency_s=1e-6, topology="torus-3d",
               shape=(4, 4, 4), efficiency=1.0)  # fmt: skip
    placed = stack_of(np.array([[64.0]]), Network(tiers=(pod,)), ("all-gather",))
    ideal = 63 / 64 * 1e12 / 600e9
    assert collective_s("all-gather", 1e12, placed)[0] == pytest.approx(ideal, rel=0.01)


@pytest.mark.parametrize(
    ("gpus", "expected"), [(64, 0.5), (32, 0.5), (8, 0.5), (6, 2 / 3), (2, 1.0)]
)
def test_idle_chips_leave_their_part_of_tapered_links(gpus: int, expected: float) -> None:
    """Of 8 ports behind 4 up links, 6 that send have 2/3 of their rate and 2 have all of it."""
    network = make_network(8)
    tapered = replace(network, tiers=(network.tiers[0], replace(network.tiers[1], taper=0.5)))
    assert as_filled(tapered, gpus).tiers[1].taper == pytest.approx(expected)


def test_a_tier_is_in_use_as_long_as_it_carries_bytes() -> None:
    """8 rings side by side need the NVLink 450/400 times as long as the ports."""
    used = occupancy(np.array([[8.0, 1.0, 2.0], [4.0, 4.0, 1.0]]), make_network(8))
    assert used[:, 1].tolist() == [0.0, 1.0]
    assert used[:, 2].tolist() == [1.0, 0.0]
    assert used[1, 0] == 1.0
    assert used[0, 0] == pytest.approx(8 * 50 / 450)


def test_the_outermost_tier_that_a_group_touches() -> None:
    counts = np.array([[8.0, 1.0, 2.0, 1.0], [4.0, 4.0, 1.0, 1.0], [1.0, 2.0, 1.0, 1.0]])
    assert outermost(counts).tolist() == [1, 2, 0, 0]


@given(st.floats(0.1, 10.0), st.floats(0.01, 10.0), st.floats(0.0, 40.0), st.integers(1, 200))
def test_shared_links_by_events(compute: float, own: float, other: float, pieces: int) -> None:
    """Compute and exchanges in turns, beside one long transfer on the same link, played piece by piece."""
    now, left = 0.0, other
    for _ in range(pieces):
        now, left = now + compute / pieces, max(left - compute / pieces, 0.0)
        # Both have half the link until one is done.
        both = min(own / pieces, left)
        now, left = now + 2.0 * both + (own / pieces - both), left - both
    events = now + left
    alone = compute + own
    found = alone + max(0.0, other - alone)
    found += float(contention_s(np.array(own), np.array(other), np.array(alone)))
    # Where the transfer ends inside a piece the turns matter, by no more than that piece.
    assert found == pytest.approx(events, abs=own / pieces + 1e-9)
    assert found >= own + other - 1e-9


def test_a_send_takes_the_tier_it_crosses() -> None:
    network = make_network(8)
    near = send_s(1e6, np.array([[4.0], [1.0]]), network)[0]
    far = send_s(1e6, np.array([[1.0], [4.0]]), network)[0]
    assert near == pytest.approx(2.5e-6 + 1e6 / (0.75 * 450e9))
    assert far == pytest.approx(5e-6 + 1e6 / (0.75 * 50e9))
    assert send_s(1e6, np.array([[1.0], [1.0]]), network)[0] == 0.0


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("all-gather", "gather_share"),
        ("reduce-scatter", "scatter_share"),
        ("all-to-all", "exchange_share"),
    ],
)
def test_a_kind_may_have_a_rate_of_its_own(kind: Kind, field: str) -> None:
    """Of large messages the time, of no other kind's, and never the latency."""
    plain = make_network(8)
    slow = Network(tiers=(replace(plain.tiers[0], **{field: 0.25}), plain.tiers[1]))
    counts = np.array([[8.0], [1.0]])
    for other in (*KINDS, "all-to-all"):
        both = [stack_of(counts, network, [other]) for network in (plain, slow)]
        quick, late = (float(collective_s(other, 1e10, group)[0]) for group in both)
        first = [float(collective_s(other, 1e-9, group)[0]) for group in both]
        assert late / quick == pytest.approx(4.0 if other == kind else 1.0, rel=1e-3)
        assert first[0] == pytest.approx(first[1])
