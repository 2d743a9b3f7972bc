"""What every kernel family is: dims and coefficients in, seconds out.

A family is a formula in dimensionless coefficients (shares of peaks, sizes of tiles) and a few seconds
(launch), so that what was fitted on one chip can be carried to another by changing the chip alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from foretell.catalog.chips import catalogue_chip
from foretell.catalog.names import exists
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.chip import Chip

Dims = Mapping[str, Array]
"""Sizes of kernels by name; arrays that broadcast with each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dtype:
    """A number format of matrix products, as kernels see it."""

    peak: str
    """Which of a chip's matrix peaks it runs at."""
    weight_bytes: float
    """Bytes of one weight with its share of the scales."""
    activation_bytes: float
    """Bytes of one activation as the product reads it, with its share of the scales."""
    quantised: bool
    """Whether activations come in 16 bits and are first turned into this format."""


DTYPES: Mapping[str, Dtype] = {
    "fp32": Dtype(peak="fp32", weight_bytes=4.0, activation_bytes=4.0, quantised=False),
    "tf32": Dtype(peak="tf32", weight_bytes=4.0, activation_bytes=4.0, quantised=False),
    "bf16": Dtype(peak="bf16", weight_bytes=2.0, activation_bytes=2.0, quantised=False),
    "fp16": Dtype(peak="fp16", weight_bytes=2.0, activation_bytes=2.0, quantised=False),
    "fp8": Dtype(peak="fp8", weight_bytes=1.0, activation_bytes=1.0, quantised=True),
    "fp8-block": Dtype(peak="fp8", weight_bytes=1.0, activation_bytes=1.03125, quantised=True),
    "mxfp8": Dtype(peak="fp8", weight_bytes=1.03125, activation_bytes=1.03125, quantised=True),
    "int8": Dtype(peak="int8", weight_bytes=1.0, activation_bytes=1.0, quantised=True),
    "nvfp4": Dtype(peak="fp4", weight_bytes=0.5625, activation_bytes=0.5625, quantised=True),
    "mxfp4": Dtype(peak="fp4", weight_bytes=0.53125, activation_bytes=0.53125, quantised=True),
    "int4": Dtype(peak="bf16", weight_bytes=0.53125, activation_bytes=2.0, quantised=False),
    "w4a8-mxfp4": Dtype(peak="fp8", weight_bytes=0.53125, activation_bytes=1.03125, quantised=True),
    "w4a16-mxfp4": Dtype(peak="bf16", weight_bytes=0.53125, activation_bytes=2.0, quantised=False),
}
"""Formats by name. Scales: one fp32 per 128 of a block, one byte per 16 (nvfp4) or 32 (mx) values.
int4 and w4a16-mxfp4 keep activations in 16 bits and widen the weights on the way."""

USUAL_SHARE = 0.80
"""Best measured bf16 matrix rate over the nominal peak on the chips that surfaces were fitted to: H100 and
H200 0.80, A100 0.87, B200 0.76."""

PEAK_FALLBACK: Mapping[str, tuple[str, ...]] = {
    "fp4": ("fp8", "int8", "bf16", "fp16"),
    "fp8": ("int8", "bf16", "fp16"),
    "int8": ("fp8", "bf16", "fp16"),
    "bf16": ("fp16", "tf32", "fp32"),
    "fp16": ("bf16", "tf32", "fp32"),
    "tf32": ("fp32",),
}
"""Where a chip lacks a format, the peak that kernels run at after widening; the narrowest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What a kernel of one dtype finds on a chip."""

    flop_per_s: Num
    """Dense peak of the matrix units in the dtype."""
    half_flop_per_s: Num
    """Dense peak in 16 bits."""
    vector_flop_per_s: Num
    """Peak of the plain fp32 units."""
    bytes_per_s: Num
    """Nominal bandwidth of the device memory."""
    cores: Num
    """Streaming multiprocessors or their like; 1 where unknown."""
    l2_bytes: Num
    """Last-level cache; 0 where unknown."""
    sram_bytes: Num
    """Shared memory of one core; 0 where unknown."""
    dtype: Dtype
    """The format."""
    load_s: Num = 0.0
    """Seconds of one core for one load of an operand that is narrower than 16 bytes; 0 where unknown."""
    held_back: Num = 1.0
    """Matrix rate that cores of the architecture have over this chip's: above 1 where it is limited (H20)."""


MOST_SHARE = 0.96
"""Most of its nominal peak that a chip's best measured 16-bit product reaches at the nominal clock (H20)."""
LOADING = ("volta", "ampere", "ada", "hopper", "blackwell", "blackwell-ultra", "rubin")
"""Architectures whose cores load operands of any width by themselves."""
LOADS_PER_CLOCK = 3.1
"""Loads of 4 or 2 bytes that a core issues in a clock, by products of one H200 with rows that are no multiple
of 16 bytes (bf16 3.3 and 3.0, TF32 2.8); the same for every generation, since each keeps these kernels."""


def engine_of(chip: Chip, dtype: str) -> Engine:
    """A chip as kernels of one dtype see it."""
    form = DTYPES[dtype]
    return Engine(
        flop_per_s=matrix_peak(chip, form.peak),
        half_flop_per_s=matrix_peak(chip, "bf16"),
        vector_flop_per_s=chip.vector_flop_per_s,
        bytes_per_s=chip.memory_bandwidth_bytes_per_s,
        cores=np.maximum(chip.cores, 1.0),
        l2_bytes=chip.l2_bytes,
        sram_bytes=chip.sram_bytes_per_core,
        dtype=form,
        load_s=_load_s(chip),
        held_back=_held_back(chip),
    )


