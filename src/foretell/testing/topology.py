"""Conformance checks of topologies.

    from foretell.testing.topology import check_topology
    check_topology(lambda members: MyTopology(members=members, ...), sizes=(1, 2, 4, 8))

A new topology is right in form when these pass: a group of one is free; no pattern is faster than bytes over
all links of a member, nor than the latency between members; arrays of members give what each number gives;
and its graph is connected, both ways alike. That its prices are right takes a simulation of messages
(`foretell.testing.collective.check_algorithm` with a player).
"""

import heapq
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from foretell.network.topologies.base import Cost, LinkGraph, Pattern, Topology
from foretell.specs._base import Num

RELATIVE = 1e-9
"""How far two roundings of one number may be apart."""

Factory = Callable[[Num], Topology]
"""Makes a topology of so many members, one number or an array."""
PRICES: Mapping[Pattern, Callable[[Topology], Cost]] = {
    "ring": lambda t: t.ring(),
    "ring-both": lambda t: t.ring_both(),
    "chain": lambda t: t.chain(),
    "rings": lambda t: t.rings(),
    "exchange": lambda t: t.exchange(1.0),
    "shift": lambda t: t.shift(1.0),
    "permutation": lambda t: t.permutation(),
    "port": lambda t: t.port(),
    "spread": lambda t: t.spread(),
    "reduction": lambda t: t.reduction(),
}
"""Every pattern that is one step, at distance one."""


def check_topology(factory: Factory, sizes: Sequence[float]) -> None:
    """All checks, for groups of these sizes."""
    for members in sizes:
        topology = factory(members)
        claim(float(topology.members) == members, topology, f"has not {members} members")
        check_graph(topology)
        if members > 1:
            check_bounds(topology)
        else:
            check_alone(topology)
    check_batch(factory, sizes)


def prices(topology: Topology) -> dict[Pattern, Cost]:
    """The patterns that the topology prices and that this group can do."""
    costs = {name: price(topology) for name, price in PRICES.items() if name in topology.patterns}
    return {name: cost for name, cost in costs.items() if np.all(np.isfinite(cost.latency_s))}


def check_alone(topology: Topology) -> None:
    """One member has nothing to send."""
    for name, cost in prices(topology).items():
        claim(float(cost.seconds(1e9)) == 0.0, topology, f"{name} is not free for one member")


def check_bounds(topology: Topology) -> None:
    """No pattern beats the links of one member, nor the way between members."""
    least, most = latencies_s(topology.graph())
    out = float(topology.injection_s_per_byte())
    for name, cost in prices(topology).items():
        messages = {"spread": float(topology.members) - 1.0, "ring-both": 2.0}.get(name, 1.0)
        floor_s = most if name == "spread" else least
        claim(not_below(cost.s_per_byte, messages * out), topology, f"{name} beats its links")
        claim(not_below(cost.latency_s, floor_s), topology, f"{name} beats the latency")


def check_batch(factory: Factory, sizes: Sequence[float]) -> None:
    """An array of members is priced as each of them."""
    batch = factory(np.asarray(sizes, float))
    for name in batch.patterns:
        if name not in PRICES:
            continue
        together = PRICES[name](batch).seconds(1e6) + np.zeros(len(sizes))
        alone = [float(PRICES[name](factory(members)).seconds(1e6)) for members in sizes]
        same = np.array_equal(together, alone) or np.allclose(together, alone, RELATIVE, 0.0)
        claim(same, batch, f"{name}: batch {together}, alone {alone}")


def check_graph(topology: Topology) -> None:
    """Members are nodes, every cable has both directions alike, and all members are joined."""
    graph = topology.graph()
    ends = {(x.source, x.target): x for x in graph.links}
    claim(len(ends) == len(graph.links), topology, "two links from one node to another")
    claim(graph.members == int(topology.members), topology, "members and nodes differ")
    for (a, b), link in ends.items():
        back = ends.get((b, a))
        claim(back is not None, topology, f"link {a} -> {b} has no way back")
        claim(link.bandwidth_bytes_per_s > 0, topology, f"link {a} -> {b} has no bandwidth")
        alike = back is not None and (
            (back.bandwidth_bytes_per_s, back.latency_s, back.length)
            == (link.bandwidth_bytes_per_s, link.latency_s, link.length)
        )
        claim(alike, topology, f"link {a} -> {b} differs from its way back")
    claim(np.isfinite(latencies_s(graph)[1]), topology, "some members are not joined")


def latencies_s(graph: LinkGraph) -> tuple[float, float]:
    """Smallest and largest latency between two members, over the way that has least of it."""
    ways: dict[int, list[tuple[int, float]]] = {}
    for link in graph.links:
        ways.setdefault(link.source, []).append((link.target, link.latency_s))
    least, most = np.inf, 0.0
    for start in range(graph.members):
        far = _from(start, ways)
        others = [far.get(m, np.inf) for m in range(graph.members) if m != start]
        least, most = min([least, *others]), max([most, *others])
    return (least, most) if graph.members > 1 else (0.0, 0.0)


def _from(start: int, ways: Mapping[int, Sequence[tuple[int, float]]]) -> dict[int, float]:
    """Least latency to every node (Dijkstra)."""
    done: dict[int, float] = {}
    heap = [(0.0, start)]
    while heap:
        latency, node = heapq.heappop(heap)
        if node in done:
            continue
        done[node] = latency
        for other, more in ways.get(node, ()):
            if other not in done:
                heapq.heappush(heap, (latency + more, other))
    return done


def not_below(value: Num, floor: float) -> bool:
    """Whether a number keeps a lower bound, up to rounding."""
    return bool(np.all(np.asarray(value) >= floor * (1.0 - RELATIVE)))


def claim(holds: bool, about: object, message: str) -> None:
    """Raise with what it is about unless it holds."""
    if not holds:
        raise AssertionError(f"{about}: {message}")
