"""How many switches, cards and cables a system needs, counted from the topology of each tier.

A folded Clos of switches with k ports joins e ends in L levels, 2 (k/2)^L >= e: each level but the top
has half its ports up. A tapered leaf has k/(1+t) ports down. Rails are as many networks side by side. A
dragonfly's group has a router for every k/4 ends, all joined, and `taper` of its ends as links to other
groups. Optical circuit switches have a port for each end. Tori, meshes and full meshes have links of
their own and no switches. All broadcast over the ends.
"""

import re

import numpy as np

from foretell.network.placement import built_for, members_of, with_groups
from foretell.network.topologies.torus import tier_shape
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.cost import FabricParts
from foretell.specs.system import System, Tier

CLOS = frozenset({"switch", "fat-tree", "clos", "roce-clos", "rail-clos"})
"""Topologies that are made of levels of switches."""
CIRCUITS = frozenset({"optical-circuit"})
"""Topologies whose switches join circuits of light."""
GROUPS = frozenset({"dragonfly", "dragonfly-plus"})
"""Topologies that join groups of switches pairwise."""
REFERENCE_LINKS = 450e9
"""Bytes a second of the links of the chip (H100) whose baseboard and switches a server's parts price."""
SCALE_UP = 1.5
"""A tier this much faster than the network cards is made of the chips' own links."""
GBIT = 1e9 / 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TierParts:
    """What one tier of a system is made of."""

    name: str
    """The tier's name."""
    topology: str
    """How it is joined."""
    switches: Num = 0.0
    """Switches."""
    end_links: Num = 0.0
    """Links from cards or chips to the first switch, or between chips where there is none."""
    far_links: Num = 0.0
    """Links between switches."""
    gbit_s: Num = 0.0
    """Rate of one link, one way."""
    direct: bool = False
    """Whether its links join chips without a switch."""
    in_node_price: bool = False
    """Whether it comes with the nodes, and is not paid again."""
    reach: Num = 0.0
    """Chips that are joined to the same scale-up switches across nodes; 0: it is no such tier."""
    packaged: bool = False
    """Whether the optical ends at its switches are in their packages."""

    @property
    def circuits(self) -> bool:
        """Whether its switches turn light and look at no packet."""
        return self.topology in CIRCUITS


def levels(ends: Num, ports: Num) -> Num:
    """Levels of a folded Clos: the least L with 2 (k/2)^L >= e, at least 1."""
    half = np.asarray(ports, float) / 2.0
    need = np.log(np.maximum(np.asarray(ends, float), 1.0) / 2.0) / np.log(half)
    return np.asarray(np.maximum(np.ceil(need - 1e-9), 1.0))


def clos(
    ends: Num, ports: Num, taper: Num = 1.0, planes: Num = 1.0, above: Num = 0.0
) -> tuple[Num, Num]:
    """(switches, links between switches) of `planes` equal networks that share the ends.

    `above` is the taper towards a further tier, whose links also take ports of the top switches. Planes
    that are small share a switch.
    """
    e = np.asarray(ends, float) / planes
    deep = levels(e * (1.0 + np.asarray(above, float)), ports)
    top_down = ports / (1.0 + np.asarray(above, float))
    alone = np.ceil(planes / np.maximum(np.floor(top_down / np.maximum(e, 1e-300)), 1e-300))
    leaf_down = ports / (1.0 + np.asarray(taper, float))
    up = e * taper
    tall = (
        np.ceil(e / leaf_down)
        + np.maximum(deep - 2.0, 0.0) * np.ceil(up / (ports / 2.0))
        + np.ceil(up / top_down)
    )
    fits = e <= top_down
    switches = np.where(np.asarray(ends) > 0, np.where(fits, alone, planes * tall), 0.0)
    links = np.where(fits, 0.0, planes * up * np.maximum(deep - 1.0, 1.0))
    return switches, links


def spine(links: Num, units: Num, ports: Num) -> tuple[Num, Num]:
    """(switches, links among them) that join so many links out of so many units; L levels of them."""
    deep = levels(units, ports)
    return np.ceil((2.0 * deep - 1.0) * links / ports), (deep - 1.0) * links


