"""Rail-optimised Clos: chips of the same index in every node share a switch, their rail.

Between chips of different index the way is over the node's own switch to the chip on the right rail,
and from there over one rail switch; so no taper counts under one leaf, but the inner links carry
forwarded bytes.
"""

from dataclasses import replace

import numpy as np

from foretell.network.topologies.fat_tree import FatTree
from foretell.network.topologies.fat_tree import from_tier as fat_tree_from_tier
from foretell.specs._base import Num
from foretell.specs.system import Tier

NAMES = ("rail-clos",)
RAIL_NODES = 32
"""Nodes under one leaf of a rail: half the ports of a switch of 64."""


def from_tier(tier: Tier, members: Num) -> FatTree:
    """The rail of one chip index: leaves of nodes, each chip with the tier's rate.

    Up to a leaf of nodes (`shape`, else 32: half the ports of a switch of 64) nothing crosses the spines, so
    neither taper nor static routes count; a plain fat tree has the chips of four nodes under a leaf.
    """
    leaves = tier if tier.shape else replace(tier, shape=(RAIL_NODES, 1))
    return fat_tree_from_tier(leaves, members)


def forwards(tier: Tier) -> bool:
    """Whether messages to other rails go over the links below this tier first."""
    return tier.pxn and tier.topology in NAMES


def off_rail(tier: Tier, nodes: Num, rails: Num) -> Num:
    """An all-to-all's time per byte over that with all messages on their rails; 1 with PXN.

    `rails` members of the group are in each of its `nodes`. Without PXN all but one in `rails` of what a
    chip sends to other nodes is for chips of another index, and crosses the spines from leaf to leaf even
    where both nodes are near.
    """
    if tier.pxn or tier.topology not in NAMES:
        return 1.0
    aligned = from_tier(tier, nodes)
    away = np.maximum(np.asarray(rails, float) - 1.0, 0.0) / np.maximum(rails, 1.0)
    beyond = np.asarray(nodes, float) - aligned.inside()
    crossing = away * (np.asarray(nodes) - 1.0) + (1.0 - away) * beyond
    port = (np.asarray(nodes) - 1.0) / np.asarray(tier.bandwidth_bytes_per_s)
    load = np.maximum(port, crossing / aligned.up_bytes_per_s())
    return np.where(
        np.asarray(nodes) > 1, load / np.maximum(aligned.spread().s_per_byte, 1e-300), 1.0
    )
