"""Counts of switches and cables: published clusters, the graphs of topologies, and bounds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.catalog import system
from foretell.economics.fabric import (
    cards,
    clos,
    direct_links,
    dragonfly,
    fabric_of,
    is_scale_up,
    levels,
    scale_up_factor,
)
from foretell.network.topologies import of_tier
from foretell.specs.system import Tier

SHEET = {
    64: 8, 128: 48, 256: 96, 512: 192, 1024: 384, 2048: 768, 4096: 2560, 8192: 5120, 16384: 10240,
}  # fmt: skip
"""Nodes of eight H100 -> switches of 64 ports (tech-talk-cto sheet, August 2024)."""


@pytest.mark.parametrize("nodes", SHEET)
def test_rails_of_a_published_sheet(nodes: int) -> None:
    (_, cluster) = fabric_of(system("hgx-h100"), 8.0 * nodes, 64.0)
    assert cluster.switches == SHEET[nodes]
    assert cluster.end_links == 8 * nodes
    layers = 1 if nodes <= 64 else 2 if nodes <= 2048 else 3
    assert cluster.far_links == 8 * nodes * (layers - 1)


def test_frontier_and_perlmutter() -> None:
    """32 switches for the 128 nodes of a group; Frontier's 74 groups have four links to each other."""
    (*_, groups, frontier) = fabric_of(system("frontier"), 74 * 128 * 8.0, 64.0)
    assert groups.switches == 0
    assert frontier.switches == 74 * 32
    assert frontier.far_links == 74 * 32 * 31 / 2 + 74 * 73 / 2 * 4
    perlmutter = fabric_of(system("perlmutter"), 12 * 128 * 4.0, 64.0)[-1]
    assert perlmutter.switches == 12 * 32


def test_pods_under_a_taper() -> None:
    """Meta: eight pods of 3,072 that do not block, a seventh of it above them."""
    (_, pod, cluster) = fabric_of(system("meta-24k-roce"), 24576.0, 64.0)
    assert pod.end_links == 24576
    assert pod.switches > 8 * (96 + 48)  # leaves and spines of each pod, and ports to spare above
    assert cluster.far_links == pytest.approx(24576 / 7, rel=0.01)
    assert cluster.switches == pytest.approx(24576 / 7 / 64, rel=0.02)
    alone = fabric_of(system("meta-24k-roce"), 3072.0, 64.0)
    assert len(alone) == 2
    assert alone[-1].switches == 3072 / 32 * 2 + 3072 / 64  # 3,072 ends are more than 2 x 32^2


@pytest.mark.parametrize(
    ("topology", "size", "shape"),
    [
        ("torus-3d", 64, (4, 4, 4)),
        ("torus-2d", 12, (3, 4)),
        ("torus-2d", 8, (2, 4)),
        ("mesh-2d", 12, (3, 4)),
        ("ring", 6, ()),
        ("fully-connected", 8, ()),
        ("hyperx-2d", 12, (3, 4)),
        ("hypercube", 16, ()),
        ("hybrid-cube-mesh", 8, ()),
    ],
)
def test_links_are_those_of_the_graph(topology: str, size: int, shape: tuple[int, ...]) -> None:
    tier = Tier(name="pod", size=float(size), bandwidth_bytes_per_s=6e9, latency_s=1e-6,
                topology=topology, shape=shape)  # fmt: skip
    graph = of_tier(tier, float(size)).graph()
    cables = len(graph.links) / 2
    if topology == "hybrid-cube-mesh":  # half of its cables are double
        cables = sum(link.bandwidth_bytes_per_s for link in graph.links) / 2 / 1e9
    assert float(direct_links(tier, 1.0)) == cables


@given(st.integers(1, 10**6), st.sampled_from((16, 36, 64, 128)), st.floats(0.1, 1.0))
def test_a_clos_has_the_ports_it_needs(ends: int, ports: int, taper: float) -> None:
    switches, links = (float(x) for x in clos(float(ends), float(ports), taper))
    assert switches * ports >= ends + 2 * links - 1e-6
    assert 2 * (ports / 2) ** float(levels(float(ends), float(ports))) >= ends
    more = clos(float(ends), float(ports), 1.0)
    assert links <= float(more[1]) + 1e-9
    twice = clos(2.0 * ends, float(ports), taper)
    assert switches <= float(twice[0])


@given(st.integers(1, 2000), st.integers(1, 200), st.floats(0.1, 1.0), st.booleans())
def test_a_dragonfly_has_the_ports_it_needs(
    ends: int, groups: int, taper: float, plus: bool
) -> None:
    switches, links = dragonfly(float(ends), float(groups), 64.0, taper, plus=plus)
    assert float(switches) >= groups
    assert float(links) >= 0
    few = float(ends) <= 1024 and not plus  # a larger group cannot be joined whole
    if few and ends % 16 == 0 and ends <= 512:
        assert float(switches) * 64 >= ends * groups + 2 * float(links) - groups


