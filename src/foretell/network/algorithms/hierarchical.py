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
from foretell.network.topologies.base import Array, Cost
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


def all_to_all_cost(
    members: Sequence[Num],
    bandwidths_bytes_per_s: Sequence[Num],
    latencies_s: Sequence[Num],
    *,
    forwarded: bool = False,
) -> Cost:
    """Each tier carries the blocks of pairs that first meet on it, all tiers at once.

    Of the n blocks of S/n a member sends, C_i - C_(i-1) stay on tier i, C_i the members inside one
    unit of it; the slowest tier sets the pace. With `forwarded` (rails) bytes for other units pass the
    inner tiers too, to the member with the right port: S (n_1 - 1)/n_1 on the innermost.
    """
    total = np.prod(np.broadcast_arrays(*(np.asarray(m, float) for m in members)), 0)
    inside: Num = 1.0
    loads: list[Array] = []
    for count, rate in zip(members, bandwidths_bytes_per_s, strict=True):
        met = inside * (count - 1.0) / total
        share = (count - 1.0) / np.asarray(count, float) if forwarded and not loads else met
        loads.append(np.asarray(share / rate))
        inside = inside * count
    crossed = [
        np.where(np.asarray(m) > 1, latency, 0.0)
        for m, latency in zip(members, latencies_s, strict=True)
    ]
    latencies = np.broadcast_arrays(*crossed)
    together = np.sum(latencies, 0) if forwarded else np.max(latencies, 0)
    return Cost(
        latency_s=np.asarray(together),
        s_per_byte=np.asarray(np.max(np.broadcast_arrays(*loads), 0)),
    )


def pipelined_s(hop: Cost, hops: Num, size_bytes: Num, pieces: Num) -> Array:
    """A message in equal pieces down a chain of hops: (hops + pieces - 1) steps of S/pieces."""
    each = np.asarray(size_bytes) / pieces
    return np.asarray((hops + pieces - 1.0) * hop.seconds(each))


def best_pieces(hop: Cost, hops: Num, size_bytes: Num) -> Array:
    """Pieces that make the chain fastest: sqrt((hops - 1) S β / α), at least one."""
    work = np.maximum(hops - 1.0, 0.0) * np.asarray(size_bytes) * hop.s_per_byte
    return np.asarray(np.maximum(np.sqrt(work / np.maximum(hop.latency_s, 1e-300)), 1.0))
