"""What a design is made with: process nodes, memories, links, and the rules of thumb of chip plans."""

from collections.abc import Mapping

from foretell.records import dataclass
from foretell.specs._base import Fraction, NotNegative, Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One manufacturing process."""

    name: str
    """What it is called: N7, N5, N3, ..."""
    aliases: tuple[str, ...] = ()
    """Other spellings, and processes that are taken for it."""
    logic_density: Positive
    """Logic per area, N7 being 1."""
    sram_cell_mm2: Positive
    """Area of one bit's cell in its dense form."""
    microarchitecture: str
    """Whose matrix units a design of this node has where it names none: those usual when the node was new."""
    clock_hz: Positive
    """Clock at which matrix peaks of large chips are stated."""
    clock_hz_high: Positive
    """A clock that no large chip of this node passes."""
    joules_per_flop: Positive
    """Energy of the whole die for one bf16 operation on matrix units of 1024 FLOP a clock."""
    watts_per_mm2: Positive
    """Power limit of large chips over the area of their compute dies."""
    reticle_mm2: Positive
    """The largest die that can be printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Microarchitecture:
    """The matrix units of a generation of chips, whatever node it is made on."""

    name: str
    """What it is called: ampere, hopper, ..."""
    matrix_flop_per_clock: Mapping[str, Positive]
    """Operations a clock by dtype of one matrix unit, four to a core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryKind:
    """One generation of device memory; a stack is also one package of GDDR or LPDDR."""

    name: str
    """What it is called: HBM3e, GDDR7, ..."""
    stack_bytes: Positive
    """Capacity of one stack."""
    stack_bytes_per_s: Positive
    """Bandwidth of one stack."""
    phy_mm2: Positive
    """Area of its physical interface on the die; it does not shrink with the node."""
    edge_mm: Positive
    """Edge of the die that it takes."""
    joules_per_byte: Positive
    """Energy of a byte read, the stack's and the interface's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkKind:
    """One way to join dies or packages; rates are one direction."""

    name: str
    """What it is called: serdes-100g, ucie-advanced, ..."""
    bytes_per_s_per_mm2: Positive
    """Rate that a square millimetre of interface carries."""
    bytes_per_s_per_mm: Positive
    """Rate that a millimetre of edge carries."""
    joules_per_byte: NotNegative
    """Energy of a byte sent, both ends together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules of thumb, the same for every node."""

    matrix_mm2: Positive
    """Area of the matrix logic for one bf16 FLOP a clock, at N7."""
    lane_mm2: Positive
    """Area of one fp32 lane with its share of scheduling and load paths, at N7."""
    core_mm2: Positive
    """Area of what each core has besides, at N7."""
    register_efficiency: Fraction
    """Cells' share of the area of a register file: its many ports need the rest."""
    sram_efficiency: Fraction
    """Cells' share of the area of shared memory and caches."""
    controllers: NotNegative
    """Area of controllers and crossbar over that of the physical interfaces they serve."""
    other_share: Fraction
    """Share of a die that is none of these (host, video, pads, gaps), on a die with interfaces."""
    other_share_stacked: Fraction
    """The same on a compute die that leaves its interfaces to input-output dies."""
    built_per_core: Positive
    """Cores built for each that is sold: spares for yield."""
    aspect: Positive
    """Long side of a die over its short one."""
    usable_edge: Fraction
    """Share of a die's outline that interfaces can take."""
    idle_watts_per_mm2: Positive
    """Power at rest over the area of all dies."""
    feed_share: Fraction
    """Share of the energy of a matrix product that goes with the edge of the unit, not its area."""
    busy_share: Fraction
    """Share of their rate at which memory and links run beside busy matrix units."""
    usable_memory: Fraction
    """Share of the memory built that software can allocate."""
    matrix_units_per_core: Positive
    """Typical units of a core."""
    vector_lanes_per_core: Positive
    """Typical fp32 lanes of a core."""
    register_bytes_per_core: Positive
    """Typical register file of a core."""
    sram_bytes_per_core: Positive
    """Typical shared memory of a core."""
    sram_bytes_per_clock_per_core: Positive
    """Typical bytes a clock between a core and its shared memory."""
    l2_bytes_per_core: Positive
    """Typical last-level cache for each core."""
    l2_bytes_per_clock_per_core: Positive
    """Typical bytes a clock between a core and the last-level cache."""
    l2_over_memory: Positive
    """Bandwidth of a last-level cache over that of the memory behind it, at the least."""
    memory_stacks_per_die: Positive
    """Typical stacks on a die that has the interfaces."""
    scale_up_bytes_per_s_per_die: Positive
    """Typical scale-up links of such a die, one direction."""
    host_bytes_per_s: Positive
    """Typical link to the host, one direction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Technology:
    """Everything a design may be made with."""

    nodes: Mapping[str, Node]
    """By name."""
    microarchitectures: Mapping[str, Microarchitecture]
    """By name."""
    memories: Mapping[str, MemoryKind]
    """By name."""
    links: Mapping[str, LinkKind]
    """By name."""
    rules: Rules
    """Rules of thumb."""
