"""Watts of kernels, joules of ops, and the clock that a chip holds under its power limit.

A clocked-up chip draws base watts; products and bytes cost joules on top. What the cores spend falls with
the clock (voltage falls with it), what the memory spends does not:

    joules(phi) = base seconds(phi) + core v(phi) + memory,   v = max(phi, floor)^gamma,
    core = flops joules_per_flop (bits / 16)^bit_power + bytes core_joules_per_byte,
    memory = bytes memory_joules_per_byte,   seconds(phi) = seconds (1 - r + r / phi),

with phi the clock as a share of the one of short bursts, and r the share of an op's time that waits for
clocked units. The regulator holds the mean watts of a step at the limit: phi solves
joules(phi) = limit seconds(phi), one equation a step whatever its number of ops, since both sides are sums.
Seen on one H200 (catalog/kernels/power_loops.toml); numbers by generation in catalog/kernels/power.toml.

Chips of one kind hold clocks that differ by a few percent with their silicon and their cooling: 8 % between
the best and the worst of a cluster on average, 22 % at most (Sinha et al., SC 2022, five clusters). With a
spread sigma, the slowest of N takes 1 + sigma z(N) times the mean's time, z the expected largest of N normal
numbers (Blom 1958); memory and links do not vary. Besides, tables of kernels are of one chip that works alone
in its machine. Where its neighbours work too, air and supply are shared: clocked work takes 5 % longer than
the tables say. Fitted to 35 sources of published runs with each left out in turn it is 4.5 to 5.5 % every
time; without it runs came out 4 % too fast in their median, at every number of chips above one.
"""

from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np

from foretell.catalog.files import ROOT, Table, read_table
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.chip import Chip

BITS: Mapping[str, float] = {
    "fp64": 64.0,
    "fp32": 32.0,
    "tf32": 19.0,
    "fp16": 16.0,
    "bf16": 16.0,
    "fp8": 8.0,
    "int8": 8.0,
    "fp6": 6.0,
    "fp4": 4.0,
}
"""Bits of an operand in each of a chip's matrix formats."""
STEPS = 4
"""Newton steps on ln(phi): the equation is nearly straight there, and seconds are exact to 2e-4 at worst."""
IDLE_OVER_BASE = 0.65
"""Watts at rest over those of a clocked-up chip, where a chip's are unknown: 80 of 126 on one H200."""
WATTS_ERROR = 0.15
"""How far the mean draw of whole steps may be off, nine cases in ten; judged: no table of draws of steps is
known, and those of single kernels run on data that nobody wrote."""
SHARPNESS = 4.0
"""How suddenly an op turns from memory to arithmetic: as the p-norm that joins the two in kernel times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCoefficients:
    """What a generation of chips spends; joules are for random data, at the clock of short bursts."""

    base_share: Num
    """Watts of a clocked-up chip that runs nothing, over its rated power."""
    joules_per_flop: Num
    """One operation of a 16-bit matrix product, with its operands' way from the cache."""
    bit_power: Num
    """Joules of other formats go with (bits / 16) to this."""
    vector_joules_per_flop: Num
    """One operation of the vector units, with its instruction."""
    core_joules_per_byte: Num
    """One byte on its way between the cores and the last-level cache."""
    memory_joules_per_byte: Num
    """One byte in the device memory and its interface."""
    clock_power: Num
    """Joules of the cores go with the clock to this."""
    voltage_floor: Num
    """Clock share under which the voltage falls no further."""
    clock_floor: Num
    """Least clock share; a chip still over its limit there pauses."""
    held_share: Num
    """Share of its limit at which the regulator holds the mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Coefficients, whom they hold for, and how well."""

    name: str
    """Its name."""
    chips: tuple[str, ...]
    """Catalogue ids that it holds for before all others."""
    architectures: tuple[str, ...]
    """Architectures that it holds for where no chip's own does."""
    evidence: str
    """fitted or transferred."""
    per_peak: bool
    """Whether its joules are shares of the rated power at the peaks, which each chip's peaks make joules."""
    coefficients: PowerCoefficients
    """The numbers."""
    points: int
    """Measurements fitted; 0 where transferred."""
    median_ape: float
    """Median absolute relative error of watts over them; 0 where transferred."""
    p90_ape: float
    """Its ninetieth percentile; 0 where transferred."""
    residuals: tuple[float, ...]
    """5, 25, 50, 75 and 95 % quantiles of ln(measured / predicted watts); empty where transferred."""
    source: str
    """Where the numbers come from."""
    date: str
    """When they were set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipPower:
    """A chip as the power pass sees it."""

    idle_watts: Num
    """At rest, clocked down."""
    base_watts: Num
    """Clocked up, running nothing: waiting for a collective, between kernels."""
    limit_watts: Num
    """Mean watts that the regulator holds."""
    coefficients: PowerCoefficients
    """Joules, and how they fall with the clock."""
    generation: str
    """Where the coefficients come from."""
    evidence: str
    """fitted or transferred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpLoad:
    """What ops do and how long they take at the clock of short bursts; arrays that broadcast."""

    seconds: Num
    """Time, launch and waiting included."""
    clock_share: Num
    """Share of the time that waits for clocked units, 0 to 1 (see clock_share)."""
    matrix_flop: Num
    """Operations of matrix products."""
    bits: Num = 16.0
    """Bits of the products' operands."""
    vector_flop: Num = 0.0
    """Operations of the vector units."""
    memory_bytes: Num
    """Bytes between the device memory and the cores."""
    cache_bytes: Num = 0.0
    """Bytes that the last-level cache holds already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SustainedOps:
    """Ops under the power limit."""

    clock: Array
    """Clock over that of short bursts, at most 1; one a step."""
    seconds: Array
    """Times of the ops; as the load."""
    joules: Array
    """Joules of the ops, base watts included; as the load."""
    watts: Array
    """Mean of the step; one a step."""
    wanted_watts: Array
    """What the step would draw without a limit; one a step."""


@lru_cache(maxsize=1)
def generations() -> tuple[Generation, ...]:
    """All generations of the catalogue; the last one holds for any chip."""
    tables = read_table(ROOT / "kernels" / "power.toml")["generation"]
    return tuple(_generation(table) for table in tables)


def _generation(table: Table) -> Generation:
    values: dict[str, Any] = {field.name: table[field.name] for field in fields(Generation)}
    for name in ("chips", "architectures", "residuals"):
        values[name] = tuple(values[name])
    values["coefficients"] = PowerCoefficients(**table["coefficients"])
    return Generation(**values)


def generation_of(chip: Chip) -> Generation:
    """The chip's own coefficients, else its architecture's, else those of any chip."""
    return _generation_of(chip.id, chip.architecture, chip.left_out)


@lru_cache(maxsize=256)
def _generation_of(chip: str, architecture: str, left_out: tuple[str, ...]) -> Generation:
    # What was fitted to chips that are left out, and to no other, does not count.
    known = [g for g in generations() if not (g.points and set(g.chips) <= set(left_out))]
    own = [g for g in known if chip in g.chips]
    kin = [g for g in known if architecture in g.architectures]
    return (own or kin or [known[-1]])[0]


def chip_power(chip: Chip, generation: Generation | None = None) -> ChipPower:
    """A chip's watts and joules, from its own generation or a given one."""
    found = generation if generation is not None else generation_of(chip)
    numbers = _scaled(found.coefficients, chip) if found.per_peak else found.coefficients
    base = numbers.base_share * rated_watts(chip)
    idle = np.where(np.asarray(chip.idle_watts) > 0.0, chip.idle_watts, IDLE_OVER_BASE * base)
    return ChipPower(
        idle_watts=idle,
        base_watts=np.maximum(base, idle),
        limit_watts=numbers.held_share * np.asarray(chip.tdp_watts, float),
        coefficients=numbers,
        generation=found.name,
        evidence=found.evidence,
    )


