"""A chip that need not exist, described as its architect would: node, area, units, clocks, memories."""

from collections.abc import Mapping
from dataclasses import field

from foretell.records import dataclass
from foretell.specs._base import Fraction, NotNegative, Num, Positive
from foretell.specs.chip import Chip


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
