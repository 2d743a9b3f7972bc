"""Which share of dies is good: five models of defects, with repair and harvesting.

A model is a distribution of the number of defects on a die whose mean is x = area x density. Without
redundancy a die is good when there are none; with equal units of which some are spare, when all
defects lie in few enough units. All broadcast over x; the counts of units are structural.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from foretell.specs._base import Num
from foretell.specs.silicon import Die, Process, YieldModel

Array = NDArray[np.float64]

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
