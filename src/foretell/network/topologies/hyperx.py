"""HyperX, or flattened butterfly: every line of a grid is fully joined (Ahn et al., SC 2009)."""

from foretell.network.topologies.base import LineAxis
from foretell.network.topologies.grid import Grid, group_extents
from foretell.network.topologies.torus import tier_shape
from foretell.specs._base import Num
from foretell.specs.system import Tier

NAMES = ("hyperx", "flattened-butterfly")


def from_tier(tier: Tier, members: Num) -> Grid:
    """A chip's rate divided over its d - 1 links along each axis; one member a router."""
    shape = tier_shape(tier)
    links = max(sum(d - 1 for d in shape), 1)
    link_s_per_byte = links / (tier.bandwidth_bytes_per_s * tier.taper)
    extents, _ = group_extents(shape, members)
    return Grid(
        lines=tuple(
            LineAxis(extent=d, s_per_byte=link_s_per_byte, latency_s=tier.latency_s, full=True)
            for d in extents
        )
    )
