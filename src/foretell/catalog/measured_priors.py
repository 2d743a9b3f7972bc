"""What is held of a place before any run of it is seen: how far mechanisms are from their predictions.

The numbers are in measured_priors.toml.

Learnt from residuals of published tables by lab/calibrate/prior_fit.py, each source counting alike. A table
has the numbers that all sources give, and for each source those that the others give without it, so that a
source can be scored blind.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from foretell.catalog.files import ROOT, read_table
from foretell.records import dataclass

FILE = ROOT / "measured_priors.toml"
"""Written by lab/calibrate/prior_fit.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPrior:
    """Spreads of ln(measured / predicted) before any run of a user is seen."""

    spread: Mapping[str, float]
    """Mechanism -> standard deviation of its log-factor from one place to another."""
    row_spread: Mapping[str, float]
    """Mechanism -> standard deviation from one run of a place to another."""
    shared: float
    """Standard deviation of a log-factor that all mechanisms of a place share."""
    shared_wide: float
    """The same of the few places that are far off."""
    wide_share: float
    """Share of such places."""
    part_wide: Mapping[str, float]
    """Mechanism -> further standard deviation in the few places that are far off in one part: the fabric."""
    part_share: float
    """Share of such places."""
    noise: float
    """Standard deviation of a run that no mechanism explains."""
    likeness: float
    """Standard deviation of what runs have in common that are alike, beyond their mechanisms."""
    carry: float
    """Share of a mechanism's variance that is the same for all runs of a place, however unlike; the rest is
    common to runs as far as they are alike."""
    distance: Mapping[str, float]
    """Feature -> by how much a step in it makes two runs less alike."""
    mean: float
    """Mean log-factor of everything: what is not modelled takes time."""
    outliers: tuple[tuple[float, float], ...]
    """Further standard deviation of a run, and the share of runs that have it."""
    doubt: Mapping[str, float]
    """Trait of a run -> logarithm of the factor on its spreads."""
    interval_scale: float
    """Factor on intervals, so that sources which were left out lie in them as often as promised."""
    place_scales: tuple[tuple[float, float], ...] = ((1.0, 1.0),)
    """Factor on all spreads of a place, and the share of places that have it: some measure carefully what was
    asked for, others leave settings untold. One run says little of which it is, a few say much."""
    doubt_power: float = 1.0
    """1 where doubt is of a run's mechanisms too, 0 where only of what is beside them: a first token that is
    doubtful for its queue does not make its kernels so."""


@lru_cache(maxsize=128)
def measured_prior(kind: str, left_out: str = "") -> MeasuredPrior:
    """The prior of training or serving; of all sources but one, where that one was among them."""
    table = _tables()[kind]
    apart: Mapping[str, Mapping[str, Any]] = table.get("without", {})
    told = {key: value for key, value in table.items() if key not in ("without", "source")}
    return _prior({**told, **apart.get(left_out, {})})


@lru_cache(maxsize=1)
def _tables() -> Mapping[str, Any]:
    return read_table(FILE)


def _prior(table: Mapping[str, Any]) -> MeasuredPrior:
    apart = ("outlier_spread", "outlier_share", "scale", "scale_share")
    outliers = zip(table["outlier_spread"], table["outlier_share"], strict=True)
    scales = zip(table.get("scale", [1.0]), table.get("scale_share", [1.0]), strict=True)
    plain = {k: v for k, v in table.items() if k not in apart}
    return MeasuredPrior(**plain, outliers=tuple(outliers), place_scales=tuple(scales))
