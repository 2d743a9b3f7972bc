"""What a chip or a package costs: from what users name to an answer with ranges."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from foretell import catalog, units
from foretell.catalog.designs import build
from foretell.catalog.money import Sheet, sheet
from foretell.catalog.systems import own_file
from foretell.catalog.technology import find_named, technology
from foretell.economics.answer import CostAnswer
from foretell.economics.assembly import RETICLE_MM2
from foretell.economics.interfaces import interface, interface_of_share, package_tier
from foretell.economics.packages import PackagePrice, chip_first, dies_tree, price_package, sections
from foretell.economics.products import package_of_chip, package_of_design, partition
from foretell.economics.settings import set_prices
from foretell.economics.tree import Branch, SheetCases, case_of, central, cost_leaf, drivers, spread
from foretell.errors import BadInput, Infeasible, Problem, bad_input, wrong
from foretell.inputs.overrides import apply_settings, parse_settings
from foretell.inputs.question import as_texts
from foretell.specs.check import problems_of
from foretell.specs.design import ChipDesign, LinkKind
from foretell.specs.package import DieCost, Package
from foretell.specs.questions.cost import PackageQuestion as PackageQuestion

ROOTS = ("package", "prices")
"""What a `--set` path of a chip or package may begin with."""
BOUND_USD = 1e100
"""What costs more has no price; its square would not be a number."""
MOST_INTERFACE = 0.9
"""A die that is more interface than this is refused."""


def chip_cost(question: PackageQuestion) -> CostAnswer:
    """The dies of a chip, good and tested, without their package."""
    figures, package, said, seen = _asked(question)
    case = case_of(figures, ("wafer", "probe", "finish", *_processes(package)))
    with np.errstate(all="ignore"):  # what is not finite is refused below
        tree, costs = dies_tree(package, case)
    _check_finite(tree, package)
    facts = {
        "dies": [_die_facts(package, name, cost, case) for name, cost in costs.items()],
        "nre_usd": _nre_usd(package, case),
    }
    return _answer("chip", package, tree, case, facts, said, seen)


def package_cost(question: PackageQuestion) -> CostAnswer:
    """A whole package: dies, memory, carrier, substrate, losses, test."""
    figures, package, said, seen = _asked(question)
    case = case_of(figures, sections(package))
    with np.errstate(all="ignore"):  # what is not finite is refused below
        found = price_package(package, case)
    _check_finite(found.tree, package)
    return _answer(
        "package", package, found.tree, case, _package_facts(package, found, case), said, seen
    )


def _asked(
    question: PackageQuestion,
) -> tuple[Sheet, Package, tuple[str, ...], dict[str, object]]:
    """Figures, the package with every setting, and what was assumed and set."""
    settings = parse_settings(as_texts(question.set), ROOTS)
    seen: dict[str, object] = {}
    figures, problems = sheet(), list[Problem]()
    try:
        figures = set_prices(figures, settings, seen)
    except BadInput as error:
        problems += error.problems
    try:
        package, said = _package(question, figures)
        package = apply_settings(package, settings, "package", seen)
        package = _resolved(package, figures)
        problems += problems_of(package, "package") + _contradictions(package)
    except BadInput as error:
        raise BadInput([*problems, *error.problems]) from None
    if problems:
        raise BadInput(problems)
    large = [die for die in package.dies if float(np.max(die.area_mm2)) > RETICLE_MM2]
    if large:
        raise Infeasible(
            [
                wrong(
                    f"package.dies.{die.name}.area_mm2",
                    die.area_mm2,
                    f"one exposure prints {RETICLE_MM2:g} mm2",
                    "more dies, each smaller",
                )
                for die in large
            ]
        )
    return figures, package, said, seen


def _package(question: PackageQuestion, figures: Sheet) -> tuple[Package, tuple[str, ...]]:
    """The package that a question names, or describes."""
    volume = _number(question.volume, "volume") if question.volume != "" else 0.0
    if question.name:
        package, said = named_package(question.name, figures, question.package)
        if question.area != "" or question.dies != "":
            package = _divided(package, question, figures)
    else:
        package, said = _described(question, figures), ()
    if question.node:
        node = figures.resolve("processes", question.node, "node")
        first, *rest = package.dies
        package = replace(package, dies=(replace(first, node=node), *rest))
    if not volume:
        said = (*said, "NRE is not included; --volume spreads it over so many packages.")
    return replace(package, volume=volume), said


def named_package(name: str, figures: Sheet, kind: str = "") -> tuple[Package, tuple[str, ...]]:
    """The package of a catalogue's chip, or of a file with a design."""
    path = own_file(name)
    if path is not None:
        system = catalog.system(path)
        design = _design_in(path)
        if design is None:
            package, said = package_of_chip(system.chip, figures)
        else:
            package, said = package_of_design(build(design).design, figures, kind)
    else:
        package, said = package_of_chip(catalog.chip(name), figures)
    if kind:
        package = replace(package, kind=figures.resolve("packages", kind, "package"))
    return package, said


