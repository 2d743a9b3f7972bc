"""Placement of a group's members: how many of them share each tier, and what each gets of shared links.

A job fills units of a tier (nodes, racks) one after the other, with equally many chips in each: the
largest divisor of its chips that a unit holds, or the whole unit where the chips do not divide well.
Ranks are numbered along an order of the groups, innermost first. Inside a unit of u chips there are, of a
group whose inner neighbours take `stride` ranks, gcd(size, u / stride) members: what every group has at
least, so that the slowest is the one described. A tier's count is how many units of the level below the
group touches inside one unit of it.

A tapered tier gives each of its units an up link of `size x bandwidth x taper`: taper does not hurt one
group alone, and does hurt many side by side.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from math import isqrt

import numpy as np

from foretell.network.topologies.dragonfly import NAMES as DRAGONFLIES
from foretell.network.topologies.dragonfly import size_groups
from foretell.network.topologies.fully_connected import NAMES as FULLY_CONNECTED
from foretell.network.topologies.grid import near_cube
from foretell.network.topologies.hypercube import NAMES as HYPERCUBE
from foretell.network.topologies.hyperx import NAMES as HYPERX
from foretell.network.topologies.ring import NAMES as RING
from foretell.network.topologies.torus import tier_shape
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.plan import Plans
from foretell.specs.system import Network, Tier

SIZED = (
    *DRAGONFLIES,
    *FULLY_CONNECTED,
    *HYPERCUBE,
    *HYPERX,
    *RING,
    *("torus", "mesh"),
)
"""Topologies whose links or ways go by how many members they join."""
FOLDED = ("etp", "ep", "edp")
"""Groups of the experts, innermost first."""
INNER_TIERS = ("package", "pair", "socket", "node", "rack")
"""Names of tiers inside a node: reached without the fabric's ports."""
CUBE = 64
"""Chips of one 4 x 4 x 4 cube, what pods of three axes are put together from."""


def units(network: Network, gpus: int) -> tuple[float, ...]:
    """Chips that the job has in one unit of each tier, innermost first."""
    return _units(tuple(float(tier.size) for tier in network.tiers), gpus)


@lru_cache(maxsize=256)
def _units(sizes: tuple[float, ...], gpus: int) -> tuple[float, ...]:
    filled: list[float] = []
    below = 1.0
    for size in sizes:
        room = below * size
        if gpus <= room:
            below = float(gpus)
        else:
            even = below * largest_divisor(gpus / below, size)
            # A prime number of chips fills whole units, and its last one partly.
            below = even if 2.0 * even >= room else room
        filled.append(below)
    return tuple(filled)


def built_for(network: Network, members: Sequence[float]) -> Network:
    """The network with its fabrics between nodes built for so many members of each tier.

    Rates of links without switches and lengths of ways go by the members that a fabric joins. Where no
    machine states how its members are laid out (extents, groups, tiers of groups), it is built for the job.
    The innermost tier is the chips' own links, bought as it is.
    """
    below, tiers = "node", [*network.tiers[:1]]
    for tier, count in zip(network.tiers[1:], members[1:], strict=True):
        name = re.sub(r"-\d+d$", "", tier.topology)
        groups = tier.topology in DRAGONFLIES and below not in INNER_TIERS
        below = tier.name
        fixed = below in INNER_TIERS or tier.shape or tier.groups or groups
        if name in SIZED and not fixed and 1.0 < count < tier.size:
            size = 2.0 ** np.ceil(np.log2(count)) if name in HYPERCUBE else np.ceil(count)
            tier = replace(tier, size=float(size))
        tiers.append(tier)
    return network if tuple(tiers) == network.tiers else Network(tiers=tuple(tiers))


def members_of(network: Network, gpus: int) -> tuple[float, ...]:
    """Members of each tier's units that a job has, innermost first; a unit filled in part counts whole."""
    filled = (1.0, *units(network, gpus))
    return tuple(float(np.ceil(b / a)) for a, b in pairwise(filled))


