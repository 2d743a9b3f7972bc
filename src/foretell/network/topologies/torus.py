"""Torus of any number of axes (TPU pods, Trainium)."""

import re

from foretell.network.topologies.base import LineAxis
from foretell.network.topologies.grid import Grid, group_extents, near_cube
from foretell.specs._base import Num
from foretell.specs.system import Tier

NAMES = ("torus",)


def from_tier(tier: Tier, members: Num) -> Grid:
    """A chip's rate over two links an axis; an axis that is filled wraps around, one of two is a line."""
    shape = tier_shape(tier)
    link_s_per_byte = 2.0 * len(shape) / (tier.bandwidth_bytes_per_s * tier.taper)
    return grid(shape, members, link_s_per_byte, tier.latency_s, wraps=True)


def grid(
    shape: tuple[int, ...], members: Num, link_s_per_byte: Num, latency_s: Num, *, wraps: bool
) -> Grid:
    """A group laid along the axes of a grid with equal links."""
    extents, fills = group_extents(shape, members)
    return Grid(
        lines=tuple(
            LineAxis(extent=d, s_per_byte=link_s_per_byte, latency_s=latency_s, wrap=full & wraps)
            for d, full in zip(extents, fills, strict=True)
        )
    )


def tier_shape(tier: Tier, axes: int = 2) -> tuple[int, ...]:
    """The tier's shape, or as near a cube of its size as divisors allow, of the axes its name says."""
    if tier.shape:
        return tuple(int(d) for d in tier.shape)
    said = re.search(r"-(\d+)d$", tier.topology)
    return near_cube(int(tier.size), int(said[1]) if said else axes)
