"""A whole package as a tree: dies, stacks of dies, memory, carrier, substrate, losses, test, NRE."""

from collections.abc import Mapping

import numpy as np

from foretell.economics.assembly import (
    AssemblyCost,
    PackageParts,
    assembly_cost,
    place_usd_per_s,
    stack_yield,
)
from foretell.economics.silicon import die_cost
from foretell.economics.tree import Branch, SheetCases, central, leaf, times, total
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.package import (
    Die,
    DieCost,
    Finish,
    Package,
    PackageKind,
    Process,
    Stacking,
    StackPrice,
)


def die_nre(die: Die, process: Process, finish: Finish) -> Branch:
    """Modules K_m A, integration K_c A and what is fixed, masks apart (Chiplet Actuary).

    K_m and K_c are the shares of a node's NRE over its reference area; modules are counted on the area
    without the interfaces to other dies, which are bought or designed once.
    """
    per_mm2 = process.nre_usd / finish.nre_reference_mm2
    own = die.area_mm2 * (1.0 - die.interface_share)
    fixed = process.nre_usd * (1.0 - finish.module_nre_share - finish.chip_nre_share)
    masks = np.minimum(process.mask_set_usd, fixed)
    return total(
        "design of " + die.name,
        [
            leaf("modules", finish.module_nre_share * per_mm2 * own),
            leaf("integration", finish.chip_nre_share * per_mm2 * die.area_mm2),
            leaf("masks", masks),
            leaf("other fixed", fixed - masks),
        ],
    )


def spread_over(count: Num, volume: Num, elsewhere: Num) -> Num:
    """Share of a design's NRE that one package with `count` of it bears.

    count / (count x volume + elsewhere): over all packages and all other uses the shares sum to 1.
    """
    built = count * np.asarray(volume, float) + elsewhere
    return np.where(np.asarray(volume) > 0.0, count / np.maximum(built, 1e-300), 0.0)


def package_nre_usd(finish: Finish, substrate_mm2: Num) -> Num:
    """Fixed, and more with the area."""
    return finish.package_nre_usd + finish.package_nre_usd_per_mm2 * substrate_mm2


GIB = 2.0**30


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagePrice:
    """A package, priced."""

    tree: Branch
    """Every part of it."""
    dies: Mapping[str, DieCost]
    """One good die of each design."""
    made: AssemblyCost
    """How it was put together."""
    memory_bytes: Num
    """Memory on it."""
    silicon_mm2: Num
    """Area of its dies together."""


def sections(package: Package) -> tuple[str, ...]:
    """Sections of the sheet that a package's price depends on; its names are resolved."""
    named = [f"processes.{die.node}" for die in package.dies]
    if package.memory:
        named.append(f"memories.{package.memory}")
    if any(die.on for die in package.dies):
        named.append(f"stackings.{package.stacking}")
    return ("wafer", "probe", "machine", "finish", f"packages.{package.kind}", *named)


def price_package(package: Package, case: SheetCases) -> PackagePrice:
    """The package as a tree; NRE is in it where a volume is given."""
    kind: PackageKind = case.entry(f"packages.{package.kind}")
    finish: Finish = case.entry("finish")
    costs = {die.name: _one_die(die, kind, case) for die in package.dies}
    memory, memory_usd, memory_bytes = _memory(package, case)
    stacked = _stacked(package, costs, case)
    carried = _carried(package, costs, memory, memory_usd, stacked, kind)
    made = assembly_cost(
        carried,
        kind,
        case.entry("wafer"),
        chip_first=chip_first(package, case),
        place_usd_per_s=place_usd_per_s(case.entry("machine")),
    )
    substrate_mm2 = made.substrate_usd / np.maximum(kind.substrate_usd_per_mm2, 1e-300)
    parts = [
        total("dies", [die_branch(die, costs[die.name]) for die in package.dies]),
        stacked,
        leaf("memory", memory_usd, f"{central(package.memory_stacks):g} of {package.memory}"),
        *_put_together(made),
        _lost(made, carried, memory_usd),
        leaf("test", finish.test_usd / carried.quality),
        leaf("module", finish.module_usd if package.on_module else 0.0),
        _nre(package, finish, case, substrate_mm2),
    ]
    return PackagePrice(
        tree=total("package", parts),
        dies=costs,
        made=made,
        memory_bytes=memory_bytes,
        silicon_mm2=sum(die.area_mm2 * die.count for die in package.dies),
    )


def chip_first(package: Package, case: SheetCases) -> bool:
    """Whether dies are placed before their carrier is built, as asked or as the kind has it."""
    kind: PackageKind = case.entry(f"packages.{package.kind}")
    return kind.chip_first if package.chip_first is None else package.chip_first


def dies_tree(package: Package, case: SheetCases) -> tuple[Branch, Mapping[str, DieCost]]:
    """The dies of a package alone, good and tested, without bumps; with NRE where a volume is given."""
    costs = {die.name: _one_die(die, None, case) for die in package.dies}
    designs = _die_nre(package, case.entry("finish"), case)
    branches = [die_branch(die, costs[die.name]) for die in package.dies]
    return total("chip", [*branches, total("NRE", designs)]), costs


def die_branch(die: Die, cost: DieCost) -> Branch:
    """All dies of one design in a package."""
    one = total(
        die.name,
        [
            leaf("wafer", cost.raw_usd),
            leaf("bad dies", cost.defects_usd),
            leaf("probe", cost.probe_usd),
            leaf("bumps", cost.bumps_usd),
        ],
    )
    note = f"{central(die.count):g} x {central(die.area_mm2):.4g} mm2 of {die.node}"
    return times(one, die.count, note)


