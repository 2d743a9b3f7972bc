"""Topologies: their conformance, bisection against networkx, and what a catalogue tier becomes."""

from itertools import permutations

import numpy as np
import pytest

from foretell import catalog
from foretell.errors import BadInput
from foretell.network.algorithms import find
from foretell.network.topologies import Topology, names, of_tier
from foretell.network.topologies.base import Cost, LinkGraph
from foretell.network.topologies.dragonfly import Groups
from foretell.network.topologies.grid import Grid, group_extents, near_cube
from foretell.network.topologies.switch import Switch
from foretell.testing.topology import Factory, check_bounds, check_graph, check_topology
from tests.network.player import Player
from tests.network.topologies.groups import (
    ALPHA,
    LARGE,
    RATE,
    SMALL,
    dragonfly_groups,
    fat_tree,
    fully_connected,
    grid,
    hybrid_cube_mesh,
    in_tier,
    switch,
    tier,
)


@pytest.mark.parametrize(
    ("factory", "sizes"),
    [
        (switch, (1, 2, 3, 8, 64)),
        (fully_connected, (1, 2, 3, 8)),
        (fat_tree, (1, 2, 4, 8, 32)),
        (dragonfly_groups, (1, 2, 3, 8)),
        (hybrid_cube_mesh, (1, 2, 4, 8)),
        (in_tier("ring", 8), (1, 2, 3, 4, 8)),
        (in_tier("torus-2d", 16), (1, 2, 4, 8, 16)),
        (in_tier("torus-3d", 24, shape=(2, 3, 4)), (1, 2, 6, 24)),
        (in_tier("mesh-2d", 16), (1, 2, 4, 5, 16)),
        (in_tier("package", 6, shape=(2, 3)), (1, 2, 6)),
        (in_tier("hypercube", 16), (1, 2, 4, 8, 16)),
        (in_tier("hyperx", 12, shape=(3, 4)), (1, 3, 12)),
        (in_tier("rail-clos", 32), (1, 2, 5, 32)),
        (in_tier("roce-clos", 32, taper=0.5), (1, 2, 5, 32)),
        (in_tier("dragonfly", 12, taper=0.5), (1, 2, 5, 12)),
        (in_tier("dragonfly-plus", 12), (1, 2, 5, 12)),
        (in_tier("optical-circuit", 16), (1, 2, 3, 16)),
    ],
)
def test_conformance(factory: Factory, sizes: tuple[float, ...]) -> None:
    check_topology(factory, sizes)


@pytest.mark.parametrize("name", [n for n, t in SMALL.items() if t.members > 1] + list(LARGE))
def test_bounds_and_graph(name: str) -> None:
    topology = (SMALL | LARGE)[name]
    check_graph(topology)
    check_bounds(topology)


@pytest.mark.parametrize(
    "topology",
    [
        *(switch(float(n)) for n in (2, 3, 6)),
        *(fully_connected(float(n)) for n in (2, 5, 6)),
        grid(2, wraps=True),
        grid(6, wraps=True),
        grid(5, wraps=True),
        grid(6),
        grid(2, 4, wraps="ny"),
        grid(2, 4),
        grid(2, 2, 2),
        grid(2, 4, full=True),
        fat_tree(8.0, 2.0, 0.5),
        fat_tree(8.0, 4.0, 0.25),
        fat_tree(8.0, 2.0, 1.0),
        hybrid_cube_mesh(2.0),
        hybrid_cube_mesh(4.0),
        hybrid_cube_mesh(8.0),
    ],
)
def test_bisection(topology: Topology) -> None:
    assert Player(topology.graph()).bisection() == pytest.approx(
        float(topology.bisection_bytes_per_s()), rel=1e-9
    )


@pytest.mark.parametrize("topology", [grid(3, 3), grid(2, 3), dragonfly_groups(4.0, 8.0)])
def test_bisection_on_the_safe_side(topology: Topology) -> None:
    """Odd axes are cut unevenly, idle groups help: then only one side is claimed."""
    played = Player(topology.graph()).bisection()
    said = float(topology.bisection_bytes_per_s())
    assert said <= played * (1 + 1e-9)


def test_every_name_of_the_catalogue_is_a_topology() -> None:
    for entry in catalog.entries("systems"):
        system = catalog.system(entry.id)
        for level in system.network.tiers:
            group = of_tier(level, np.array([1.0, 2.0]))
            assert float(np.min(group.members)) == 1.0
            assert group.patterns
            seconds = find("direct").cost("all-to-all", group).seconds(1e6)
            assert seconds[0] == 0.0
            assert np.isfinite(seconds[1])


def test_names() -> None:
    asked = (
        "fully-connected switch ring torus mesh hypercube fat-tree clos rail-clos roce-clos "
        "dragonfly dragonfly-plus hyperx package hybrid-cube-mesh optical-circuit"
    )
    assert set(asked.split()) <= set(names())
    with pytest.raises(BadInput, match="did you mean torus"):
        of_tier(tier("tarus-2d", 4), 4.0)
    with pytest.raises(BadInput, match="power of two"):
        of_tier(tier("hypercube", 6), 2.0)
    with pytest.raises(BadInput, match="eight chips"):
        of_tier(tier("hybrid-cube-mesh", 16), 2.0)