def _design_in(path: Any) -> ChipDesign | None:
    """The design that a file describes its chip by, if it does."""
    from foretell.catalog.designs import design_from_table
    from foretell.catalog.files import read_table

    table = read_table(path)
    chip = table.get("chip")
    held = table.get("design", chip.get("design") if isinstance(chip, Mapping) else None)
    return None if held is None else design_from_table(held, "design", [])


def _described(question: PackageQuestion, figures: Sheet) -> Package:
    """Plain silicon of an area on one die or several."""
    missing = [
        wrong(name, None, "is missing", allowed)
        for name, given, allowed in (
            ("node", question.node, ", ".join(figures.names("processes"))),
            ("area", question.area, "an area such as 800 (mm2), or the name of a chip"),
        )
        if given == ""
    ]
    if missing:
        raise BadInput(missing)
    node = figures.resolve("processes", question.node, "node")
    area, dies = _number(question.area, "area", "mm2"), _dies(question)
    kind = figures.resolve("packages", question.package or "organic", "package")
    made = partition(node, area, dies, kind)
    if question.die_to_die == "" or dies == 1:
        return made
    rate = units.parse(question.die_to_die, "bytes_per_s", "die_to_die")
    taken = float(interface(_link(kind, figures), rate).area_mm2)
    share = taken / (area / dies + taken)
    if not 0.0 < share < MOST_INTERFACE:
        message = f"its interfaces would take {taken:.3g} mm2 of each die"
        allowed = f"a rate above 0 that leaves {1 - MOST_INTERFACE:.0%} of a die"
        raise bad_input("die_to_die", question.die_to_die, message, allowed)
    return replace(partition(node, area, dies, kind, share), die_to_die_bytes_per_s=rate)


def _divided(package: Package, question: PackageQuestion, figures: Sheet) -> Package:
    """A named package with its compute dies divided otherwise, or larger or smaller."""
    first, *rest = package.dies
    whole = float(first.area_mm2) * float(first.count) * (1.0 - float(first.interface_share))
    area = whole if question.area == "" else _number(question.area, "area", "mm2")
    dies = int(first.count) if question.dies == "" else _dies(question)
    plain = partition(first.node, area, dies, "organic").dies[0]
    old = float(first.count)
    units_, needed = round(first.units * old / dies), round(first.units_needed * old / dies)
    changed = replace(
        first, area_mm2=plain.area_mm2, count=float(dies), interface_share=plain.interface_share,
        units=units_, units_needed=min(needed, units_),
    )  # fmt: skip
    return replace(package, dies=(changed, *rest))


def _dies(question: PackageQuestion) -> int:
    dies = 1.0 if question.dies == "" else _number(question.dies, "dies")
    if dies < 1 or dies != int(dies) or dies > 1000:
        raise bad_input("dies", question.dies, "is not a whole number of dies", "1 to 1000")
    return int(dies)


def _number(value: str | float, path: str, unit: str = "") -> float:
    number = units.parse(value, unit, path)
    if number < 0 or (number == 0 and path == "area"):
        raise bad_input(path, value, "too small", "above 0")
    return number


def _resolved(package: Package, figures: Sheet) -> Package:
    """Names as the sheet has them, after settings."""
    dies = tuple(
        replace(die, node=figures.resolve("processes", die.node, f"package.dies.{die.name}.node"))
        for die in package.dies
    )
    memory = package.memory
    if memory:
        memory = figures.resolve("memories", memory, "package.memory")
    return replace(
        package,
        dies=dies,
        memory=memory,
        kind=figures.resolve("packages", package.kind, "package.kind"),
        stacking=figures.resolve("stackings", package.stacking, "package.stacking"),
    )


def _contradictions(package: Package) -> list[Problem]:
    """What no annotation can say: shares above the whole, dies on dies that are not there."""
    found = []
    names = [die.name for die in package.dies]
    for die in package.dies:
        path = f"package.dies.{die.name}"
        if die.units_share + die.repairable_share > 1.0 or die.interface_share >= 1.0:
            found.append(wrong(path, die.units_share, "shares of its area are more than the whole"))
        if die.units_needed > die.units:
            found.append(wrong(path, die.units_needed, "needs more units than it has"))
        if die.on and (die.on not in names or die.on == die.name):
            message, said = "lies on no die of this package", ", ".join(names)
            found.append(wrong(f"{path}.on", die.on, message, said))
    return found