def rated_watts(chip: Chip) -> Array:
    """The power limit that the chip is sold with."""
    rated = np.asarray(chip.rated_watts, float)
    return np.asarray(np.where(rated > 0.0, rated, chip.tdp_watts))


def _scaled(shares: PowerCoefficients, chip: Chip) -> PowerCoefficients:
    """Shares of the rated power at the peaks as joules of this chip."""
    peaks = chip.matrix_flop_per_s
    half = np.maximum(peaks.get("bf16", 0.0), peaks.get("fp16", 0.0))
    half = np.where(half > 0.0, half, chip.vector_flop_per_s)
    watts = rated_watts(chip)
    per_byte = watts / chip.memory_bandwidth_bytes_per_s
    numbers: dict[str, Any] = {f.name: getattr(shares, f.name) for f in fields(shares)}
    numbers["joules_per_flop"] = shares.joules_per_flop * watts / half
    numbers["vector_joules_per_flop"] = (
        shares.vector_joules_per_flop * watts / chip.vector_flop_per_s
    )
    numbers["core_joules_per_byte"] = shares.core_joules_per_byte * per_byte
    numbers["memory_joules_per_byte"] = shares.memory_joules_per_byte * per_byte
    return PowerCoefficients(**numbers)


def clock_share(clocked_s: Num, seconds: Num) -> Array:
    """Share of an op's time that stretches when the clock falls: (clocked / all)^4.

    `clocked_s` is what the op would take were the memory and the launch free. It is the slope of the
    p-norm that joins the two times: 1 where arithmetic binds, next to 0 where memory does.
    """
    share = np.asarray(clocked_s, float) / np.maximum(seconds, 1e-30)
    return np.asarray(np.clip(share, 0.0, 1.0) ** SHARPNESS)


def core_joules(load: OpLoad, numbers: PowerCoefficients) -> Array:
    """Joules of the cores at the clock of short bursts."""
    products = np.asarray(load.matrix_flop) * (np.asarray(load.bits) / 16.0) ** numbers.bit_power
    moved = np.asarray(load.memory_bytes) + load.cache_bytes
    return np.asarray(
        numbers.joules_per_flop * products
        + numbers.vector_joules_per_flop * np.asarray(load.vector_flop)
        + numbers.core_joules_per_byte * moved
    )


