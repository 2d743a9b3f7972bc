"""From a design to a chip: peaks, areas and watts of units, clocks and memories, and can it be built.

Peaks are exact: cores x units x FLOP per clock x clock. Areas and watts are a chip architect's
envelope with few coefficients (technology.toml says which were fitted and how): areas of nine known
dies come out within 13 %, the matrix rate that a power limit sustains within some 25 %
(MI355X: 47 %). All formulas broadcast: a design may hold arrays in its numeric fields,
except for `build`, which judges one design.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from foretell.catalog.design_checks import contradictions, doubts, shortfalls
from foretell.catalog.design_model import (
    DesignParts,
    away_share,
    cache_mm2,
    chip_of,
    core_mm2,
    die_areas,
    edge_share,
    interfaces_mm2,
    io_die_areas,
    other_share,
    plain,
    sustained_share,
    watts,
    with_interfaces,
)
from foretell.catalog.technology import find_named, technology
from foretell.catalog.values import check_missing, read_fields
from foretell.errors import BadInput, Problem, Shortfall, bad_input, wrong
from foretell.specs._base import Num
from foretell.specs.check import problems_of
from foretell.specs.design import BuiltChip, ChipDesign, Technology
from foretell.units import field_unit
from foretell.units import format as shown


def design_from_table(table: object, path: str, problems: list[Problem]) -> ChipDesign | None:
    """A design from a user's table; None, and problems added to the list, where it cannot be made."""
    if not isinstance(table, dict):
        problems.append(wrong(path, table, "is not a table"))
        return None
    before = len(problems)
    given: dict[str, Any] = read_fields(ChipDesign, table, path, problems)
    check_missing(ChipDesign, given, path, problems)
    return None if len(problems) > before else ChipDesign(**given)


def built_from_table(table: object, path: str, problems: list[Problem]) -> BuiltChip | None:
    """A user's design built; None, and problems added to the list, where it cannot be."""
    design = design_from_table(table, path, problems)
    if design is None:
        return None
    try:
        return build(design, path=path)
    except BadInput as error:
        problems += error.problems
        return None


def build(design: ChipDesign, *, tech: Technology | None = None, path: str = "design") -> BuiltChip:
    """What one design comes to; BadInput with every reason why it cannot be built."""
    if tech is not None:
        return _build(design, tech, path)
    return _known_build(_DesignKey(design, path))


class _DesignKey:
    """A design as a key: its peaks are a mapping, which has no hash."""

    __slots__ = ("asked", "text")

    def __init__(self, design: ChipDesign, path: str) -> None:
        self.asked, self.text = (design, path), repr(design)

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _DesignKey) and self.asked == other.asked


@lru_cache(maxsize=256)
def _known_build(key: _DesignKey) -> BuiltChip:
    """A study builds a point's design for its chip, and again for its price."""
    design, path = key.asked
    return _build(design, technology(), path)


def _build(design: ChipDesign, tech: Technology, path: str) -> BuiltChip:
    problems: list[Problem] = []
    parts = look_up(design, tech, path, problems)
    if parts is None:
        raise BadInput(problems)
    if not (design.cores or design.die_area_mm2):
        message = "neither cores nor die_area_mm2 is given: one follows from the other"
        raise bad_input(path, None, message)
    if not (float(design.compute_dies).is_integer() and float(design.io_dies).is_integer()):
        raise BadInput(contradictions(design, path))  # no area can be told of parts of dies
    whole, filled = complete_design(design, parts)
    die, io_die, power = die_areas(whole, parts), io_die_areas(whole, parts), watts(whole, parts)
    built = BuiltChip(
        design=whole,
        chip=chip_of(whole, parts),
        die_mm2=die,
        io_die_mm2=io_die,
        watts=power,
        sustained_share=sustained_share(whole, power),
        edge_share=edge_share(whole, parts),
        l2_bytes_per_s=whole.l2_bytes_per_clock * whole.clock_hz,
        sram_bytes_per_s=whole.cores * whole.sram_bytes_per_clock_per_core * whole.clock_hz,
        assumptions=(),
    )
    problems += [_shortfall(p) for p in shortfalls(design, built, parts.node, parts.io_node, path)]
    problems = problems or problems_of(built.chip, path)  # numbers out of every range
    if problems:
        raise BadInput(problems)
    said = (*_introduction(whole, filled), *doubts(built, parts.node))
    return replace(built, assumptions=said)


def _shortfall(problem: Problem) -> Problem:
    names = ("path", "value", "message", "allowed", "nearest")
    return Shortfall(**{name: getattr(problem, name) for name in names})


def look_up(
    design: ChipDesign, tech: Technology, path: str, problems: list[Problem]
) -> DesignParts | None:
    """The node, memory and links that a design names; None, and problems, where one is not known."""
    node = find_named(tech.nodes, design.node, f"{path}.node", problems)
    io_node = find_named(tech.nodes, design.io_node, f"{path}.io_node", problems)
    memory = find_named(tech.memories, design.memory_type, f"{path}.memory_type", problems)
    scale_up = find_named(tech.links, design.scale_up_link, f"{path}.scale_up_link", problems)
    between = find_named(tech.links, design.die_to_die_link, f"{path}.die_to_die_link", problems)
    if node is None or io_node is None or memory is None or scale_up is None or between is None:
        return None
    named = design.microarchitecture or node.microarchitecture
    units = find_named(tech.microarchitectures, named, f"{path}.microarchitecture", problems)
    if units is None:
        return None
    return DesignParts(
        node=node,
        io_node=io_node,
        units=units,
        memory=memory,
        scale_up=scale_up,
        die_to_die=between,
        host=tech.links["pcie5"],
        rules=tech.rules,
    )


