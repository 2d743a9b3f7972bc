"""Networks as tiers, and systems as chips on a network."""

from dataclasses import replace
from typing import Literal

from foretell.records import dataclass
from foretell.specs._base import Count, Fraction, NotNegative, Positive
from foretell.specs.chip import Chip
from foretell.specs.corrections import AS_PREDICTED, Corrections
from foretell.specs.design import ChipDesign
from foretell.specs.host import Host


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One level of the network, from the innermost out."""

    name: str
    """Its name in paths and breakdowns: package, node, rack, pod, cluster, ..."""
    size: Positive
    """Members of the level below that one unit of this tier joins (chips, for the innermost)."""
    bandwidth_bytes_per_s: Positive
    """What one chip can send into this tier, one direction, nominal."""
    latency_s: NotNegative
    """Time of one hop for a small message."""
    topology: str = "switch"
    """How members are joined: switch, fully-connected, ring, torus-3d, fat-tree, dragonfly, ..."""
    taper: Fraction = 1.0
    """Share of the full bandwidth that is left when all members talk across this tier."""
    efficiency: Fraction = 0.75
    """Share of the nominal bandwidth that large collectives reach."""
    gather_share: Positive = 1.0
    """Rate of all-gathers over that of all-reduces, where no library is known for the links."""
    scatter_share: Positive = 1.0
    """The same of reduce-scatters."""
    exchange_share: Positive = 1.0
    """The same of all-to-alls."""
    shape: tuple[Count, ...] = ()
    """Extents of a torus or mesh, their product the size; empty where there are none known."""
    in_network_reduction: bool = False
    """Whether the switches of this tier add up data on its way (NVLS, SHARP)."""
    routing: Literal["adaptive", "static"] = "adaptive"
    """How flows choose among equal ways: by load, or once and for all (hashed flows, minimal routes)."""
    pxn: bool = True
    """Rail fabrics: whether messages to chips of another index go over their node's own links to the right
    rail first (NCCL's PXN); else they cross the spines."""
    groups: NotNegative = 0.0
    """Groups of a dragonfly; 0: its members where they are groups, else groups of 512 chips."""
    group_routers: NotNegative = 0.0
    """Routers of one group of a dragonfly, each joined to all others of it; 0: enough of them."""
    router_globals: NotNegative = 0.0
    """Links of one router to other groups, at a chip's rate; 0: one for each chip on the router."""
    reconfiguration_s: NotNegative = 0.0
    """Time in which an optical circuit switch sets new circuits; 0: 10 ms, that of mirrors."""
    optics: Literal["pluggable", "co-packaged"] = "pluggable"
    """Optical ends at the tier's switches: modules in their ports, or beside the switch's die."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Tiers from the innermost out."""

    tiers: tuple[Tier, ...]
    """At least one; the product of their sizes is the largest number of chips."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Chips of one kind on a network."""

    id: str
    """Catalogue id."""
    name: str
    """What people call it."""
    chip: Chip
    """The chip."""
    network: Network
    """How the chips are joined."""
    chips_per_node: NotNegative = 0.0
    """Chips of one node: what shares a host, a price and a power supply; 0 where unknown."""
    nics_per_node: NotNegative = 0.0
    """Ports of one node into the fabric between nodes; 0 where unknown."""
    nic_bytes_per_s: NotNegative = 0.0
    """Rate of one such port, one direction; 0 where unknown."""
    node_watts: NotNegative = 0.0
    """Power of one node at load, all included; 0 where unknown."""
    node_price_usd: NotNegative = 0.0
    """Price of one node; 0 where unknown."""
    nccl: str = ""
    """Release of its collective library, such as 2.21; empty: that of the framework's date, else today's."""
    host: Host | None = None
    """What its CPUs take to start work, over its chip's host speed; none: as on the measured machine."""
    assumptions: tuple[str, ...] = ()
    """What was assumed to make the system out of a chip or a file."""
    design: ChipDesign | None = None
    """What its chip was built from, as given; none: a chip that is known by its numbers alone."""
    corrections: Corrections = AS_PREDICTED
    """What measured runs on it took over what is predicted, by mechanism."""
    step_spread: tuple[float, ...] = ()
    """5, 25, 75 and 95 % quantiles of ln(measured / predicted) of a training step like those measured on it;
    empty where none were."""

    @property
    def node_chips(self) -> int:
        """Chips of one node: as known, else what the innermost tier joins."""
        return max(round(float(self.chips_per_node) or float(self.network.tiers[0].size)), 1)

    def with_corrections(self, more: Corrections) -> "System":
        """The system with further factors; the host's is in the speed of the chip's host."""
        chip = replace(self.chip, host_speed=self.chip.host_speed / more.host)
        return replace(self, chip=chip, corrections=self.corrections.times(more))
