"""How many dies a wafer, or a panel, gives: three published formulas and a real grid of dies.

All take areas in mm2 and broadcast. The formulas give fractions of dies, as they were published; the
grid gives whole ones.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from foretell.specs._base import Num
from foretell.specs.silicon import Wafer

Array = NDArray[np.float64]

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
