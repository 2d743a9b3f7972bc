"""What dies and packages cost to make: wafers, processes, dies, what carries them, and one package.

The quirks are mistakes of public cost models, all off but where a published value is reproduced.
"""

from typing import Annotated, Literal

from foretell.records import dataclass
from foretell.specs._base import Fraction, Ge, Le, NotNegative, Num, Positive

CountRule = Literal["grid", "actuary", "classic", "google"]
"""How dies on a wafer are counted: a real grid of dies, or one of three published formulas."""
Units = Annotated[int, Ge(0), Le(100_000)]
"""Equal units of a die: cores, slices."""
YieldModel = Literal["negative-binomial", "poisson", "murphy", "seeds", "bose-einstein"]
"""How defects are spread over dies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wafer:
    """The round thing that dies are cut from."""

    diameter_mm: Positive = 300.0
    """Across."""
    edge_mm: NotNegative = 3.0
    """Rim that has no good dies."""
    scribe_mm: NotNegative = 0.1
    """Width of the saw's way between dies."""
    aspect: Positive = 1.27
    """Long side of a die over its short one; only a grid of dies asks for it."""
    rule: CountRule = "grid"
    """How dies are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process node as its customer pays for it."""

    aliases: tuple[str, ...] = ()
    """Other spellings, and processes that are taken for it."""
    wafer_usd: Positive
    """One processed wafer."""
    defects_per_cm2: NotNegative
    """Defects that kill what they hit, for each square centimetre (of one layer: bose-einstein)."""
    clustering: Positive = 10.0
    """Alpha of the negative binomial: small where defects come in clusters; critical layers for
    bose-einstein."""
    nre_usd: NotNegative = 0.0
    """Design of a die of 300 mm2, its first masks included."""
    mask_set_usd: NotNegative = 0.0
    """One set of masks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Test of dies on their wafer."""

    probe_usd_per_mm2: NotNegative = 0.0
    """What it costs."""
    probe_coverage: Fraction = 1.0
    """Share of the bad dies that it finds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Die:
    """One die of a package, perhaps there several times."""

    name: str = "die"
    """What it is called in paths and breakdowns."""
    node: str
    """Its process: N7, N5, ..."""
    area_mm2: Positive
    """Its area, interfaces to other dies included."""
    count: Positive = 1.0
    """How many of it one package has."""
    units: Units = 0
    """Equal units on it (cores) of which some may be bad; 0: none."""
    units_needed: Units = 0
    """Units that must be good for the die to be sold."""
    units_share: NotNegative = 0.0
    """Share of the area that these units take."""
    repairable_share: NotNegative = 0.0
    """Share of the area whose defects are repaired (spare rows of memory arrays)."""
    interface_share: NotNegative = 0.0
    """Share of the area that interfaces to other dies take."""
    reused: bool = False
    """Whether the design exists already: then it costs no NRE here."""
    elsewhere: NotNegative = 0.0
    """Dies of the same design built for other products, which bear their share of its NRE."""
    on: str = ""
    """Name of the die it is stacked on; empty: it lies beside the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DieCost:
    """What one good die comes to, and how."""

    dies_per_wafer: Num
    """Whole dies of one wafer."""
    good_share: Num
    """Dies that can be sold, harvested ones included."""
    perfect_share: Num
    """Dies without any defect that counts."""
    passed_share: Num
    """Dies that pass the test on the wafer, a few bad ones among them."""
    quality: Num
    """Good ones among those that pass."""
    raw_usd: Num
    """A wafer over its dies."""
    defects_usd: Num
    """What bad dies add to it."""
    probe_usd: Num
    """Test of the dies, those that fail included."""
    bumps_usd: Num
    """Bumps on the die."""

    @property
    def total_usd(self) -> Num:
        """One die that passed, with its bumps."""
        return self.raw_usd + self.defects_usd + self.probe_usd + self.bumps_usd