def with_groups(network: Network) -> Network:
    """The network with the groups of its dragonflies: above nodes 512 chips, unless the tier says."""
    if not any(tier.topology in DRAGONFLIES for tier in network.tiers):
        return network
    chips, below, tiers = 1.0, "node", []
    for tier in network.tiers:
        joined = tier.topology in DRAGONFLIES
        tiers.append(size_groups(tier, chips, below not in INNER_TIERS) if joined else tier)
        chips, below = chips * float(tier.size), tier.name
    return Network(tiers=tuple(tiers))


def as_filled(network: Network, gpus: int) -> Network:
    """The network as a job of so many chips finds it: its links are shared by those of a unit that send."""
    if not any(over_systems(tier) for tier in network.tiers):
        return _as_filled(network, gpus)
    # What a job fills does not depend on rates, which are arrays here.
    plain = [replace(t, bandwidth_bytes_per_s=1.0, latency_s=0.0) for t in network.tiers]
    filled = _as_filled(Network(tiers=tuple(plain)), gpus).tiers
    pairs = zip(filled, network.tiers, strict=True)
    rates = ("bandwidth_bytes_per_s", "latency_s")
    return Network(tiers=tuple(replace(f, **{n: getattr(t, n) for n in rates}) for f, t in pairs))


def over_systems(tier: Tier) -> bool:
    """Whether a tier's rates are arrays: a batch of systems, one for each plan of a batch."""
    return bool(np.ndim(tier.bandwidth_bytes_per_s) or np.ndim(tier.latency_s))


@lru_cache(maxsize=256)
def _as_filled(network: Network, gpus: int) -> Network:
    filled = (1.0, *units(network, gpus))
    built = with_groups(built_for(network, members_of(network, gpus)))
    whole, tiers = 1.0, []
    for i, tier in enumerate(built.tiers):
        share = float(shared_taper(tier.taper, whole, filled[i]))
        tier = tier if share == tier.taper else replace(tier, taper=share)
        tiers.append(slice_torus(tier, filled[i + 1] / filled[i]))
        whole *= float(network.tiers[i].size)
    return network if tuple(tiers) == network.tiers else Network(tiers=tuple(tiers))


def slice_torus(tier: Tier, members: float) -> Tier:
    """A torus as a job has it: a slice as near to a cube as its chips allow.

    Pods of three axes are wired through optical switches that close any slice of whole 4 x 4 x 4 cubes
    into a torus (Jouppi et al., ISCA 2023); other slices are grids with open ends.
    """
    if not tier.topology.startswith("torus") or members >= tier.size or members != int(members):
        return tier
    axes = len(tier_shape(tier))
    cubes = int(members) / CUBE
    if axes == 3 and cubes == int(cubes):
        shape = tuple(4 * d for d in near_cube(int(cubes), 3))
        return replace(tier, size=members, shape=shape)
    shape = near_cube(int(members), axes)
    return replace(tier, size=members, shape=shape, topology=f"mesh-{axes}d")