def complete_design(design: ChipDesign, parts: DesignParts) -> tuple[ChipDesign, Mapping[str, Num]]:
    """The design with nothing left open, and the fields that were, with what they were taken as."""
    rules, node, memory = parts.rules, parts.node, parts.memory
    whole = _filled(
        design,
        clock_hz=node.clock_hz,
        matrix_units_per_core=rules.matrix_units_per_core,
        vector_lanes_per_core=rules.vector_lanes_per_core,
        register_bytes_per_core=rules.register_bytes_per_core,
        sram_bytes_per_core=rules.sram_bytes_per_core,
        sram_bytes_per_clock_per_core=rules.sram_bytes_per_clock_per_core,
        memory_stacks=rules.memory_stacks_per_die * with_interfaces(design),
        memory_stack_bytes=memory.stack_bytes,
        memory_stack_bytes_per_s=memory.stack_bytes_per_s,
        scale_up_bytes_per_s=rules.scale_up_bytes_per_s_per_die * with_interfaces(design),
        host_bytes_per_s=rules.host_bytes_per_s,
    )
    if not design.matrix_flop_per_clock:
        whole = replace(whole, matrix_flop_per_clock=parts.units.matrix_flop_per_clock)
    away = away_share(whole)
    share = whole.memory_stacks * whole.memory_stack_bytes_per_s / whole.compute_dies
    whole = _filled(whole, vector_clock_hz=whole.clock_hz, die_to_die_bytes_per_s=away * share)
    whole = _sized(whole, parts)
    whole = _filled(
        whole,
        l2_bytes_per_clock=plain(
            np.maximum(
                rules.l2_bytes_per_clock_per_core * whole.cores,
                rules.l2_over_memory * share * whole.compute_dies / whole.clock_hz,
            )
        ),
        tdp_watts=node.watts_per_mm2 * whole.compute_dies * whole.die_area_mm2,
    )
    return whole, {
        name: getattr(whole, name)
        for name in ChipDesign.__slots__
        if getattr(whole, name) is not getattr(design, name)
        and not isinstance(getattr(whole, name), str)
    }


def _sized(design: ChipDesign, parts: DesignParts) -> ChipDesign:
    """Cores, cache and areas, each from what is given of the others."""
    rules, cell, area = parts.rules, parts.node.sram_cell_mm2, design.die_area_mm2
    from_share = design.sram_share * area * design.compute_dies * rules.sram_efficiency / (8 * cell)
    core, cache = core_mm2(design, parts), cache_mm2(rules.l2_bytes_per_core, cell, rules)
    # What the cores may take of a die: their share, or what interfaces, cache and the rest leave.
    taken = interfaces_mm2(design, parts)
    taken = np.where(np.asarray(design.io_share) > 0, design.io_share * area, taken)
    left = area * (1 - other_share(design, parts)) - taken
    given_l2 = np.asarray(design.l2_bytes + from_share)
    left = left - cache_mm2(given_l2, cell, rules) / design.compute_dies
    left = np.where(np.asarray(design.compute_share) > 0, design.compute_share * area, left)
    # A cache that is not given grows with the cores sold, and so takes its part of the same area.
    each = core + np.where(given_l2 > 0, 0.0, cache / rules.built_per_core)
    fitting = np.floor(np.maximum(left, 0.0) / each) * design.compute_dies
    built = np.asarray(design.cores) * rules.built_per_core / design.compute_dies
    built = np.where(np.asarray(design.cores) > 0, np.ceil(built) * design.compute_dies, fitting)
    design = _filled(design, cores_built=plain(built))
    sold = np.floor(design.cores_built / design.compute_dies / rules.built_per_core)
    design = _filled(design, cores=plain(sold * design.compute_dies))
    l2_bytes = np.where(from_share > 0, from_share, rules.l2_bytes_per_core * design.cores)
    design = _filled(design, l2_bytes=plain(l2_bytes))
    # The estimate may be off: what it puts a little above the reticle is taken as a full one.
    total = np.minimum(die_areas(design, parts)["total"], parts.node.reticle_mm2)
    design = _filled(design, die_area_mm2=plain(total))
    if design.io_dies:
        design = _filled(design, io_die_area_mm2=io_die_areas(design, parts)["total"])
    return design


def _introduction(design: ChipDesign, filled: Mapping[str, Num]) -> list[str]:
    """That it is a design, and what was filled in."""
    said = [f"{design.id} is a design that nobody has measured: its peaks are units times clock."]
    if filled:
        each = ", ".join(f"{name} {_text(name, value)}" for name, value in filled.items())
        said.append(f"{design.id}: not given and taken as typical of {design.node}: {each}.")
    return said


def _text(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key} {held:g}" for key, held in value.items())
    unit = field_unit(name).removesuffix("_per_core")
    return shown(float(value), unit) if unit else f"{float(value):g}"


def _filled(design: ChipDesign, **typical: Num) -> ChipDesign:
    """The design with typical values where it has 0."""
    made: dict[str, Any] = {}
    for name, value in typical.items():
        given = getattr(design, name)
        if np.ndim(given) or not given:
            made[name] = plain(np.where(np.asarray(given) > 0, given, value))
    return replace(design, **made)
