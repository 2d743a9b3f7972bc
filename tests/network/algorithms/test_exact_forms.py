"""The published cost forms and their corrections, each against the play of its messages.

S is the full buffer with the rank's own block, b a link's rate, B a member's; loads are in S.
"""

import numpy as np
import pytest

from foretell.network.algorithms import Collective, find
from foretell.network.algorithms.base import gather_schedule
from foretell.network.algorithms.bucket import gather_over
from foretell.network.algorithms.direct import gather_direct
from foretell.network.algorithms.ring import gather_one_way
from foretell.network.stack import (
    hierarchical_cost,
)
from foretell.network.topologies import Topology
from foretell.network.topologies.base import Link, LinkGraph, both_ways
from foretell.network.topologies.switch import Switch
from foretell.testing.collective import check_promise
from tests.network.player import play
from tests.network.topologies.groups import (
    ALPHA,
    RATE,
    fat_tree,
    fully_connected,
    grid,
    switch,
)


def played(name: str, collective: Collective, topology: Topology) -> tuple[float, float]:
    """(hops, load): latency in ALPHA and the busiest link in S, as the play gives them."""
    schedule = find(name).schedule(collective, topology)
    check_promise(schedule)
    latency = play(schedule, topology.graph(), 0.0)
    size = 1e12
    return latency / ALPHA, (play(schedule, topology.graph(), size) - latency) * RATE / size