def test_batches() -> None:
    ends = np.array([8.0, 64.0, 500.0, 4096.0])
    together = clos(ends, 64.0)
    for place, each in enumerate(ends):
        alone = clos(float(each), 64.0)
        assert [float(x[place]) for x in together] == [float(x) for x in alone]


def test_what_comes_with_the_node() -> None:
    rack = system("gb200-nvl72")
    (inside, outside) = fabric_of(rack, 72 * 4.0, 64.0)
    assert inside.in_node_price
    assert not outside.in_node_price
    assert cards(rack, 72.0) == 72
    assert is_scale_up(rack.network.tiers[0], rack)
    assert fabric_of(rack, 72.0, 64.0) == (replace(inside, end_links=72.0),)


def test_a_torus_between_nodes_has_the_cables_of_its_members() -> None:
    """Half a cable for each card's worth of rate, for members that are there and no others."""
    base = system("hgx-h100")
    node, cluster = base.network.tiers[:2]
    torus = replace(
        base,
        network=replace(
            base.network,
            tiers=(node, replace(cluster, topology="torus-3d", size=512.0, shape=(8, 8, 8))),
        ),
    )
    few, all_of_it = (fabric_of(torus, gpus, 64.0)[-1] for gpus in (512.0, 4096.0))
    assert float(all_of_it.end_links) == 3 * 512
    assert float(few.end_links) == 3 * 64
    for tier, nodes in ((few, 64), (all_of_it, 512)):
        carried = float(tier.end_links) * float(tier.gbit_s)
        assert carried == pytest.approx(nodes * 8 * 400.0 / 2)


def test_scale_up_goes_by_rate_reach_and_switches() -> None:
    from foretell.catalog.money import sheet
    from foretell.economics.tree import SheetCases

    parts = SheetCases(sheet=sheet(), knobs={}).entry("fabric")
    base = system("hgx-h100")
    node, *rest = base.network.tiers

    def factor(**changes: object) -> tuple[float, float]:
        tiers = (replace(node, **changes), *rest)
        rate, passed = scale_up_factor(
            replace(base, network=replace(base.network, tiers=tiers)), parts
        )
        return float(np.asarray(rate)), float(np.asarray(passed))

    assert factor() == (1.0, 1.0)  # what the price stands for
    assert factor(bandwidth_bytes_per_s=900e9) == (2.0, 1.0)
    assert factor(size=72.0) == (1.0, 1.0)
    assert factor(size=144.0) == (1.0, 3.0)
    assert factor(topology="fully-connected") == (1.0, 0.0)


def test_cables_between_nodes_come_with_nodes_that_have_a_price() -> None:
    """Nodes from parts pay for theirs: inside a rack copper, beyond it optics."""
    base = replace(system("hgx-h100"), node_price_usd=0.0)
    node, *rest = base.network.tiers
    wide = replace(base, network=replace(base.network, tiers=(replace(node, size=64.0), *rest)))
    assert fabric_of(wide, 128.0, 64.0)[0].in_node_price
    assert not fabric_of(wide, 128.0, 64.0, from_parts=True)[0].in_node_price
    assert fabric_of(wide, 128.0, 64.0, from_parts=True)[0].reach == 64.0


def test_circuits_and_packaged_optics_have_fewer_ends_and_watts() -> None:
    """Circuit switches end no light and look at no packet; packaged ends replace those at switches."""
    from foretell.economics.ask_system import system_cost
    from foretell.specs.questions.cost import SystemQuestion

    def cost(*words: str) -> dict[str, float]:
        settings = [f"network.cluster.{word}" for word in words]
        asked = SystemQuestion(system="dgx-h100", gpus=1024, set=settings)
        found = system_cost(asked).to_dict()
        return {
            name: float(found[name])
            for name in ("usd", "peak_watts", "switches", "transceivers", "links")
        }

    clos, packaged = cost("optics=pluggable"), cost("optics=co-packaged")
    circuits = cost("topology=optical-circuit")
    assert packaged["transceivers"] == clos["transceivers"] - 3072 == 1024
    assert circuits["transceivers"] == circuits["links"] == 1024
    assert circuits["switches"] == 0
    assert circuits["peak_watts"] < packaged["peak_watts"] < clos["peak_watts"]
    assert circuits["usd"] < packaged["usd"] < clos["usd"]
    assert cost("topology=optical-circuit", "optics=co-packaged") == circuits
