"""How far coefficients carried over from other chips are from measured kernels.

`python -m foretell.lab.calibrate.transfer_fit DATA_DIR` predicts every table of DATA_DIR without the
surfaces of its own chip, and writes the residuals of each family to the catalogue's kernels/transfer.toml:
what an interval on a chip without measurements is made of. Every table counts the same; variants of a
software (`vllm-2023`, `vllm-cutlass`) are left to their own surfaces.
"""

import sys
from collections import defaultdict
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import numpy as np

from foretell.catalog import chip as named_chip
from foretell.catalog.files import ROOT
from foretell.kernels.families.base import Array, engine_of
from foretell.kernels.families.choose import catalogue_surfaces, choose
from foretell.lab.calibrate.kernel_files import read_kernels
from foretell.lab.calibrate.surfaces import QUANTILES, KernelRows

ROWS = 2000
"""Rows of a table that are looked at, evenly picked."""
TABLES = ("*_gemm_*", "*_attention_*", "*_mla*", "*_moe*")
"""Tables of kernels in a folder."""


def residuals(rows: KernelRows) -> Array:
    """ln(measured / predicted) without the surfaces of the rows' chip."""
    chip = named_chip(rows.chip)
    others = [surface for surface in catalogue_surfaces() if surface.chip != rows.chip]
    found = choose(chip, rows.family, rows.dtype, (rows.software,), others)
    predicted = found.family.seconds(rows.dims, found.record, engine_of(chip, rows.dtype))
    return np.asarray(np.log(rows.measured_s / predicted))


def main(arguments: Sequence[str]) -> int:
    """Score all tables and write the file."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m foretell.lab.calibrate.transfer_fit DATA_DIR\n")
        return 2
    folder, found = Path(arguments[0]), defaultdict(list)
    for path in sorted(path for pattern in TABLES for path in folder.glob(f"{pattern}.csv*")):
        for rows in read_kernels(path).groups:
            if "-" in rows.software:
                continue
            count = len(rows.ids)
            few = np.unique(np.linspace(0, count - 1, min(ROWS, count)).astype(np.intp))
            gaps = np.quantile(residuals(rows.take(few)), np.linspace(0.01, 0.99, 99))
            found[rows.family].append(gaps)
            sys.stdout.write(
                f"{path.name} {rows.family} {rows.dtype} {np.median(np.abs(gaps)):.3f}\n"
            )
    lines = [
        "# Residuals ln(measured / predicted) of chips left out, 5, 25, 50, 75 and 95 % quantiles.",
        f'date = "{date.today().isoformat()}"',
    ]
    for family, parts in sorted(found.items()):
        quantiles = np.quantile(np.concatenate(parts), QUANTILES)
        lines += ["", f'[family."{family}"]', f"tables = {len(parts)}"]
        lines.append(f"residuals = [{', '.join(f'{q:.3f}' for q in quantiles)}]")
    (ROOT / "kernels" / "transfer.toml").write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
