"""Measured watts of matrix products and their times with and without a power limit in reach, as arrays.

The tables' watts are means of samples 0.1 s apart of a one-second running mean, taken over loops of 1 s
(0.3 s and less for kernels under 0.1 ms), and many weights were never written: zeros, which draw far less.
So watts lie below those of random data in many rows and hardly ever above: readers must weigh that.
"""

import csv
import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.kernels.families.base import DTYPES
from foretell.kernels.power import BITS, OpLoad, clock_share
from foretell.records import dataclass
from foretell.specs.chip import Chip

Array = NDArray[np.float64]

NAMES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "fp8": "fp8",
    "fp8_block": "fp8-block",
    "nvfp4": "nvfp4",
}
"""Formats as tables spell them, and as the project does."""
TABLES = (
    ("h200-sxm", "h200_sxm_vllm_0.22.0_gemm_power", ""),
    ("b200-sxm", "b200_sxm_trtllm_1.3.0rc15_gemm_power", "b200_sxm_trtllm_1.3.0rc20_gemm_"),
    ("b200-sxm", "b200_sxm_vllm_0.22.0_gemm_power", ""),
    ("gb200", "gb200_vllm_0.22.0_gemm_power", ""),
)
"""Chip, table with watts, and tables of short bursts of the same software where there are any."""
SETTLED_S = 1e-4
"""Kernels from here on ran in loops of a second: their watts are the least blurred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerRows:
    """Kernels of one table and format."""

    table: str
    """The table's name."""
    chip: str
    """Catalogue id."""
    dtype: str
    """Format of the products."""
    load: OpLoad
    """What they did, in the time they took."""
    watts: Array
    """Mean watts measured."""
    limit_watts: Array
    """The power limit then."""
    burst_s: Array
    """Seconds of the same shape in short bursts; nan where there is none."""
    site: NDArray[np.intp]
    """Rows of one (n, k) pair."""
    sizes: Array
    """Rows, columns and depth of each product; (3, products)."""

    def take(self, keep: NDArray[Any]) -> "PowerRows":
        """Some of the rows."""
        load = self.load
        return PowerRows(
            table=self.table,
            chip=self.chip,
            dtype=self.dtype,
            load=OpLoad(
                seconds=np.asarray(load.seconds)[keep],
                clock_share=np.asarray(load.clock_share)[keep],
                matrix_flop=np.asarray(load.matrix_flop)[keep],
                bits=load.bits,
                memory_bytes=np.asarray(load.memory_bytes)[keep],
                cache_bytes=np.asarray(load.cache_bytes)[keep],
            ),
            watts=self.watts[keep],
            limit_watts=self.limit_watts[keep],
            burst_s=self.burst_s[keep],
            site=self.site[keep],
            sizes=self.sizes[:, keep],
        )


def read_columns(path: Path) -> dict[str, list[str]]:
    """The columns of a compressed CSV file."""
    with gzip.open(path, "rt", newline="") as file:
        rows = list(csv.reader(file))
    return {name: [row[i] for row in rows[1:]] for i, name in enumerate(rows[0])}


def rows_of(
    columns: Mapping[str, Sequence[str]], table: str, chip: Chip, bursts: Mapping[str, Path]
) -> list[PowerRows]:
    """Rows of a table with watts, one record a format; `bursts` names files of burst times by format."""
    formats = np.asarray(columns["gemm_dtype"])
    values = {
        name: np.asarray(columns[name], float)
        for name in ("m", "n", "k", "latency_ms", "power_w", "power_limit")
    }
    found = []
    for spelled in sorted(set(formats.tolist()) & set(NAMES)):
        mine = {name: column[formats == spelled] for name, column in values.items()}
        shapes = np.stack([mine["m"], mine["n"], mine["k"]], axis=1)
        burst = np.full(len(shapes), np.nan)
        if spelled in bursts and bursts[spelled].is_file():
            burst = _bursts(shapes, bursts[spelled])
        found.append(_rows(mine, (table, chip, NAMES[spelled]), burst))
    return found


def _rows(mine: Mapping[str, Array], what: tuple[str, Chip, str], burst: Array) -> PowerRows:
    table, chip, dtype = what
    m, n, k = mine["m"], mine["n"], mine["k"]
    form = DTYPES[dtype]
    flop = 2.0 * m * n * k
    moved = m * k * form.activation_bytes + n * k * form.weight_bytes + 2.0 * m * n
    if form.quantised:  # the tables' times hold the activations' way into the format
        moved = moved + m * k * (2.0 + form.activation_bytes)
    # A loop finds in the cache what fits there.
    missed = 1.0 / (1.0 + (chip.l2_bytes / moved) ** 4.0)
    seconds = 1e-3 * mine["latency_ms"]
    clocked = flop / (0.8 * chip.matrix_flop_per_s[form.peak])
    return PowerRows(
        table=table,
        chip=chip.id,
        dtype=dtype,
        load=OpLoad(
            seconds=seconds,
            clock_share=clock_share(clocked, np.where(np.isfinite(burst), burst, seconds)),
            matrix_flop=flop,
            bits=BITS[form.peak],
            memory_bytes=moved * missed,
            cache_bytes=moved * (1.0 - missed),
        ),
        watts=mine["power_w"],
        limit_watts=mine["power_limit"],
        burst_s=burst,
        site=np.unique(np.stack([n, k], axis=1), axis=0, return_inverse=True)[1].reshape(-1),
        sizes=np.stack([m, n, k]),
    )


def _bursts(shapes: Array, path: Path) -> Array:
    columns = read_columns(path)
    time = columns.get("latency_ms") or columns["latency"]
    keys = zip(columns["m"], columns["n"], columns["k"], strict=True)
    known = {
        tuple(float(v) for v in key): 1e-3 * float(t) for key, t in zip(keys, time, strict=True)
    }
    return np.array([known.get(tuple(shape), np.nan) for shape in shapes.tolist()])


def read_rows(folder: Path, chips: Mapping[str, Chip]) -> list[PowerRows]:
    """All tables with watts under the folder of kernel data."""
    found = []
    for chip, table, burst in TABLES:
        path = folder / f"{table}.csv.gz"
        if path.is_file():
            files = {d: folder / f"{burst}{d}.csv.gz" for d in NAMES} if burst else {}
            found += rows_of(read_columns(path), table, chips[chip], files)
    return found
