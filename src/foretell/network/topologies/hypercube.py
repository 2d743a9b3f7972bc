"""Hypercube: 2^k members, joined where their numbers differ in one bit."""

import numpy as np

from foretell.errors import bad_input
from foretell.network.topologies.base import power_of_two
from foretell.network.topologies.grid import Grid
from foretell.network.topologies.torus import grid
from foretell.specs._base import Num
from foretell.specs.system import Tier

NAMES = ("hypercube",)


def from_tier(tier: Tier, members: Num) -> Grid:
    """A mesh of k axes of two with k links a chip; groups that are no power of two wind along the last."""
    if not power_of_two(tier.size).all():
        raise bad_input(
            f"network.{tier.name}.size",
            tier.size,
            "a hypercube has a power of two of members",
            "2, 4, 8, ...",
        )
    axes = max(round(float(np.log2(tier.size))), 1)
    link_s_per_byte = axes / (tier.bandwidth_bytes_per_s * tier.taper)
    return grid((2,) * axes, members, link_s_per_byte, tier.latency_s, wraps=False)
