"""Fit matrix products to a folder of measured tables.

`python -m foretell.lab.calibrate.gemm_fit DATA_DIR [OUT_FILE]` fits every table of DATA_DIR whose name
tells a matrix product and writes the catalogue's kernels/gemm.toml.
"""

import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from foretell.catalog.chips import catalogue_chip
from foretell.catalog.files import ROOT
from foretell.kernels.families.base import engine_of
from foretell.kernels.families.gemm import FAMILY
from foretell.lab.calibrate.kernel_files import read_kernels
from foretell.lab.calibrate.surfaces import surface_of, write_surfaces
from foretell.specs.surface import Surface

SOURCE = "NVIDIA aiconfigurator (github.com/ai-dynamo/aiconfigurator), {}/gemm/{}/{}"
"""Where the tables come from: system, software and version."""


def fit_gemm(path: Path, when: str) -> list[Surface]:
    """The surfaces of one table, one a format."""
    surfaces = []
    for rows in read_kernels(path).groups:
        system = path.name.split(f"_{rows.software}_")[0]
        source = SOURCE.format(system, rows.software, rows.version)
        engine = engine_of(catalogue_chip(rows.chip), rows.dtype)
        surfaces.append(surface_of(FAMILY, rows, engine, source, when))
    return surfaces


def main(arguments: Sequence[str]) -> int:
    """Fit all tables of a folder and write the file; a line for every surface."""
    if len(arguments) not in (1, 2):
        sys.stderr.write("usage: python -m foretell.lab.calibrate.gemm_fit DATA_DIR [OUT_FILE]\n")
        return 2
    out = Path(arguments[1]) if len(arguments) > 1 else ROOT / "kernels" / "gemm.toml"
    surfaces: list[Surface] = []
    for path in sorted(Path(arguments[0]).glob("*_gemm_*.csv*")):
        for s in fit_gemm(path, date.today().isoformat()):
            surfaces.append(s)
            sys.stdout.write(
                f"{s.chip:16} {s.dtype:10} {s.software:7} {s.version:10} {s.points:6}"
                f"  fitted {s.median_ape:6.2%} {s.p90_ape:6.1%}"
                f"  held out {s.left_out_median_ape:6.2%} {s.left_out_p90_ape:6.1%}\n"
            )
            sys.stdout.flush()
    write_surfaces(out, surfaces)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
