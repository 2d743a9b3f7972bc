"""Members in one ring, a cable to each neighbour."""

import numpy as np

from foretell.network.topologies.base import LineAxis
from foretell.network.topologies.grid import Grid, group_extents
from foretell.specs._base import Num
from foretell.specs.system import Tier

NAMES = ("ring",)


def from_tier(tier: Tier, members: Num) -> Grid:
    """Half of a chip's rate to each side; fewer members than the ring has are on a line of it."""
    (extent,), (fills,) = group_extents((int(tier.size),), members)
    axis = LineAxis(
        extent=extent,
        s_per_byte=np.asarray(2.0 / (tier.bandwidth_bytes_per_s * tier.taper)),
        latency_s=tier.latency_s,
        wrap=fills,
    )
    return Grid(lines=(axis,))
