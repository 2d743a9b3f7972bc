"""Each member sends to all others: at once (direct), or one partner after another (pairwise)."""

from foretell.network.algorithms.base import (
    GATHERS,
    Algorithm,
    Collective,
    Gather,
    Message,
    MessageSchedule,
    blocks_schedule,
    gather_schedule,
    passes,
    whole,
    whole_schedule,
)
from foretell.network.topologies.base import Cost, Topology


def direct_cost(collective: Collective, topology: Topology) -> Cost:
    """A message of S/n from each to each; twice for all-reduce. A barrier is the latency of it."""
    if collective == "barrier":
        return Cost(latency_s=topology.spread().latency_s)
    return topology.spread().times(1.0, 1.0 / topology.members).times(passes(collective))


def pairwise_cost(collective: Collective, topology: Topology) -> Cost:
    """n - 1 permutations with S/n each."""
    del collective
    others = topology.members - 1.0
    return topology.permutation().times(others, others / topology.members)


def gather_direct(members: int) -> Gather:
    """One step: own shard to all."""
    return [[(a, b, whole(a)) for a in range(members) for b in range(members) if a != b]]


def direct_schedule(collective: Collective, topology: Topology) -> MessageSchedule:
    """One step; two for all-reduce."""
    members = int(topology.members)
    if collective == "barrier":
        pairs = [(a, b) for a in range(members) for b in range(members) if a != b]
        heard = tuple(Message(source=a, destination=b, chunks=(0,), reduce=True) for a, b in pairs)
        return whole_schedule(collective, members, [heard])
    if collective != "all-to-all":
        return gather_schedule(collective, gather_direct(members), range(members))
    step = tuple(
        Message(source=s, destination=d, chunks=(s * members + d,))
        for s in range(members)
        for d in range(members)
        if s != d
    )
    return blocks_schedule(members, [step])


def pairwise_schedule(collective: Collective, topology: Topology) -> MessageSchedule:
    """Step j: rank r to r + j."""
    del collective
    members = int(topology.members)
    steps = [
        tuple(
            Message(
                source=s, destination=(s + j) % members, chunks=(s * members + (s + j) % members,)
            )
            for s in range(members)
        )
        for j in range(1, members)
    ]
    return blocks_schedule(members, steps)


ALGORITHMS = (
    Algorithm(
        "direct", (*GATHERS, "all-to-all", "barrier"), ("spread",), direct_cost, direct_schedule
    ),
    Algorithm("pairwise", ("all-to-all",), ("permutation",), pairwise_cost, pairwise_schedule),
)