def _load_s(chip: Chip) -> Num:
    if chip.architecture not in LOADING:
        return 0.0
    clock = np.asarray(chip.clock_hz, dtype=np.float64)
    return np.where(clock > 0.0, 1.0 / (LOADS_PER_CLOCK * np.maximum(clock, 1.0)), 0.0)


CORE_FLOP_PER_CLOCK: dict[str, float] = {"hopper": 4096.0}
"""16-bit operations of a core in a clock, of architectures with chips whose matrix rate is limited (H100: 989
TFLOP/s of 132 cores at 1.83 GHz)."""
HELD_BACK = 1.5
"""Ratio from which a chip counts as limited: nominal clocks differ by less."""


def _held_back(chip: Chip) -> Num:
    """The architecture's matrix rate over the chip's own, 1 where they are about the same."""
    full = CORE_FLOP_PER_CLOCK.get(chip.architecture, 0.0) * np.asarray(chip.cores) * chip.clock_hz
    ratio = full / np.maximum(matrix_peak(chip, "bf16"), 1.0)
    return np.where(ratio > HELD_BACK, ratio, 1.0)


CORE_FLOP_PER_S = 16e12
"""Most that one core of the chips measured does in 16 bits (15.2e12, B200). Where a chip lists fewer and
wider cores, or none, each takes several tiles at once, and they are counted by this rate."""
MANY_CORES = 32.0
"""Cores from which a chip's own number counts."""


def cores_alike(engine: Engine) -> Num:
    """Cores as those of the chips measured: a few wide ones count as several each."""
    wide = np.maximum(engine.cores, engine.half_flop_per_s / CORE_FLOP_PER_S)
    return np.where(np.asarray(engine.cores) >= MANY_CORES, engine.cores, wide)


def attainable(engine: Engine, chip: Chip, kin: tuple[str, ...] = ()) -> Engine:
    """The same with as much arithmetic as the best measured matrix rate of the chip tells.

    Coefficients of other chips are shares of peaks that large products nearly reach; where the best measured
    rate is far below a chip's nominal peak, its matrix peaks are taken down in proportion. Chips of the same
    line run the same kernels, and some reach more of their peak than those that coefficients were fitted to
    (H20: no power limit is in its way; RTX 4090: a clock above the nominal one): for those without a table of
    their own, whose `kin` the coefficients come from, peaks are taken up by the ratio of the best shares.
    """
    measured = np.asarray(chip.measured_matmul_flop_per_s, float)
    nominal = np.asarray(engine.half_flop_per_s)
    down = np.minimum(measured / (USUAL_SHARE * nominal), 1.0)
    up = np.minimum(measured / (nominal * best_share(kin)), MOST_SHARE / USUAL_SHARE)
    # What other makers' chips were measured at are shares of their own peaks: the ratio alone counts.
    kept = up if chip.architecture not in LOADING else np.maximum(down, up)
    share = np.where(measured > 0.0, kept if kin else down, 1.0)
    return replace(
        engine,
        flop_per_s=share * engine.flop_per_s,
        half_flop_per_s=share * engine.half_flop_per_s,
    )


@lru_cache(maxsize=256)
def best_share(chips: tuple[str, ...]) -> float:
    """Geometric mean of chips' best measured 16-bit products over their peaks; the usual where none is."""
    known = [catalogue_chip(name) for name in chips if exists(name, ("chip",))]
    shares = [
        float(chip.measured_matmul_flop_per_s / chip.matrix_flop_per_s["bf16"])
        for chip in known
        if chip.measured_matmul_flop_per_s and "bf16" in chip.matrix_flop_per_s
    ]
    return float(np.exp(np.mean(np.log(shares)))) if shares else USUAL_SHARE


def matrix_peak(chip: Chip, name: str) -> Num:
    """The dense peak of a format, or of the one that it is widened to; vector units where there is none."""
    for candidate in (name, *PEAK_FALLBACK.get(name, ())):
        if candidate in chip.matrix_flop_per_s:
            return chip.matrix_flop_per_s[candidate]
    return chip.vector_flop_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A formula with its coefficients."""

    name: str
    """Its name in files."""
    dims: tuple[str, ...]
    """Names of the sizes it needs."""
    record: type[Any]
    """A frozen dataclass of numbers, the coefficients; its defaults hold where nothing was measured."""
    bounds: Mapping[str, tuple[float, float]]
    """Least and most of the coefficients that a fit may move; the others are held."""
    seconds: Callable[[Dims, Any, Engine], Array]
    """Seconds of kernels of these sizes, in broadcasting form."""
    start: Callable[[str, str, str], Any] | None = None
    """Architecture, software and dtype to coefficients: where a fit begins; None: the record's defaults."""
    discrete: bool = False
    """Whether `start` has tiles and splits that differ by architecture and software, so that it holds where
    these were never measured, and no mean over others does."""
    library: tuple[str, ...] = ()
    """Coefficients that the software sets rather than the chip, in formats with a quantisation pass."""
    clocked: tuple[str, ...] = ()
    """Coefficients in seconds that are cycles of a chip: a faster clock shortens them."""
    cached: tuple[str, ...] = ()
    """Coefficients in memory bandwidths that are bytes a cycle of all cores."""

    def begin(self, architecture: str, software: str, dtype: str) -> Any:
        """Where a fit begins."""
        if self.start is None:
            return self.record()
        return self.start(architecture, software, dtype)


def p_norm(first: Num, second: Num, power: Num) -> Array:
    """(a^p + b^p)^(1/p): between the larger (no time shared: p large) and the sum (p = 1)."""
    high = np.maximum(np.maximum(first, second), 1e-30)
    low = np.minimum(first, second)
    return np.asarray(high * (1.0 + (low / high) ** power) ** (1.0 / power))
