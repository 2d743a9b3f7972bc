"""How far a kernel's time may be from its prediction: quantiles of the residuals, by evidence.

A fitted surface has its own residuals on sites left out. What is carried over from another chip has those of
chips left out of their family; defaults have the widest of these, stretched.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from foretell.catalog.files import ROOT, read_table
from foretell.kernels.families.choose import FamilyCoefficients

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
