"""Trees: binomial in whole messages; binary and double binary in small pieces that flow.

The binary tree puts rank r below a neighbour at the distance of r's lowest bit, so odd ranks are leaves.
The second of two trees is the first mirrored (n even) or turned by one (n odd), so that who works in one
is a leaf in the other; each carries half of the buffer (Sanders, Speck, Träff 2009; NCCL).
"""

from collections.abc import Callable

import numpy as np

from foretell.network.algorithms.base import (
    Algorithm,
    Collective,
    Message,
    MessageSchedule,
    Step,
    backwards,
    log2_ceil,
    side_by_side,
    whole_schedule,
)
from foretell.network.topologies.base import Cost, Topology
from foretell.specs._base import Num
from foretell.specs.arrays import Array

TREES: tuple[Collective, ...] = ("all-reduce", "broadcast", "reduce")


def binomial_cost(collective: Collective, topology: Topology) -> Cost:
    """ceil(lg n) (α + S/B), twice for all-reduce."""
    steps = log2_ceil(topology.members)
    return topology.permutation().times(steps * (2.0 if collective == "all-reduce" else 1.0))


def binary_cost(collective: Collective, topology: Topology) -> Cost:
    """ceil(lg n) α + 2 S/B down or up; 2 ceil(lg n) α + 3 S/B for both. Less below four members."""
    both = collective == "all-reduce"
    load = _by_size(topology.members, (1.0, 2.0, 3.0) if both else (1.0, 1.0, 2.0))
    return _flow(topology, load, ways=2.0 if both else 1.0)


def double_binary_cost(collective: Collective, topology: Topology) -> Cost:
    """2 ceil(lg n) α + 2 S/B; 1.5 S at three members, S at two."""
    del collective
    return _flow(topology, _by_size(topology.members, (1.0, 1.5, 2.0)), ways=2.0)


def _flow(topology: Topology, load: Array, ways: float) -> Cost:
    depth = log2_ceil(topology.members)
    return topology.port().times(ways * depth, load)


def _by_size(members: Num, loads: tuple[float, float, float]) -> Array:
    """Load at two, three, and four or more members."""
    count = np.asarray(members)
    return np.where(count <= 2, loads[0], np.where(count <= 3, loads[1], loads[2]))


def parent(rank: int, members: int) -> int | None:
    """The rank above, None for rank 0."""
    if rank == 0:
        return None
    bit = rank & -rank
    above = (rank ^ bit) | (bit << 1)
    return above if above < members else rank ^ bit


def down_steps(members: int, name: Callable[[int], int]) -> tuple[Step, ...]:
    """Messages from the root down, one step a level; `name` renames ranks."""
    level = {0: 0}
    for rank in range(1, members):
        path = [rank]
        while path[-1] not in level:
            above = parent(path[-1], members)
            assert above is not None
            path.append(above)
        for below, above in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
            level[below] = level[above] + 1
    steps: list[list[Message]] = [[] for _ in range(max(level.values()))]
    for rank in range(1, members):
        above = parent(rank, members)
        assert above is not None
        steps[level[rank] - 1].append(
            Message(source=name(above), destination=name(rank), chunks=(0,))
        )
    return tuple(tuple(step) for step in steps)


def binomial_schedule(collective: Collective, topology: Topology) -> MessageSchedule:
    """Those who have it, the first 2^k ranks, send to the next 2^k."""
    members = int(topology.members)
    down = tuple(
        tuple(
            Message(source=r, destination=r + 2**k, chunks=(0,))
            for r in range(min(2**k, members - 2**k))
        )
        for k in range(int(log2_ceil(members)))
    )
    return whole_schedule(collective, members, _ways(collective, down))


def binary_schedule(collective: Collective, topology: Topology) -> MessageSchedule:
    """One tree under rank 0."""
    members = int(topology.members)
    down = down_steps(members, lambda r: r)
    return whole_schedule(collective, members, _ways(collective, down), flows=True)


def double_binary_schedule(collective: Collective, topology: Topology) -> MessageSchedule:
    """Two trees, half of the buffer each."""
    members = int(topology.members)
    if members % 2 == 0:
        names = (lambda r: r, lambda r: members - 1 - r)
    else:
        names = (lambda r: r, lambda r: (r + 1) % members)
    trees = [
        whole_schedule(
            collective, members, _ways(collective, down_steps(members, name)), flows=True
        )
        for name in names
    ]
    return side_by_side([(0.5, tree) for tree in trees])


def _ways(collective: Collective, down: tuple[Step, ...]) -> tuple[Step, ...]:
    """Down for broadcast, up for reduce, both for all-reduce."""
    return {
        "broadcast": down,
        "reduce": backwards(down),
        "all-reduce": backwards(down) + down,
    }[collective]


ALGORITHMS = (
    Algorithm("binomial-tree", TREES, ("permutation",), binomial_cost, binomial_schedule),
    Algorithm("binary-tree", TREES, ("port",), binary_cost, binary_schedule),
    Algorithm(
        "double-binary-tree", ("all-reduce",), ("port",), double_binary_cost, double_binary_schedule
    ),
)
