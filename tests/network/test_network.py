"""Placement on tiers, and collectives against their bounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.network.collectives import collective_s, ring, send_s
from foretell.network.placement import group_counts, tier_counts, units
from foretell.specs.plan import Plan, batch_of
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
    time = collective_s(kind, size, ring(counts, network))[0]  # type: ignore[arg-type]
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
    assert collective_s(kind, size * more, ring(counts, network))[0] >= time  # type: ignore[arg-type]
    assert collective_s(kind, 0.0, ring(counts, network))[0] == 0.0  # type: ignore[arg-type]


def test_the_published_mixed_form() -> None:
    """One node: (g-1)/g V / (0.7 bw) + (g-1) latency; two tiers: t rings side by side."""
    network = make_network(8)
    one = collective_s("all-gather", 1e9, ring(np.array([[8.0], [1.0]]), network))[0]
    assert one == pytest.approx(7 / 8 * 1e9 / (0.75 * 450e9) + 7 * 2.5e-6, rel=1e-12)
    two = collective_s("all-gather", 1e9, ring(np.array([[8.0], [4.0]]), network))[0]
    moved = 31 / 32 * 1e9
    assert two == pytest.approx(
        max(moved / (8 * 0.75 * 50e9), moved / (0.75 * 450e9)) + 28 * 2.5e-6 + 3 * 5e-6, rel=1e-12
    )


def test_a_send_takes_the_tier_it_crosses() -> None:
    network = make_network(8)
    near = send_s(1e6, np.array([[4.0], [1.0]]), network)[0]
    far = send_s(1e6, np.array([[1.0], [4.0]]), network)[0]
    assert near == pytest.approx(2.5e-6 + 1e6 / (0.75 * 450e9))
    assert far == pytest.approx(5e-6 + 1e6 / (0.75 * 50e9))
    assert send_s(1e6, np.array([[1.0], [1.0]]), network)[0] == 0.0
