"""Fit attention to a folder of measured tables.

`python -m foretell.lab.calibrate.attention_fit DATA_DIR [OUT_FILE]` fits every table of attention in
DATA_DIR and writes the catalogue's kernels/attention.toml.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.catalog.chips import catalogue_chip
from foretell.catalog.files import ROOT
from foretell.kernels.families import decode, latent, prefill
from foretell.kernels.families.base import Engine, engine_of
from foretell.kernels.families.choose import family_named
from foretell.lab.calibrate.kernel_files import read_kernels
from foretell.lab.calibrate.surfaces import (
    KernelRows,
    fit,
    left_out,
    surface_with_errors,
    write_surfaces,
)
from foretell.specs.surface import Surface

SOURCE = "NVIDIA aiconfigurator (github.com/ai-dynamo/aiconfigurator), {}/{}/{}/{}"
"""Where the tables come from: system, kind, software and version."""
FITTED_ROWS = 3000
"""Rows that a fit looks at: evenly picked from more, sites whole."""
TOO_FAST, BEYOND_CACHE = 1.05, 2.0
"""Shares of the nominal bandwidth and of the last-level cache above which a reading is no measurement."""
STARTS: Mapping[str, Callable[[str, str, str], Any]] = {
    "prefill": prefill.start,
    "decode": decode.start,
    "mla-prefill": latent.prefill_start,
    "mla-decode": latent.decode_start,
}
"""Family -> what holds for an architecture, software and dtype before anything is fitted."""


def start_of(rows: KernelRows) -> Any:
    """Where a fit begins: the tiles, packing and splits of the library on the chip's architecture."""
    return STARTS[rows.family](catalogue_chip(rows.chip).architecture, rows.software, rows.dtype)


def physical(rows: KernelRows, engine: Engine) -> NDArray[np.bool_]:
    """Rows to trust: where any site of shared heads reads its cache faster than the memory can, none is."""
    if rows.family != "decode":
        return np.ones(len(rows.ids), dtype=bool)
    width = rows.dims["qk_dim"] + rows.dims["v_dim"]
    held = rows.dims["batch"] * rows.dims["kv_heads"] * rows.dims["kv_len"] * width
    held_bytes = held * rows.dims["kv_bytes"]
    wild = held_bytes > TOO_FAST * engine.bytes_per_s * rows.measured_s
    wild &= held_bytes > BEYOND_CACHE * engine.l2_bytes
    shared = rows.dims["heads"] > rows.dims["kv_heads"]
    return np.asarray(~(shared & np.any(wild & shared)))


def fit_attention(rows: KernelRows, engine: Engine) -> Any:
    """Coefficients of one group of rows."""
    every = max(1, len(rows.ids) // FITTED_ROWS)
    # A stride that shares no factor with the tables' order would still meet all sizes: rows are shuffled.
    few = np.sort(np.random.default_rng(0).permutation(len(rows.ids))[::every])
    return fit(family_named(rows.family), rows.take(few), engine, start=start_of(rows))


def surface(rows: KernelRows, source: str, when: str) -> Surface:
    """A fitted surface with its residuals on sites left out."""
    chip = catalogue_chip(rows.chip)
    engine = engine_of(chip, rows.dtype)
    rows = rows.take(physical(rows, engine))
    family = family_named(rows.family)
    record = fit_attention(rows, engine)
    inside = family.seconds(rows.dims, record, engine)
    blind = left_out(family, rows, engine, fitter=lambda others: fit_attention(others, engine))
    return surface_with_errors(rows, record, (inside, blind), (chip.architecture, source, when))


def surfaces_of(path: Path, when: str) -> list[Surface]:
    """The surfaces of one table, one a format."""
    found = []
    for rows in read_kernels(path).groups:
        system = path.name.split(f"_{rows.software}_")[0]
        kind = "mla" if rows.family.startswith("mla") else "attention"
        found.append(surface(rows, SOURCE.format(system, kind, rows.software, rows.version), when))
    return found


def main(arguments: Sequence[str]) -> None:
    """Fit every table of a folder and write the surfaces."""
    folder = Path(arguments[0])
    out = Path(arguments[1]) if len(arguments) > 1 else ROOT / "kernels" / "attention.toml"
    tables = [*sorted(folder.rglob("*_attention*.csv.gz")), *sorted(folder.rglob("*_mla*.csv.gz"))]
    surfaces: list[Surface] = []
    for path in tables:
        for found in surfaces_of(path, date.today().isoformat()):
            surfaces.append(found)
            left = f"{found.left_out_median_ape:.1%} / {found.left_out_p90_ape:.1%}"
            sys.stderr.write(
                f"{found.family} {found.chip} {found.dtype} {found.software}: {left}\n"
            )
    write_surfaces(out, surfaces)


if __name__ == "__main__":
    main(sys.argv[1:])
