"""Where a chip's numbers lie: what no chip has is a wrong unit and refused, what none in use has is
stated."""

import numpy as np

from foretell.errors import Problem
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.chip import Chip
from foretell.units import format as show


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipRange:
    """Ends of one number."""

    field: str
    """Its name in the chip's record."""
    unit: str
    """Its unit."""
    what: str
    """It in words."""
    possible: tuple[float, float]
    """Taken at all."""
    usual: tuple[float, float]
    """Of chips in use, from a phone's to a wafer's."""


_ROWS = (
    ("memory_bandwidth_bytes_per_s", "bytes_per_s", "memory bandwidth", (1e8, 1e18), (1e10, 3e16)),
    ("memory_bytes", "bytes", "memory", (1e6, 1e16), (1e9, 1e13)),
    ("tdp_watts", "watts", "power", (1e-2, 1e6), (1.0, 3e4)),
    ("scale_up_bytes_per_s", "bytes_per_s", "links", (1e6, 1e15), (1e8, 1e13)),
    ("vector_flop_per_s", "flop_per_s", "speed without matrix units", (1e6, 1e20), (1e9, 1e17)),
    ("matrix_flop_per_s", "flop_per_s", "speed", (1e6, 1e21), (1e10, 1e18)),
)
*RANGES, MATRIX = (
    ChipRange(field=field, unit=unit, what=what, possible=possible, usual=usual)
    for field, unit, what, possible, usual in _ROWS
)


def chip_problems(chip: Chip) -> list[Problem]:
    """Numbers that are a wrong unit rather than a chip."""
    return [
        Problem(
            path=f"chip.{path}",
            value=_shown(numbers, one),
            message=f"no chip has {one.what} like this",
            allowed=f"{_range(one.possible, one)}; usual: {_range(one.usual, one)}",
        )
        for path, numbers, one in _numbers(chip)
        if _outside(numbers, one.possible)
    ]


def unusual_numbers(chip: Chip) -> list[str]:
    """Sentences about numbers that no chip in use has, with the usual range."""
    return [
        f"unusual: {one.what} of {_shown(numbers, one)} (chip.{path}); "
        f"chips in use have {_range(one.usual, one)}"
        for path, numbers, one in _numbers(chip)
        if _outside(numbers, one.usual)
    ]


def _numbers(chip: Chip) -> list[tuple[str, tuple[float, float], ChipRange]]:
    """Every number that has a range, least and largest over systems; 0 is one that is not known."""
    found = [(one.field, getattr(chip, one.field), one) for one in RANGES]
    found += [(f"{MATRIX.field}.{f}", v, MATRIX) for f, v in chip.matrix_flop_per_s.items()]
    ends = [(p, _ends(v), one) for p, v, one in found]
    return [(p, numbers, one) for p, numbers, one in ends if numbers[1] > 0.0]


def _ends(value: Num) -> tuple[float, float]:
    """Least and largest; of a plain number, as nearly all are, itself."""
    if isinstance(value, np.ndarray):
        return float(value.min()), float(value.max())
    return value, value


def _outside(numbers: tuple[float, float], ends: tuple[float, float]) -> bool:
    return numbers[0] < ends[0] or numbers[1] > ends[1]


def _shown(numbers: tuple[float, float], one: ChipRange) -> str:
    """The number that is farther out, with its unit."""
    low = numbers[0] < one.usual[0]
    return _number(numbers[0] if low else numbers[1], one)


def _range(ends: tuple[float, float], one: ChipRange) -> str:
    return " to ".join(_number(end, one) for end in ends)


def _number(value: float, one: ChipRange) -> str:
    return show(value, one.unit)
