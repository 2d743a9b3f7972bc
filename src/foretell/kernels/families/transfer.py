"""Coefficients for a chip without measurements of its own, from those of its kin.

Chips of the same or the nearest architecture generation and the same software weigh most. What tiles and
splits a library has on an architecture is a choice, not a fit: families that know such choices
(`Family.discrete`) begin with them on an architecture that was never measured. In formats with a quantisation
pass, what the library sets (`Family.library`) comes from the same library where it was measured anywhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from foretell.catalog.chips import catalogue_chip
from foretell.catalog.names import exists
from foretell.kernels.families.base import DTYPES, Family
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.chip import Chip, Surface

GENERATION: Mapping[str, float] = {
    "volta": 0.0,
    "turing": 0.5,
    "ampere": 1.0,
    "ada": 1.4,
    "hopper": 2.0,
    "blackwell": 3.0,
    "blackwell-ultra": 3.2,
    "rubin": 4.0,
}
"""Architectures in the order of their kernels: what is near in it is carried over first."""
NEAR = 0.3
"""Generations over which a surface's weight falls by e."""
OTHER_SOFTWARE = 0.3
"""Weight of what other software measured, against the same."""
SAME = 0.3
"""Generations within which kernels are the same code."""
SAME_UNITS: Mapping[str, str] = {
    "tpu-v3": "tpu-v5e",
    "tpu-v4": "tpu-v5e",
    "tpu-v5e": "tpu-v5e",
    "tpu-v5p": "tpu-v5e",
    "tpu-v6e": "tpu-v6e",
    "tpu-v7x": "tpu-v7x",
    "cdna3": "cdna3",
    "cdna4": "cdna4",
    "gaudi": "gaudi",
}
"""Architectures outside that order, and the one whose matrix units and software theirs are like: systolic
arrays whose products a compiler places, and AMD's cores under AMD's libraries. What NVIDIA's libraries do
tells nothing of them."""
SOFTWARE_KIN: Mapping[str, str] = {"sglang": "vllm"}
"""Software that runs the attention and expert kernels of another."""


def twins_of(surfaces: Sequence[Surface], chip: Chip, software: Sequence[str]) -> list[Surface]:
    """Surfaces of the same software on chips of the same generation."""
    place = GENERATION.get(chip.architecture)
    if place is None:
        return []
    names = with_kin(software)
    near = [s for s in surfaces if abs(_place(s, 99.0) - place) <= SAME]
    return [s for s in near if s.software in names]


def same_units_first(surfaces: Sequence[Surface], chip: Chip) -> list[list[Surface]]:
    """Surfaces of the same kind of matrix units where there are any, then those of NVIDIA's GPUs."""
    units = SAME_UNITS.get(chip.architecture)
    own = [s for s in surfaces if units is not None and s.architecture == units]
    others = [s for s in surfaces if s.architecture not in SAME_UNITS]
    return [own, others] if own else [others]


def with_kin(software: Sequence[str]) -> list[str]:
    """Software, and what it shares kernels with."""
    return [*software, *(SOFTWARE_KIN[name] for name in software if name in SOFTWARE_KIN)]


def transfer_coefficients(
    formula: Family, surfaces: Sequence[Surface], chip: Chip, dtype: str, software: Sequence[str]
) -> tuple[Any, tuple[Surface, ...]] | None:
    """Coefficients from surfaces of one family and format, none of them the one wanted; None of none."""
    names = with_kin(software)
    plain = [s for s in surfaces if "-" not in s.software or s.software in names] or list(surfaces)
    if not plain:
        return None
    place = GENERATION.get(chip.architecture)
    far = np.array([0.0 if place is None else abs(_place(s, place) - place) for s in plain])
    same = np.array([s.software in names for s in plain])
    if formula.discrete:
        twins = (far <= SAME) & (same | (not names)) & (place is not None)
        if not twins.any():
            return formula.begin(chip.architecture, names[0] if names else "", dtype), ()
        kin = [s for s, twin in zip(plain, twins, strict=True) if twin]
        return _mean(formula, kin, np.ones(len(kin)), chip), tuple(kin)
    near = np.exp(-(far - far.min()) / NEAR)
    weight = near * np.where(same, 1.0, OTHER_SOFTWARE)
    mean = _mean(formula, plain, weight, chip)
    if formula.library and DTYPES[dtype].quantised and same.any():
        own = _mean(formula, plain, near * same, chip)
        mean = replace(mean, **{name: getattr(own, name) for name in formula.library})
    heavy = weight > 0.05 * weight.max()
    return mean, tuple(s for s, much in zip(plain, heavy, strict=True) if much)


def _place(surface: Surface, otherwise: float) -> float:
    return GENERATION.get(surface.architecture, otherwise)


def _mean(formula: Family, surfaces: Sequence[Surface], weight: Array, chip: Chip) -> Any:
    """Weighted geometric mean of what was fitted, on this chip's clock; choices of the heaviest."""
    tables = [_on_clock(formula, s, chip) for s in surfaces]
    heaviest = tables[int(np.argmax(weight))]
    if len(surfaces) == 1:
        return formula.record(**heaviest)
    share = weight / weight.sum()
    values = dict(heaviest)
    for name in formula.bounds:
        column = np.array(np.broadcast_arrays(*(table[name] for table in tables)))
        if (column > 0.0).all():
            values[name] = _number(np.exp(share @ np.log(column)))
    return formula.record(**values)


def _on_clock(formula: Family, surface: Surface, chip: Chip) -> dict[str, Num]:
    """A surface's coefficients with the cycles of this chip, or of each chip of a batch."""
    values: dict[str, Num] = dict(surface.coefficients)
    if not (formula.clocked or formula.cached) or not exists(surface.chip):
        return values
    measured = catalogue_chip(surface.chip)
    known_clock, known_cores = float(measured.clock_hz), float(measured.cores)
    if min(known_clock, known_cores) <= 0.0:
        return values
    clock, cores = np.asarray(chip.clock_hz, float), np.asarray(chip.cores, float)
    told = (clock > 0.0) & (cores > 0.0)
    faster = np.where(told, clock / known_clock, 1.0)
    known = float(measured.memory_bandwidth_bytes_per_s)
    wider = faster * cores / known_cores * known / np.asarray(chip.memory_bandwidth_bytes_per_s)
    # With a quantisation pass the launch is what the library's passes take.
    passes = formula.library if DTYPES[surface.dtype].quantised else ()
    for name in formula.clocked:
        if name not in passes:
            values[name] = _number(values[name] / faster)
    for name in formula.cached:
        carried = np.clip(values[name] * wider, *formula.bounds[name])
        values[name] = _number(np.where(told, carried, values[name]))
    return values


def _number(value: Num) -> Num:
    """A plain number where it is one for all chips."""
    return value if np.ndim(value) else float(value)
