"""Areas, edge, watts and peaks of a design that leaves nothing open: the formulas of `designs`.

All broadcast over the numeric fields; whether there are input-output dies is structural.
"""

from collections.abc import Mapping

import numpy as np

from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.chip import Chip
from foretell.specs.design import ChipDesign, LinkKind, MemoryKind, Microarchitecture, Node, Rules

BITS = {
    "fp64": 64,
    "fp32": 32,
    "tf32": 32,
    "fp16": 16,
    "bf16": 16,
    "fp8": 8,
    "fp6": 4,
    "fp4": 4,
    "int8": 8,
}
"""Width by which the energy of an operation is scaled from bf16; fp6 counts as fp4,
whose rate it has on some chips."""
REFERENCE_FLOP_PER_CLOCK = 1024.0
"""Size of the matrix unit, in bf16, for which a node's `joules_per_flop` holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignParts:
    """What a design names, looked up."""

    node: Node
    """Process of the compute dies."""
    io_node: Node
    """Process of the input-output dies."""
    units: Microarchitecture
    """Matrix units of a generation."""
    memory: MemoryKind
    """Device memory."""
    scale_up: LinkKind
    """Links between packages."""
    die_to_die: LinkKind
    """Links between dies."""
    host: LinkKind
    """Link to the host."""
    rules: Rules
    """Rules of thumb."""


def core_mm2(design: ChipDesign, parts: DesignParts) -> Num:
    """One core: (matrix + lanes + rest) / density + registers and shared memory by their cells."""
    rules, node = parts.rules, parts.node
    matrix = rules.matrix_mm2 * design.matrix_units_per_core * half_flop_per_clock(design)
    # An fp64 lane is as large as two of fp32, and does their work.
    lanes = np.maximum(design.vector_lanes_per_core, 2 * design.vector_fp64_lanes_per_core)
    logic = matrix + rules.lane_mm2 * plain(lanes) + rules.core_mm2
    registers = 8 * design.register_bytes_per_core * node.sram_cell_mm2 / rules.register_efficiency
    shared = cache_mm2(design.sram_bytes_per_core, node.sram_cell_mm2, rules)
    return logic / node.logic_density + registers + shared


def cache_mm2(size_bytes: Num, cell_mm2: Num, rules: Rules) -> Num:
    """Area of so much shared memory or cache: its cells over the share they have of it."""
    return 8 * size_bytes * cell_mm2 / rules.sram_efficiency


def half_flop_per_clock(design: ChipDesign) -> Num:
    """A unit's size as 16-bit operations a clock: the dtype whose width x rate is the largest."""
    return plain(
        np.max(
            [BITS[d] / 16 * np.asarray(n) for d, n in design.matrix_flop_per_clock.items()], axis=0
        )
    )


def die_areas(design: ChipDesign, parts: DesignParts) -> dict[str, Num]:
    """What one compute die takes, by part; the total counts what is none of them at its share."""
    dies = design.compute_dies
    cores = design.cores_built / dies * core_mm2(design, parts)
    cache = cache_mm2(design.l2_bytes, parts.node.sram_cell_mm2, parts.rules) / dies
    interfaces = interfaces_mm2(design, parts)
    other = (cores + cache + interfaces) / (1 / other_share(design, parts) - 1)
    total = cores + cache + interfaces + other
    return {"cores": cores, "l2": cache, "interfaces": interfaces, "other": other, "total": total}


def io_die_areas(design: ChipDesign, parts: DesignParts) -> dict[str, Num]:
    """The same of one input-output die; empty where there are none."""
    if not design.io_dies:
        return {}
    rules = parts.rules
    cache = cache_mm2(design.io_cache_bytes, parts.io_node.sram_cell_mm2, rules) / design.io_dies
    between = (
        design.compute_dies * design.die_to_die_bytes_per_s / parts.die_to_die.bytes_per_s_per_mm2
    )
    interfaces = (
        _outer_phys_mm2(design, parts) * (1 + rules.controllers) + between
    ) / design.io_dies
    other = (cache + interfaces) / (1 / rules.other_share - 1)
    return {
        "cache": cache,
        "interfaces": interfaces,
        "other": other,
        "total": cache + interfaces + other,
    }


def interfaces_mm2(design: ChipDesign, parts: DesignParts) -> Num:
    """Interfaces of one compute die with their controllers: all, or those to other dies alone."""
    between = design.die_to_die_bytes_per_s / parts.die_to_die.bytes_per_s_per_mm2
    if design.io_dies:
        return between
    return (_outer_phys_mm2(design, parts) / design.compute_dies + between) * (
        1 + parts.rules.controllers
    )


def _outer_phys_mm2(design: ChipDesign, parts: DesignParts) -> Num:
    """Physical interfaces of the package to memory, other packages and the host."""
    return (
        design.memory_stacks * parts.memory.phy_mm2
        + design.scale_up_bytes_per_s / parts.scale_up.bytes_per_s_per_mm2
        + design.host_bytes_per_s / parts.host.bytes_per_s_per_mm2
    )


def other_share(design: ChipDesign, parts: DesignParts) -> Num:
    return parts.rules.other_share_stacked if design.io_dies else parts.rules.other_share


def with_interfaces(design: ChipDesign) -> Num:
    """How many dies have the interfaces."""
    return design.io_dies if design.io_dies else design.compute_dies


