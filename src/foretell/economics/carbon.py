"""Greenhouse gases of work: of its electricity, and its share of what making everything emitted.

    die      wafer area x (kWh x grid + gases + materials, for each cm2) / (dies of a wafer x good share)
    package  dies, carriers, what assembly scraps of these, memory, module
    share    hours of work over those that a thing works in its life: years x 8760 x use

The wafer is U. Gupta et al.'s (ACT, ISCA 2022), except that whole wafers are shared by their good dies,
as the money of them is, where ACT takes the die's own area and one yield for all.
"""

import numpy as np

from foretell.economics.owning import OwnedCluster
from foretell.economics.packages import price_package
from foretell.economics.total_cost import HOURS
from foretell.economics.tree import Branch, SheetCases, central, leaf, times, total
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.cost import EmbodiedFactors, Fab
from foretell.specs.package import Package

GIB = 2.0**30
GB = 1e9
CM2 = 100.0
"""Square millimetres of a square centimetre."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbodiedCarbon:
    """What making a cluster emitted, by how long each part is used; kg."""

    servers: Branch
    """Chips, hosts and storage."""
    network: Branch
    """Switches and transceivers."""
    building: Branch
    """Shell, power and cooling."""


def wafer_kg(fab: Fab, embodied: EmbodiedFactors, diameter_mm: Num) -> Num:
    """One processed wafer."""
    area = np.pi * (diameter_mm / 20.0) ** 2
    electric = fab.kwh_per_cm2 * embodied.fab_grams_per_kwh / 1000.0
    return area * (electric + fab.gas_kg_per_cm2 + fab.material_kg_per_cm2)


def chip_kg(package: Package | None, case: SheetCases) -> Branch:
    """One chip with its package, memory and module; a usual one where its dies are not known."""
    embodied: EmbodiedFactors = case.entry("embodied")
    if package is None:
        return total("chips", [leaf("chips", embodied.chip_kg)])
    found = price_package(package, case)
    wafer = case.entry("wafer")
    dies: list[Branch] = []
    for die in package.dies:
        cost = found.dies[die.name]
        whole = wafer_kg(case.entry(f"fabs.{die.node}"), embodied, wafer.diameter_mm)
        each = whole / (cost.dies_per_wafer * cost.good_share)
        note = f"{central(die.count):g} x {central(die.area_mm2):.4g} mm2 of {die.node}"
        dies.append(leaf(die.name, each * die.count, note))
    carrier = embodied.carrier_kg_per_cm2 * found.made.carrier_mm2 / CM2
    silicon = [
        total("dies", dies),
        leaf("carrier", carrier / found.made.carrier_yield),
        leaf("package", embodied.package_kg),
    ]
    # Memory and module are known as delivered, their own losses in them.
    scrap = total("", silicon).usd * (1.0 / found.made.package_yield - 1.0)
    hbm = package.memory.startswith("HBM")
    each_gib = embodied.hbm_kg_per_gib if hbm else embodied.dram_kg_per_gib
    return total(
        "chips",
        [
            *silicon,
            leaf("lost in assembly", scrap),
            leaf("memory", found.memory_bytes / GIB * each_gib, package.memory),
            leaf("module", embodied.module_kg),
        ],
    )


def made_kg(own: OwnedCluster, package: Package | None) -> EmbodiedCarbon:
    """The whole cluster."""
    case, cluster, bought = own.case, own.cluster, own.bought
    embodied: EmbodiedFactors = case.entry("embodied")
    stored = cluster.chips * case.entry("site").storage_bytes_per_chip / GB
    return EmbodiedCarbon(
        servers=total(
            "servers",
            [
                times(chip_kg(package, case), cluster.chips),
                leaf("hosts", cluster.nodes * embodied.host_kg),
                leaf("storage", stored * embodied.storage_kg_per_gb),
            ],
        ),
        network=total(
            "network",
            [
                leaf("switches", bought.switches * embodied.switch_kg),
                leaf("transceivers", bought.optics * embodied.optics_kg),
            ],
        ),
        building=leaf("building", bought.watts * embodied.building_kg_per_watt),
    )


def share_kg(made: EmbodiedCarbon, own: OwnedCluster, gpu_hours: Num) -> Branch:
    """What so many hours of chips bear of it."""
    finance = own.case.entry("finance")
    hours = HOURS * finance.utilisation * own.cluster.chips
    parts = [
        times(made.servers, gpu_hours / (hours * finance.server_years)),
        times(made.network, gpu_hours / (hours * finance.network_years)),
        times(made.building, gpu_hours / (hours * finance.building_years)),
    ]
    return total("embodied", parts)
