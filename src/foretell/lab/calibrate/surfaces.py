"""Fit a kernel family's coefficients to measured times, judge them on sites left out, write them down.

Coefficients move in their logarithm between their bounds; the loss is soft-L1 on ln(predicted / measured),
with a weak pull to the family's defaults, so that what the data does not tell stays physical.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.catalog import chip as named_chip
from foretell.catalog.files import toml_value
from foretell.kernels.families.base import Dims, Engine, Family
from foretell.records import dataclass
from foretell.specs.arrays import Array
from foretell.specs.chip import Surface

SPREAD, PRIOR = 0.1, 3.0
"""Residual, in logarithms, that counts as one; how far a coefficient may lightly leave its default."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""What is kept of the residuals."""
FOLDS = 5
"""Parts into which sites are dealt to be left out in turn."""
MOST_ROWS = 6000
"""Rows that a fit looks at: evenly picked from more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRows:
    """Measured kernels of one family, dtype, chip and software."""

    family: str
    """The kernel family."""
    dtype: str
    """The number format."""
    chip: str
    """Catalogue id of the chip."""
    software: str
    """What ran them."""
    version: str
    """Its version."""
    ids: tuple[str, ...]
    """Id of each row."""
    dims: Dims
    """Sizes; one number a row."""
    measured_s: Array
    """Measured seconds."""
    site: NDArray[np.intp]
    """Rows of one site (a whole (n, k) pair, a set of heads) are left out together."""

    def take(self, keep: NDArray[Any]) -> "KernelRows":
        """Some of the rows."""
        return replace(
            self,
            ids=tuple(np.asarray(self.ids)[keep].tolist()),
            dims={name: values[keep] for name, values in self.dims.items()},
            measured_s=self.measured_s[keep],
            site=self.site[keep],
        )


def fit(
    family: Family,
    rows: KernelRows,
    engine: Engine,
    start: Any = None,
    weights: Array | None = None,
) -> Any:
    """The coefficients that meet the rows best."""
    from scipy.optimize import least_squares

    first = family.record() if start is None else start
    names = [name for name in family.bounds if family.bounds[name][0] < family.bounds[name][1]]
    low = np.log([family.bounds[name][0] for name in names])
    high = np.log([family.bounds[name][1] for name in names])
    middle = np.clip(np.log([getattr(first, name) for name in names]), low, high)
    few = _evenly(rows, MOST_ROWS)
    weight = np.ones(len(few.ids)) if weights is None else weights[_picked(len(rows.ids))]

    def function(z: Array) -> Array:
        record = _record(first, names, z)
        gap = np.log(family.seconds(few.dims, record, engine) / few.measured_s)
        return np.concatenate([weight * gap / SPREAD, (z - middle) / PRIOR])

    margin = 1e-6 * (high - low)
    begin = np.clip(middle, low + margin, high - margin)
    solved = least_squares(function, begin, bounds=(low, high), loss="soft_l1", max_nfev=60)
    return _record(first, names, solved.x)


def _record(start: Any, names: Sequence[str], logs: Array) -> Any:
    return replace(start, **{n: float(np.exp(v)) for n, v in zip(names, logs, strict=True)})


def _picked(count: int) -> NDArray[np.intp]:
    if count <= MOST_ROWS:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, MOST_ROWS).astype(np.intp))


def _evenly(rows: KernelRows, most: int) -> KernelRows:
    return rows if len(rows.ids) <= most else rows.take(_picked(len(rows.ids)))


def left_out(
    family: Family,
    rows: KernelRows,
    engine: Engine,
    fitter: Callable[[KernelRows], Any] | None = None,
    folds: int = FOLDS,
    start: Any = None,
) -> Array:
    """Seconds predicted for every row by a fit that has not seen its site."""
    sites = np.unique(rows.site)
    # Dealt by a fixed shuffle, so that neighbours do not always go together.
    dealt = np.random.default_rng(0).permutation(len(sites)) % folds
    part = dealt[np.searchsorted(sites, rows.site)]
    predicted = np.full(len(rows.ids), np.nan)
    for fold in range(folds):
        mine = part == fold
        if not mine.any() or mine.all():
            continue
        others = rows.take(~mine)
        record = fit(family, others, engine, start) if fitter is None else fitter(others)
        predicted[mine] = family.seconds(rows.take(mine).dims, record, engine)
    return predicted


def errors(predicted: Array, measured: Array) -> tuple[float, float]:
    """Median and ninetieth percentile of |predicted / measured - 1|."""
    gap = np.abs(predicted / measured - 1.0)
    gap = gap[np.isfinite(gap)]
    return float(np.median(gap)), float(np.quantile(gap, 0.9))


def surface_of(family: Family, rows: KernelRows, engine: Engine, source: str, date: str) -> Surface:
    """A fitted surface with its residuals."""
    architecture = named_chip(rows.chip).architecture
    start = family.begin(architecture, rows.software, rows.dtype)
    record = fit(family, rows, engine, start)
    blind = left_out(family, rows, engine, start=start)
    inside = family.seconds(rows.dims, record, engine)
    return surface_with_errors(rows, record, (inside, blind), (architecture, source, date))


def surface_with_errors(
    rows: KernelRows, record: Any, predicted: tuple[Array, Array], where: tuple[str, str, str]
) -> Surface:
    """A surface of coefficients with what they predict, of rows fitted and left out.

    `where` is the chip's architecture, the source and the date.
    """
    inside, blind = (errors(seconds, rows.measured_s) for seconds in predicted)
    gaps = np.log(rows.measured_s / predicted[1])
    quantiles = np.quantile(gaps[np.isfinite(gaps)], QUANTILES)
    return Surface(
        family=rows.family,
        dtype=rows.dtype,
        chip=rows.chip,
        architecture=where[0],
        software=rows.software,
        version=rows.version,
        coefficients={name: float(f"{value:.5g}") for name, value in asdict(record).items()},
        points=len(rows.ids),
        median_ape=round(inside[0], 4),
        p90_ape=round(inside[1], 4),
        left_out_median_ape=round(blind[0], 4),
        left_out_p90_ape=round(blind[1], 4),
        residuals=tuple(round(float(q), 4) for q in quantiles),
        source=where[1],
        date=where[2],
    )


def surfaces_toml(surfaces: Sequence[Surface]) -> str:
    """Surfaces as `[[surface]]` tables."""
    lines: list[str] = []
    for surface in surfaces:
        table: Mapping[str, Any] = asdict(surface)
        lines.append("[[surface]]")
        lines += [f"{k} = {toml_value(v)}" for k, v in table.items() if k != "coefficients"]
        lines.append("[surface.coefficients]")
        lines += [f"{k} = {toml_value(v)}" for k, v in surface.coefficients.items()]
        lines.append("")
    return "\n".join(lines)
