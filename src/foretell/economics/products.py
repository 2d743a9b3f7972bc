"""From what users name to a package that can be priced: a chip, a design, or plain areas."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from foretell.catalog.design_model import die_areas, io_die_areas
from foretell.catalog.designs import build, complete_design, look_up
from foretell.catalog.files import ROOT, read_table
from foretell.catalog.money import Sheet
from foretell.catalog.technology import technology
from foretell.catalog.values import read_fields
from foretell.errors import BadInput, Problem, bad_input
from foretell.specs.chip import Chip
from foretell.specs.design import ChipDesign
from foretell.specs.package import Die, Package
from foretell.specs.system import System

BUILT_GIB = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 36, 48, 64)
"""Capacities in which stacks are built: what software sees is a little less."""


def package_of_chip(chip: Chip, sheet: Sheet) -> tuple[Package, tuple[str, ...]]:
    """A catalogue's chip as a package, and what was assumed about it."""
    said: list[str] = []
    node = node_of(chip.process_node, sheet, f"{chip.id} has no process that prices are known of")
    design = design_of_chip(chip, node, said)
    dies = _dies(design, node, sheet, said)
    kind = _kind(chip, sheet, said)
    memory = _memory(chip.memory_type, sheet, said)
    stacks = float(chip.memory_stacks) or (1.0 if memory else 0.0)
    size = _built(float(chip.memory_bytes) / stacks) if memory else 0.0
    hbm = memory.startswith("HBM")
    spacers = float(stacks % 2) if hbm and float(chip.compute_dies) == 1.0 else 0.0
    if spacers:
        said.append("An odd number of stacks leaves a place that a dummy die fills.")
    on_module = any(word in chip.form_factor for word in ("SXM", "OAM", "superchip", "module"))
    return (
        Package(
            name=chip.id,
            kind=kind,
            dies=dies,
            memory=memory,
            memory_stacks=stacks if memory else 0.0,
            memory_stack_bytes=size,
            spacers=spacers,
            on_module=on_module or not chip.form_factor,
        ),
        tuple(said),
    )


def package_of_system(system: System, sheet: Sheet) -> tuple[Package, tuple[str, ...]]:
    """The package of a system's chip: of the design that it was built from, which says more, or of itself."""
    if system.design is None:
        return package_of_chip(system.chip, sheet)
    return package_of_design(build(system.design).design, sheet)


def package_of_design(
    design: ChipDesign, sheet: Sheet, kind: str = ""
) -> tuple[Package, tuple[str, ...]]:
    """A design, built or complete, as a package."""
    said: list[str] = []
    node = sheet.resolve("processes", design.node, "chip.design.node")
    dies = _dies(design, node, sheet, said)
    asked = kind or design.package
    memory = _memory(design.memory_type if design.memory_stacks else "", sheet, said)
    if not asked:
        asked = "interposer" if memory.startswith("HBM") else "organic"
        said.append(f"No package is named; taken: {asked}.")
    return (
        Package(
            name=design.id,
            kind=sheet.resolve("packages", asked, "package"),
            dies=dies,
            memory=memory,
            memory_stacks=float(design.memory_stacks),
            memory_stack_bytes=float(design.memory_stack_bytes),
            die_to_die_bytes_per_s=float(design.die_to_die_bytes_per_s),
            volume=float(design.volume),
        ),
        tuple(said),
    )


def partition(
    node: str, area_mm2: float, dies: int, kind: str, interface_share: float = 0.1
) -> Package:
    """So much silicon on one die, or on several that also need interfaces to each other.

    A die of several has area / n / (1 - share). Dies that lie on each other have one at the bottom.
    """
    share = interface_share if dies > 1 else 0.0
    one = Die(name="die", node=node, area_mm2=area_mm2 / dies / (1.0 - share), count=float(dies))
    one = replace(one, interface_share=share)
    made: tuple[Die, ...] = (one,)
    if kind == "hybrid-3d" and dies > 1:
        top = replace(one, name="upper", count=float(dies - 1), on="die", reused=True)
        made = (replace(one, count=1.0), top)
    return Package(name=f"{dies} x {one.area_mm2:.4g} mm2", kind=kind, dies=made, on_module=False)


