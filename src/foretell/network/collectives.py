"""Seconds of a collective over tiers: rings that run through all members at once.

V is the full buffer (gathered, or before reduction) and g the members; a ring moves (g-1)/g V past each
of them. On a tier with n of its units inside the next, and m members below it, m rings run side by side,
each over its own link, so the tier needs (g-1)/g V / (m x bandwidth); the slowest tier sets the pace, and
every hop costs its tier's latency. All-reduce is a reduce-scatter and an all-gather: twice that.
This is the published form (arXiv 2410.00273) with its all-reduce factor on every tier; part 2 of the
product replaces it by topologies and measured sizes behind the same functions.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foretell.specs._base import Num
from foretell.specs.system import Network

Kind = Literal["all-reduce", "all-gather", "reduce-scatter"]
Array = NDArray[np.float64]


def ring_pace(counts: Array, network: Network) -> tuple[Array, Array]:
    """Seconds per byte of the full buffer, and seconds of latency, of one pass around the ring."""
    members = np.prod(counts, axis=0)
    share = (members - 1.0) / members
    below = np.ones_like(members)
    per_byte = np.zeros_like(members)
    latency = np.zeros_like(members)
    units = members.copy()
    for tier, count in zip(network.tiers, counts, strict=True):
        used = count > 1.0
        speed = tier.bandwidth_bytes_per_s * tier.efficiency * tier.taper * below
        per_byte = np.maximum(per_byte, np.where(used, share / speed, 0.0))
        # Of the ring's hops, those between members that first meet on this tier.
        next_units = units / count
        latency = latency + (units - next_units) * tier.latency_s
        units = next_units
        below = below * count
    return per_byte, latency


def collective_s(kind: Kind, size_bytes: Num, counts: Array, network: Network) -> Array:
    """Seconds of one collective; a group of one, or nothing to send, is free."""
    per_byte, latency = ring_pace(counts, network)
    passes = 2.0 if kind == "all-reduce" else 1.0
    empty = np.asarray(size_bytes) <= 0
    return np.where(empty, 0.0, passes * (per_byte * size_bytes + latency))


def send_s(size_bytes: Num, counts: Array, network: Network) -> Array:
    """Seconds of one message between neighbours of a chain, averaged over the chain's hops."""
    members = np.prod(counts, axis=0)
    total = np.zeros_like(members)
    units = members.copy()
    for tier, count in zip(network.tiers, counts, strict=True):
        next_units = units / count
        hop = tier.latency_s + size_bytes / (tier.bandwidth_bytes_per_s * tier.efficiency)
        total = total + (units - next_units) * hop
        units = next_units
    return np.where(members > 1.0, total / np.maximum(members - 1.0, 1.0), 0.0)