def memory_joules(load: OpLoad, numbers: PowerCoefficients) -> Array:
    """Joules of the device memory: the same at any clock."""
    return np.asarray(numbers.memory_joules_per_byte * np.asarray(load.memory_bytes))


def sustain_ops(load: OpLoad, power: ChipPower, axis: int | None = 0) -> SustainedOps:
    """Times, watts and joules of ops under the power limit.

    Ops along `axis` follow each other in one step and share a clock; with None every op is run alone, over
    and over. Loads of no seconds keep the nominal clock.
    """
    seconds, share = np.asarray(load.seconds, float), np.asarray(load.clock_share, float)
    core, memory = core_joules(load, power.coefficients), memory_joules(load, power.coefficients)
    clocked = seconds * share
    shape = np.broadcast_shapes(seconds.shape, share.shape, core.shape, memory.shape)
    parts = [np.broadcast_to(part, shape) for part in (seconds - clocked, clocked, core, memory)]
    still_s, clocked_s, core_j, memory_j = (_total(part, axis) for part in parts)
    spare = _spare_watts(power)
    clock, fall = clock_of(still_s, clocked_s, core_j, memory_j, power)
    step_s = still_s + clocked_s / clock
    spent = core_j * fall + memory_j
    # At the least clock a chip may still want too much: it then waits between kernels.
    pause = np.maximum(1.0, spent / np.maximum(spare * step_s, 1e-30))
    each_s = (parts[0] + parts[1] / _along(clock, axis)) * _along(pause, axis)
    joules = power.base_watts * each_s + parts[2] * _along(fall, axis) + parts[3]
    nominal_s = np.maximum(still_s + clocked_s, 1e-30)
    busy_s = np.maximum(step_s * pause, 1e-30)
    return SustainedOps(
        clock=clock,
        seconds=each_s,
        joules=np.asarray(joules),
        watts=np.asarray(power.base_watts + spent / busy_s),
        wanted_watts=np.asarray(power.base_watts + (core_j + memory_j) / nominal_s),
    )


def _total(part: Array, axis: int | None) -> Array:
    return part if axis is None else np.asarray(np.sum(part, axis=axis))


def _along(part: Array, axis: int | None) -> Array:
    return part if axis is None or part.ndim == 0 else np.expand_dims(part, axis)


def _spare_watts(power: ChipPower) -> Array:
    """Watts of the limit beyond the base."""
    return np.asarray(np.maximum(power.limit_watts - power.base_watts, 1e-9))


def clock_of(
    still_s: Array, clocked_s: Array, core_j: Array, memory_j: Array, power: ChipPower
) -> tuple[Array, Array]:
    """Clock that steps hold, and the factor on the cores' joules there, from sums over each step.

    The clock is the phi at which (limit - base) seconds(phi) = core v(phi) + memory, between the floor and 1.

    Newton on the difference of logarithms over ln(phi): it falls all the way, with slopes between 0 and
    -(1 + gamma), so that a few steps from 1 reach the root; more watts give a lower clock.
    """
    numbers, spare = power.coefficients, _spare_watts(power)
    # Steps without time or work keep their clock: neither logarithm below meets a zero.
    still, memory = still_s + 1e-30, memory_j + 1e-30
    low, floor = np.log(numbers.clock_floor), np.log(numbers.voltage_floor)
    x = np.zeros(())
    for _ in range(STEPS):
        stretched = clocked_s * np.exp(-x)
        falling = x > floor
        spent = core_j * np.exp(numbers.clock_power * np.maximum(x, floor))
        time, joules = still + stretched, spent + memory
        gap = np.log(spare * time / joules)
        slope = stretched / time + numbers.clock_power * falling * spent / joules
        before, x = x, np.minimum(np.maximum(x + gap / np.maximum(slope, 1e-6), low), 0.0)
        if (x == before).all():
            break
    clock = np.asarray(np.exp(x), float)
    fall = np.maximum(clock, numbers.voltage_floor) ** numbers.clock_power
    return clock, np.where(clock < 1.0, fall, 1.0)


SPREAD = 0.02
"""Standard deviation of the clocks that chips of one kind hold: 8 % between the ends of some tens of them."""
BESIDE_OTHERS = 0.05
"""Time of clocked work on chips whose neighbours work too, over that of one that works alone, less 1."""
FIXED_CLOCKS = ("tpu", "trainium", "wafer")
"""Architectures, by how their names begin, that run at one clock."""


def slowest(gpus: int, chip: Chip) -> float:
    """Time of clocked work on the slowest of so many chips, over that of one alone; 1 of a single one."""
    if gpus <= 1 or chip.architecture.startswith(FIXED_CLOCKS):
        return 1.0
    return 1.0 + BESIDE_OTHERS + SPREAD * NormalDist().inv_cdf((gpus - 0.375) / (gpus + 0.25))