def design_of_chip(chip: Chip, node: str, said: list[str]) -> ChipDesign:
    """What is known of a chip as an architect would say it; what is not stays open."""
    known = products().get(chip.id, {})
    units = 4.0
    clocks = float(chip.cores) * units * float(chip.clock_hz)
    rates = {d: float(r) / clocks for d, r in chip.matrix_flop_per_s.items()} if clocks else {}
    given: dict[str, Any] = {
        "id": chip.id,
        "node": node,
        "compute_dies": float(chip.compute_dies) or 1.0,
        "die_area_mm2": float(chip.die_area_mm2),
        "cores": float(chip.cores),
        "matrix_units_per_core": units if clocks else 0.0,
        "matrix_flop_per_clock": rates,
        "clock_hz": float(chip.clock_hz),
        "l2_bytes": float(chip.l2_bytes),
        "sram_bytes_per_core": float(chip.sram_bytes_per_core),
        "memory_stacks": float(chip.memory_stacks),
        "scale_up_bytes_per_s": float(chip.scale_up_bytes_per_s),
    }
    made = ChipDesign(**{**given, **known})
    if not (made.die_area_mm2 or made.cores):
        message = "has neither an area nor a number of cores that is published"
        raise bad_input(f"chip.{chip.id}", None, message)
    if "die_area_mm2" in known:
        said.append(f"Its dies are taken as {known['die_area_mm2']:g} mm2: not published.")
    return made


@lru_cache(maxsize=1)
def products() -> Mapping[str, Mapping[str, Any]]:
    """Fields of designs that chips' own files do not have, by chip."""
    table = read_table(ROOT / "products.toml")
    problems: list[Problem] = []
    found = {
        name: read_fields(ChipDesign, held, f"products.{name}", problems)
        for name, held in table["products"].items()
    }
    if problems:
        raise BadInput(problems)
    return found


def node_of(text: str, sheet: Sheet, message: str) -> str:
    """The process that a chip's text names, perhaps among others: TSMC N3P (XCD) + N6 (IOD)."""
    words = [text, *re.findall(r"\d+ ?nm", text), *re.findall(r"\w+", text)]
    for word in words:
        try:
            return sheet.resolve("processes", word, "node")
        except BadInput:
            continue
    raise bad_input("node", text or None, message, ", ".join(sheet.names("processes")))


def _dies(design: ChipDesign, node: str, sheet: Sheet, said: list[str]) -> tuple[Die, ...]:
    """Compute dies with their spare cores and repairable caches, and input-output dies."""
    parts = look_up(replace(design, node=_modelled(node)), technology(), "chip.design", [])
    if parts is None:
        said.append(f"No area model has {node}: half of a die is taken as cores.")
        die = Die(name="compute", node=node, area_mm2=float(design.die_area_mm2))
        return (replace(die, count=float(design.compute_dies)),)
    whole, _ = complete_design(replace(design, node=parts.node.name), parts)
    areas = die_areas(whole, parts)
    count, per_die = float(whole.compute_dies), float(areas["total"])
    area = float(design.die_area_mm2) or per_die
    built = round(float(whole.cores_built) / count)
    compute = Die(
        name="compute",
        node=node,
        area_mm2=area,
        count=count,
        units=built,
        units_needed=min(int(np.ceil(float(whole.cores) / count)), built),
        units_share=float(areas["cores"]) / per_die,
        repairable_share=float(areas["l2"]) / per_die,
        on="io" if whole.io_dies and "hybrid" in whole.die_to_die_link else "",
    )
    spare = built - compute.units_needed
    said.append(f"Of {built} cores on a die {spare} may be bad; defects in caches are repaired.")
    if not whole.io_dies:
        return (compute,)
    io_areas = io_die_areas(whole, parts)
    io = Die(
        name="io",
        node=sheet.resolve("processes", whole.io_node, "chip.design.io_node"),
        area_mm2=float(whole.io_die_area_mm2),
        count=float(whole.io_dies),
        repairable_share=min(float(io_areas["cache"]) / float(io_areas["total"]), 0.9),
    )
    return (compute, io)


def _modelled(node: str) -> str:
    """The node whose areas stand for one that has no model of them: the nearest older or newer."""
    near = {"N55": "N16", "N40": "N16", "N28": "N16", "N20": "N16", "N10": "N7"}
    return near.get(node, node)


def _kind(chip: Chip, sheet: Sheet, said: list[str]) -> str:
    """The package that a chip's text names; what is usual with its memory where it names none."""
    for word in (chip.package, *chip.package.split("+")):
        try:
            return sheet.resolve("packages", word.strip(), "package")
        except BadInput:
            continue
    kind = "interposer" if chip.memory_type.upper().startswith("HBM") else "organic"
    said.append(f"Its package ({chip.package or 'not published'}) is taken as: {kind}.")
    return kind


def _memory(text: str, sheet: Sheet, said: list[str]) -> str:
    try:
        return sheet.resolve("memories", text, "memory") if text else ""
    except BadInput:
        said.append(f"Its memory ({text}) has no price here and is not included.")
        return ""


def _built(size_bytes: float) -> float:
    """The capacity of a stack as built: the next one above what software sees."""
    for gib in BUILT_GIB:
        if size_bytes <= gib * 2.0**30 * 1.001:
            return gib * 2.0**30
    return size_bytes
