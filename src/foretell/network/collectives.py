"""Seconds of a collective over tiers: rings that run through all members at once.

V is the full buffer (gathered, or before reduction) and g the members; a ring moves (g-1)/g V past each
of them. On a tier with n of its units inside the next, and m members below it, m rings run side by side,
each over its own link, so the tier needs (g-1)/g V / (m x bandwidth); the slowest tier sets the pace, and
every hop costs its tier's latency. All-reduce is a reduce-scatter and an all-gather: twice the bytes,
and the latency of a tree up and down where that is less.
This is the published form (arXiv 2410.00273) with its all-reduce factor on every tier; part 2 of the
product replaces it by topologies and measured sizes behind the same functions.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foretell.specs._base import Num
from foretell.specs.system import Network, Tier

Kind = Literal["all-reduce", "all-gather", "reduce-scatter"]
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Groups placed on a network, ready to be asked for the time of any message."""

    s_per_byte: Array
    """Seconds per byte of the full buffer, once around the ring."""
    latency_s: Array
    """Seconds of latency, once around the ring."""
    tree_latency_s: Array
    """Seconds of latency, once up (or down) a tree of trees."""


def place(counts: Array, network: Network) -> Group:
    """Groups whose members stand as `counts` (tiers, groups) says."""
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
    return Group(s_per_byte=s_per_byte, latency_s=latency_s, tree_latency_s=tree_latency_s)


def link_speed(tier: Tier, count: Array) -> Array:
    """Bytes per second that one member sends into a tier of which `count` take part.

    Where every pair has a link of its own, a few members have only the links among them.
    """
    nominal = tier.bandwidth_bytes_per_s * tier.efficiency * tier.taper
    if tier.topology == "fully-connected":
        others = np.maximum(np.asarray(tier.size, float) - 1.0, 1.0)
        return np.asarray(nominal * np.clip((count - 1.0) / others, 1.0 / others, 1.0))
    return np.asarray(nominal)


def collective_s(kind: Kind, size_bytes: Num, group: Group) -> Array:
    """Seconds of one collective; a group of one, or nothing to send, is free."""
    sent = np.asarray(size_bytes) > 0
    if kind == "all-reduce":
        latency_s = 2.0 * np.minimum(group.latency_s, group.tree_latency_s)
        return np.asarray(sent * (2.0 * group.s_per_byte * size_bytes + latency_s))
    return np.asarray(sent * (group.s_per_byte * size_bytes + group.latency_s))


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
