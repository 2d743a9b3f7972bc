"""Seconds of a collective in the batch path: as the system's library runs it, or as plain rings.

Where the library of a system's links is known (network/library.py), its candidates and fitted coefficients
give the time. Elsewhere (TPUs, chips of one's own) rings run through all members at once: V is the full
buffer and g the members; a ring moves (g-1)/g V past each of them. On a tier with m members below it, m rings
run side by side, each over its own link, so the tier needs (g-1)/g V / (m x bandwidth); the slowest tier sets
the pace, and every hop costs its tier's latency. All-reduce is a reduce-scatter and an all-gather: twice the
bytes, and the latency of a tree up and down where that is less (arXiv 2410.00273, with its all-reduce factor
on every tier).

Sizes are (groups,) or (groups, further axes).
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from foretell.network.library import prepare, seconds
from foretell.network.library_catalog import library_for
from foretell.network.library_curves import direct_share
from foretell.network.library_records import Kind, Library, Prepared
from foretell.specs._base import Num
from foretell.specs.system import Network, System, Tier

Array = NDArray[np.float64]

KINDS: tuple[Kind, ...] = ("all-reduce", "all-gather", "reduce-scatter")
"""What training asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """Groups placed on a network as rings, ready to be asked for the time of any message."""

    s_per_byte: Array
    """Seconds per byte of the full buffer, once around the ring."""
    latency_s: Array
    """Seconds of latency, once around the ring."""
    tree_latency_s: Array
    """Seconds of latency, once up (or down) a tree of trees."""


Group = Ring | Prepared
"""Groups placed on a network, ready to be asked."""


def place(counts: Array, system: System, kinds: tuple[Kind, ...] = KINDS) -> Group:
    """Groups whose members stand as `counts` (tiers, groups) says, for the kinds that will be asked for."""
    library = library_for(system)
    if library is None:
        return ring(counts, system.network)
    if counts.shape[1] == 1:
        return _placed(library, system.network, tuple(counts[:, 0].tolist()), kinds)
    return prepare(library, system.network, counts, kinds)


@lru_cache(maxsize=4096)
def _placed(
    library: Library, network: Network, counts: tuple[float, ...], kinds: tuple[Kind, ...]
) -> Prepared:
    """One group: the same few placements recur from estimate to estimate."""
    return prepare(library, network, np.array(counts)[:, None], kinds)


def ring(counts: Array, network: Network) -> Ring:
    """The same as plain rings at the tiers' stated efficiency."""
    members = np.prod(counts, axis=0)
    share = (members - 1.0) / members
    below = np.ones_like(members)
    s_per_byte = np.zeros_like(members)
    latency_s = np.zeros_like(members)
    tree_latency_s = np.zeros_like(members)
    left = members
    for tier, count in zip(network.tiers, counts, strict=True):
        speed = link_speed(tier, count) * below
        s_per_byte = np.maximum(s_per_byte, (count > 1.0) * share / speed)
        # Of the ring's hops, those between members that first meet on this tier.
        after = left / count
        latency_s = latency_s + (left - after) * tier.latency_s
        tree_latency_s = tree_latency_s + np.log2(count) * tier.latency_s
        left, below = after, below * count
    return Ring(s_per_byte=s_per_byte, latency_s=latency_s, tree_latency_s=tree_latency_s)


def link_speed(tier: Tier, count: Array) -> Array:
    """Bytes per second that one member sends into a tier of which `count` take part.

    Where every pair has a link of its own, a few members have only the links among them.
    """
    nominal = tier.bandwidth_bytes_per_s * tier.efficiency * tier.taper
    return np.asarray(nominal * direct_share(tier, count))


def collective_s(kind: Kind, size_bytes: Num, group: Group) -> Array:
    """Seconds of one collective; a group of one, or nothing to send, is free."""
    size = np.asarray(size_bytes, float)
    if isinstance(group, Prepared):
        return seconds(kind, size.T, group).T
    # Groups stand on the first axis; the curves of the rings are stretched over the others.
    axes = (slice(None), *(None,) * max(size.ndim - 1, 0))
    s_per_byte, latency_s = group.s_per_byte[axes], group.latency_s[axes]
    if kind == "all-reduce":
        latency_s = 2.0 * np.minimum(latency_s, group.tree_latency_s[axes])
        return np.asarray((size > 0) * (2.0 * s_per_byte * size + latency_s))
    return np.asarray((size > 0) * (s_per_byte * size + latency_s))


def send_s(size_bytes: Num, counts: Array, network: Network) -> Array:
    """Seconds of one message between neighbours of a chain, averaged over the chain's hops."""
    members = np.prod(counts, axis=0)
    total = np.zeros_like(members)
    units = members.copy()
    for tier, count in zip(network.tiers, counts, strict=True):
        next_units = units / count
        hop = tier.latency_s + size_bytes / link_speed(tier, np.asarray(2.0))
        total = total + (units - next_units) * hop
        units = next_units
    return np.where(members > 1.0, total / np.maximum(members - 1.0, 1.0), 0.0)