def edge_share(design: ChipDesign, parts: DesignParts) -> Num:
    """Edge that interfaces take over the usable outline of the dies that have them."""
    rules = parts.rules
    needed = (
        design.memory_stacks * parts.memory.edge_mm
        + design.scale_up_bytes_per_s / parts.scale_up.bytes_per_s_per_mm
        + design.host_bytes_per_s / parts.host.bytes_per_s_per_mm
        + design.compute_dies * design.die_to_die_bytes_per_s / parts.die_to_die.bytes_per_s_per_mm
    )
    area = design.io_die_area_mm2 if design.io_dies else design.die_area_mm2
    outline = 2 * np.sqrt(area) * (rules.aspect**0.5 + rules.aspect**-0.5)
    return plain(needed / (with_interfaces(design) * outline * rules.usable_edge))


def watts(design: ChipDesign, parts: DesignParts) -> dict[str, Num]:
    """Power with all matrix units busy at the stated clock, memory and links at a share of theirs.

    Matrix units take peak x joules_per_flop x width / 16, of which (1 - f) computes and goes with a unit's
    area, and f sqrt(1024 / unit) is read from registers and shared memory and goes with its edge. The dtype
    that takes most counts.
    """
    rules = parts.rules
    unit = half_flop_per_clock(design)
    feed = rules.feed_share * np.sqrt(REFERENCE_FLOP_PER_CLOCK / unit)
    rate = design.cores * design.matrix_units_per_core * unit * design.clock_hz
    memory = design.memory_stacks * design.memory_stack_bytes_per_s * parts.memory.joules_per_byte
    links = 2 * (
        design.scale_up_bytes_per_s * parts.scale_up.joules_per_byte
        + design.host_bytes_per_s * parts.host.joules_per_byte
        + design.compute_dies * design.die_to_die_bytes_per_s * parts.die_to_die.joules_per_byte
    )
    found = {
        "arithmetic": plain(rate * parts.node.joules_per_flop * (1 - rules.feed_share)),
        "sram": plain(rate * parts.node.joules_per_flop * feed),
        "memory": rules.busy_share * memory,
        "links": rules.busy_share * links,
        "base": rules.idle_watts_per_mm2 * _silicon_mm2(design),
    }
    return {**found, "total": sum(found.values())}


def sustained_share(design: ChipDesign, power: Mapping[str, Num]) -> Num:
    """Share of the matrix peak at which the power is the limit, at most 1 and at least 0."""
    matrix = power["arithmetic"] + power["sram"]
    left = design.tdp_watts - (power["total"] - matrix)
    return plain(np.clip(left / np.maximum(matrix, 1e-9), 0.0, 1.0))


def _silicon_mm2(design: ChipDesign) -> Num:
    return design.compute_dies * design.die_area_mm2 + design.io_dies * design.io_die_area_mm2


def chip_of(design: ChipDesign, parts: DesignParts) -> Chip:
    """The chip as every question sees it: peaks are cores x units x FLOP per clock x clock."""
    clocks = design.cores * design.matrix_units_per_core * design.clock_hz
    lanes = 2 * design.cores * design.vector_clock_hz
    same = {name: getattr(design, name) for name in AS_DESIGNED}
    return Chip(
        **same,
        name=design.name or design.id,
        matrix_flop_per_s={d: clocks * n for d, n in design.matrix_flop_per_clock.items()},
        vector_flop_per_s=lanes * design.vector_lanes_per_core,
        vector_fp64_flop_per_s=lanes * design.vector_fp64_lanes_per_core,
        memory_bytes=design.memory_stacks * design.memory_stack_bytes * parts.rules.usable_memory,
        memory_bandwidth_bytes_per_s=memory_bytes_per_s(design),
        scale_up_link=parts.scale_up.name,
        rated_watts=parts.node.watts_per_mm2 * design.compute_dies * design.die_area_mm2,
        idle_watts=parts.rules.idle_watts_per_mm2 * _silicon_mm2(design),
        process_node=parts.node.name,
        memory_type=parts.memory.name,
    )


AS_DESIGNED = (
    "id vendor architecture l2_bytes sram_bytes_per_core cores clock_hz scale_up_bytes_per_s "
    "host_bytes_per_s tdp_watts form_factor die_area_mm2 compute_dies memory_stacks package release_year"
).split()
"""Fields that a chip has from its design as they are."""


def away_share(design: ChipDesign) -> Num:
    """Share of what a compute die reads of memory that is not its own: all of it where none is."""
    return 1.0 if design.io_dies else 1.0 - 1.0 / design.compute_dies


def memory_bytes_per_s(design: ChipDesign) -> Num:
    """What the compute dies read of all stacks: their rate, or what the links between dies let through.

    Memory is spread over the stacks of all dies, so that a die has n-th of its bytes at home and waits for
    the rest: dies x die_to_die / away.
    """
    nominal = design.memory_stacks * design.memory_stack_bytes_per_s
    away = np.asarray(away_share(design))
    through = design.compute_dies * design.die_to_die_bytes_per_s / np.maximum(away, 1e-300)
    # A rate that was filled in is what the memory asks for, up to rounding.
    limited = (away > 0.0) & (through < (1.0 - 1e-9) * np.asarray(nominal))
    return plain(np.where(limited, through, nominal))


def plain(value: Num) -> Num:
    """A float where there is one number, the array where there are several."""
    return float(value) if np.ndim(value) == 0 else value
