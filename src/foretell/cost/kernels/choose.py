"""Which coefficients a kernel runs with: fitted for the chip, carried over from its kin, or the defaults.

In this order: the chip's own measurements (a calibrated chip file); a surface fitted to tables of the chip,
the same software first; surfaces of chips of the nearest architecture generation, their geometric mean; the
family's defaults. What is carried over lowers the evidence, never stops an answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from foretell.catalog.files import ROOT, read_table
from foretell.cost.kernels.base import Family
from foretell.specs.chip import Chip
from foretell.specs.result import Evidence
from foretell.specs.surface import Surface

MODULES: Mapping[str, tuple[str, str]] = {
    "gemm": ("gemm", "FAMILY"),
    "prefill": ("prefill", "FAMILY"),
    "decode": ("decode", "FAMILY"),
    "mla-prefill": ("latent", "PREFILL"),
    "mla-decode": ("latent", "DECODE"),
    "experts": ("experts", "FAMILY"),
    "pointwise": ("pointwise", "FAMILY"),
}
"""Family -> its module and the record in it."""
GENERATION: Mapping[str, float] = {
    "volta": 0.0, "turing": 0.5, "ampere": 1.0, "ada": 1.4, "hopper": 2.0, "blackwell": 3.0,
    "blackwell-ultra": 3.2, "rubin": 4.0,
}  # fmt: skip
"""Architectures in the order of their kernels: what is near in it is carried over first."""
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
}
"""Formats whose coefficients serve where a format has none, the nearest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Coefficients with what they stand on."""

    family: Family
    """The formula."""
    record: Any
    """Its coefficients."""
    evidence: Evidence
    """measured, fitted, transferred or datasheet."""
    surfaces: tuple[Surface, ...]
    """What they come from; none for defaults."""

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
    found: Family = getattr(import_module(f"foretell.cost.kernels.{module}"), attribute)
    return found


@lru_cache(maxsize=1)
def catalogue_surfaces() -> tuple[Surface, ...]:
    """Every surface of the catalogue."""
    tables = (read_table(path) for path in sorted((ROOT / "kernels").glob("*.toml")))
    return tuple(surface_from(entry) for table in tables for entry in table.get("surface", ()))


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
) -> Chosen:
    """The coefficients of a family for a chip and dtype, under the first software named that has any."""
    formula = family_named(family)
    known = catalogue_surfaces() if surfaces is None else surfaces
    for name in (dtype, *DTYPE_KIN.get(dtype, ())):
        mine = [s for s in known if s.family == family and s.dtype == name]
        own = [s for s in mine if s.chip == chip.id]
        if own:
            best = min(own, key=lambda s: _place(s.software, software))
            exact = name == dtype and (not software or best.software in software)
            return _chosen(formula, [best], "fitted" if exact else "transferred")
        kin = _nearest(mine, chip, software)
        if kin:
            return _chosen(formula, kin, "transferred")
    return Chosen(family=formula, record=formula.record(), evidence="datasheet", surfaces=())


def _place(name: str, wanted: Sequence[str]) -> int:
    return wanted.index(name) if name in wanted else len(wanted)


def _nearest(mine: Sequence[Surface], chip: Chip, software: Sequence[str]) -> list[Surface]:
    """Surfaces of the nearest generation, under the most wanted software among them."""
    place = GENERATION.get(chip.architecture)
    if place is None or not mine:
        return []
    far = [abs(GENERATION.get(s.architecture, 9.0) - place) for s in mine]
    near = [s for s, d in zip(mine, far, strict=True) if d == min(far)]
    least = min(_place(s.software, software) for s in near)
    return [s for s in near if _place(s.software, software) == least]


def _chosen(formula: Family, surfaces: Sequence[Surface], evidence: Evidence) -> Chosen:
    """The geometric mean of some surfaces' coefficients."""
    means = {
        name: float(np.exp(np.mean([np.log(s.coefficients[name]) for s in surfaces])))
        if all(s.coefficients[name] > 0.0 for s in surfaces)
        else surfaces[0].coefficients[name]
        for name in surfaces[0].coefficients
    }
    return Chosen(
        family=formula,
        record=formula.record(**means),
        evidence=evidence,
        surfaces=tuple(surfaces),
    )