def largest_divisor(number: float, limit: float) -> int:
    """The largest divisor not above the limit; 1 where the number is not whole."""
    if number != int(number):
        return 1
    whole = int(number)
    small = [d for d in range(1, isqrt(whole) + 1) if whole % d == 0]
    return max(d for s in small for d in (s, whole // s) if d <= max(limit, 1.0))


def members_inside(size: Array, stride: Array, unit: float, gpus: int) -> Array:
    """Members of a group inside one unit, at least one."""
    room = unit / stride
    whole = np.floor(room + 1e-9)
    aligned = np.abs(room - whole) < 1e-9
    shared = np.gcd(size.astype(np.int64), np.maximum(whole, 1.0).astype(np.int64))
    inside = np.where(aligned, shared, 1).astype(float)
    # The outermost group runs through all ranks: its members fill every unit.
    return np.where(size * stride >= gpus, np.clip(room, 1.0, size), inside)


def group_counts(plans: Plans, network: Network, gpus: int) -> Mapping[str, Array]:
    """For each group, (tiers, plans): members of the level below per unit of each tier."""
    sizes = {"tp": plans.tp, "dp": plans.dp, "pp": plans.pp, "cp": plans.cp}
    spread = bool((plans.ep > 1).any())
    names = (*sizes, *FOLDED) if spread else (*sizes,)
    result = {name: np.ones((len(network.tiers), len(plans))) for name in names}
    filled = units(network, gpus)
    for code, order in enumerate(plans.orders):
        rows = np.flatnonzero(plans.order == code)
        if not len(rows):
            continue
        size = np.stack([sizes[name][rows] for name in order])
        inner = np.cumprod(np.concatenate([np.ones((1, len(rows))), size[:-1]]), axis=0)
        for name, counts in zip(
            order, tier_counts(size, inner, filled, gpus).swapaxes(0, 1), strict=True
        ):
            result[name][:, rows] = counts
        if spread:
            stage = inner[order.index("pp")]
            folded = folded_counts(plans.take(rows), stage, filled, gpus)
            for name, counts in zip(FOLDED, folded, strict=True):
                result[name][:, rows] = counts
    return result


def folded_counts(
    plans: Plans, inner: Array, filled: tuple[float, ...], gpus: int
) -> tuple[Array, Array, Array]:
    """Where the groups of the experts are, which are folded over those of the rest of the model.

    The ranks of one pipeline stage, in the order of its tensor, context and data groups, are numbered anew:
    etp innermost, then ep, then edp = tp cp dp / (ep etp) replicas (Megatron-Core's parallel folding:
    etp x ep x edp x pp = world). `inner` of a stage's ranks come before the pipeline's in the order; what
    of a group lies beyond them is pp times as far apart.
    """
    found = []
    stride = np.ones(len(plans))
    replicas = plans.tp * plans.cp * plans.dp / (plans.ep * plans.etp)
    for size in (plans.etp, plans.ep, replicas):
        room = np.maximum(np.floor(inner / stride), 1.0)
        near = np.gcd(room.astype(np.int64), np.maximum(size, 1.0).astype(np.int64)).astype(float)
        far = np.maximum(stride * near, inner) * plans.pp
        found.append(
            tier_counts(near, stride, filled, gpus) * tier_counts(size / near, far, filled, gpus)
        )
        stride = stride * size
    return found[0], found[1], found[2]


def tier_counts(size: Array, stride: Array, filled: tuple[float, ...], gpus: int) -> Array:
    """(tiers, ...): how the members of each group divide over the tiers; their product is the size.

    `filled` are the chips in one unit of each tier, as `units` gives them.
    """
    below = np.ones_like(size)
    rows = []
    for i, unit in enumerate(filled):
        last = i == len(filled) - 1
        inside = size if last else members_inside(size, stride, unit, gpus)
        inside = np.maximum(inside, below)
        rows.append(inside / below)
        below = inside
    return np.stack(rows)


def shared_taper(taper: Num, unit_chips: Num, sending_chips: Num) -> Array:
    """Share of its port that each of `sending_chips` gets out of a unit: min(1, taper x unit / sending)."""
    busy = np.maximum(sending_chips, 1e-300)
    return np.asarray(np.minimum(1.0, taper * unit_chips / busy))


def fair_rates(uses: Array, capacities: Array, limits: Array) -> Array:
    """Max-min fair rates of flows over links they share.

    `uses` (links, flows) is how many bytes a link carries for each byte of a flow, `capacities` the
    links' rates and `limits` the flows' own. All rates rise together; a flow stops when a link of
    its own is full or its limit is met.
    """
    rates = np.zeros(uses.shape[1])
    rising = np.ones(uses.shape[1], bool)
    while rising.any():
        left = np.maximum(capacities - uses @ rates, 0.0)
        demand = uses @ rising.astype(float)
        room = np.full(len(demand), np.inf)
        np.divide(left, demand, out=room, where=demand > 0)
        own = np.where(rising, limits - rates, np.inf)
        step = min(room.min(initial=np.inf), own.min())
        rates = rates + step * rising
        full = room <= step * (1.0 + 1e-12)
        rising &= ~((uses[full] > 0).any(0) | (own <= step * (1.0 + 1e-12)))
    return rates
