"""Chiplet Actuary (Feng and Ma, DAC 2022) reproduced: its parameters, its columns and its mistakes.

The formulas are those of this package; what differs are parameters, and a mistake that its values contain
(specs/package.py), which is turned on here and nowhere else.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import numpy as np

from foretell.catalog.files import ROOT, read_table
from foretell.economics.assembly import AssemblyCost, PackageParts, assembly_cost
from foretell.economics.silicon import die_cost
from foretell.specs._base import Num
from foretell.specs.package import CostQuirks, Die, DieCost, PackageKind, Process, Wafer

Form = Literal["OS", "FO", "SI"]
"""Organic substrate, fan-out, silicon interposer."""


PUBLISHED = CostQuirks(bumps_once=True)
"""The mistake that the published values of Chiplet Actuary contain."""
WAFER = Wafer(diameter_mm=300.0, edge_mm=5.0, scribe_mm=0.2, rule="actuary")
"""Its wafer."""
INTERFACE_SHARE = 0.1
"""Share of a die of several that is interface, as its published examples have it."""
FILE = read_table(ROOT / "actuary.toml")
"""Its parameter file's numbers."""
NODES: Mapping[str, Process] = MappingProxyType(
    {node: Process(**numbers) for node, numbers in FILE["node"].items()}
)
"""Its nodes."""
KINDS: Mapping[str, PackageKind] = MappingProxyType(
    {form: PackageKind(**numbers) for form, numbers in FILE["package"].items()}
)
"""Its three packages, by form."""


def die_of(area_mm2: Num, process: Process) -> DieCost:
    """One die by its formulas."""
    return die_cost(Die(node="", area_mm2=area_mm2), process, WAFER)


def partition_mm2(module_mm2: Num, dies: Num) -> Num:
    """Area of one of several dies that share so many mm2 of modules; one die has no interface."""
    several = module_mm2 / dies / (1.0 - INTERFACE_SHARE)
    return np.where(np.asarray(dies) > 1.0, several, module_mm2)


def package_columns(
    area_mm2: Num,
    dies: Num,
    process: Process,
    form: Form,
    *,
    chip_first: bool = False,
    quirks: CostQuirks = PUBLISHED,
) -> dict[str, Num]:
    """The five columns of its package cost and their sum."""
    kind, one = KINDS[form], die_of(area_mm2, process)
    once = quirks.bumps_once and kind.carrier != "none"
    bumps = kind.bump_usd_per_mm2 * area_mm2 * (1.0 if once else dies)
    raw, defects = dies * one.raw_usd + bumps, dies * one.defects_usd
    carried = PackageParts(
        parts_usd=raw + defects, placements=dies, parts_mm2=area_mm2 * dies, dies=dies
    )
    made: AssemblyCost = assembly_cost(carried, kind, WAFER, chip_first=chip_first)
    found = {
        "raw_chips": raw,
        "defect_chips": defects,
        "raw_package": made.carrier_usd + made.substrate_usd,
        "defect_package": made.lost_carrier_usd + made.lost_substrate_usd,
        "wasted_kgd": made.lost_parts_usd,
    }
    return {**found, "total_usd": sum(found.values())}
