"""Fit the coefficients of memory-bound kernels.

`python -m foretell.lab.calibrate.pointwise_fit DATA_DIR [DATE]` reads Vidur's and LLMCompass's tables
of DATA_DIR/kernels and writes catalog/kernels/pointwise.toml.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from foretell.catalog.chips import catalogue_chip
from foretell.catalog.files import ROOT
from foretell.kernels.families.base import engine_of
from foretell.kernels.families.pointwise import FAMILY
from foretell.lab.calibrate.kernel_files import read_kernels
from foretell.lab.calibrate.surfaces import surface_of, write_surfaces

SOURCES = {
    "vidur_*_linear_ops*": "Vidur (github.com/microsoft/vidur), profiling data of compute",
    "llmcompass_measured_ops*": "LLMCompass (github.com/PrincetonUniversity/LLMCompass), measured operators",
}
"""Tables, and where they come from."""


def main(arguments: Sequence[str]) -> None:
    """Fit, print the errors and write the catalogue's file."""
    date = arguments[1] if len(arguments) > 1 else "2026-11-15"
    found = []
    for pattern, source in SOURCES.items():
        for path in sorted((Path(arguments[0]) / "kernels").glob(pattern)):
            for rows in read_kernels(path).groups:
                engine = engine_of(catalogue_chip(rows.chip), rows.dtype)
                surface = surface_of(FAMILY, rows, engine, source, date)
                found.append(surface)
                sys.stdout.write(
                    f"{surface.chip} {surface.software} {surface.points} rows: "
                    f"{surface.median_ape:.1%} (p90 {surface.p90_ape:.1%}), "
                    f"held out {surface.left_out_median_ape:.1%} ({surface.left_out_p90_ape:.1%})\n"
                )
    write_surfaces(ROOT / "kernels" / "pointwise.toml", found)


if __name__ == "__main__":
    main(sys.argv[1:])
