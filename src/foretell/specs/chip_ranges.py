"""Where a chip's numbers lie: what no chip has is a wrong unit and refused, what none in use has is said."""

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


RANGES = (
    ChipRange(
        field="memory_bandwidth_bytes_per_s",
        unit="bytes_per_s",
        what="memory bandwidth",
        possible=(1e8, 1e18),
        usual=(1e10, 3e16),
    ),
    ChipRange(
        field="memory_bytes",
        unit="bytes",
        what="memory",
        possible=(1e6, 1e16),
        usual=(1e9, 1e13),
    ),
    ChipRange(
        field="tdp_watts", unit="watts", what="power", possible=(1e-2, 1e6), usual=(1.0, 3e4)
    ),
    ChipRange(
        field="scale_up_bytes_per_s",
        unit="bytes_per_s",
        what="links",
        possible=(1e6, 1e15),
        usual=(1e8, 1e13),
    ),
    ChipRange(
        field="vector_flop_per_s",
        unit="flop_per_s",
        what="speed without matrix units",
        possible=(1e6, 1e20),
        usual=(1e9, 1e17),
    ),
)
MATRIX = ChipRange(
    field="matrix_flop_per_s",
    unit="flop_per_s",
    what="speed",
    possible=(1e6, 1e21),
    usual=(1e10, 1e18),
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
