"""Shifts by doubling distances, for any number of members: Bruck, PAT-like, and the barrier.

Bruck's all-gather goes from near to far with ever more shards. PAT (parallel aggregated trees, NCCL 2.23)
goes from far to near, so that what travels far is little; here with buffers as large as it likes, that is
in ceil(lg n) steps (the library cuts large messages and then needs more of them).
"""

import numpy as np

from foretell.network.algorithms.base import (
    GATHERS,
    Algorithm,
    Collective,
    Gather,
    Message,
    MessageSchedule,
    blocks_schedule,
    doublings,
    gather_schedule,
    passes,
    whole,
    whole_schedule,
)
from foretell.network.topologies.base import FREE, Cost, Topology, choose_cost
from foretell.specs._base import Num


def near_blocks(members: Num, distance: float) -> Num:
    """Shards that Bruck sends over a distance: as many as it has, less those the other has."""
    return np.minimum(distance, members - distance)


def far_blocks(members: Num, distance: float) -> Num:
    """Shards that PAT sends over a distance d: offsets 0, 2d, 4d, ... below n - d."""
    return np.ceil((members - distance) / (2.0 * distance))


def bit_blocks(members: Num, distance: float) -> Num:
    """Blocks of an all-to-all whose offset has this bit."""
    return np.floor(members / (2.0 * distance)) * distance + np.maximum(
        members % (2.0 * distance) - distance, 0.0
    )


def bruck_cost(collective: Collective, topology: Topology) -> Cost:
    """ceil(lg n) α + (n-1)/n S/B; the all-to-all sends about half of S in each step."""
    members, cost = topology.members, FREE
    for k in doublings(members):
        distance = 2.0**k
        blocks = (bit_blocks if collective == "all-to-all" else near_blocks)(members, distance)
        step = topology.shift(distance).times(1.0, blocks / members)
        cost = cost + choose_cost(distance < np.asarray(members), step, FREE)
    return cost.times(passes(collective))


def pat_cost(collective: Collective, topology: Topology) -> Cost:
    """ceil(lg n) α + (n-1)/n S/B, most of it between neighbours."""
    members, cost = topology.members, FREE
    for k in doublings(members):
        distance = 2.0**k
        step = topology.shift(distance).times(1.0, far_blocks(members, distance) / members)
        cost = cost + choose_cost(distance < np.asarray(members), step, FREE)
    return cost.times(passes(collective))


def barrier_cost(collective: Collective, topology: Topology) -> Cost:
    """ceil(lg n) α: each hears of all others by shifts of doubling distance."""
    del collective
    cost = FREE
    for k in doublings(topology.members):
        near = 2.0**k < np.asarray(topology.members)
        cost = cost + choose_cost(near, topology.shift(2.0**k), FREE)
    return Cost(latency_s=cost.latency_s)


def gather_near(members: int) -> Gather:
    """From near to far: the shards r, r-1, ... that r has go to r + 2^k."""
    return [
        [
            (r, (r + d) % members, [i for o in range(_count(near_blocks(members, d)))
                                    for i in whole((r - o) % members)])
            for r in range(members)
        ]
        for d in _distances(members)
    ]  # fmt: skip


def gather_far(members: int) -> Gather:
    """From far to near: the shards r, r-2d, r-4d, ... that r has go to r + d."""
    return [
        [
            (r, (r + d) % members, [i for o in range(_count(far_blocks(members, d)))
                                    for i in whole((r - 2 * d * o) % members)])
            for r in range(members)
        ]
        for d in reversed(_distances(members))
    ]  # fmt: skip


def _count(blocks: Num) -> int:
    return round(float(blocks))


def _distances(members: int) -> list[int]:
    return [2**k for k in doublings(members)]


def bruck_schedule(collective: Collective, topology: Topology) -> MessageSchedule:
    """All-gather and its turns; blocks of an all-to-all move by the bits of their offset."""
    members = int(topology.members)
    if collective != "all-to-all":
        return gather_schedule(collective, gather_near(members), range(members))
    steps = []
    for distance in _distances(members):
        moves: dict[int, list[int]] = {r: [] for r in range(members)}
        for source in range(members):
            for offset in range(members):
                if offset & distance:
                    here = (source + offset % distance) % members
                    moves[here].append(source * members + (source + offset) % members)
        steps.append(
            tuple(
                Message(source=r, destination=(r + distance) % members, chunks=tuple(chunks))
                for r, chunks in moves.items()
            )
        )
    return blocks_schedule(members, steps)


def pat_schedule(collective: Collective, topology: Topology) -> MessageSchedule:
    """All-gather from far to near, and its turns."""
    members = int(topology.members)
    return gather_schedule(collective, gather_far(members), range(members))


def barrier_schedule(collective: Collective, topology: Topology) -> MessageSchedule:
    """An empty message over each distance."""
    members = int(topology.members)
    steps = [
        tuple(
            Message(source=r, destination=(r + d) % members, chunks=(0,), reduce=True)
            for r in range(members)
        )
        for d in _distances(members)
    ]
    return whole_schedule(collective, members, steps)


ALGORITHMS = (
    Algorithm("bruck", (*GATHERS, "all-to-all"), ("shift",), bruck_cost, bruck_schedule),
    Algorithm("pat", GATHERS, ("shift",), pat_cost, pat_schedule),
    Algorithm("dissemination", ("barrier",), ("shift",), barrier_cost, barrier_schedule),
)
