"""Groups on every topology, made of so many members, for the checks of topologies and algorithms."""

from collections.abc import Callable

from foretell.network.topologies import Topology, of_tier
from foretell.network.topologies.base import LineAxis
from foretell.network.topologies.dragonfly import Groups
from foretell.network.topologies.fat_tree import FatTree
from foretell.network.topologies.fully_connected import FullyConnected
from foretell.network.topologies.grid import Grid
from foretell.network.topologies.hybrid_cube_mesh import HybridCubeMesh
from foretell.network.topologies.switch import Switch
from foretell.specs._base import Num, with_fields
from foretell.specs.system import Tier

ALPHA = 3e-6
RATE = 10e9


def grid(*extents: float, wraps: str | bool = False, full: bool = False) -> Grid:
    """A grid; `wraps` says for all axes, or axis by axis as in "yn", whether they close."""
    said = [wraps] * len(extents) if isinstance(wraps, bool) else [c == "y" for c in wraps]
    lines = [
        LineAxis(extent=float(d), s_per_byte=1.0 / RATE, latency_s=ALPHA, wrap=w, full=full)
        for d, w in zip(extents, said, strict=True)
    ]
    return Grid(lines=tuple(lines))


def switch(members: Num) -> Switch:
    return Switch(
        members=members, bandwidth_bytes_per_s=RATE, latency_s=ALPHA, in_network_reduction=True
    )


def fully_connected(members: Num) -> FullyConnected:
    return FullyConnected(members=members, link_bytes_per_s=RATE, latency_s=ALPHA)


def fat_tree(members: Num, leaf: float = 4.0, taper: float = 0.5) -> FatTree:
    return FatTree(
        members=members,
        leaf_members=leaf,
        bandwidth_bytes_per_s=RATE,
        latency_s=ALPHA,
        spine_latency_s=1e-6,
        taper=taper,
    )


def dragonfly_groups(members: Num, groups: float = 8.0) -> Groups:
    return Groups(
        members=members, groups=groups, bandwidth_bytes_per_s=RATE, taper=0.6, latency_s=ALPHA
    )


def hybrid_cube_mesh(members: Num) -> HybridCubeMesh:
    return HybridCubeMesh(members=members, link_bytes_per_s=RATE, latency_s=ALPHA)


def tier(topology: str, size: float, **fields: object) -> Tier:
    return Tier(
        name="pod",
        size=size,
        bandwidth_bytes_per_s=RATE,
        latency_s=ALPHA,
        topology=topology,
        **fields,  # type: ignore[arg-type]
    )


def in_tier(topology: str, size: float, **fields: object) -> Callable[[Num], Topology]:
    """Groups of so many members of a tier."""
    return lambda members: of_tier(tier(topology, size, **fields), members)


SMALL: dict[str, Topology] = {
    **{f"switch {n}": switch(float(n)) for n in (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)},
    **{f"fully connected {n}": fully_connected(float(n)) for n in (1, 2, 3, 4, 5, 6, 7, 8, 9)},
    **{f"ring {n}": grid(n, wraps=True) for n in (2, 3, 4, 5, 8, 9)},
    **{f"line {n}": grid(n) for n in (1, 2, 3, 4, 5, 8, 9)},
    "torus 4x4": grid(4, 4, wraps=True),
    "torus 2x8": grid(2, 8, wraps=True),
    "torus 3x3": grid(3, 3, wraps=True),
    "torus 3x4": grid(3, 4, wraps=True),
    "torus 2x2x4": grid(2, 2, 4, wraps=True),
    "torus 3x3x3": grid(3, 3, 3, wraps=True),
    "cylinder 4x3": grid(4, 3, wraps="yn"),
    "cylinder 3x5": grid(3, 5, wraps="yn"),
    "mesh 4x4": grid(4, 4),
    "mesh 2x3": grid(2, 3),
    "mesh 3x3": grid(3, 3),
    "mesh 2x1x3": grid(2, 1, 3),
    "hypercube 4": grid(2, 2, 2, 2),
    "hyperx 4x4": grid(4, 4, full=True),
    "hyperx 3x4": grid(3, 4, full=True),
    "hyperx 2x2x3": grid(2, 2, 3, full=True),
    **{
        f"fat tree {m}x{leaves}, taper {t}": fat_tree(float(m * leaves), float(m), t)
        for m, leaves in ((1, 4), (4, 4), (4, 2), (4, 1), (2, 3))
        for t in (1.0, 0.25)
    },
    "fat tree, half a leaf": fat_tree(4.0, 8.0, 0.5),
    "fat tree, the last leaf half full": fat_tree(6.0, 4.0, 0.25),
    "fat tree of threes": fat_tree(6.0, 3.0, 0.25),
    "fat tree of threes, one over": fat_tree(7.0, 3.0, 0.25),
    "fat tree that adds up": with_fields(fat_tree(8.0, 4.0, 0.25), in_network_reduction=True),
    **{f"{n} of 8 groups": dragonfly_groups(float(n)) for n in (2, 4, 5, 8)},
    **{f"hybrid cube mesh {n}": hybrid_cube_mesh(float(n)) for n in (1, 2, 4, 8)},
}
"""Groups of at most some thirty members."""
LARGE: dict[str, Topology] = {
    "switch 64": switch(64.0),
    "fully connected 13": fully_connected(13.0),
    "ring 64": grid(64, wraps=True),
    "torus 4x4x4": grid(4, 4, 4, wraps=True),
    "torus 8x8": grid(8, 8, wraps=True),
    "mesh 8x8": grid(8, 8),
    "hypercube 6": grid(2, 2, 2, 2, 2, 2),
    "hyperx 4x4x4": grid(4, 4, 4, full=True),
    "fat tree 8x8": fat_tree(64.0, 8.0, 0.5),
}
"""Groups up to 64 members."""
