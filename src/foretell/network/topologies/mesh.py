"""Mesh of any number of axes, a torus whose lines do not close; chiplets of a package and dies of a wafer."""

from foretell.network.topologies.grid import Grid
from foretell.network.topologies.torus import grid, tier_shape
from foretell.specs._base import Num
from foretell.specs.system import Tier

NAMES = ("mesh", "package", "wafer", "chiplet-mesh")


def from_tier(tier: Tier, members: Num) -> Grid:
    """A chip's rate divided over the two links an axis that a member of the middle has."""
    shape = tier_shape(tier)
    link_s_per_byte = 2.0 * len(shape) / (tier.bandwidth_bytes_per_s * tier.taper)
    return grid(shape, members, link_s_per_byte, tier.latency_s, wraps=False)
