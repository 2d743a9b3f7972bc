"""Fit what chips spend on flops and bytes to measured watts.

`python -m foretell.lab.calibrate.power_fit DATA_DIR` writes catalog/kernels/power.toml. The H200 stands on
loops measured with clocks (power_loops.toml) and its table. Rows below the curve count little, since
unwritten weights and blurred samples mostly lower the watts (power_rows.py). What a flop costs on the B200
stands on two grounds (blackwell_joules): published products on random data (power_published.py), which one
machine ran, and its tables, whose data draws less than random data does, by as much as on the H200. The
GB200 has the die, and yet draws 1.2 times the watts at 1.05 times the rate on the same products of the same
software: higher clocks take more than their share of watts, so it stands on its own table. The tables tell
the watts of a chip that runs nothing too.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foretell.catalog.chips import catalogue_chip
from foretell.catalog.files import ROOT, read_table, toml_value
from foretell.kernels.families.base import DTYPES, engine_of
from foretell.kernels.op_times import coefficients
from foretell.kernels.power import (
    ChipPower,
    Generation,
    OpLoad,
    PowerCoefficients,
    chip_power,
    clock_share,
    core_joules,
    memory_joules,
    sustain_ops,
)
from foretell.lab.calibrate import power_published as b200
from foretell.lab.calibrate.power_rows import SETTLED_S, PowerRows, read_rows
from foretell.lab.calibrate.power_transferred import TRANSFERRED
from foretell.lab.calibrate.surfaces import QUANTILES
from foretell.specs.plan import Plan

Array = NDArray[np.float64]

H200 = read_table(Path(__file__).with_name("power_loops.toml"))
"""Loops measured on one H200, and its clocks."""

START = PowerCoefficients(
    base_share=0.18,
    joules_per_flop=1.0e-12,
    bit_power=0.75,
    vector_joules_per_flop=5e-12,
    core_joules_per_byte=50e-12,
    memory_joules_per_byte=70e-12,
    clock_power=1.3,
    voltage_floor=0.5,
    clock_floor=0.3,
    held_share=0.985,
)
"""Where the H200's fit begins. Held: the vector units (from a GELU over 2 GiB, 40 operations an element),
the floors (no bend is seen down to 0.6), and the held share (690 of 700 W, 985 of 1,000)."""
MOVED = (
    "base_share", "joules_per_flop", "bit_power", "core_joules_per_byte", "memory_joules_per_byte",
    "clock_power",
)  # fmt: skip
"""What a fit moves, in logarithms."""
ORDER = ("h200-sxm", "b200-sxm", "gb200")
"""Chips in the order of their fits, each starting at the one before it."""
PULL = 0.5
"""How lightly the first may leave its start."""
LOOPS = {
    "h200-sxm": "loops measured on one H200 (power_loops.toml); ",
    "b200-sxm": "a flop: products of SimuMax 1.2 on random data (power_published.py), tables of products"
    " that the limit held; the base: ",
    "gb200": "a flop: its own table's products that the limit held; the base: ",
}
"""What else a chip's numbers stand on."""
WRITTEN_OVER_TABLE = 1.17
"""Joules of a flop on random data over those of the tables' data, on the H200: 1.053 of its loops over 0.899
at 700 TFLOP/s and 691 W, the median of its table's products from 4,096 on."""
FLOOR_QUANTILE = 0.02
"""Quantile of a table's watts that is taken for the base: its smallest kernels leave the chip unloaded."""
KIN = {"h200-sxm": ("hopper",), "b200-sxm": ("blackwell",), "gb200": ()}
"""Architectures that a chip stands for."""
SPREAD, LOW_WEIGHT, TABLE_POINTS, MOST = 0.05, 0.15, 80.0, 2000
"""Residual that counts as one; weight of rows below the curve; what a table weighs, in points; rows read."""


def fit_chip(
    rows: Sequence[PowerRows], start: PowerCoefficients, pull: float, moved: Sequence[str]
) -> PowerCoefficients:
    """The coefficients that meet a chip's 16-bit rows best, not far from where they start.

    Times of other formats hold their casts, which the tables do not tell apart."""
    from scipy.optimize import least_squares

    few = [_few(part) for part in rows if part.dtype == "bf16"]
    middle = np.log([getattr(start, name) for name in moved])

    def function(z: Array) -> Array:
        numbers = _moved(start, moved, z)
        gaps = [gap for part in few for gap in _gaps(part, numbers)]
        if rows[0].chip == "h200-sxm":
            gaps.append(_loop_gaps(numbers))
        # Soft on rows alone: a stray row must not outweigh the pull.
        data = np.concatenate(gaps)
        soft = np.sign(data) * np.sqrt(2.0 * (np.sqrt(1.0 + data**2) - 1.0))
        return np.concatenate([soft, (z - middle) / pull])

    solved = least_squares(function, middle, max_nfev=40)
    return _moved(start, moved, solved.x)