def test_a_group_takes_axes_in_order_and_wraps_only_where_it_fills_them() -> None:
    extents, fills = group_extents((4, 4, 2), np.array([2.0, 4.0, 8.0, 16.0, 32.0, 5.0]))
    assert np.stack(extents, 1).tolist() == [
        [2, 1, 1], [4, 1, 1], [4, 2, 1], [4, 4, 1], [4, 4, 2], [1, 1, 5]
    ]  # fmt: skip
    assert np.stack(fills, 1).tolist() == [
        [False, False, False],
        [True, False, False],
        [True, False, False],
        [True, True, False],
        [True, True, False],  # an axis of two has one cable
        [False, False, False],
    ]


def test_shapes_without_a_shape() -> None:
    assert near_cube(4096, 3) == (16, 16, 16)
    assert near_cube(9216, 3) == (16, 24, 24)
    assert near_cube(1, 3) == (1, 1, 1)
    assert near_cube(7, 2) == (1, 7)


def test_a_chips_rate_is_divided_over_its_links() -> None:
    torus = of_tier(tier("torus-3d", 64), 64.0)
    assert isinstance(torus, Grid)
    assert float(torus.injection_s_per_byte()) == pytest.approx(1.0 / RATE)
    assert [float(a.s_per_byte) * RATE for a in torus.axes()] == [6.0, 6.0, 6.0]
    cube = of_tier(tier("hypercube", 16), 16.0)
    assert float(cube.injection_s_per_byte()) == pytest.approx(1.0 / RATE)
    joined = of_tier(tier("fully-connected", 4), 4.0)
    assert float(joined.injection_s_per_byte()) == pytest.approx(1.0 / RATE)
    # Two of four that are fully joined have one of three links between them.
    pair = of_tier(tier("fully-connected", 4), 2.0)
    assert float(pair.ring().s_per_byte) == pytest.approx(3.0 / RATE)


class _TooFast(Switch):
    """Two messages through a port in the time of one."""

    def spread(self) -> Cost:
        return super().spread().times(1.0, 0.5)


class _NoLatency(Switch):
    """A permutation that takes no time to begin."""

    def permutation(self) -> Cost:
        return Cost(s_per_byte=super().permutation().s_per_byte)


class _NotFree(Switch):
    """One member that waits for itself."""

    def ring(self) -> Cost:
        return Cost(latency_s=ALPHA)


class _OneWay(Switch):
    """A star whose last link is missing."""

    def graph(self) -> LinkGraph:
        star = super().graph()
        return LinkGraph(members=star.members, links=star.links[:-1])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (_TooFast, "beats its links"),
        (_NoLatency, "beats the latency"),
        (_NotFree, "not free"),
        (_OneWay, "no way back"),
    ],
)
def test_the_checks_can_fail(wrong: type[Switch], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_topology(
            lambda n: wrong(
                members=n,
                bandwidth_bytes_per_s=RATE,
                latency_s=ALPHA,
                in_network_reduction=False,
            ),
            (1, 4),
        )


def test_swapping_axes_changes_nothing() -> None:
    for order in permutations((2, 3, 4)):
        for wraps in (True, False):
            one, other = grid(2, 3, 4, wraps=wraps), grid(*order, wraps=wraps)
            for pattern in ("ring", "spread", "chain"):
                a, b = getattr(one, pattern)(), getattr(other, pattern)()
                assert float(a.seconds(1e6)) == pytest.approx(float(b.seconds(1e6)), rel=1e-12)


def test_taper_and_idle_groups_of_a_dragonfly() -> None:
    """All groups: half of the tapered rate for a permutation. Two of many: all of it."""
    whole = Groups(
        members=64.0, groups=64.0, bandwidth_bytes_per_s=RATE, taper=0.5, latency_s=ALPHA
    )
    assert float(whole.permutation().s_per_byte) * RATE == pytest.approx(2 * 63 / 32)
    pair = Groups(members=2.0, groups=64.0, bandwidth_bytes_per_s=RATE, taper=0.5, latency_s=ALPHA)
    assert float(pair.permutation().s_per_byte) * RATE == pytest.approx(2.0)


def test_circuits_of_a_ring_stand_and_others_are_set() -> None:
    quick, slow = (
        of_tier(tier("optical-circuit", 16.0, reconfiguration_s=s), 16.0) for s in (1e-6, 1e-3)
    )
    assert quick.ring() == slow.ring()
    before, after = (find("pairwise").cost("all-to-all", one).seconds(1e6) for one in (quick, slow))
    assert after - before == pytest.approx(15 * (1e-3 - 1e-6))
    mirrors = of_tier(tier("optical-circuit", 16.0), 16.0)
    assert mirrors.permutation().latency_s == pytest.approx(10e-3, rel=0.01)
