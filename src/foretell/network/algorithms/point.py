"""One message from a member to the next: pipeline stages, and a ring of context parallelism."""

from foretell.network.algorithms.base import (
    Algorithm,
    Collective,
    Message,
    MessageSchedule,
    whole_schedule,
)
from foretell.network.topologies.base import Cost, Topology


def cost(collective: Collective, topology: Topology) -> Cost:
    """All members send S to the next at once: α + S/b."""
    del collective
    return topology.ring()


def schedule(collective: Collective, topology: Topology) -> MessageSchedule:
    """One step; every rank's chunk goes to the next on the ring."""
    nodes = topology.ring_orders()[0][1]
    count = len(nodes)
    head = whole_schedule(collective, count, ())
    return MessageSchedule(
        collective=collective,
        members=count,
        weights=head.weights * count,
        owners=tuple(nodes[(nodes.index(r) + 1) % count] for r in range(count)),
        sources=tuple(range(count)),
        steps=(
            tuple(
                Message(source=nodes[i], destination=nodes[(i + 1) % count], chunks=(nodes[i],))
                for i in range(count)
            ),
        ),
    )


ALGORITHMS = (Algorithm("neighbour", ("send",), ("ring",), cost, schedule),)
