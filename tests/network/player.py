"""Plays a schedule message by message: how long the links of an explicit graph take.

It knows nothing of the closed forms. Paths are networkx's shortest paths on the explicit graph, equal ones
in equal parts; where the graph has coordinates, one coordinate is corrected after another.
"""

from collections import defaultdict
from functools import cache
from itertools import combinations, pairwise

import networkx as nx
import numpy as np

from foretell.network.algorithms.base import NETWORK, Message, MessageSchedule
from foretell.network.topologies import LinkGraph

Route = tuple[dict[tuple[int, int], float], float]
"""Share of a message on each link, and the latency of the longest of its paths."""


class Player:
    """Routes of one graph, found once."""

    def __init__(self, graph: LinkGraph) -> None:
        self.graph = graph
        self.net = nx.DiGraph()
        self.net.add_nodes_from(range(graph.members))
        for link in graph.links:
            assert not self.net.has_edge(link.source, link.target), "two links where one may be"
            self.net.add_edge(
                link.source,
                link.target,
                rate=link.bandwidth_bytes_per_s,
                latency=link.latency_s,
                length=link.length,
            )
        self._routes: dict[tuple[int, int], Route] = {}

    def route(self, source: int, target: int) -> Route:
        """Links of the way, with the share of the message on each."""
        key = (source, target)
        if key not in self._routes:
            self._routes[key] = self._find(source, target)
        return self._routes[key]

    def _find(self, source: int, target: int) -> Route:
        stops = [source, target]
        coordinates = self.graph.coordinates
        if coordinates:
            number = {place: i for i, place in enumerate(coordinates)}
            place = list(coordinates[source])
            stops = [source]
            for axis, x in enumerate(coordinates[target]):
                place[axis] = x
                stops.append(number[tuple(place)])
        shares: dict[tuple[int, int], float] = defaultdict(float)
        total, hops = 0.0, 0.0
        for a, b in pairwise(stops):
            if a == b:
                continue
            paths = list(nx.all_shortest_paths(self.net, a, b, weight="length"))
            hops += nx.path_weight(self.net, paths[0], "length")
            slowest = 0.0
            for path in paths:
                links = list(pairwise(path))
                for link in links:
                    shares[link] += 1.0 / len(paths)
                slowest = max(slowest, sum(self.net.edges[x]["latency"] for x in links))
            total += slowest
        assert hops == nx.shortest_path_length(self.net, source, target, weight="length"), (
            "not a shortest way"
        )
        return dict(shares), total

    def seconds(self, schedule: MessageSchedule, size_bytes: float) -> float:
        """Time of all steps: of each, the busiest link and the longest latency.

        Where the schedule flows the links are busy all along, so the busiest of all steps together.
        """
        latency = 0.0
        times = []
        together: dict[tuple[int, int], float] = defaultdict(float)
        for i, step in enumerate(schedule.steps):
            loads: dict[tuple[int, int], float] = defaultdict(float)
            longest = 0.0
            for message in step:
                shares, way = self._ends(message)
                longest = max(longest, way)
                for link, share in shares.items():
                    loads[link] += share * schedule.share(message)
            latency += longest
            if not schedule.flows or i in schedule.barriers:
                times.append(self._busiest(together))
                together.clear()
            for link, load in loads.items():
                together[link] += load
        return latency + (sum(times) + self._busiest(together)) * size_bytes

    def _ends(self, message: Message) -> Route:
        switch = self.graph.members
        ends = [switch if end == NETWORK else end for end in (message.source, message.destination)]
        return self.route(*ends)

    def _busiest(self, loads: dict[tuple[int, int], float]) -> float:
        return max((load / self.net.edges[x]["rate"] for x, load in loads.items()), default=0.0)

    def bisection(self) -> float:
        """Least cut between halves of the members, by trying every half (networkx max flow)."""
        count = self.graph.members
        half = count // 2
        best = np.inf
        for side in combinations(range(count), half):
            if count % 2 == 0 and 0 not in side:
                continue  # the other half of one already tried
            net = nx.DiGraph()
            for a, b, data in self.net.edges(data=True):
                net.add_edge(a, b, capacity=data["rate"])
            for m in range(count):
                net.add_edge(*(("s", m) if m in side else (m, "t")))  # no capacity: unbounded
            best = min(best, nx.maximum_flow_value(net, "s", "t"))
        return float(best)


def play(schedule: MessageSchedule, graph: LinkGraph, size_bytes: float) -> float:
    """Seconds of a schedule on a graph."""
    return _player(graph).seconds(schedule, size_bytes)


@cache
def _player(graph: LinkGraph) -> Player:
    return Player(graph)