def _one_die(die: Die, kind: PackageKind | None, case: SheetCases) -> DieCost:
    """A die; one that lies on another has no bumps, since bonding is paid by the face."""
    process: Process = case.entry(f"processes.{die.node}")
    bumps = 0.0 if kind is None or die.on else kind.bump_usd_per_mm2
    wafer, probe = case.entry("wafer"), case.entry("probe")
    return die_cost(die, process, wafer, probe=probe, bump_usd_per_mm2=bumps)


def _memory(package: Package, case: SheetCases) -> tuple[StackPrice | None, Num, Num]:
    """What the memory is, costs and holds."""
    if not package.memory:
        return None, 0.0, 0.0
    price: StackPrice = case.entry(f"memories.{package.memory}")
    held = package.memory_stacks * package.memory_stack_bytes
    return price, held / GIB * price.usd_per_gib, held


def _stacked(package: Package, costs: Mapping[str, DieCost], case: SheetCases) -> Branch:
    """Bonding dies onto others, and the good dies that failures take with them."""
    tops = [die for die in package.dies if die.on]
    if not tops:
        return leaf("stacking", 0.0)
    how: Stacking = case.entry(f"stackings.{package.stacking}")
    bonding: Num = 0.0
    lost: Num = 0.0
    for base in (die for die in package.dies if any(top.on == die.name for top in tops)):
        above = [top for top in tops if top.on == base.name]
        good: Num = 1.0
        held = costs[base.name].total_usd
        faces_usd: Num = 0.0
        for top in above:
            each = top.count / base.count
            good = good * stack_yield(how, each, top.area_mm2)
            held = held + each * costs[top.name].total_usd
            faces_usd = faces_usd + each * top.area_mm2 * how.bond_usd_per_mm2
        bonding = bonding + base.count * faces_usd
        lost = lost + base.count * (held + faces_usd) * (1.0 / good - 1.0)
    parts = [leaf("bonding", bonding), leaf("lost dies", lost)]
    return total("stacking", parts, package.stacking)


def _carried(
    package: Package,
    costs: Mapping[str, DieCost],
    memory: StackPrice | None,
    memory_usd: Num,
    stacked: Branch,
    kind: PackageKind,
) -> PackageParts:
    """What lies on the carrier: dies that are on no other, memory beside them, dummies."""
    below = [die for die in package.dies if not die.on]
    dies_usd: Num = sum(costs[die.name].total_usd * die.count for die in package.dies)
    quality: Num = 1.0
    for die in package.dies:
        quality = quality * costs[die.name].quality ** np.asarray(die.count, float)
    placed: Num = sum(die.count for die in below)
    area: Num = sum(die.area_mm2 * die.count for die in below)
    on_carrier: Num = 0.0
    if memory is not None:
        beside = np.asarray(memory.stack_mm2) > 0.0
        on_carrier = np.where(beside, package.memory_stacks, 0.0)
        area = area + (package.memory_stacks + package.spacers) * memory.stack_mm2
        quality = quality * memory.quality**on_carrier
    spacers = package.spacers if kind.carrier != "none" else 0.0
    return PackageParts(
        parts_usd=dies_usd + stacked.usd + np.where(np.asarray(on_carrier) > 0, memory_usd, 0.0),
        placements=placed + on_carrier + spacers,
        parts_mm2=area,
        dies=placed,
        quality=quality,
        carrier_mm2=package.carrier_mm2,
        bridges=placed - 1.0 + on_carrier,
    )


def _put_together(made: AssemblyCost) -> list[Branch]:
    bad = made.carrier_usd * (1.0 / made.carrier_yield - 1.0)
    return [
        total("carrier", [leaf("carrier", made.carrier_usd), leaf("bad carriers", bad)]),
        leaf("substrate", made.substrate_usd),
        leaf("placing", made.placing_usd),
    ]


def _lost(made: AssemblyCost, carried: PackageParts, memory_usd: Num) -> Branch:
    """Good parts that go with packages that fail."""
    share = made.lost_parts_usd / np.maximum(carried.parts_usd, 1e-300)
    memory = np.where(np.asarray(carried.placements) > carried.dies, memory_usd, 0.0) * share
    with np.errstate(invalid="ignore"):  # no carrier of this size fits: the answer is no
        bad = made.carrier_usd * (1.0 / made.carrier_yield - 1.0)
        carriers = made.lost_carrier_usd - bad
    return total(
        "lost in assembly",
        [
            leaf("dies", made.lost_parts_usd - memory),
            leaf("memory", memory),
            leaf("carriers", carriers),
            leaf("substrates", made.lost_substrate_usd),
            leaf("placing", made.lost_placing_usd),
        ],
    )


def _die_nre(package: Package, finish: Finish, case: SheetCases) -> list[Branch]:
    """Each design's NRE, as much of it as one package bears."""
    found = []
    for die in package.dies:
        if die.reused:
            continue
        process: Process = case.entry(f"processes.{die.node}")
        share = spread_over(die.count, package.volume, die.elsewhere)
        found.append(times(die_nre(die, process, finish), share))
    return found


def _nre(package: Package, finish: Finish, case: SheetCases, substrate_mm2: Num) -> Branch:
    """All NRE that one package bears."""
    share = spread_over(1.0, package.volume, 0.0)
    own = leaf("design of package", package_nre_usd(finish, substrate_mm2) * share)
    note = f"over {central(package.volume):,.0f} packages"
    return total("NRE", [*_die_nre(package, finish, case), own], note)
