"""Which coefficients a kernel runs with: fitted for the chip, carried over from its kin, or the defaults.

In this order: the chip's own measurements (a calibrated chip file); a surface fitted to tables of the chip,
the same software first; what the surfaces of other chips give (kernels/transfer.py); the family's defaults.
What is carried over lowers the evidence, never stops an answer.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np

from foretell.catalog.files import ROOT, read_table
from foretell.kernels.families.base import DTYPES, PEAK_FALLBACK, Family
from foretell.kernels.families.transfer import (
    GENERATION,
    SAME_UNITS,
    same_units_first,
    transfer_coefficients,
    twins_of,
)
from foretell.records import dataclass
from foretell.specs._base import release_numbers
from foretell.specs.chip import Chip, Surface
from foretell.specs.result import Evidence

MODULES: Mapping[str, tuple[str, str]] = {
    "gemm": ("gemm", "FAMILY"),
    "prefill": ("prefill", "FAMILY"),
    "prefill-backward": ("backward", "FAMILY"),
    "decode": ("decode", "FAMILY"),
    "mla-prefill": ("latent", "PREFILL"),
    "mla-decode": ("latent", "DECODE"),
    "experts": ("experts", "FAMILY"),
    "pointwise": ("pointwise", "FAMILY"),
}
"""Family -> its module and the record in it."""
DTYPE_KIN: Mapping[str, tuple[str, ...]] = {
    "fp16": ("bf16",),
    "bf16": ("fp16",),
    "tf32": ("bf16",),
    "fp32": ("bf16",),
    "fp8": ("fp8-block", "bf16"),
    "fp8-block": ("fp8", "bf16"),
    "mxfp8": ("fp8", "fp8-block", "bf16"),
    "int8": ("fp8", "bf16"),
    "nvfp4": ("mxfp4", "fp8", "bf16"),
    "mxfp4": ("nvfp4", "fp8", "bf16"),
    "int4": ("bf16",),
    "w4a16-mxfp4": ("int4", "bf16"),
    "w4a8-mxfp4": ("w4a16-mxfp4", "mxfp4", "nvfp4", "fp8"),
}
"""Formats whose coefficients serve where a format has none, the nearest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyCoefficients:
    """Coefficients with what they rest on."""

    family: Family
    """The formula."""
    record: Any
    """Its coefficients."""
    evidence: Evidence
    """measured, fitted, transferred or datasheet."""
    surfaces: tuple[Surface, ...]
    """What they come from; none for defaults."""
    kin: tuple[str, ...] = ()
    """Chips of its line that a chip without any table of its own has them from, and whatever chips of another
    maker have theirs from; none otherwise."""

    @property
    def foreign(self) -> bool:
        """Whether nothing was measured on the chip itself."""
        return self.evidence in ("transferred", "datasheet")

    @property
    def note(self) -> str:
        """Where the coefficients come from, in a few words."""
        if not self.surfaces:
            return f"{self.family.name}: defaults"
        names = ", ".join(
            f"{s.chip} {s.dtype} {s.software} {s.version}".strip() for s in self.surfaces
        )
        return f"{self.family.name}: {names}"


@lru_cache(maxsize=16)
def family_named(name: str) -> Family:
    """The family of this name."""
    module, attribute = MODULES[name]
    found: Family = getattr(import_module(f"{__package__}.{module}"), attribute)
    return found


@lru_cache(maxsize=1)
def catalogue_surfaces() -> tuple[Surface, ...]:
    """Every surface of the catalogue."""
    tables = (read_table(path) for path in sorted((ROOT / "kernels").glob("*.toml")))
    return tuple(surface_from(entry) for table in tables for entry in table.get("surface", ()))


def surfaces_for(chip: Chip) -> Sequence[Surface]:
    """Every surface of the catalogue that a chip may rest on."""
    if not chip.left_out:
        return catalogue_surfaces()
    return [surface for surface in catalogue_surfaces() if surface.chip not in chip.left_out]


def surface_from(table: Mapping[str, Any]) -> Surface:
    """A surface from its `[[surface]]` table."""
    values = {**table, "residuals": tuple(table["residuals"])}
    return Surface(**values)