def dragonfly(
    ends: Num, groups: Num, ports: Num, taper: Num, *, plus: bool, least_routers: float = 0.0
) -> tuple[Num, Num]:
    """(switches, links between switches) of groups with so many ends each.

    A group of a dragonfly has a = e / (k/4) routers, or those it was given, and a (a-1) / 2 links among
    them; one of a dragonfly+ has e / (k/2) leaves and as many spines. Every two groups are joined:
    taper x e links leave a group.
    """
    e = np.asarray(ends, float)
    if plus:
        leaves = np.ceil(e / (ports / 2.0))
        routers, local = 2.0 * leaves, e
    else:
        routers = np.maximum(np.ceil(e / (ports / 4.0)), least_routers)
        local = routers * (routers - 1.0) / 2.0
    far = np.where(np.asarray(groups) > 1.0, np.round(e * taper) * groups / 2.0, 0.0)
    return groups * routers, groups * local + far


def direct_links(tier: Tier, units: Num) -> Num:
    """Links of a topology without switches, for so many whole units of the tier."""
    name, size = re.sub(r"-\d+d$", "", tier.topology), float(tier.size)
    if name == "fully-connected":
        each = size * (size - 1.0) / 2.0
    elif name == "hybrid-cube-mesh":
        each = 24.0
    elif name == "ring":
        each = size if size > 2 else size - 1.0
    else:
        each = sum(_axis_links(name, d, size) for d in _extents(name, tier))
    return np.asarray(units, float) * each


def _extents(name: str, tier: Tier) -> tuple[int, ...]:
    if name == "hypercube":
        return (2,) * max(round(float(np.log2(tier.size))), 0)
    return tier_shape(tier)


def _axis_links(name: str, extent: int, size: float) -> float:
    """Links along one axis of a grid of so many members."""
    lines = size / extent
    if name in ("hyperx", "flattened-butterfly"):
        return lines * extent * (extent - 1) / 2.0
    wraps = name == "torus" and extent > 2
    return lines * (extent if wraps else extent - 1)


def fabric_of(
    system: System, gpus: float, ports: float, *, from_parts: bool = False
) -> tuple[TierParts, ...]:
    """The parts of every tier, innermost first; the cards' links are counted in the first fabric tier.

    Nodes that are put together from parts do not come with cables between them.
    """
    found: list[TierParts] = []
    whole = int(np.ceil(gpus))
    built = built_for(system.network, members_of(system.network, whole))
    given, tiers, nics = built.tiers, with_groups(built).tiers, cards(system, gpus)
    below, joined = 1.0, False
    outer = len(tiers)
    for i, tier in enumerate(tiers):
        span = below * float(tier.size)
        units = np.ceil(gpus / span)
        members = np.minimum(np.ceil(gpus / below), float(tier.size))
        if gpus <= below:
            break
        if is_scale_up(tier, system):
            found.append(_scale_up(tier, units, span, gpus, system, from_parts))
        else:
            over = tiers[i + 1] if i + 1 < outer and gpus > span else None
            ends = nics if not joined else nics * float(tier.taper)
            routers = float(given[i].group_routers)
            found.append(
                _tier(tier, over, ends, units, members, ports, joined, system, below, gpus, routers)
            )
            joined = True
        below = span
    return tuple(found)


def cards(system: System, gpus: float) -> float:
    """Ports of network cards that so many chips have; one a chip where nothing is known."""
    per_node = float(system.nics_per_node) or per_node_chips(system)
    return float(np.ceil(gpus / per_node_chips(system)) * per_node)


def card_gbit_s(system: System) -> float:
    """Rate of one of them."""
    if float(system.nic_bytes_per_s):
        return float(system.nic_bytes_per_s) / GBIT
    return float(system.network.tiers[-1].bandwidth_bytes_per_s) / GBIT


def per_node_chips(system: System) -> float:
    """Chips that share a host: as known, else what the innermost tier joins."""
    return float(system.chips_per_node) or float(system.network.tiers[0].size)


