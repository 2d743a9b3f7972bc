"""Networks as tiers, systems as chips on a network, and many systems as one.

A batch of systems is a system whose numbers are arrays, with one value for each: what is a number may differ
from system to system, what is structural (names, topologies, sizes of tiers, formats) is the same for all.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import fields, replace
from typing import Any, Literal

import numpy as np

from foretell.records import dataclass
from foretell.specs._base import Count, Fraction, NotNegative, Num, Positive
from foretell.specs.arrays import Index
from foretell.specs.chip import Chip
from foretell.specs.corrections import AS_PREDICTED, Corrections
from foretell.specs.design import ChipDesign
from foretell.specs.software import Host


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


CHIP_NUMBERS = (
    "vector_flop_per_s", "memory_bytes", "memory_bandwidth_bytes_per_s", "l2_bytes", "cores", "clock_hz",
    "host_bytes_per_s", "host_speed", "tdp_watts", "rated_watts", "idle_watts",
    "measured_matmul_flop_per_s",
)  # fmt: skip
"""Numbers of a chip that may differ inside a batch, beside its matrix peaks."""
UNUSED = (
    "scale_up_bytes_per_s", "sram_bytes_per_core", "die_area_mm2", "compute_dies", "transistors",
    "memory_stacks", "price_usd_low", "price_usd_high", "release_year", "vector_fp64_flop_per_s",
)  # fmt: skip
"""Numbers of a chip that no time, byte or joule depends on: a batch has those of its first system."""
TIER_NUMBERS = ("bandwidth_bytes_per_s", "latency_s")
"""Numbers of a tier that may differ inside a batch."""
PEAKS = "matrix_flop_per_s"


def varies_in_batch(path: str) -> bool:
    """Whether a path, as of `--set`, names a number that may differ from system to system of a batch."""
    root, _, rest = path.partition(".")
    names = rest.split(".")
    if root == "chip":
        return rest in CHIP_NUMBERS or (len(names) == 2 and names[0] == PEAKS)
    return root == "network" and len(names) == 2 and names[1] in TIER_NUMBERS


def map_chip(chip: Chip, change: Callable[[Any], Any]) -> Chip:
    """The chip with every number that may differ put through a function."""
    peaks = {name: change(peak) for name, peak in chip.matrix_flop_per_s.items()}
    own = {name: change(getattr(chip, name)) for name in CHIP_NUMBERS}
    return replace(chip, matrix_flop_per_s=peaks, **own)


def map_numbers(system: System, change: Callable[[Any], Any]) -> System:
    """The same of all of a system."""
    tiers = tuple(
        replace(tier, **{name: change(getattr(tier, name)) for name in TIER_NUMBERS})
        for tier in system.network.tiers
    )
    return replace(system, chip=map_chip(system.chip, change), network=Network(tiers=tiers))


def system_count(system: System) -> int:
    """Systems of a batch; 1 where every number is one."""
    return max(np.size(value) for value in numbers_of(system))


def numbers_of(system: System) -> list[Num]:
    """Every number that may differ."""
    chip, tiers = system.chip, system.network.tiers
    own = [getattr(chip, name) for name in CHIP_NUMBERS]
    links = [getattr(tier, name) for tier in tiers for name in TIER_NUMBERS]
    return [*chip.matrix_flop_per_s.values(), *own, *links]


def take_systems(system: System, rows: Index | slice) -> System:
    """Some of the systems of a batch; a number that all share stays one."""
    return map_numbers(system, lambda value: value[rows] if np.ndim(value) else value)


def one_system(system: System, row: int) -> System:
    """One of the systems of a batch, in plain numbers."""
    return map_numbers(system, lambda value: float(value[row]) if np.ndim(value) else value)


def first_chip(chip: Chip) -> Chip:
    """The first chip of a batch, for what depends on no number of it."""
    return map_chip(chip, lambda value: float(value[0]) if np.ndim(value) else value)


def repeat_chips(chip: Chip, many: int) -> Chip:
    """The chips of a batch so many times, one after the other."""
    return map_chip(chip, lambda value: np.tile(value, many) if np.ndim(value) else value)


def structure_of(system: System) -> Hashable:
    """What systems of one batch have in common."""
    chip, tiers = system.chip, system.network.tiers
    left_out = (*CHIP_NUMBERS, *UNUSED, PEAKS)
    own = tuple(getattr(chip, f.name) for f in fields(Chip) if f.name not in left_out)
    links = tuple(
        tuple(getattr(tier, f.name) for f in fields(Tier) if f.name not in TIER_NUMBERS)
        for tier in tiers
    )
    return own, tuple(chip.matrix_flop_per_s), links, system.id, system.corrections


def stack_systems(systems: Sequence[System]) -> System:
    """Systems of one structure as a batch: what differs among them becomes an array."""
    first = systems[0]
    chips = [system.chip for system in systems]
    peaks = {
        name: column_of([chip.matrix_flop_per_s[name] for chip in chips])
        for name in first.chip.matrix_flop_per_s
    }
    own = {name: column_of([getattr(chip, name) for chip in chips]) for name in CHIP_NUMBERS}
    tiers = tuple(
        replace(
            tier,
            **{
                name: column_of([getattr(s.network.tiers[place], name) for s in systems])
                for name in TIER_NUMBERS
            },
        )
        for place, tier in enumerate(first.network.tiers)
    )
    chip = replace(first.chip, matrix_flop_per_s=peaks, **own)
    return replace(first, chip=chip, network=Network(tiers=tiers))


def column_of(values: list[Any]) -> Any:
    """One number where all are equal, else an array."""
    alike = all(value == values[0] for value in values[1:])
    return values[0] if alike else np.asarray(values, float)
