"""Exchanges with partners at doubling distances: recursive doubling, and halving-doubling.

Where n is no power of two the n - P ranks above P = 2^floor(lg n) hand their whole buffer to a partner
below P first and get the sum from it at the end (MPICH's form).
"""

import numpy as np

from foretell.network.algorithms.base import (
    GATHERS,
    Algorithm,
    Collective,
    Gather,
    Message,
    MessageSchedule,
    Step,
    backwards,
    doublings,
    gather_schedule,
    log2_floor,
    passes,
    whole,
    whole_schedule,
)
from foretell.network.topologies.base import FREE, IMPOSSIBLE, Cost, Topology, choose_cost


def doubling_cost(collective: Collective, topology: Topology) -> Cost:
    """lg P (α + S/B), and 2 (α + S/B) more where n is no power of two."""
    del collective
    inner = np.exp2(log2_floor(topology.members))
    cost = _fold(topology)
    for k in doublings(topology.members):
        distance = 2.0**k
        cost = cost + choose_cost(distance < inner, topology.exchange(distance), FREE)
    return cost


def halving_doubling_cost(collective: Collective, topology: Topology) -> Cost:
    """All-reduce 2 lg P α + 2 (P-1)/P S/B, with 2 (α + S/B) more where n is no power of two.

    All-gather and reduce-scatter are half of that, for powers of two only.
    """
    inner = np.exp2(log2_floor(topology.members))
    cost = FREE
    for k in doublings(topology.members):
        distance = 2.0**k
        step = topology.exchange(distance).times(1.0, distance / inner)
        cost = cost + choose_cost(distance < inner, step, FREE)
    if collective == "all-reduce":
        return cost.times(passes(collective)) + _fold(topology)
    return choose_cost(inner == topology.members, cost, IMPOSSIBLE)


def _fold(topology: Topology) -> Cost:
    """The ranks above the power of two hand in their buffers, and get the sum."""
    inner = np.exp2(log2_floor(topology.members))
    return choose_cost(inner == topology.members, FREE, topology.permutation().times(2.0))


def _fold_steps(members: int, chunks: tuple[int, ...]) -> tuple[Step, Step]:
    """Handing in and getting back."""
    inner = 2 ** int(log2_floor(members))
    back = tuple(
        Message(source=r - inner, destination=r, chunks=chunks) for r in range(inner, members)
    )
    return backwards([back])[0], back


def gather_doubling(members: int) -> Gather:
    """Powers of two: a block of 2^k shards to the partner at distance 2^k, k from 0."""
    steps: Gather = []
    distance = 1
    while distance < members:
        steps.append(
            [
                (
                    r,
                    r ^ distance,
                    [i for b in range(distance) for i in whole(_base(r, distance) + b)],
                )
                for r in range(members)
            ]
        )
        distance *= 2
    return steps


def _base(rank: int, block: int) -> int:
    return rank // block * block


def doubling_schedule(collective: Collective, topology: Topology) -> MessageSchedule:
    """Every exchange carries the whole buffer."""
    members = int(topology.members)
    inner = 2 ** int(log2_floor(members))
    steps = [
        tuple(
            Message(source=r, destination=r ^ (1 << k), chunks=(0,), reduce=True)
            for r in range(inner)
        )
        for k in range(inner.bit_length() - 1)
    ]
    if inner != members:
        first, last = _fold_steps(members, (0,))
        steps = [first, *steps, last]
    return whole_schedule(collective, members, steps)


def halving_doubling_schedule(collective: Collective, topology: Topology) -> MessageSchedule:
    """The all-gather of doubling blocks, before it the same backwards."""
    members = int(topology.members)
    inner = 2 ** int(log2_floor(members))
    schedule = gather_schedule(collective, gather_doubling(inner), range(inner))
    if inner == members:
        return schedule
    first, last = _fold_steps(members, tuple(range(len(schedule.weights))))
    return MessageSchedule(
        collective=collective,
        members=members,
        weights=schedule.weights,
        owners=schedule.owners,
        steps=(first, *schedule.steps, last),
    )


ALGORITHMS = (
    Algorithm(
        "recursive-doubling", ("all-reduce",), ("exchange",), doubling_cost, doubling_schedule
    ),
    Algorithm(
        "halving-doubling", GATHERS, ("exchange",), halving_doubling_cost, halving_doubling_schedule
    ),
)