def _check_finite(tree: Branch, package: Package) -> None:
    """What is larger than its wafer, or never good, has no price."""
    if np.all(np.asarray(tree.usd, float) < BOUND_USD):
        return
    message = "is larger than a wafer or panel, or next to never good"
    raise Infeasible([wrong(f"package.{package.kind}", None, message)])


def _processes(package: Package) -> list[str]:
    return [f"processes.{die.node}" for die in package.dies]


def _answer(
    what: str,
    package: Package,
    tree: Branch,
    case: SheetCases,
    facts: Mapping[str, Any],
    said: Sequence[str],
    seen: Mapping[str, object],
) -> CostAnswer:
    low, usd, high = spread(tree.usd, case)
    return CostAnswer(
        what=what,
        name=package.name,
        usd=usd,
        low_usd=low,
        high_usd=high,
        breakdown=cost_leaf(tree, case),
        facts=facts,
        drivers=drivers(tree.usd, case),
        assumptions=tuple(said),
        overrides=seen,
    )


def _die_facts(package: Package, name: str, cost: DieCost, case: SheetCases) -> dict[str, Any]:
    die = next(die for die in package.dies if die.name == name)
    low, usd, high = spread(cost.total_usd, case)
    return {
        "name": name,
        "node": die.node,
        "area_mm2": float(die.area_mm2),
        "count": float(die.count),
        "dies_per_wafer": central(cost.dies_per_wafer),
        "perfect_share": central(cost.perfect_share),
        "good_share": central(cost.good_share),
        "passed_share": central(cost.passed_share),
        "quality": central(cost.quality),
        "usd_each": usd,
        "low_usd_each": low,
        "high_usd_each": high,
    }


def _nre_usd(package: Package, case: SheetCases) -> float:
    """All NRE of the dies that are designed for this package."""
    from foretell.economics.packages import die_nre

    designed = [die for die in package.dies if not die.reused]
    return sum(
        central(die_nre(die, case.entry(f"processes.{die.node}"), case.entry("finish")).usd)
        for die in designed
    )


def _package_facts(package: Package, found: PackagePrice, case: SheetCases) -> dict[str, Any]:
    made = found.made
    return {
        "kind": package.kind,
        "chip_first": chip_first(package, case),
        "dies": [_die_facts(package, name, cost, case) for name, cost in found.dies.items()],
        "memory": package.memory or None,
        "memory_bytes": float(found.memory_bytes),
        "silicon_mm2": float(found.silicon_mm2),
        "carrier_mm2": central(made.carrier_mm2),
        "carrier_yield": central(made.carrier_yield),
        "placing_yield": central(made.placing_yield),
        "package_yield": central(made.package_yield),
        "nre_usd": _nre_usd(package, case),
        "die_to_die": _die_to_die(package, case.sheet),
    }


def _link(kind: str, figures: Sheet) -> LinkKind:
    """The interface between dies that a package allows."""
    path, problems = f"packages.{kind}.link", list[Problem]()
    found = find_named(technology().links, figures.plain[path], f"prices.{path}", problems)
    if found is None:
        raise BadInput(problems)
    return found


def _die_to_die(package: Package, figures: Sheet) -> dict[str, Any] | None:
    """The interface between dies, and the package as a tier of a network."""
    first = package.dies[0]
    dies = int(sum(float(die.count) for die in package.dies if not die.on or die is first))
    if dies < 2 and not any(die.on for die in package.dies):
        return None
    link = _link(package.kind, figures)
    if package.die_to_die_bytes_per_s:
        made = interface(link, float(package.die_to_die_bytes_per_s))
    else:
        made = interface_of_share(link, float(first.area_mm2), float(first.interface_share))
    if not made.bytes_per_s:
        return None
    tier = package_tier(int(first.count), float(made.bytes_per_s))
    return {
        "link": made.link,
        "bytes_per_s": float(made.bytes_per_s),
        "area_mm2": float(made.area_mm2),
        "edge_mm": float(made.edge_mm),
        "watts": float(made.watts),
        "tier": {
            "name": tier.name,
            "size": tier.size,
            "bandwidth_bytes_per_s": tier.bandwidth_bytes_per_s,
            "latency_s": tier.latency_s,
            "topology": tier.topology,
        },
    }
