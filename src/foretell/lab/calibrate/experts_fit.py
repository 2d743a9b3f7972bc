"""Fit the coefficients of mixture-of-experts layers.

`python -m foretell.lab.calibrate.experts_fit DATA_DIR [DATE]` reads every `*_moe*` table of
DATA_DIR/kernels and writes catalog/kernels/experts.toml.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from foretell.catalog.chips import catalogue_chip
from foretell.catalog.files import ROOT
from foretell.kernels.families.base import Engine, Family, engine_of
from foretell.kernels.families.experts import FAMILY, ExpertsCoefficients, NarrowExperts
from foretell.lab.calibrate.kernel_files import read_kernels
from foretell.lab.calibrate.surfaces import KernelRows, errors, fit, surface_of, write_surfaces
from foretell.specs.surface import Surface

LOOKED_AT = 1500
"""Rows of a table's part that a fit looks at, evenly picked: more move no coefficient by much."""
SYSTEMS = {"a100-sxm-80gb": "a100_sxm"}
"""Systems whose name in the source is not the chip's id."""


def thin_rows(rows: KernelRows, most: int = LOOKED_AT) -> KernelRows:
    """Some of the rows, evenly picked."""
    if len(rows.ids) <= most:
        return rows
    return rows.take(np.unique(np.linspace(0, len(rows.ids) - 1, most).astype(np.intp)))


def family_for(rows: KernelRows, engine: Engine) -> Family:
    """The family with the largest tile that meets the rows best: sizes of tiles are chosen, not fitted."""
    few = thin_rows(rows, LOOKED_AT // 2)
    families = [replace(FAMILY, record=record) for record in (ExpertsCoefficients, NarrowExperts)]
    return min(
        families,
        key=lambda f: sum(errors(f.seconds(few.dims, fit(f, few, engine), engine), few.measured_s)),
    )


def fit_experts(rows: KernelRows, date: str) -> Surface:
    """The surface of some rows; its errors in the fit are those of all of them."""
    engine = engine_of(catalogue_chip(rows.chip), rows.dtype)
    family = family_for(rows, engine)
    system = SYSTEMS.get(rows.chip, rows.chip.replace("-", "_"))
    software = rows.software.split("-")[0]
    source = (
        "NVIDIA aiconfigurator (github.com/ai-dynamo/aiconfigurator), "
        f"{system}/moe/{software}/{rows.version}"
    )
    surface = surface_of(family, thin_rows(rows), engine, source, date)
    record = ExpertsCoefficients(**surface.coefficients)
    median, tail = errors(family.seconds(rows.dims, record, engine), rows.measured_s)
    return replace(
        surface, points=len(rows.ids), median_ape=round(median, 4), p90_ape=round(tail, 4)
    )


def tables(folder: Path) -> Iterator[KernelRows]:
    """Rows of all tables, by chip, format and software."""
    for path in sorted(folder.glob("*_moe*.csv*")):
        yield from read_kernels(path).groups


def main(arguments: Sequence[str]) -> None:
    """Fit, print the errors and write the catalogue's file."""
    date = arguments[1] if len(arguments) > 1 else "2026-11-15"
    found = []
    for rows in tables(Path(arguments[0]) / "kernels"):
        surface = fit_experts(rows, date)
        found.append(surface)
        sys.stdout.write(
            f"{surface.chip} {surface.dtype} {surface.software} {surface.points} rows: "
            f"{surface.median_ape:.1%} (p90 {surface.p90_ape:.1%}), "
            f"held out {surface.left_out_median_ape:.1%} ({surface.left_out_p90_ape:.1%})\n"
        )
    write_surfaces(ROOT / "kernels" / "experts.toml", found)


if __name__ == "__main__":
    main(sys.argv[1:])
