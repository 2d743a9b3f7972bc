"""Chiplets of a package or dies of a wafer: a mesh of two axes over short wires."""

from foretell.network.topologies.grid import Grid
from foretell.network.topologies.mesh import from_tier as mesh_from_tier
from foretell.specs._base import Num
from foretell.specs.system import Tier

NAMES = ("package", "wafer", "chiplet-mesh")


def from_tier(tier: Tier, members: Num) -> Grid:
    """The mesh of the tier's shape; dies of one package do not wrap around."""
    return mesh_from_tier(tier, members)