def _moved(start: PowerCoefficients, names: Sequence[str], logs: Array) -> PowerCoefficients:
    return replace(start, **{n: float(np.exp(v)) for n, v in zip(names, logs, strict=True)})


def _few(rows: PowerRows) -> PowerRows:
    long = settled_rows(rows)
    return long.take(np.arange(0, len(long.watts), max(1, len(long.watts) // MOST)))


def _gaps(rows: PowerRows, numbers: PowerCoefficients) -> list[Array]:
    """Watts of all rows, and slowing of those that the limit holds and bursts of which are known."""
    weight = np.sqrt(TABLE_POINTS / len(rows.watts))
    gap = np.log(rows.watts / table_watts(rows, numbers)) / SPREAD
    found = [np.asarray(weight * np.where(gap < 0.0, LOW_WEIGHT * gap, gap))]
    measured = np.asarray(rows.load.seconds)
    full = held_rows(rows)
    if full.any():
        limited = limited_seconds(rows.take(full), numbers)
        weight = np.sqrt(TABLE_POINTS / full.sum())
        found.append(np.asarray(weight * np.log(measured[full] / limited) / SPREAD))
    return found


def held_rows(rows: PowerRows, burst_s: Array | None = None) -> NDArray[np.bool_]:
    """Products bound by arithmetic that the limit held, and that are known in bursts too short to be held."""
    chip = catalogue_chip(rows.chip)
    known = rows.burst_s if burst_s is None else burst_s
    burst = np.where(np.isfinite(known), known, np.inf)
    peak = chip.matrix_flop_per_s[DTYPES[rows.dtype].peak]
    bound = np.asarray(rows.load.matrix_flop) / burst > 0.5 * peak
    bound &= rows.load.memory_bytes / burst < 0.4 * chip.memory_bandwidth_bytes_per_s
    return np.asarray(bound & (burst < 2e-3) & (rows.watts > 0.95 * rows.limit_watts))


def limited_seconds(rows: PowerRows, numbers: PowerCoefficients) -> Array:
    """Seconds of such products under the limit, from those of their bursts."""
    load = replace(rows.load, seconds=rows.burst_s, clock_share=1.0)
    return sustain_ops(load, power_of(rows.chip, numbers), axis=None).seconds


def _loop_gaps(numbers: PowerCoefficients) -> Array:
    """Watts of the H200's loops, at the clocks that they ran at."""
    predicted, measured = loop_watts(numbers)
    return np.asarray(np.log(measured / predicted) / SPREAD)


def loop_watts(numbers: PowerCoefficients) -> tuple[Array, Array]:
    """Predicted and measured watts of the H200's loops.

    The clock that a loop would hold with watts to spare falls from 1,980 to 1,735 MHz with its matrix load.
    """
    columns = np.array([loop[1:] for loop in H200["loops"]], float).T
    tera_flop, bits, memory, cache, watts, clock = columns
    load = OpLoad(
        seconds=1.0, clock_share=0.0, matrix_flop=1e12 * tera_flop, bits=bits,
        memory_bytes=1e12 * memory, cache_bytes=1e12 * cache,
    )  # fmt: skip
    matrix = np.minimum(1.0, tera_flop * (bits / 16.0) / H200["matrix_full_tflop_per_s"])
    light, full = H200["max_clock_mhz"], H200["matrix_clock_mhz"]
    free = light - (light - full) * matrix
    fall = np.minimum(1.0, clock / free) ** numbers.clock_power
    base = power_of("h200-sxm", numbers).base_watts
    return base + core_joules(load, numbers) * fall + memory_joules(load, numbers), watts


def power_of(chip: str, numbers: PowerCoefficients) -> ChipPower:
    """A chip with given coefficients."""
    return chip_power(catalogue_chip(chip), _generation(chip, numbers))


def table_watts(rows: PowerRows, numbers: PowerCoefficients) -> Array:
    """Watts of a table's rows from the times they took: those of random data, or the limit.

    A kernel that the limit slowed would draw more than the limit at the full voltage in the same time, so
    the smaller of the two needs no clock.
    """
    power = power_of(rows.chip, numbers)
    spent = core_joules(rows.load, numbers) + memory_joules(rows.load, numbers)
    return np.asarray(
        np.minimum(power.limit_watts, power.base_watts + spent / np.asarray(rows.load.seconds))
    )


def _generation(chip: str, numbers: PowerCoefficients) -> Generation:
    return Generation(
        name=chip, chips=(chip,), architectures=KIN[chip], evidence="fitted", per_peak=False,
        coefficients=numbers, points=0, median_ape=0.0, p90_ape=0.0, residuals=(), source="", date="",
    )  # fmt: skip


def fit_all(rows: Sequence[PowerRows]) -> dict[str, PowerCoefficients]:
    """Coefficients of every chip with a table, each starting at the one before it.

    Joules of a byte are the same shares of the limit at the peaks on a new architecture (newer chips do
    more with as many watts), those of the same one as they are.
    """
    found: dict[str, PowerCoefficients] = {}
    numbers, before = START, "h200-sxm"
    for chip in ORDER:
        mine = [part for part in rows if part.chip == chip]
        if not mine:
            continue
        numbers = transfer_power(numbers, before, chip)
        if chip == "h200-sxm":
            numbers = fit_chip(mine, numbers, PULL, MOVED)
        else:
            numbers = replace(numbers, base_share=floor_share(mine))
        if chip == "b200-sxm":
            numbers = replace(numbers, joules_per_flop=blackwell_joules(mine, numbers))
        if chip == "gb200":
            joules = WRITTEN_OVER_TABLE * float(np.median(table_joules(mine, numbers)))
            numbers = replace(numbers, joules_per_flop=joules)
        found[chip], before = numbers, chip
    return found


def blackwell_joules(rows: Sequence[PowerRows], numbers: PowerCoefficients) -> float:
    """Joules of a flop of the B200: the geometric mean of both measured grounds.

    The H200's share of its limit at the peak, where a new chip is designed, would be 0.66 pJ, below both.
    """
    loops = float(np.median(held_joules(numbers)))
    tables = WRITTEN_OVER_TABLE * float(np.median(table_joules(rows, numbers)))
    return float(np.sqrt(loops * tables))


def table_joules(rows: Sequence[PowerRows], numbers: PowerCoefficients) -> Array:
    """Joules of a flop at the clock of short bursts, from products that a table shows held by the limit.

    Of a chip without tables of bursts these are the times of its surface, in 16 bits alone.
    """
    found = []
    measured = any(np.isfinite(part.burst_s).any() for part in rows)
    for part in rows if measured else [part for part in rows if part.dtype == "bf16"]:
        burst_s = part.burst_s if measured else surface_seconds(part.chip, *part.sizes)
        which = held_rows(part, burst_s)
        held = part.take(which)
        seconds, power = np.asarray(held.load.seconds), power_of(part.chip, numbers)
        clock = np.minimum(1.0, burst_s[which] / seconds)
        spent = (held.watts - power.base_watts) * seconds - memory_joules(held.load, numbers)
        moved = np.asarray(held.load.memory_bytes) + held.load.cache_bytes
        core = spent / clock**numbers.clock_power - numbers.core_joules_per_byte * moved
        found.append(core / np.asarray(held.load.matrix_flop))
    return np.concatenate(found)


def held_joules(numbers: PowerCoefficients) -> Array:
    """Joules of a flop at the clock of short bursts, from each product that a B200 holds on random data.

    The limit gives its joules, the rate of the same product in a short burst the clock it is held at.
    """
    chip, plan = catalogue_chip("b200-sxm"), Plan()
    m, k, n, share = np.array([row[1:] for row in b200.SUSTAINED], float).T
    surface, engine = coefficients("gemm", "bf16", chip, plan), engine_of(chip, "bf16")
    flop, moved = 2.0 * m * n * k, 2.0 * (m * k + k * n + m * n)
    free_s = surface_seconds(chip.id, m, n, k)
    # The clock is a share of this machine's own short bursts.
    burst_s = np.maximum(free_s, flop / (b200.BURST_SHARE * b200.PEAK_FLOP_PER_S))
    seconds = flop / (share * b200.PEAK_FLOP_PER_S)
    clocked = clock_share(flop / (engine.flop_per_s * surface.record.compute), free_s)
    clock = clocked / (seconds / burst_s - 1.0 + clocked)
    power = power_of("b200-sxm", numbers)
    room = (power.limit_watts - power.base_watts) * seconds - numbers.memory_joules_per_byte * moved
    spent = room / clock**numbers.clock_power - numbers.core_joules_per_byte * moved
    return np.asarray(spent / flop)


def surface_seconds(name: str, m: Array, n: Array, k: Array) -> Array:
    """Seconds of products in 16 bits in short bursts, by the chip's fitted surface."""
    chip = catalogue_chip(name)
    surface, engine = coefficients("gemm", "bf16", chip, Plan()), engine_of(chip, "bf16")
    return np.asarray(surface.family.seconds({"m": m, "n": n, "k": k}, surface.record, engine))


def floor_share(rows: Sequence[PowerRows]) -> float:
    """Lowest watts of a chip's tables over its limit."""
    shares = np.concatenate([part.watts / part.limit_watts for part in rows])
    return float(np.quantile(shares, FLOOR_QUANTILE))


def transfer_power(numbers: PowerCoefficients, before: str, after: str) -> PowerCoefficients:
    """Coefficients of one chip for one of another architecture: the same shares of the limit at the peaks."""
    old, new = catalogue_chip(before), catalogue_chip(after)
    if old.architecture == new.architecture:
        return numbers
    watts = new.tdp_watts / old.tdp_watts
    flops = watts * old.matrix_flop_per_s["bf16"] / new.matrix_flop_per_s["bf16"]
    moved = watts * old.memory_bandwidth_bytes_per_s / new.memory_bandwidth_bytes_per_s
    return replace(
        numbers,
        joules_per_flop=numbers.joules_per_flop * flops,
        core_joules_per_byte=numbers.core_joules_per_byte * moved,
        memory_joules_per_byte=numbers.memory_joules_per_byte * moved,
    )


def settled_rows(rows: PowerRows) -> PowerRows:
    """Rows whose loops were long enough for their watts to be told."""
    return rows.take(np.asarray(rows.load.seconds) >= SETTLED_S)


def score(predicted: Array, measured: Array) -> tuple[float, float]:
    """Median and ninetieth percentile of the absolute relative error."""
    gap = np.abs(predicted / measured - 1.0)
    return float(np.median(gap)), float(np.quantile(gap, 0.9))


def generation_found(
    chip: str, numbers: PowerCoefficients, rows: Sequence[PowerRows], date: str
) -> Generation:
    """A fitted chip as the catalogue keeps it, with its residuals over settled rows."""
    pairs = [(table_watts(part, numbers), part.watts) for part in map(settled_rows, rows)]
    if chip == "h200-sxm":
        pairs.append(loop_watts(numbers))
    predicted, measured = (np.concatenate(column) for column in zip(*pairs, strict=True))
    median, p90 = score(predicted, measured)
    gaps = np.quantile(np.log(measured / predicted), QUANTILES)
    tables = ", ".join(sorted({part.table for part in rows}))
    loops = LOOPS.get(chip, "")
    return replace(
        _generation(chip, numbers),
        points=len(measured),
        median_ape=round(median, 4),
        p90_ape=round(p90, 4),
        residuals=tuple(round(float(gap), 4) for gap in gaps),
        source=f"{loops}NVIDIA aiconfigurator (github.com/ai-dynamo/aiconfigurator): {tables}",
        date=date,
    )


def power_toml(found: Sequence[Generation]) -> str:
    """Generations as the catalogue's file."""
    lines = [
        "# What chips spend, by generation: kernels/power.py says what each number is.",
        "# Written by lab/calibrate/power_fit.py; the last generation holds for any chip.",
        "",
    ]
    for generation in found:
        table: Mapping[str, object] = asdict(generation)
        lines.append("[[generation]]")
        lines += [
            f"{k} = {toml_value(_rounded(v))}" for k, v in table.items() if k != "coefficients"
        ]
        lines.append("[generation.coefficients]")
        lines += [
            f"{k} = {toml_value(_rounded(v))}" for k, v in asdict(generation.coefficients).items()
        ]
        lines.append("")
    return "\n".join(lines)


def _rounded(value: object) -> object:
    """Numbers to four digits, in lists too."""
    if isinstance(value, (tuple, list)):
        return [_rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def main(folder: str, date: str) -> None:
    """Fit, print the errors and write the catalogue's file."""
    chips = {chip: catalogue_chip(chip) for chip in ORDER}
    rows = read_rows(Path(folder) / "kernels", chips)
    numbers = fit_all(rows)
    found = [
        generation_found(chip, numbers[chip], [r for r in rows if r.chip == chip], date)
        for chip in numbers
    ]
    for generation in found:
        figures = f"{generation.median_ape:.3f} median, {generation.p90_ape:.3f} p90"
        sys.stdout.write(f"{generation.name}: {generation.points} points, {figures}\n")
    (ROOT / "kernels" / "power.toml").write_text(power_toml([*found, *TRANSFERRED]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "2026-11-16")
