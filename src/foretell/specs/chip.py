"""One accelerator as software sees it (a GPU, a GCD, a TPU chip).

Its surfaces say how well families of kernels use it; its ranges, which numbers no chip has and are a wrong
unit, and which no chip in use has.
"""

from collections.abc import Mapping

import numpy as np

from foretell.errors import Problem, wrong
from foretell.records import dataclass
from foretell.specs._base import NotNegative, Num, Positive
from foretell.units import format as show


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """Coefficients of one kernel family, dtype, chip and software generation."""

    family: str
    """The kernel family: gemm, prefill, decode, ..."""
    dtype: str
    """What the products run in: bf16, fp8, fp8-block, nvfp4, ..."""
    chip: str
    """Catalogue id of the chip that was measured."""
    architecture: str
    """Generation of that chip: what is near in it is carried over first."""
    software: str
    """What ran the kernels: trtllm, vllm, torch, ..."""
    version: str
    """Its version."""
    coefficients: Mapping[str, float]
    """The numbers of the family's formula, by name."""
    points: int
    """Measurements fitted."""
    median_ape: float
    """Median absolute relative error over them, a fraction."""
    p90_ape: float
    """Its ninetieth percentile."""
    left_out_median_ape: float
    """The same for sites left out of the fit."""
    left_out_p90_ape: float
    """The same for sites left out of the fit."""
    residuals: tuple[float, ...]
    """5, 25, 50, 75 and 95 % quantiles of ln(measured / predicted) of sites left out."""
    source: str
    """Where the measurements come from."""
    date: str
    """When they were fitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """Peaks are dense; bandwidths are one direction; memory is what software can allocate."""

    id: str
    """Catalogue id."""
    name: str
    """The vendor's name."""
    vendor: str
    """Who makes it."""
    architecture: str
    """Generation that kernels are written for: volta, ampere, hopper, blackwell, cdna3, tpu, ..."""
    matrix_flop_per_s: Mapping[str, Positive]
    """Dense peak of the matrix units by dtype: fp64 fp32 tf32 fp16 bf16 fp8 fp6 fp4 int8."""
    vector_flop_per_s: Positive
    """Peak of the plain fp32 units."""
    vector_fp64_flop_per_s: NotNegative = 0.0
    """Peak of the plain fp64 units; 0 where unknown."""
    memory_bytes: Positive
    """Device memory that software can allocate."""
    memory_bandwidth_bytes_per_s: Positive
    """Nominal bandwidth of the device memory."""
    l2_bytes: NotNegative = 0.0
    """L2 cache of all dies together; 0 where unknown. AMD's Infinity Cache behind it is not counted."""
    sram_bytes_per_core: NotNegative = 0.0
    """Shared memory and L1 of one core; 0 where unknown."""
    cores: NotNegative = 0.0
    """Streaming multiprocessors, compute units or cores; 0 where unknown."""
    clock_hz: NotNegative = 0.0
    """Clock at which the matrix peak holds; 0 where unknown."""
    scale_up_bytes_per_s: NotNegative = 0.0
    """All scale-up links of the chip together, one direction."""
    scale_up_link: str = ""
    """What these links are: NVLink4 (18 links), ICI, ..."""
    host_bytes_per_s: NotNegative = 0.0
    """Link to the host's memory, one direction; 0 where unknown."""
    host_speed: Positive = 1.0
    """How fast its host starts kernels, over the host of the measured machine (kernels/fusion.py)."""
    tdp_watts: Positive
    """Power limit."""
    rated_watts: NotNegative = 0.0
    """Power limit that it is sold with, by which go its watts whatever it does; 0: tdp_watts."""
    idle_watts: NotNegative = 0.0
    """Power at rest; 0 where unknown."""
    form_factor: str = ""
    """How it is mounted: SXM5, PCIe, OAM, ..."""
    process_node: str = ""
    """Manufacturing process."""
    die_area_mm2: NotNegative = 0.0
    """Area of one compute die; 0 where unknown."""
    compute_dies: NotNegative = 1.0
    """Compute dies in the package."""
    transistors: NotNegative = 0.0
    """Transistors of the package; 0 where unknown."""
    memory_type: str = ""
    """HBM3e, GDDR6, ..."""
    memory_stacks: NotNegative = 0.0
    """Memory stacks in the package; 0 where unknown."""
    package: str = ""
    """Packaging technology."""
    release_year: int = 0
    """Year of release; 0 where unknown."""
    price_usd_low: NotNegative = 0.0
    """Low end of published prices; 0 where unknown."""
    price_usd_high: NotNegative = 0.0
    """High end of published prices; 0 where unknown."""
    measured_matmul_flop_per_s: NotNegative = 0.0
    """Highest published rate of bf16 matrix multiplications; 0 where unknown."""
    left_out: tuple[str, ...] = ()
    """Chips whose measurements it must not rest on: held-out validation leaves its own out."""
    kernels: tuple[Surface, ...] = ()
    """Surfaces fitted to measurements on this very chip; none where its kernels are the catalogue's."""

    def __hash__(self) -> int:
        """A few fields tell chips apart; peaks are a mapping, which has no hash."""
        return hash(
            (self.id, self.vector_flop_per_s, self.memory_bandwidth_bytes_per_s, self.left_out)
        )


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
        wrong(
            f"chip.{path}",
            _shown(numbers, one),
            f"no chip has {one.what} like this",
            f"{_range(one.possible, one)}; usual: {_range(one.usual, one)}",
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
