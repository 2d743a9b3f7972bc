"""Topologies move the times of a fitted library as their closed forms say; the measured one does not."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import foretell
from foretell.api.network import collective
from foretell.catalog.systems import named_system
from foretell.economics.fabric import fabric_of
from foretell.network.library_catalog import library_for
from foretell.network.library_shapes import MEASURED, ratios, tier_ratios
from foretell.network.placement import with_groups
from foretell.network.topologies import of_tier
from foretell.specs._base import with_fields
from foretell.specs.system import Tier

TOPOLOGIES = ("rail-clos", "fat-tree", "ring", "torus-3d", "dragonfly")
PLAIN = """chips_per_node = 8
[chip.design]
id = "own-chip"
architecture = "hopper"
node = "N5"
compute_dies = 1
die_area_mm2 = 800
memory_type = "HBM3"
memory_stacks = 5
scale_up_bytes_per_s = "450 GB/s"
volume = 1_000_000
[network.node]
size = 8
bandwidth_bytes_per_s = "450 GB/s"
latency_s = "2.5 us"
[network.cluster]
size = 16384
bandwidth_bytes_per_s = "50 GB/s"
latency_s = "5 us"
topology = "rail-clos"
"""


def seconds(system: str, topology: str, kind: str, taper: float = 1.0, **more: object) -> float:
    changes = {"network.cluster.topology": topology, "network.cluster.taper": str(taper), **more}
    answer = collective(system, collective=kind, size="256MiB", group=512, set=changes)
    return answer.seconds


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("plain") / "plain.toml"
    path.write_text(PLAIN)
    return str(path)


@pytest.mark.parametrize("kind", ["all-gather", "all-reduce", "all-to-all"])
@pytest.mark.parametrize("taper", [1.0, 0.5])
def test_a_library_and_closed_forms_rank_topologies_alike(
    kind: str, taper: float, plain: str
) -> None:
    fitted = {name: seconds("hgx-h100", name, kind, taper) for name in TOPOLOGIES}
    formed = {name: seconds(plain, name, kind, taper) for name in TOPOLOGIES}
    for slow, fast in pairwise(sorted(TOPOLOGIES, key=lambda name: -formed[name])):
        # What closed forms separate clearly, fitted times do not turn around.
        if formed[slow] > 1.02 * formed[fast]:
            assert fitted[slow] >= fitted[fast] * (1.0 - 1e-9), (slow, fast)


@pytest.mark.parametrize("group", [16, 64, 512])
@pytest.mark.parametrize("topology", ["ring", "torus-2d", "torus-3d", "mesh-2d", "dragonfly"])
def test_an_all_to_all_keeps_the_bisection_bound(topology: str, group: int) -> None:
    size = 2.0**30
    changes = {"network.cluster.topology": topology, "network.cluster.size": str(group // 8)}
    answer = collective("hgx-h100", collective="all-to-all", size="1GiB", group=group, set=changes)
    tier = with_fields(
        named_system("hgx-h100").network.tiers[1], topology=topology, size=group / 8.0
    )
    nodes = of_tier(tier, group / 8.0)
    half = np.floor(group / 16.0)
    crossing = half * (group / 8.0 - half) * 8.0 * size * 8.0 / group
    assert answer.seconds >= crossing / (8.0 * float(nodes.bisection_bytes_per_s()))


@pytest.mark.parametrize("name", ["hgx-h100", "perlmutter", "polaris-ss11", "frontier", "dgx-1v"])
def test_what_was_measured_is_not_scaled(name: str) -> None:
    system = named_system(name)
    library, tiers = library_for(system), with_groups(system.network).tiers
    assert library is not None
    for i, tier in enumerate(tiers):
        if name == "frontier" and tier.topology == "ring":
            continue  # a ring of cards, which no fit of its links has seen
        inner = i < library.inner_tiers
        found = tier_ratios(
            tier, np.array([1.0, 2.0, 8.0]), library, inner=inner, last=tier is tiers[-1]
        )
        assert found is MEASURED


def test_switches_and_a_dragonfly_differ_under_taper() -> None:
    """Two groups of 64 nodes: half of the blocks stay inside a group, all leave a leaf of one node."""
    changes = {"network.cluster.taper": "0.5"}
    times = [
        collective(
            "hgx-h100",
            collective="all-to-all",
            size="1GiB",
            group=1024,
            set={**changes, "network.cluster.topology": name},
        ).seconds
        for name in ("switch", "dragonfly")
    ]
    assert times[0] > 1.3 * times[1]


def test_static_routes_cost_a_fat_tree_and_a_rail_only_beyond_its_leaf() -> None:
    static = {"network.cluster.routing": "static"}
    for group, slower in ((256, False), (1024, True)):
        rail, tree = (
            [
                collective(
                    "hgx-h100",
                    collective="all-to-all",
                    size="1GiB",
                    group=group,
                    set={"network.cluster.topology": name, **more},
                ).seconds
                for more in ({}, static)
            ]
            for name in ("rail-clos", "fat-tree")
        )
        assert tree[1] > 1.2 * tree[0]
        assert (rail[1] > 1.01 * rail[0]) == slower


def test_groups_of_a_dragonfly() -> None:
    """A node is no group: 512 chips are, on routers of 64 ports, unless groups are given."""
    base = named_system("hgx-h100")
    node, cluster = base.network.tiers
    bare = with_fields(cluster, topology="dragonfly")
    network = with_groups(with_fields(base.network, tiers=(node, bare)))
    assert network.tiers[1].groups == 256
    system = with_fields(base, network=with_fields(base.network, tiers=(node, bare)))
    one, two = (fabric_of(system, gpus, 64.0)[1] for gpus in (512.0, 1024.0))
    assert float(one.switches) == 32
    assert float(one.far_links) == 32 * 31 / 2
    assert float(two.switches) == 64
    assert float(two.far_links) == 2 * 32 * 31 / 2 + 512
    few = with_fields(bare, groups=256.0, group_routers=32.0, router_globals=4.0)
    network = with_groups(with_fields(base.network, tiers=(node, few)))
    assert network.tiers[1].taper == pytest.approx(32 * 4 / 512)
    assert with_groups(network) == network


def test_the_step_moves_with_the_topology() -> None:
    job = {"gpus": 256, "global_batch": 256, "seq_len": 4096, "plan": "ep64 zero1 mbs1"}
    steps = {
        name: foretell.estimate(
            "qwen3-30b-a3b", system="hgx-h100", set={"network.cluster.topology": name}, **job
        ).step_s
        for name in ("fat-tree", "torus-3d", "ring")
    }
    # Eight nodes of a ring have wider links than a corner of a torus: both are far behind switches.
    assert 2.0 * steps["fat-tree"] < min(steps["torus-3d"], steps["ring"])


def test_a_tree_over_a_ring_by_hand() -> None:
    """Edges of distance 1, 2 and 4 over six members: three of them cross a link, at half of the buffer."""
    tier = Tier(name="cluster", size=6, bandwidth_bytes_per_s=50e9, latency_s=5e-6, topology="ring")
    found = ratios(tier, np.array([6.0]), "fat-tree")
    ring, switched = (
        of_tier(tier, np.array([6.0])),
        of_tier(replace(tier, topology="fat-tree"), np.array([6.0])),
    )
    line = ring.axes()[0]
    assert found.tree == pytest.approx(3 * line.s_per_byte / 2 / switched.port().s_per_byte)
    assert found.tree_hops_s == pytest.approx((6 - 1 - 3) * line.latency_s)


def test_static_routes_cost_a_dragonfly_its_rings() -> None:
    """Minimal routes have one bundle of links from group to group; an even all-to-all uses them all."""

    def timed(kind: str, routing: str) -> float:
        changes = {
            "network.cluster.topology": "dragonfly",
            "network.cluster.taper": "0.25",
            "network.cluster.groups": "256",  # a machine of so many; else the fabric has the job's eight
            "network.cluster.routing": routing,
        }
        found = collective("hgx-h100", collective=kind, size="1GiB", group=4096, set=changes)
        return found.seconds

    for kind in ("all-gather", "all-reduce"):
        assert timed(kind, "static") > 1.1 * timed(kind, "adaptive")
    assert timed("all-to-all", "static") == timed("all-to-all", "adaptive")