@pytest.mark.parametrize("n", range(2, 17))
def test_rings(n: int) -> None:
    ring = grid(n, wraps=True)
    share = (n - 1) / n
    if n > 2:  # two members are joined by one link of twice the rate
        assert played("ring", "all-gather", ring) == pytest.approx((n - 1, share))
        assert played("ring", "all-to-all", ring) == pytest.approx((n - 1, (n - 1) / 2))
    both = (n // 2, share / 2)
    assert played("ring-both", "all-gather", ring) == pytest.approx(both)
    assert played("ring-both", "all-reduce", ring) == pytest.approx((2 * both[0], 2 * both[1]))
    blocks = n / 8 if n % 2 == 0 else (n**2 - 1) / (8 * n)
    assert played("direct", "all-to-all", ring) == pytest.approx((n // 2, blocks))


@pytest.mark.parametrize("n", range(2, 17))
def test_on_a_switch(n: int) -> None:
    group, share = switch(float(n)), (n - 1) / n
    depth, inner = int(np.ceil(np.log2(n))), 2 ** int(np.log2(n))
    assert played("direct", "all-gather", group) == pytest.approx((1, share))
    assert played("direct", "all-to-all", group) == pytest.approx((1, share))
    assert played("bruck", "all-gather", group) == pytest.approx((depth, share))
    assert played("pat", "reduce-scatter", group) == pytest.approx((depth, share))
    assert played("dissemination", "barrier", group) == pytest.approx((depth, 0))
    load = {2: 1.0, 3: 1.5}.get(n, 2.0)
    assert played("double-binary-tree", "all-reduce", group) == pytest.approx((2 * depth, load))
    assert played("in-network", "all-reduce", group) == pytest.approx((1, 1))
    assert played("in-network", "all-gather", group) == pytest.approx((1, share))
    assert played("in-network", "reduce-scatter", group) == pytest.approx((1, share))
    fold = 0 if n == inner else 2
    lg = np.log2(inner)
    halves = 2 * (inner - 1) / inner + fold
    assert played("halving-doubling", "all-reduce", group) == pytest.approx((2 * lg + fold, halves))
    assert played("recursive-doubling", "all-reduce", group) == pytest.approx(
        (lg + fold, lg + fold)
    )


@pytest.mark.parametrize("n", range(2, 11))
def test_fully_joined(n: int) -> None:
    """Direct messages and rings over all links move as much; rings wait n - 1 times."""
    group = fully_connected(float(n))
    assert played("direct", "all-gather", group) == pytest.approx((1, 1 / n))
    assert played("direct", "all-reduce", group) == pytest.approx((2, 2 / n))
    assert played("direct", "all-to-all", group) == pytest.approx((1, 1 / n))
    assert played("multi-ring", "all-gather", group) == pytest.approx((n - 1, 1 / n))


@pytest.mark.parametrize("extents", [(4, 4), (3, 3), (4, 4, 4), (3, 3, 3)])
def test_torus_with_all_axes_at_once(extents: tuple[int, ...]) -> None:
    n, k = int(np.prod(extents)), len(extents)
    hops = sum(d // 2 for d in extents)
    torus = grid(*extents, wraps=True)
    assert played("bucket-rotated", "all-gather", torus) == pytest.approx(
        (hops, (n - 1) / n / (2 * k))
    )
    mesh = grid(*extents)
    assert played("bucket-rotated", "all-gather", mesh) == pytest.approx(
        (sum(d - 1 for d in extents), (n - 1) / n / k)
    )


def test_torus_of_unequal_axes() -> None:
    assert played("bucket-rotated", "all-gather", grid(2, 8, wraps=True))[1] == pytest.approx(
        0.328, abs=5e-4
    )
    assert played("bucket-rotated", "all-gather", grid(2, 2, 4, wraps=True))[1] == pytest.approx(
        0.219, abs=5e-4
    )


@pytest.mark.parametrize("extents", [(2, 8), (3, 4), (4, 8), (2, 4)])
def test_weighted_parts_restore_the_bound(extents: tuple[int, int]) -> None:
    d1, d2 = extents
    n = d1 * d2
    torus = grid(*extents, wraps=True)
    schedule = find("bucket-balanced").schedule("all-gather", torus)
    x = (d2 - (n - 1) / (2 * (d1 - 1))) / (d2 - 1)
    first = 2 * n * schedule.weights[0]  # two halves a member
    if 0 <= x <= 1:
        assert first == pytest.approx(x)
        assert played("bucket-balanced", "all-gather", torus)[1] == pytest.approx((n - 1) / n / 4)


@pytest.mark.parametrize("extents", [(4, 4), (2, 8), (3, 5), (2, 3, 4)])
def test_axis_by_axis(extents: tuple[int, ...]) -> None:
    shares = [
        1 / np.prod(extents[i + 1 :]) * (d - 1) / d for i, d in enumerate(extents)
    ]  # S over the axes still to come
    torus, mesh = grid(*extents, wraps=True), grid(*extents)
    assert played("bucket", "all-gather", torus) == pytest.approx(
        (sum(d // 2 for d in extents), sum(shares) / 2)
    )
    hops = sum(d - 1 for d in extents)
    assert played("bucket", "all-gather", mesh) == pytest.approx((hops, sum(shares)))
    assert played("bucket", "reduce-scatter", mesh) == pytest.approx((hops, sum(shares)))


def test_mesh_of_four_by_four() -> None:
    assert played("bucket", "all-gather", grid(4, 4))[1] == pytest.approx(0.9375)


@pytest.mark.parametrize("extents", [(4, 4), (2, 8), (3, 3), (5, 3), (2, 3, 4), (7,)])
@pytest.mark.parametrize("wraps", [True, False])
def test_all_to_all_on_grids(extents: tuple[int, ...], wraps: bool) -> None:
    group = grid(*extents, wraps=wraps)
    loads = [(d * d - d % 2) / d / (8 if wraps else 4) for d in extents]
    hops = sum(d // 2 if wraps else d - 1 for d in extents)
    assert played("direct", "all-to-all", group) == pytest.approx((hops, max(loads)))


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_hypercube(k: int) -> None:
    cube, n = grid(*[2] * k), 2**k
    assert played("bucket-rotated", "all-gather", cube) == pytest.approx((k, (n - 1) / n / k))
    assert played("halving-doubling", "all-gather", cube) == pytest.approx((k, (n - 1) / n))
    assert played("direct", "all-to-all", cube) == pytest.approx((k, 0.5))


@pytest.mark.parametrize("taper", [1.0, 0.5, 0.25])
def test_fat_tree(taper: float) -> None:
    group = fat_tree(16.0, 4.0, taper)
    outside = 12 / 16
    assert played("direct", "all-to-all", group)[1] == pytest.approx(max(15 / 16, outside / taper))
    # A ring in the order of ranks leaves each leaf once: the taper counts below a quarter only.
    assert played("ring", "all-gather", group)[1] == pytest.approx(15 / 16)


def rails_graph(nodes: int, rails: int) -> LinkGraph:
    """Members, then a switch for each node, then one for each rail."""
    count = nodes * rails
    links: list[Link] = []
    for m in range(count):
        links += both_ways(m, count + m // rails, 7.0 * RATE, 0.5e-6)
        links += both_ways(m, count + nodes + m % rails, RATE, ALPHA / 2.0)
    return LinkGraph(members=count, links=tuple(links))


@pytest.mark.parametrize(("rails", "nodes"), [(2, 4), (4, 4), (8, 2), (3, 5)])
@pytest.mark.parametrize("collective", ["all-gather", "reduce-scatter", "all-reduce"])
def test_two_levels(rails: int, nodes: int, collective: Collective) -> None:
    """Between nodes on S/n first, then inside; a reduce-scatter back; an all-reduce both."""
    group = rails_graph(nodes, rails)
    gathers = [gather_direct(rails), gather_one_way(nodes)]
    gather = gather_over((rails, nodes), gathers, order=(1, 0))
    schedule = gather_schedule(collective, gather, range(rails * nodes))
    check_promise(schedule)
    inner = Switch(
        members=float(rails),
        bandwidth_bytes_per_s=7 * RATE,
        latency_s=1e-6,
        in_network_reduction=False,
    )
    outer = Switch(
        members=float(nodes),
        bandwidth_bytes_per_s=RATE,
        latency_s=ALPHA,
        in_network_reduction=False,
    )
    costs = (
        find("direct").cost("all-gather", inner),
        find("ring").cost("all-gather", outer),
    )
    closed = hierarchical_cost(collective, (rails, nodes), costs)
    for size in (0.0, 1e9):
        assert play(schedule, group, size) == pytest.approx(float(closed.seconds(size)))
    times = 2 if collective == "all-reduce" else 1
    bytes_s = (rails - 1) / rails / (7 * RATE) + (nodes - 1) / nodes / rails / RATE
    assert float(closed.s_per_byte) == pytest.approx(times * bytes_s)


def test_two_levels_with_a_tree_above_and_overlap() -> None:
    inner = find("direct").cost("all-gather", switch(8.0))
    outer = find("ring").cost("all-gather", switch(4.0))
    tree = find("double-binary-tree").cost("all-reduce", switch(4.0))
    both = hierarchical_cost("all-reduce", (8.0, 4.0), (inner, outer), tree)
    expected = 2 * inner.seconds(1e6) + tree.seconds(1e6 / 8)
    assert float(both.seconds(1e6)) == pytest.approx(float(expected))
    overlapped = hierarchical_cost("all-gather", (8.0, 4.0), (inner, outer), overlapped=True)
    slowest = max(float(inner.s_per_byte), float(outer.s_per_byte) / 8)
    assert float(overlapped.s_per_byte) == pytest.approx(slowest)
