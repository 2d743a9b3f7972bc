"""A chip that need not exist, described as its architect would: node, area, units, clocks, memories.

The technology is what it is made with: process nodes, memories, links, and the rules of thumb of chip plans.
"""

from collections.abc import Mapping
from dataclasses import field

from foretell.records import dataclass
from foretell.specs._base import Fraction, NotNegative, Num, Positive
from foretell.specs.chip import Chip


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipDesign:
    """A package of equal compute dies, perhaps on input-output dies, with memory beside them.

    Counts are of the whole package unless their name says otherwise; 0 means: typical of the node, or
    what follows from the rest. Of `cores` and `die_area_mm2` one at least is given: the other is what
    fits, or what it takes.
    """

    id: str = "own-chip"
    """What it is called in files and answers."""
    name: str = ""
    """Its full name; the id where empty."""
    vendor: str = ""
    """Who would make it."""
    architecture: str = "unknown"
    """Generation of chips whose kernels it would run as well as: hopper, blackwell, cdna3, ..."""
    node: str
    """Manufacturing process of the compute dies: N7, N5, N4, N3, N2, ..."""
    compute_dies: Positive = 1.0
    """Compute dies of the package."""
    die_area_mm2: NotNegative = 0.0
    """Area of one compute die; 0: what the units take."""
    compute_share: NotNegative = 0.0
    """Share of a compute die for cores, instead of `cores`; 0: what is left by the rest."""
    sram_share: NotNegative = 0.0
    """Share of a compute die for the last-level cache, instead of `l2_bytes`."""
    io_share: NotNegative = 0.0
    """Share of a compute die for interfaces and controllers; 0: what they take."""
    cores: NotNegative = 0.0
    """Cores that software can use; 0: what fits."""
    cores_built: NotNegative = 0.0
    """Cores on the dies, spares for yield included."""
    matrix_units_per_core: NotNegative = 0.0
    """Matrix units (tensor cores, systolic arrays) of one core."""
    microarchitecture: str = ""
    """Whose matrix units it has, such as hopper; empty: those usual when its node was new."""
    matrix_flop_per_clock: Mapping[str, Positive] = field(default_factory=dict)
    """Dense operations a clock of one unit by dtype; a multiply-add is two."""
    vector_lanes_per_core: NotNegative = 0.0
    """fp32 lanes of one core, each a multiply-add a clock."""
    vector_fp64_lanes_per_core: NotNegative = 0.0
    """fp64 lanes of one core; 0: none."""
    clock_hz: NotNegative = 0.0
    """Clock at which the matrix peaks hold."""
    vector_clock_hz: NotNegative = 0.0
    """Clock at which the vector peaks hold; 0: the same."""
    register_bytes_per_core: NotNegative = 0.0
    """Register file of one core."""
    sram_bytes_per_core: NotNegative = 0.0
    """Shared memory and L1 of one core."""
    sram_bytes_per_clock_per_core: NotNegative = 0.0
    """What one core moves to and from them in a clock."""
    l2_bytes: NotNegative = 0.0
    """Last-level cache on the compute dies."""
    l2_bytes_per_clock: NotNegative = 0.0
    """What all cores together read from it in a clock."""
    memory_type: str = "HBM3e"
    """Generation of the device memory."""
    memory_stacks: NotNegative = 0.0
    """Stacks of HBM, or packages of GDDR or LPDDR."""
    memory_stack_bytes: NotNegative = 0.0
    """Capacity of one."""
    memory_stack_bytes_per_s: NotNegative = 0.0
    """Bandwidth of one."""
    scale_up_bytes_per_s: NotNegative = 0.0
    """Links to other packages, all together, one direction."""
    scale_up_link: str = "serdes-100g"
    """What these links are made with."""
    die_to_die_bytes_per_s: NotNegative = 0.0
    """What one compute die can send to the other dies, one direction."""
    die_to_die_link: str = "ucie-advanced"
    """What these links are made with."""
    host_bytes_per_s: NotNegative = 0.0
    """Link to the host, one direction."""
    io_dies: NotNegative = 0.0
    """Dies beside or below the compute dies that have the interfaces; 0: compute dies have them."""
    io_die_area_mm2: NotNegative = 0.0
    """Area of one of them; 0: what the interfaces take."""
    io_node: str = "N6"
    """Their manufacturing process."""
    io_cache_bytes: NotNegative = 0.0
    """Cache on these dies, all together."""
    tdp_watts: NotNegative = 0.0
    """Power limit."""
    form_factor: str = ""
    """How it is mounted."""
    package: str = ""
    """Packaging technology, such as CoWoS-L."""
    release_year: int = 0
    """Year of release; 0 where unknown."""
    volume: NotNegative = 0.0
    """Packages over which its design is paid off; 0: what designing it costs is left out."""

    def __hash__(self) -> int:
        """A few fields tell designs apart; rates are a mapping, which has no hash."""
        return hash((self.id, self.node, self.compute_dies, self.die_area_mm2, self.memory_stacks))


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltChip:
    """What a design comes to."""

    design: ChipDesign
    """The design with nothing left open."""
    chip: Chip
    """The chip as every question sees it."""
    die_mm2: Mapping[str, Num]
    """Area of one compute die by what is on it; the leaves sum to the estimate, not to the die."""
    io_die_mm2: Mapping[str, Num]
    """The same of one input-output die; empty where there are none."""
    watts: Mapping[str, Num]
    """Power with all matrix units busy at the stated clock, by part."""
    sustained_share: Fraction
    """Share of the matrix peak that the power limit lets run on end."""
    edge_share: NotNegative
    """Edge that the interfaces take over the edge there is, on the die that has them."""
    l2_bytes_per_s: Positive
    """Bandwidth of the last-level cache."""
    sram_bytes_per_s: Positive
    """Bandwidth of the shared memories of all cores together."""
    assumptions: tuple[str, ...]
    """What was filled in, and what is doubtful, as sentences."""
