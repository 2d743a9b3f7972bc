"""Dies, memory, carrier and substrate put together: what it takes, and what failures lose.

y1 is the yield of the carrier, y2 that of all placements, y3 that of the bond to the substrate, q the
share of packages whose parts, all passed before, are good. Only good carriers are used. Losses:

    no carrier   all parts x (1 / (y2 q) - 1)
    chip last    parts x (1 / (y2 y3 q) - 1), carrier x (1 / (y1 y2 y3 q) - 1), substrate x (1 / (y3 q) - 1)
    chip first   parts x (1 / (y1 y3 q) - 1), carrier x (1 / (y1 y3 q) - 1), substrate x (1 / (y3 q) - 1)

(Feng and Ma, Chiplet Actuary, DAC 2022, for q = 1.) All broadcast; the kind is structural.
"""

import numpy as np

from foretell.economics.silicon import dies_per_wafer, panel_count, perfect_share
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.package import RIGHT, CostQuirks, Machine, PackageKind, Stacking, Wafer

RETICLE_MM2 = 858.0
"""One exposure, 26 x 33 mm: a larger carrier is stitched from several."""
YEAR_S = 365.0 * 24.0 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageParts:
    """What the parts of a package add up to, before they are put together."""

    parts_usd: Num
    """Dies, memory and all else that lies on the carrier."""
    placements: Num
    """How many of them are placed."""
    parts_mm2: Num
    """Area that they take."""
    dies: Num
    """Dies among them; a package of several has a substrate of more layers."""
    quality: Num = 1.0
    """Share of packages in which all parts are good."""
    carrier_mm2: Num = 0.0
    """Area of the carrier; 0: by the kind's factor."""
    bridges: Num = 0.0
    """Pairs of neighbours that bridges join."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssemblyCost:
    """What putting together costs and loses."""

    carrier_mm2: Num
    """Area of the carrier."""
    carrier_yield: Num
    """y1."""
    placing_yield: Num
    """y2."""
    package_yield: Num
    """Share of packages begun that are good at the end."""
    carrier_usd: Num
    """One carrier with its bumps and bridges, good or bad."""
    substrate_usd: Num
    """One substrate."""
    placing_usd: Num
    """Machine time of one package begun."""
    lost_carrier_usd: Num
    """Carriers lost for each good package."""
    lost_substrate_usd: Num
    """Substrates lost."""
    lost_parts_usd: Num
    """Good dies and stacks lost."""
    lost_placing_usd: Num
    """Machine time lost."""


def assembly_cost(
    carried: PackageParts,
    kind: PackageKind,
    wafer: Wafer,
    *,
    chip_first: bool,
    place_usd_per_s: Num = 0.0,
) -> AssemblyCost:
    """One package of a kind."""
    on_carrier = kind.carrier != "none"
    carrier_mm2, carrier_usd, y1 = _carrier(carried, kind, wafer)
    below = carrier_mm2 if on_carrier else carried.parts_mm2
    substrate_mm2 = kind.substrate_area_factor * below
    layers = 1.0 if on_carrier else layer_factor(carried.dies, substrate_mm2)
    substrate = substrate_mm2 * kind.substrate_usd_per_mm2 * layers
    placing = carried.placements * kind.place_s * place_usd_per_s
    y2 = kind.bond_yield ** np.asarray(carried.placements, float)
    y3 = np.asarray(kind.substrate_bond_yield if on_carrier else 1.0, float)
    q = carried.quality
    if not on_carrier:
        parts, carrier, lower = y2 * q, np.asarray(1.0), y2 * q
    elif chip_first:
        parts, carrier, lower = y1 * y3 * q, y1 * y3 * q, y3 * q
    else:
        parts, carrier, lower = y2 * y3 * q, y1 * y2 * y3 * q, y3 * q
    return AssemblyCost(
        carrier_mm2=carrier_mm2,
        carrier_yield=y1,
        placing_yield=y2,
        package_yield=parts,
        carrier_usd=carrier_usd,
        substrate_usd=substrate,
        placing_usd=placing,
        lost_carrier_usd=carrier_usd * (1.0 / carrier - 1.0),
        lost_substrate_usd=substrate * (1.0 / lower - 1.0),
        lost_parts_usd=carried.parts_usd * (1.0 / parts - 1.0),
        lost_placing_usd=placing * (1.0 / parts - 1.0),
    )


def _carrier(carried: PackageParts, kind: PackageKind, wafer: Wafer) -> tuple[Num, Num, Num]:
    """Area, price and yield of the carrier; a large one is stitched from several exposures."""
    if kind.carrier == "none":
        return np.zeros(()), carried.bridges * kind.bridge_usd, np.ones(())
    given = np.asarray(carried.carrier_mm2, float)
    area = np.where(given > 0.0, given, carried.parts_mm2 * kind.carrier_area_factor)
    if kind.carrier == "panel":
        count = panel_count(area, kind.carrier_panel_mm, wafer.scribe_mm)
    else:
        count = dies_per_wafer(area, wafer)
    with np.errstate(divide="ignore"):
        usd = kind.carrier_wafer_usd / np.asarray(count, float)
    usd = usd + area * kind.carrier_bump_usd_per_mm2 + carried.bridges * kind.bridge_usd
    seams = np.ceil(area / RETICLE_MM2) - 1.0
    defects = area * kind.carrier_defects_per_cm2 / 100.0
    good = perfect_share(defects, "negative-binomial", kind.carrier_clustering)
    return area, usd, good * kind.stitch_yield**seams


def layer_factor(dies: Num, substrate_mm2: Num) -> Num:
    """Price of a substrate that joins several dies over that of one for a single die.

    1 for one die; else 1.5, from 17 x 17 mm 1.75, from 30 x 30 mm 2, for more layers (Chiplet Actuary).
    """
    large = np.where(np.asarray(substrate_mm2) > 900.0, 2.0, 1.75)
    several = np.where(np.asarray(substrate_mm2) > 289.0, large, 1.5)
    return np.where(np.asarray(dies) > 1.0, several, 1.0)


def place_usd_per_s(machine: Machine, quirks: CostQuirks = RIGHT) -> Num:
    """(price / life + technician) / (seconds of a year x uptime)."""
    yearly = machine.machine_usd / machine.life_years + machine.technician_usd_per_year
    share = 1.0 / np.asarray(machine.uptime, float)
    return yearly / YEAR_S * (machine.uptime if quirks.uptime_multiplies else share)


def stack_yield(stacking: Stacking, faces: Num, area_mm2: Num) -> Num:
    """Share of stacks that are good: alignment, bonded faces of an area each, and vias below.

    (align / (1 + D A))^faces x vias (CATCH's hybrid bonding).
    """
    face = stacking.align_yield / (1.0 + area_mm2 * stacking.bond_defects_per_cm2 / 100.0)
    return np.asarray(np.asarray(face) ** np.asarray(faces, float) * stacking.via_yield)
