"""Tiers in a hierarchy: the group inside each unit first, then units with what is left, and back.

With n_i members on tier i (innermost first) and S_i = S / (n_1 ... n_(i-1)), an all-gather of S runs over the
outermost tier first, on S_k, and comes inward; a reduce-scatter the other way; an all-reduce scatters inward
out, reduces on the outermost tier and gathers back. The schemes per tier are any of the algorithms. In many
chunks, turned over the tiers or simply following each other, all tiers work at once: the slowest sets the
pace and latencies still add up.
"""

from collections.abc import Sequence

import numpy as np

from foretell.network.algorithms.base import Collective
from foretell.network.topologies.base import Cost
from foretell.specs._base import Num


def hierarchical_cost(
    collective: Collective,
    members: Sequence[Num],
    gathers: Sequence[Cost],
    top_all_reduce: Cost | None = None,
    *,
    overlapped: bool = False,
) -> Cost:
    """The whole from the tiers' all-gathers (a reduce-scatter costs the same).

    `top_all_reduce` replaces the two passes over the outermost tier by an algorithm of its own (a
    tree, or reduction in the network). `overlapped` is the limit of many chunks that pipeline.
    """
    both = collective == "all-reduce"
    below: Num = 1.0
    costs: list[Cost] = []
    for i, (count, gather) in enumerate(zip(members, gathers, strict=True)):
        tier = gather.times(2.0) if both else gather
        if both and top_all_reduce is not None and i == len(gathers) - 1:
            tier = top_all_reduce
        costs.append(tier.times(1.0, 1.0 / below))
        below = below * count
    latency = np.sum(np.broadcast_arrays(*(c.latency_s for c in costs)), 0)
    loads = np.broadcast_arrays(*(c.s_per_byte for c in costs))
    return Cost(
        latency_s=latency,
        s_per_byte=np.asarray(np.max(loads, 0) if overlapped else np.sum(loads, 0)),
    )
