"""Dies of a wafer, the share of them that is good, and the cost of one that passed its test.

Three published formulas and a real grid give the dies of a wafer or a panel, from areas in mm2: the
formulas give fractions of dies, as they were published; the grid gives whole ones.

A model of defects is a distribution of the number of defects on a die whose mean is x = area x density;
there are five. Without redundancy a die is good when it has none; with equal units of which some are
spare, when all defects lie in few enough units. Everything broadcasts; the counts of units are structural.
"""

from functools import lru_cache

import numpy as np

from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.package import Die, DieCost, Probe, Process, Wafer, YieldModel

OFFSETS = 12
"""Places of the grid's corner that are tried along each side of a cell, half a cell included."""

TINY = 2e-3
"""Cells shorter than this, of the usable radius (a third of a millimetre), fill the circle."""


def dies_per_wafer(area_mm2: Num, wafer: Wafer) -> Num:
    """Dies of an area on a wafer, by the wafer's rule."""
    if wafer.rule == "actuary":
        return actuary_count(area_mm2, wafer)
    if wafer.rule == "classic":
        return classic_count(area_mm2, wafer)
    if wafer.rule == "google":
        return google_count(area_mm2, wafer)
    return grid_count(area_mm2, wafer)


def cell_mm2(area_mm2: Num, scribe_mm: Num) -> Num:
    """A square die with half a scribe lane all round: A + 2 w sqrt(A) + w^2."""
    return area_mm2 + 2.0 * scribe_mm * np.sqrt(area_mm2) + scribe_mm**2


def actuary_count(area_mm2: Num, wafer: Wafer) -> Num:
    """pi (d/2 - e)^2 / A' - pi (d - 2e) / sqrt(2 A') (Feng and Ma, Chiplet Actuary, DAC 2022)."""
    cell = cell_mm2(area_mm2, wafer.scribe_mm)
    inner = wafer.diameter_mm - 2.0 * wafer.edge_mm
    return np.maximum(np.pi * (inner / 2.0) ** 2 / cell - np.pi * inner / np.sqrt(2.0 * cell), 0.0)


def classic_count(area_mm2: Num, wafer: Wafer) -> Num:
    """pi (d/2)^2 / A - pi d / sqrt(2 A), without rim or lanes (TTM-CAS, LLMCompass)."""
    across = wafer.diameter_mm
    return np.maximum(
        np.pi * (across / 2.0) ** 2 / area_mm2 - np.pi * across / np.sqrt(2.0 * area_mm2), 0.0
    )


def google_count(area_mm2: Num, wafer: Wafer) -> Num:
    """(d - 6) pi (d / (4 A') - 1 / sqrt(2 A')) (Google's chiplet cost model)."""
    cell = cell_mm2(area_mm2, wafer.scribe_mm)
    across = wafer.diameter_mm
    return np.maximum(
        (across - 6.0) * np.pi * (across / (4.0 * cell) - 1.0 / np.sqrt(2.0 * cell)), 0.0
    )


def grid_count(area_mm2: Num, wafer: Wafer) -> Num:
    """Whole cells of a grid inside the usable circle, the best of some places of the grid.

    Shrinking a grid about the wafer's centre keeps every cell inside, and its place relative to a cell:
    so a smaller die never gives fewer.
    """
    areas, rims, lanes, aspects, across = np.broadcast_arrays(
        area_mm2, wafer.edge_mm, wafer.scribe_mm, wafer.aspect, wafer.diameter_mm
    )
    cells = zip(
        areas.ravel().tolist(), rims.ravel().tolist(), lanes.ravel().tolist(),
        aspects.ravel().tolist(), across.ravel().tolist(), strict=True,
    )  # fmt: skip
    found = np.array([_grid(*cell) for cell in cells]).reshape(areas.shape)
    return float(found) if found.ndim == 0 else found


@lru_cache(maxsize=4096)
def _grid(area_mm2: float, edge_mm: float, scribe_mm: float, aspect: float, across: float) -> float:
    """Cells of one grid, tried at every place; a cell is inside where its far corner is."""
    radius = across / 2.0 - edge_mm
    if radius <= 0.0:
        return 0.0
    wide = (np.sqrt(area_mm2 * aspect) + scribe_mm) / radius
    high = (np.sqrt(area_mm2 / aspect) + scribe_mm) / radius
    if wide * high > np.pi:
        return 0.0
    if min(wide, high) < TINY:
        return float(np.floor(np.pi / (wide * high)))
    shifts = np.arange(OFFSETS) / OFFSETS
    columns, rows = _far_side(wide, shifts), _far_side(high, shifts)
    inside = columns[:, None, :, None] ** 2 + rows[None, :, None, :] ** 2 <= 1.0
    return float(inside.sum((2, 3)).max())


def _far_side(pitch: float, shifts: Array) -> Array:
    """Distance from the centre to the far side of each cell along one axis, for each shift."""
    most = int(np.ceil(1.0 / pitch)) + 1
    starts = (np.arange(-most, most)[None, :] + shifts[:, None]) * pitch
    return np.asarray(np.maximum(np.abs(starts), np.abs(starts + pitch)))


def panel_count(area_mm2: Num, side_mm: Num, scribe_mm: Num) -> Num:
    """Whole square pieces of a square panel: floor(side / (sqrt(A) + w))^2."""
    return np.floor(side_mm / (np.sqrt(area_mm2) + scribe_mm)) ** 2


MOST_DEFECTS = 80
"""Defects on one die up to which a sum goes; a die with more counts as lost."""
_TRIANGLE = 24
"""Points at which Murphy's triangle of densities is taken."""


