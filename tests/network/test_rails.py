"""Rails: what leaves its rail without PXN crosses the spines, counted message by message."""

from collections import Counter
from itertools import product

import numpy as np
import pytest

from foretell.api.network import collective
from foretell.errors import BadInput
from foretell.network.stack import stack_of, stack_s
from foretell.network.topologies.rail_clos import from_tier, off_rail
from foretell.specs.system import Network, Tier

RAILS = {"network.cluster.topology": "rail-clos", "network.cluster.taper": "0.5"}
APART = {**RAILS, "network.cluster.pxn": "false"}


def rail_tier(leaf: int, taper: float, *, pxn: bool = False) -> Tier:
    return Tier(
        name="cluster",
        size=4096.0,
        bandwidth_bytes_per_s=50e9,
        latency_s=5e-6,
        topology="rail-clos",
        taper=taper,
        shape=(leaf, 4096 // leaf),
        pxn=pxn,
    )


def counted_s_per_byte(tier: Tier, nodes: int, rails: int) -> float:
    """The busiest port or up link of an all-to-all between nodes: leaves of `shape` nodes for each rail, one
    byte from every chip to every chip of another node."""
    leaf = int(tier.shape[0])
    ports, ups = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    chips = list(product(range(nodes), range(rails)))
    for (node, rail), (to, other) in product(chips, chips):
        if node == to:
            continue
        ports[node, rail] += 1
        if (rail, node // leaf) != (other, to // leaf):
            ups[rail, node // leaf] += 1
    rate = float(tier.bandwidth_bytes_per_s)
    up = leaf * rate * float(tier.taper)
    return max(max(ports.values()) / rate, max(ups.values(), default=0) / up)


@pytest.mark.parametrize(
    ("nodes", "rails", "leaf"), [(4, 4, 4), (8, 4, 4), (8, 8, 8), (16, 2, 4), (4, 8, 8)]
)
@pytest.mark.parametrize("taper", [1.0, 0.5, 0.25])
def test_off_rail_bytes_are_those_of_the_messages(
    nodes: int, rails: int, leaf: int, taper: float
) -> None:
    tier = rail_tier(leaf, taper)
    factor = off_rail(tier, np.array([float(nodes)]), np.array([float(rails)]))
    one_rail = from_tier(tier, np.array([float(nodes)])).spread().s_per_byte
    found = float(np.asarray(factor * one_rail).ravel()[0]) * rails
    assert found == pytest.approx(counted_s_per_byte(tier, nodes, rails))


def test_with_pxn_everything_keeps_to_its_rail() -> None:
    assert off_rail(rail_tier(4, 0.5, pxn=True), 8.0, 8.0) == 1.0
    assert float(off_rail(rail_tier(4, 0.5), 8.0, 1.0)) == 1.0


@pytest.mark.parametrize("group", [256, 1024])
def test_pxn_helps_an_all_to_all_and_nothing_else(group: int) -> None:
    def seconds(kind: str, changes: dict[str, str]) -> float:
        found = collective("hgx-h100", collective=kind, size="1GiB", group=group, set=changes)
        return found.seconds

    assert seconds("all-to-all", APART) > 1.2 * seconds("all-to-all", RAILS)
    for kind in ("all-reduce", "all-gather", "send"):
        assert seconds(kind, APART) == seconds(kind, RAILS)
    even = {"network.cluster.topology": "rail-clos"}
    assert seconds("all-to-all", APART) < 2.05 * seconds("all-to-all", even)


def test_one_chip_a_node_has_one_rail() -> None:
    alone = [
        collective(
            "hgx-h100",
            collective="all-to-all",
            size="1GiB",
            group=64,
            placement="cluster=64",
            set=c,
        ).seconds
        for c in (RAILS, APART)
    ]
    assert alone[0] == alone[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"network.cluster.pxn": "false", "network.cluster.topology": "fat-tree"},
        {"network.cluster.pxn": "false", "network.cluster.topology": "rail-clos"},
    ],
)
def test_rails_that_move_nothing_are_refused(changes: dict[str, str]) -> None:
    with pytest.raises(BadInput, match="has no effect"):
        collective("hgx-h100", collective="all-to-all", size="1GiB", group=512, set=changes)


def stack_times(inner_bytes_per_s: float, *, pxn: bool) -> tuple[float, float]:
    """An all-to-all and an all-gather of 1 GB on tiers without a library."""
    node = Tier(name="node", size=8.0, bandwidth_bytes_per_s=inner_bytes_per_s, latency_s=2.5e-6)
    network = Network(tiers=(node, rail_tier(32, 0.5, pxn=pxn)))
    stack = stack_of(np.array([[8.0], [64.0]]), network, ("all-to-all", "all-gather"))
    return float(stack_s("all-to-all", 1e9, stack)[0]), float(stack_s("all-gather", 1e9, stack)[0])


def test_closed_forms_of_tiers_leave_their_rails_alike() -> None:
    """A stack without a library: the spines hold up what leaves its rail, and nothing else does."""
    kept, left = (stack_times(450e9, pxn=pxn) for pxn in (True, False))
    assert left[0] > 1.2 * kept[0]
    assert left[1] == kept[1]


def test_what_is_forwarded_loads_the_links_inside() -> None:
    """Seven eighths of all bytes pass a node's own links, whatever the nodes."""
    assert stack_times(10e9, pxn=True)[0] >= 7.0 / 8.0 * 1e9 / 10e9
    assert stack_times(10e9, pxn=False)[0] < stack_times(10e9, pxn=True)[0]


def test_assumptions_say_how_other_rails_are_reached() -> None:
    for changes, said in ((RAILS, "(PXN)"), (APART, "(no PXN)")):
        found = collective("hgx-h100", collective="send", size="1MiB", group=16, set=changes)
        assert any(said in text for text in found.assumptions)
    sharp = {"network.cluster.in_network_reduction": "true"}
    found = collective("hgx-h100", collective="send", size="1MiB", group=16, set=sharp)
    assert any("SHARP" in text for text in found.assumptions)
