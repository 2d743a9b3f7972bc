"""Rings: each member passes on what it last got. One way, both ways, or on many rings at once."""

from itertools import pairwise

import numpy as np

from foretell.network.algorithms.base import (
    GATHERS,
    Algorithm,
    Collective,
    Gather,
    Message,
    MessageSchedule,
    backwards,
    blocks_schedule,
    gather_schedule,
    passes,
    side_by_side,
    whole,
    whole_schedule,
)
from foretell.network.topologies.base import Cost, Topology


def gather_one_way(members: int) -> Gather:
    """n - 1 steps; the shard that came last goes on."""
    return [
        [(i, (i + 1) % members, whole((i - t) % members)) for i in range(members)]
        for t in range(members - 1)
    ]


def gather_both_ways(members: int) -> Gather:
    """floor(n/2) steps; of the member across, half comes from each side."""
    steps: Gather = []
    for t in range((members - 1) // 2):
        right = [(i, (i + 1) % members, whole((i - t) % members)) for i in range(members)]
        left = [(i, (i - 1) % members, whole((i + t) % members)) for i in range(members)]
        steps.append(right + left)
    if members % 2 == 0:
        t = members // 2 - 1
        right = [(i, (i + 1) % members, [((i - t) % members, 0)]) for i in range(members)]
        left = [(i, (i - 1) % members, [((i + t) % members, 1)]) for i in range(members)]
        steps.append(right + left)
    return steps


def one_way_cost(collective: Collective, topology: Topology) -> Cost:
    """(n-1) α + (n-1)/n S/b; twice for all-reduce; S (n-1)/2 for all-to-all."""
    others, hop = topology.members - 1.0, topology.ring()
    if collective == "all-to-all":
        return hop.times(others, others / 2.0)
    return hop.times(others, others / topology.members).times(passes(collective))


def one_way_schedule(collective: Collective, topology: Topology) -> MessageSchedule:
    """Steps along the topology's own ring."""
    count = int(topology.members)
    nodes = topology.ring_orders()[0][1]
    if collective == "all-to-all":
        return blocks_schedule(count, _blocks(nodes))
    return gather_schedule(collective, gather_one_way(count), nodes)


def _blocks(nodes: tuple[int, ...]) -> list[tuple[Message, ...]]:
    """All blocks travel one way and get off where they belong."""
    count = len(nodes)
    steps = []
    for t in range(count - 1):
        step = []
        for i, node in enumerate(nodes):
            source = nodes[(i - t) % count]
            ends = [nodes[(i + k) % count] for k in range(1, count - t)]
            chunks = tuple(source * count + end for end in ends)
            step.append(Message(source=node, destination=nodes[(i + 1) % count], chunks=chunks))
        steps.append(tuple(step))
    return steps


def chain_cost(collective: Collective, topology: Topology) -> Cost:
    """Broadcast and reduce flow from or to member 0 in small pieces: (n-1) α + S/b."""
    del collective
    others = topology.members - 1.0
    return topology.chain().times(others, np.minimum(others, 1.0))


def chain_schedule(collective: Collective, topology: Topology) -> MessageSchedule:
    """One message after another along the path."""
    nodes = topology.chain_order()
    steps = tuple((Message(source=a, destination=b, chunks=(0,)),) for a, b in pairwise(nodes))
    turned = steps if collective == "broadcast" else backwards(steps)
    return whole_schedule(collective, len(nodes), turned, flows=True)


def both_ways_cost(collective: Collective, topology: Topology) -> Cost:
    """floor(n/2) α + (n-1)/n S/(2b); twice for all-reduce.

    A pattern of both ways sends a message each way, so n odd are (n-1)/2 of them with a shard each,
    and n even one more with half a shard.
    """
    members = topology.members
    share = (members - 1.0) / (2.0 * members)
    hop = topology.ring_both()
    return hop.times(np.floor(members / 2.0), share).times(passes(collective))


def both_ways_schedule(collective: Collective, topology: Topology) -> MessageSchedule:
    """Steps along the topology's own ring, both ways."""
    nodes = topology.ring_orders()[0][1]
    return gather_schedule(collective, gather_both_ways(int(topology.members)), nodes)


def many_cost(collective: Collective, topology: Topology) -> Cost:
    """(n-1) α + (n-1)/n S over all the links that rings can use; twice for all-reduce."""
    others = topology.members - 1.0
    return topology.rings().times(others, others / topology.members).times(passes(collective))


def many_schedule(collective: Collective, topology: Topology) -> MessageSchedule:
    """A ring of one way on each order, for its share of the buffer."""
    gather = gather_one_way(int(topology.members))
    return side_by_side(
        [
            (share, gather_schedule(collective, gather, nodes))
            for share, nodes in topology.ring_orders()
        ]
    )


ALGORITHMS = (
    Algorithm("ring", (*GATHERS, "all-to-all"), ("ring",), one_way_cost, one_way_schedule),
    Algorithm("pipelined-chain", ("broadcast", "reduce"), ("chain",), chain_cost, chain_schedule),
    Algorithm("ring-both", GATHERS, ("ring-both",), both_ways_cost, both_ways_schedule),
    Algorithm("multi-ring", GATHERS, ("rings",), many_cost, many_schedule),
)