def perfect_share(defects: Num, model: YieldModel, clustering: Num = 10.0) -> Num:
    """Dies without a defect; `defects` is area x density (of one layer for bose-einstein).

    negative-binomial (1 + x/a)^-a; poisson e^-x; murphy ((1 - e^-x)/x)^2; seeds 1/(1 + x);
    bose-einstein (1 + x)^-n with n critical layers, given as the clustering.
    """
    x = np.asarray(defects, float)
    if model == "poisson":
        return np.asarray(np.exp(-x))
    if model == "murphy":
        few = np.maximum(x, 1e-9)
        return np.where(x > 1e-9, (-np.expm1(-few) / few) ** 2, 1.0)
    if model == "seeds":
        return 1.0 / (1.0 + x)
    if model == "bose-einstein":
        return np.asarray((1.0 + x) ** -np.asarray(clustering, float))
    return np.asarray((1.0 + x / clustering) ** -np.asarray(clustering, float))


def defect_shares(defects: Num, model: YieldModel, clustering: Num = 10.0) -> Array:
    """Share of dies with 0, 1, 2, ... defects, on a last axis; they sum to 1 but for the cut tail."""
    x = np.asarray(defects, float)[..., None]
    if model == "murphy":
        # Density between 0 and twice its mean, the mean most likely: Poisson over that triangle.
        points, weights = np.polynomial.legendre.leggauss(_TRIANGLE)
        low, high = (points + 1.0) / 2.0, (points + 3.0) / 2.0
        share = np.concatenate([low * weights / 2.0, (2.0 - high) * weights / 2.0])
        return np.asarray((_poisson(x * np.concatenate([low, high])) * share[:, None]).sum(-2))
    if model == "poisson":
        return _poisson(np.asarray(defects, float))
    a = np.asarray(clustering, float)[..., None]
    if model == "seeds":
        a = np.ones_like(a)
    mean = x * a if model == "bose-einstein" else x
    ratio = mean / (mean + a)
    steps = np.arange(1, MOST_DEFECTS + 1)
    growth = np.cumprod((a + steps - 1.0) / steps * ratio, axis=-1)
    first = (1.0 + mean / a) ** -a
    return np.asarray(first * np.concatenate([np.ones_like(growth[..., :1]), growth], axis=-1))


def _poisson(x: Array) -> Array:
    steps = np.arange(1, MOST_DEFECTS + 1)
    growth = np.cumprod(x[..., None] / steps, axis=-1)
    return np.asarray(
        np.exp(-x)[..., None] * np.concatenate([np.ones_like(growth[..., :1]), growth], axis=-1)
    )


@lru_cache(maxsize=64)
def hit_shares(units: int, spare: int) -> tuple[float, ...]:
    """Chance that k defects, each in a unit at random, touch at most `spare` of the units."""
    share = np.zeros(units + 1)
    share[0] = 1.0
    found = [1.0]
    hit = np.arange(units + 1) / units
    for _ in range(MOST_DEFECTS):
        moved = share * hit
        moved[1:] += share[:-1] * (1.0 - hit[:-1])
        share = moved
        found.append(float(share[: spare + 1].sum()))
    return tuple(found)


def good_share(die: Die, process: Process, model: YieldModel = "negative-binomial") -> Num:
    """Dies that can be sold: repaired where they can be, and harvested where units are spare.

    Repair takes its share off the area that defects count on. Of k defects on the rest all must lie in
    the units, and touch no more of them than are spare.
    """
    counted = die.area_mm2 * (1.0 - die.repairable_share)
    x = counted * process.defects_per_cm2 / 100.0
    if die.units < 1 or die.units_needed >= die.units:
        return perfect_share(x, model, process.clustering)
    inside = np.minimum(die.units_share * die.area_mm2 / np.maximum(counted, 1e-12), 1.0)
    k = np.arange(MOST_DEFECTS + 1)
    saved = np.asarray(inside)[..., None] ** k * hit_shares(die.units, die.units - die.units_needed)
    return np.asarray((defect_shares(x, model, process.clustering) * saved).sum(-1))


NO_PROBE = Probe()
"""Every bad die is found, and finding it costs nothing."""


def die_cost(
    die: Die,
    process: Process,
    wafer: Wafer,
    *,
    probe: Probe = NO_PROBE,
    bump_usd_per_mm2: Num = 0.0,
    model: YieldModel = "negative-binomial",
) -> DieCost:
    """A die that passed its test: (wafer / N + probe) / pass, and its bumps.

    The test finds a share c of the bad dies: pass = 1 - (1 - Y) c, and of those that pass
    Y / pass are good (Graening et al., CATCH).
    """
    count = dies_per_wafer(die.area_mm2, wafer)
    good = good_share(die, process, model)
    x = die.area_mm2 * (1.0 - die.repairable_share) * process.defects_per_cm2 / 100.0
    passed = 1.0 - (1.0 - good) * probe.probe_coverage
    with np.errstate(divide="ignore"):
        raw = process.wafer_usd / np.asarray(count, float)
    return DieCost(
        dies_per_wafer=count,
        good_share=good,
        perfect_share=perfect_share(x, model, process.clustering),
        passed_share=passed,
        quality=good / passed,
        raw_usd=raw,
        defects_usd=raw * (1.0 / passed - 1.0),
        probe_usd=die.area_mm2 * probe.probe_usd_per_mm2 / passed,
        bumps_usd=die.area_mm2 * bump_usd_per_mm2,
    )
