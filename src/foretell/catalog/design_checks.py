"""Can a design be built? What forbids it, all at once, and what is doubtful about it."""

from foretell.errors import Problem, wrong
from foretell.specs.design import BuiltChip, ChipDesign, Node

AREA_ERROR = 0.2
"""How far the area estimate may be off: more than this above the die cannot be built."""
LEAST_SUSTAINED = 0.25
"""A power limit that lets less of the matrix peak run than this contradicts the peak."""
DENSEST_WATTS_PER_MM2 = 1.6
"""Power over compute area beyond which no shipped accelerator is cooled (MI355X)."""
WHOLE = ("compute_dies", "cores", "cores_built", "memory_stacks", "io_dies")
"""Fields that count things."""
EITHER = (("cores", "compute_share"), ("l2_bytes", "sram_share"))
"""Pairs of which one is given, since it says the other."""
SHARES = ("compute_share", "sram_share", "io_share")
"""Shares of a compute die."""


def shortfalls(
    given: ChipDesign, built: BuiltChip, node: Node, io_node: Node, path: str
) -> list[Problem]:
    """Every reason why the design cannot be built."""
    return [
        *contradictions(given, path),
        *_sizes(built, node, io_node, path),
        *_power(built, node, path),
    ]


def contradictions(given: ChipDesign, path: str) -> list[Problem]:
    """Numbers that are impossible, or impossible together."""
    found = [
        wrong(f"{path}.{name}", getattr(given, name), "is not a whole number")
        for name in WHOLE
        if getattr(given, name) != int(getattr(given, name))
    ]
    for name, share in EITHER:
        if getattr(given, name) and getattr(given, share):
            message = f"is given beside {name}, which says it"
            found.append(wrong(f"{path}.{share}", getattr(given, share), message))
    shares = sum(getattr(given, name) for name in SHARES)
    if shares > 1:
        found.append(wrong(path, shares, "the shares of a die add up to more than 1"))
    if shares and not given.die_area_mm2:
        found.append(wrong(f"{path}.die_area_mm2", None, "is missing: the shares are shares of it"))
    if given.cores_built and given.cores_built < given.cores:
        message, allowed = "is below the cores in use", f"at least {given.cores:g}"
        found.append(wrong(f"{path}.cores_built", given.cores_built, message, allowed))
    if given.cores % given.compute_dies:
        message = f"do not divide over {given.compute_dies:g} equal dies"
        found.append(wrong(f"{path}.cores", given.cores, message))
    if given.io_cache_bytes and not given.io_dies:
        message = "there are no input-output dies to hold it"
        found.append(wrong(f"{path}.io_cache_bytes", given.io_cache_bytes, message))
    return found


def _sizes(built: BuiltChip, node: Node, io_node: Node, path: str) -> list[Problem]:
    """Dies against the reticle, what is on them against their area, interfaces against their edge."""
    design, found = built.design, []
    dies = [("die_area_mm2", design.die_area_mm2, built.die_mm2, node)]
    if design.io_dies:
        dies.append(("io_die_area_mm2", design.io_die_area_mm2, built.io_die_mm2, io_node))
    for name, area, parts, process in dies:
        if area > process.reticle_mm2:
            message = f"one exposure prints {process.reticle_mm2:g} mm2: more dies, each smaller"
            found.append(wrong(f"{path}.{name}", area, message, f"at most {process.reticle_mm2:g}"))
        if parts["total"] > area * (1 + AREA_ERROR):
            message = f"what is on it takes about {parts['total']:.0f} mm2 ({_parts(built, name)})"
            found.append(wrong(f"{path}.{name}", area, message))
    if design.cores < 1:
        message = f"none fits on the die beside the rest ({_parts(built, 'die_area_mm2')} mm2)"
        found.append(wrong(f"{path}.cores", design.cores, message))
    if built.edge_share > 1:
        message = f"memory and links need {built.edge_share:.2f} times the edge of the dies that have them"
        found.append(wrong(f"{path}.memory_stacks", design.memory_stacks, message))
    return found


def _power(built: BuiltChip, node: Node, path: str) -> list[Problem]:
    """The clock against its node, the power against the limit."""
    design, found = built.design, []
    if design.clock_hz > 1.5 * node.clock_hz_high:
        message, allowed = (
            f"is out of reach of {node.name}",
            f"at most {1.5 * node.clock_hz_high:g}",
        )
        found.append(wrong(f"{path}.clock_hz", design.clock_hz, message, allowed))
    if built.sustained_share < LEAST_SUSTAINED and design.cores >= 1:
        message = (
            f"at its peak it would draw about {built.watts['total']:.0f} W ({_watts(built)}): the limit"
            f" leaves the matrix units {built.sustained_share:.0%} of their peak"
        )
        found.append(wrong(f"{path}.tdp_watts", design.tdp_watts, message))
    return found


def doubts(built: BuiltChip, node: Node) -> list[str]:
    """What can be built but should be reported."""
    design, total, found = built.design, built.die_mm2["total"], []
    found.append(
        f"{design.id}: one compute die takes about {total:.0f} mm2 ({_parts(built, 'die_area_mm2')}) of"
        f" its {design.die_area_mm2:.0f}; the estimate is good to some {AREA_ERROR:.0%}."
    )
    if built.sustained_share < 1:
        found.append(
            f"{design.id}: busy matrix units at the stated clock would draw about"
            f" {built.watts['total']:.0f} W ({_watts(built)}); {design.tdp_watts:.0f} W sustain about"
            f" {built.sustained_share:.0%} of the peak, good to some 25 %."
        )
    dense = design.tdp_watts / (design.compute_dies * design.die_area_mm2)
    if dense > DENSEST_WATTS_PER_MM2:
        found.append(
            f"{design.id}: {dense:.2f} W/mm2 of compute die is more than shipped chips cool."
        )
    if design.clock_hz > node.clock_hz_high:
        found.append(
            f"{design.id}: no large chip of {node.name} runs above {node.clock_hz_high / 1e9:g} GHz."
        )
    if built.l2_bytes_per_s < built.chip.memory_bandwidth_bytes_per_s:
        found.append(f"{design.id}: the last-level cache is slower than the memory behind it.")
    rate = built.chip.memory_bandwidth_bytes_per_s
    nominal = design.memory_stacks * design.memory_stack_bytes_per_s
    if rate < nominal:
        found.append(
            f"{design.id}: the links between its dies let {rate / nominal:.0%} of the memory's rate through."
        )
    if design.io_cache_bytes:
        found.append(f"{design.id}: the cache on the input-output dies counts for area alone.")
    return found


def _parts(built: BuiltChip, name: str) -> str:
    """The parts of a die in words, without its total."""
    areas = built.die_mm2 if name == "die_area_mm2" else built.io_die_mm2
    return ", ".join(f"{part} {area:.0f}" for part, area in areas.items() if part != "total")


def _watts(built: BuiltChip) -> str:
    """The parts of the power in words."""
    return ", ".join(f"{part} {held:.0f}" for part, held in built.watts.items() if part != "total")
