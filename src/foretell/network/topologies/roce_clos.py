"""Clos of Ethernet switches: a fat tree whose flows are hashed onto the up links.

Hashing few large flows fills some links twice and others not at all; adaptive routing, packet spraying
or many queue pairs a flow bring the share back towards one. The share used is a parameter: no number
of general use is published.
"""

from foretell.network.topologies.fat_tree import FatTree
from foretell.network.topologies.fat_tree import from_tier as fat_tree_from_tier
from foretell.specs._base import Num, with_fields
from foretell.specs.system import Tier

NAMES = ("roce-clos",)


def from_tier(tier: Tier, members: Num, spread_efficiency: Num = 1.0) -> FatTree:
    """The fat tree of the tier, its up links used to `spread_efficiency`."""
    return with_fields(fat_tree_from_tier(tier, members), spread_efficiency=spread_efficiency)