Carrier = Literal["none", "wafer", "panel"]
"""What lies between dies and substrate: nothing, something cut from a wafer, or from a panel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageKind:
    """One way to put dies together. A carrier is an interposer or a redistribution layer."""

    aliases: tuple[str, ...] = ()
    """Other spellings."""
    carrier: Carrier = "none"
    """What lies between dies and substrate."""
    chip_first: bool = False
    """Whether dies are placed before the carrier is built on them, so that its defects lose them."""
    carrier_wafer_usd: NotNegative = 0.0
    """A wafer, or panel, of carriers, with what is done to it."""
    carrier_panel_mm: NotNegative = 0.0
    """Side of a square panel."""
    carrier_defects_per_cm2: NotNegative = 0.0
    """Defects of the carrier."""
    carrier_clustering: Positive = 6.0
    """Their alpha."""
    carrier_area_factor: Positive = 1.0
    """Area of the carrier over that of all that lies on it."""
    carrier_bump_usd_per_mm2: NotNegative = 0.0
    """Bumps below the carrier."""
    stitch_yield: Fraction = 1.0
    """Share of the seams between exposures of a large carrier that are good."""
    bridge_usd: NotNegative = 0.0
    """One bridge of silicon between two neighbours, already tested."""
    bump_usd_per_mm2: NotNegative = 0.0
    """Bumps below a die."""
    bond_yield: Fraction = 1.0
    """Share of placements that are good."""
    place_s: NotNegative = 0.0
    """Machine time of placing and bonding one die or stack."""
    substrate_usd_per_mm2: NotNegative = 0.0
    """Organic (or glass) substrate."""
    substrate_area_factor: Positive = 1.0
    """Area of the substrate over that of the carrier, or of the dies where there is none."""
    substrate_bond_yield: Fraction = 1.0
    """Share of the bonds to the substrate that are good."""
    link: str = "ucie-standard"
    """Interface between dies that it allows (links of technology.toml)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacking:
    """How a die is bonded onto another (hybrid bonding, micro-bumps)."""

    align_yield: Fraction = 1.0
    """Share of dies that are placed well enough."""
    bond_defects_per_cm2: NotNegative = 0.0
    """Defects of the bonded face: the yield is 1 / (1 + defects x area)."""
    via_yield: Fraction = 1.0
    """Share of dies below whose vias through the silicon are good."""
    bond_usd_per_mm2: NotNegative = 0.0
    """Preparing and bonding a face."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPrice:
    """Device memory as its buyer sees it."""

    aliases: tuple[str, ...] = ()
    """Other spellings, and kinds that are taken for it."""
    usd_per_gib: NotNegative
    """Price of a GiB: what is sold as one GB."""
    stack_mm2: NotNegative = 121.0
    """Place that a stack takes on the carrier; 0: it is elsewhere on the board."""
    quality: Fraction = 1.0
    """Share of stacks delivered that work once they are bonded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What places and bonds dies."""

    machine_usd: NotNegative = 0.0
    """Its price."""
    life_years: Positive = 5.0
    """Years that it is used."""
    technician_usd_per_year: NotNegative = 0.0
    """Who looks after it."""
    uptime: Fraction = 1.0
    """Share of the time that it works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """What is done to a package whatever its kind, and NRE beyond the dies'."""

    test_usd: NotNegative = 0.0
    """Final and burn-in test of one package."""
    module_usd: NotNegative = 0.0
    """Board, power stages, lid and connectors that the package is sold on."""
    package_nre_usd: NotNegative = 0.0
    """Design of one package."""
    package_nre_usd_per_mm2: NotNegative = 0.0
    """More of it for each square millimetre of substrate."""
    module_nre_share: NotNegative = 0.5
    """Share of a die's NRE that is the design of its modules."""
    chip_nre_share: NotNegative = 0.3
    """Share that is their integration and verification; the rest is fixed, masks included."""
    nre_reference_mm2: Positive = 300.0
    """Area of the die for which a node's NRE is stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One package to be priced."""

    name: str = "package"
    """What it is called."""
    kind: str = "organic"
    """How it is put together: organic, fan-out, interposer, bridge, glass, hybrid-3d, ..."""
    stacking: str = "hybrid-bonding"
    """How dies that lie on others are bonded."""
    chip_first: bool | None = None
    """Whether dies are placed first; none: as is usual for the kind."""
    dies: tuple[Die, ...]
    """Its dies, by design."""
    memory: str = ""
    """Generation of the memory on it: HBM3, HBM3e, ...; empty: none."""
    memory_stacks: NotNegative = 0.0
    """Stacks of it."""
    memory_stack_bytes: NotNegative = 0.0
    """Capacity of one."""
    spacers: NotNegative = 0.0
    """Dummy dies that keep the carrier flat: placed, and worth nothing."""
    carrier_mm2: NotNegative = 0.0
    """Area of the carrier; 0: what lies on it, times the kind's factor."""
    die_to_die_bytes_per_s: NotNegative = 0.0
    """What one die can send to the others, one direction; 0: whatever its interface share gives."""
    on_module: bool = True
    """Whether it is sold on a module (SXM, OAM), or bare."""
    volume: NotNegative = 0.0
    """Packages over which NRE is spread; 0: NRE is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostQuirks:
    """Each switch puts one mistake back."""

    bumps_once: bool = False
    """Chiplet Actuary: micro-bumps on a carrier are paid for one die, however many there are."""
    uptime_multiplies: bool = False
    """CATCH: machine time costs its share of uptime, rather than one over it."""


RIGHT = CostQuirks()
"""None of them."""