def choose(
    chip: Chip,
    family: str,
    dtype: str,
    software: Sequence[str] = (),
    surfaces: Sequence[Surface] | None = None,
    version: str = "",
) -> FamilyCoefficients:
    """Coefficients for a chip and dtype, of the first software named that has any, and the newest version."""
    formula = family_named(family)
    if surfaces is None and (best := measured_on(chip, family, dtype, software)) is not None:
        return _chosen(formula, best, "measured" if best.dtype == dtype else "transferred")
    known = surfaces_for(chip) if surfaces is None else surfaces
    groups = same_units_first([s for s in known if s.family == family], chip)
    names = (dtype, *DTYPE_KIN.get(dtype, ()))
    for alike, name in product(groups, names):
        mine = [s for s in alike if s.dtype == name]
        own = [s for s in mine if s.chip == chip.id]
        # Units of another maker have one software, whatever an engine's profile names.
        free = not software or chip.architecture in SAME_UNITS
        same = [s for s in own if free or s.software in software]
        if same:
            best = min(same, key=lambda s: _rank(s, software, version))
            return _chosen(formula, best, "fitted" if name == dtype else "transferred")
        twins = twins_of(mine, chip, software)
        found = transfer_coefficients(formula, twins or own or mine, chip, dtype, software)
        if found is not None:
            record, kin = found
            known_kin = chip.architecture in GENERATION
            evidence: Evidence = "transferred" if known_kin else "datasheet"
            alone = known_kin and not any(s.chip == chip.id for s in known)
            apart = all(s.architecture in SAME_UNITS for s in kin)
            line = tuple(s.chip for s in kin) if alone or apart else ()
            return FamilyCoefficients(
                family=formula, record=record, evidence=evidence, surfaces=kin, kin=line
            )
    return FamilyCoefficients(
        family=formula, record=formula.record(), evidence="datasheet", surfaces=()
    )


def of_kin(
    chip: Chip, family: str, dtype: str, software: Sequence[str]
) -> FamilyCoefficients | None:
    """What the wanted software does on a chip of the same generation, where this one has none of its tables.

    Chips of one generation run one and the same kernels: as shares of their own peaks these are alike, where
    those of another library are not. None where the chip has tables of the software, or its kin have none.
    """
    mine = [s for s in surfaces_for(chip) if s.family == family and s.dtype == dtype]
    kin = twins_of(mine, chip, software)
    if chip.kernels or not kin or any(s.chip == chip.id for s in kin):
        return None
    place = GENERATION[chip.architecture]
    best = min(
        kin, key=lambda s: (abs(GENERATION[s.architecture] - place), *_rank(s, software, ""))
    )
    return _chosen(family_named(family), best, "transferred")


def measured_on(
    chip: Chip, family: str, dtype: str, software: Sequence[str] = ()
) -> Surface | None:
    """The chip's own surface of a family, in the dtype or what it is widened to; wanted software first."""
    peaks = PEAK_FALLBACK.get(DTYPES[dtype].peak, ())
    for name in dict.fromkeys((dtype, *DTYPE_KIN.get(dtype, ()), *peaks)):
        own = [s for s in chip.kernels if s.family == family and s.dtype == name]
        if own:  # among others, the file's order
            places = [software.index(s.software) if s.software in software else 99 for s in own]
            return own[places.index(min(places))]
    return None


def _rank(surface: Surface, wanted: Sequence[str], version: str) -> tuple[int, bool, list[int]]:
    """Wanted software first, then the version, then the newest."""
    place = wanted.index(surface.software) if surface.software in wanted else len(wanted)
    numbers = [-number for number in release_numbers(surface.version)]
    return place, surface.version != version, numbers


def _chosen(formula: Family, surface: Surface, evidence: Evidence) -> FamilyCoefficients:
    """One surface as it is."""
    names = (
        formula.record.__dataclass_fields__
    )  # of a file that an older version wrote, what is known
    record = formula.record(**{k: v for k, v in surface.coefficients.items() if k in names})
    near = evidence == "transferred" and surface.architecture in SAME_UNITS
    kin = (surface.chip,) if near else ()
    return FamilyCoefficients(
        family=formula, record=record, evidence=evidence, surfaces=(surface,), kin=kin
    )


WIDEST = (-0.6, -0.25, 0.0, 0.25, 0.6)
"""Of defaults on a chip of which nothing was measured: a factor of 1.8 either way holds nine in ten."""


@lru_cache(maxsize=1)
def _carried() -> dict[str, tuple[float, ...]]:
    """Family -> residuals of chips left out."""
    path = ROOT / "kernels" / "transfer.toml"
    if not path.exists():
        return {}
    table: dict[str, Any] = read_table(path)
    return {name: tuple(entry["residuals"]) for name, entry in table["family"].items()}


def spread_of(chosen: FamilyCoefficients) -> tuple[float, ...]:
    """5, 25, 50, 75 and 95 % quantiles of ln(measured / predicted)."""
    if chosen.evidence in ("measured", "fitted"):
        found = np.array([surface.residuals for surface in chosen.surfaces])
        return tuple(float(v) for v in found.mean(axis=0))
    if chosen.evidence == "transferred":
        return _carried().get(chosen.family.name, WIDEST)
    return WIDEST