def is_scale_up(tier: Tier, system: System) -> bool:
    """Whether a tier is the chips' own links: faster than their share of the network cards."""
    per_chip = (
        card_gbit_s(system)
        * GBIT
        * ((float(system.nics_per_node) or per_node_chips(system)) / per_node_chips(system))
    )
    alone = len(system.network.tiers) == 1 and float(system.nics_per_node) == 0.0
    return alone or float(tier.bandwidth_bytes_per_s) > SCALE_UP * per_chip


def scale_up_factor(system: System, fabric: FabricParts) -> tuple[Num, Num]:
    """What a chip's own links cost over the reference's: (their rate over 450 GB/s, switches passed).

    One level of switches is one; L of them 2 L - 1, as in any folded Clos; a tier without switches has none.
    """
    own = [tier for tier in system.network.tiers if is_scale_up(tier, system)]
    if not own:
        return 1.0, 1.0
    rate = float(own[0].bandwidth_bytes_per_s) / REFERENCE_LINKS
    joined = [t for t in own if re.sub(r"-\d+d$", "", t.topology) in CLOS]
    if not joined:
        return rate, 0.0
    size = float(np.prod([float(tier.size) for tier in own]))
    return rate, 2.0 * levels(size, fabric.backplane_chips) - 1.0


def _scale_up(
    tier: Tier, units: Num, span: float, gpus: float, system: System, from_parts: bool
) -> TierParts:
    """Chips' own links: paid with the node, but for cables that leave it."""
    name = re.sub(r"-\d+d$", "", tier.topology)
    node = per_node_chips(system)
    switched = name in CLOS and not from_parts
    inside = span <= node or switched or float(system.node_price_usd) > 0.0
    links = gpus if name in CLOS else direct_links(tier, units * min(1.0, gpus / (units * span)))
    axes = 2.0 * len(tier.shape) if tier.shape else max(float(links) * 2.0 / gpus, 1.0)
    return TierParts(
        name=tier.name,
        topology=tier.topology,
        end_links=links,
        gbit_s=float(tier.bandwidth_bytes_per_s) / (1.0 if name in CLOS else axes) / GBIT,
        direct=name not in CLOS,
        in_node_price=inside,
        reach=min(span, gpus) if name in CLOS else 0.0,
    )


def _tier(
    tier: Tier,
    over: Tier | None,
    ends: float,
    units: Num,
    members: Num,
    ports: float,
    joined: bool,
    system: System,
    below: float,
    gpus: float,
    routers: float,
) -> TierParts:
    """A tier of the fabric between nodes; its ends are cards, or links out of the tier below."""
    name = re.sub(r"-\d+d$", "", tier.topology)
    switches: Num = 0.0
    far: Num = 0.0
    first = 0.0 if joined else ends
    over_name = "" if over is None else re.sub(r"-\d+d$", "", over.topology)
    if over_name in GROUPS:
        pass  # the switches of a group are those of the dragonfly above it
    elif name in GROUPS:
        chips = min(below * float(np.ceil(tier.size / tier.groups)), gpus)
        groups = np.ceil(gpus / chips)
        plus = name == "dragonfly-plus"
        switches, far = dragonfly(
            cards(system, chips), groups, ports, tier.taper, plus=plus, least_routers=routers
        )
    elif name in CLOS and joined:
        switches, far = spine(ends / units, members, ports)
        switches, far = switches * units, far * units + ends
    elif name in CLOS:
        planes = float(system.nics_per_node) or 1.0
        planes = planes if name == "rail-clos" else 1.0
        above = float(over.taper) if over is not None else 0.0
        switches, far = clos(ends / units, ports, tier.taper, planes, above)
        switches, far = switches * units, far * units
    rate: Num = card_gbit_s(system)
    direct = name not in CLOS | GROUPS | CIRCUITS
    if direct and over_name not in GROUPS:
        # The cards of a member are its links; members that are not there have none.
        whole = float(np.asarray(direct_links(tier, 1.0)))
        first = whole * float(np.asarray(members * units)) / float(tier.size)
        rate = rate * cards(system, below) * float(tier.size) / max(2.0 * whole, 1.0)
    return TierParts(
        name=tier.name,
        topology=tier.topology,
        switches=switches,
        end_links=first,
        far_links=far,
        gbit_s=rate,
        direct=direct,
        packaged=tier.optics == "co-packaged",
    )
