"""Many systems as one: a system whose numbers are arrays, with one value for each system of a batch.

What is a number may differ from system to system; what is structural (names, topologies, sizes of tiers,
formats) is the same for all of them. Formulas broadcast, so that one call answers for all.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.specs._base import Num
from foretell.specs.chip import Chip
from foretell.specs.system import Network, System, Tier

Array = NDArray[np.float64]
Index = NDArray[np.intp]

CHIP_NUMBERS = (
    "vector_flop_per_s", "memory_bytes", "memory_bandwidth_bytes_per_s", "l2_bytes", "cores", "clock_hz",
    "host_bytes_per_s", "host_speed", "tdp_watts", "rated_watts", "idle_watts",
    "measured_matmul_flop_per_s",
)  # fmt: skip
"""Numbers of a chip that may differ inside a batch, beside its matrix peaks."""
UNUSED = (
    "scale_up_bytes_per_s", "sram_bytes_per_core", "die_area_mm2", "compute_dies", "transistors",
    "memory_stacks", "price_usd_low", "price_usd_high", "release_year", "vector_fp64_flop_per_s",
)  # fmt: skip
"""Numbers of a chip that no time, byte or joule depends on: a batch has those of its first system."""
TIER_NUMBERS = ("bandwidth_bytes_per_s", "latency_s")
"""Numbers of a tier that may differ inside a batch."""
PEAKS = "matrix_flop_per_s"


def varies_in_batch(path: str) -> bool:
    """Whether a path, as of `--set`, names a number that may differ from system to system of a batch."""
    root, _, rest = path.partition(".")
    names = rest.split(".")
    if root == "chip":
        return rest in CHIP_NUMBERS or (len(names) == 2 and names[0] == PEAKS)
    return root == "network" and len(names) == 2 and names[1] in TIER_NUMBERS


def map_chip(chip: Chip, change: Callable[[Any], Any]) -> Chip:
    """The chip with every number that may differ put through a function."""
    peaks = {name: change(peak) for name, peak in chip.matrix_flop_per_s.items()}
    own = {name: change(getattr(chip, name)) for name in CHIP_NUMBERS}
    return replace(chip, matrix_flop_per_s=peaks, **own)


def map_numbers(system: System, change: Callable[[Any], Any]) -> System:
    """The same of all of a system."""
    tiers = tuple(
        replace(tier, **{name: change(getattr(tier, name)) for name in TIER_NUMBERS})
        for tier in system.network.tiers
    )
    return replace(system, chip=map_chip(system.chip, change), network=Network(tiers=tiers))


def system_count(system: System) -> int:
    """Systems of a batch; 1 where every number is one."""
    return max(np.size(value) for value in numbers_of(system))


def numbers_of(system: System) -> list[Num]:
    """Every number that may differ."""
    chip, tiers = system.chip, system.network.tiers
    own = [getattr(chip, name) for name in CHIP_NUMBERS]
    links = [getattr(tier, name) for tier in tiers for name in TIER_NUMBERS]
    return [*chip.matrix_flop_per_s.values(), *own, *links]


def take_systems(system: System, rows: Index | slice) -> System:
    """Some of the systems of a batch; a number that all share stays one."""
    return map_numbers(system, lambda value: value[rows] if np.ndim(value) else value)


def one_system(system: System, row: int) -> System:
    """One of the systems of a batch, in plain numbers."""
    return map_numbers(system, lambda value: float(value[row]) if np.ndim(value) else value)


def first_chip(chip: Chip) -> Chip:
    """The first chip of a batch, for what depends on no number of it."""
    return map_chip(chip, lambda value: float(value[0]) if np.ndim(value) else value)


def repeat_chips(chip: Chip, many: int) -> Chip:
    """The chips of a batch so many times, one after the other."""
    return map_chip(chip, lambda value: np.tile(value, many) if np.ndim(value) else value)


def structure_of(system: System) -> Hashable:
    """What systems of one batch have in common."""
    chip, tiers = system.chip, system.network.tiers
    left_out = (*CHIP_NUMBERS, *UNUSED, PEAKS)
    own = tuple(getattr(chip, f.name) for f in fields(Chip) if f.name not in left_out)
    links = tuple(
        tuple(getattr(tier, f.name) for f in fields(Tier) if f.name not in TIER_NUMBERS)
        for tier in tiers
    )
    return own, tuple(chip.matrix_flop_per_s), links, system.id, system.corrections


def stack_systems(systems: Sequence[System]) -> System:
    """Systems of one structure as a batch: what differs among them becomes an array."""
    first = systems[0]
    chips = [system.chip for system in systems]
    peaks = {
        name: column_of([chip.matrix_flop_per_s[name] for chip in chips])
        for name in first.chip.matrix_flop_per_s
    }
    own = {name: column_of([getattr(chip, name) for chip in chips]) for name in CHIP_NUMBERS}
    tiers = tuple(
        replace(
            tier,
            **{
                name: column_of([getattr(s.network.tiers[place], name) for s in systems])
                for name in TIER_NUMBERS
            },
        )
        for place, tier in enumerate(first.network.tiers)
    )
    chip = replace(first.chip, matrix_flop_per_s=peaks, **own)
    return replace(first, chip=chip, network=Network(tiers=tiers))


def column_of(values: list[Any]) -> Any:
    """One number where all are equal, else an array."""
    alike = all(value == values[0] for value in values[1:])
    return values[0] if alike else np.asarray(values, float)
