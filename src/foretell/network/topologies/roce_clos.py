"""Clos of Ethernet switches: a fat tree whose flows are hashed onto the up links unless told otherwise.

Hashing few large flows fills some links twice and others not at all (`routing = "static"`); adaptive
routing, packet spraying or many queue pairs a flow bring the share back towards one (`"adaptive"`).
"""

from foretell.network.topologies.fat_tree import from_tier

__all__ = ["NAMES", "from_tier"]
NAMES = ("roce-clos",)
