"""What a die costs to make: the wafer it comes from, the process, and the die itself."""

from typing import Annotated, Literal

from foretell.records import dataclass
from foretell.specs._base import Fraction, NotNegative, Num, Positive
from foretell.specs.ranges import Ge, Le

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
