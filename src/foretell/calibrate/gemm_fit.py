"""Fit matrix products to a folder of measured tables, and carry them over to chips without any.

`python -m foretell.calibrate.gemm_fit DATA_DIR [OUT_FILE]` fits every table of DATA_DIR whose name tells a
matrix product and writes the catalogue's kernels/gemm.toml.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np

from foretell.calibrate.kernel_files import read_kernels
from foretell.calibrate.surfaces import surface_of, write_surfaces
from foretell.catalog.chips import catalogue_chip
from foretell.catalog.files import ROOT
from foretell.cost.kernels.base import DTYPES, Family, engine_of
from foretell.cost.kernels.choose import DTYPE_KIN, GENERATION
from foretell.cost.kernels.gemm import FAMILY, Gemm
from foretell.specs.chip import Chip
from foretell.specs.surface import Surface

NEAR = 0.3
"""Generations over which a chip's weight falls by e."""
OTHER_SOFTWARE = 0.3
"""Weight of what other software measured, against the same."""
LIBRARY = ("launch_s", "quantise", "row_s", "ragged")
"""Coefficients that the library sets rather than the chip, in formats with a quantisation pass."""
STARTS: Mapping[str, Gemm] = {"fp8-block": Gemm(ragged=0.3)}
"""Where a fit begins, if not at the defaults: from there this one ends in a lesser minimum."""
SOURCE = "NVIDIA aiconfigurator (github.com/ai-dynamo/aiconfigurator), {}/gemm/{}/{}"
"""Where the tables come from: system, software and version."""


def family_for(dtype: str) -> Family:
    """The family with the start that suits a format."""
    start = STARTS.get(dtype, Gemm())
    return replace(FAMILY, record=lambda: start)  # type: ignore[arg-type]


def fitted(path: Path, when: str) -> list[Surface]:
    """The surfaces of one table, one a format."""
    surfaces = []
    for rows in read_kernels(path).groups:
        system = path.name.split(f"_{rows.software}_")[0]
        source = SOURCE.format(system, rows.software, rows.version)
        engine = engine_of(catalogue_chip(rows.chip), rows.dtype)
        surfaces.append(surface_of(family_for(rows.dtype), rows, engine, source, when))
    return surfaces


def transferred(
    surfaces: Sequence[Surface], chip: Chip, dtype: str, software: str = ""
) -> Gemm | None:
    """Coefficients for a chip without tables of its own: a weighted geometric mean of other chips'.

    A surface weighs e^(-distance / NEAR), by the distance of its chip's generation, and OTHER_SOFTWARE of
    that where another library ran; on a chip of no known generation all weigh the same. In formats with a
    quantisation pass, what the library sets comes from the same library alone where it has any. The chip's
    own surfaces are left out; None where no other chip has this format or its kin.
    """
    others = [s for s in surfaces if s.family == FAMILY.name and s.chip != chip.id]
    names = (dtype, *DTYPE_KIN.get(dtype, ()))
    kin = next((k for k in ([s for s in others if s.dtype == n] for n in names) if k), [])
    if not kin:
        return None
    place = GENERATION.get(chip.architecture)
    far = np.array([0.0 if place is None else abs(_place(s, place) - place) for s in kin])
    same = np.array([s.software == software for s in kin])
    near = np.exp(-(far - far.min()) / NEAR)
    weight = near * np.where(same, 1.0, OTHER_SOFTWARE)
    mean = _mean(kin, weight)
    if DTYPES[dtype].quantised and same.any():
        own = _mean(kin, near * same)
        mean |= {name: own[name] for name in LIBRARY}
    return Gemm(**mean)


def _place(surface: Surface, otherwise: float) -> float:
    return GENERATION.get(surface.architecture, otherwise)


def _mean(surfaces: Sequence[Surface], weight: np.ndarray) -> dict[str, float]:
    """The weighted geometric mean of each coefficient."""
    share = weight / weight.sum()
    return {
        name: float(np.exp(share @ np.log([s.coefficients[name] for s in surfaces])))
        for name in surfaces[0].coefficients
    }


def main(arguments: Sequence[str]) -> int:
    """Fit all tables of a folder and write the file; a line for every surface."""
    if len(arguments) not in (1, 2):
        sys.stderr.write("usage: python -m foretell.calibrate.gemm_fit DATA_DIR [OUT_FILE]\n")
        return 2
    out = Path(arguments[1]) if len(arguments) > 1 else ROOT / "kernels" / "gemm.toml"
    surfaces: list[Surface] = []
    for path in sorted(Path(arguments[0]).glob("*_gemm_*.csv*")):
        for s in fitted(path, date.today().isoformat()):
            surfaces.append(s)
            sys.stdout.write(
                f"{s.chip:16} {s.dtype:10} {s.software:7} {s.version:10} {s.points:6}"
                f"  fitted {s.median_ape:6.2%} {s.p90_ape:6.1%}"
                f"  left out {s.left_out_median_ape:6.2%} {s.left_out_p90_ape:6.1%}\n"
            )
            sys.stdout.flush()
    write_surfaces(out, surfaces)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
