"""One good die: a wafer over its dies, what bad ones add, and the test that tells them apart."""

import numpy as np

from foretell.economics.wafers import dies_per_wafer
from foretell.economics.yields import good_share, perfect_share
from foretell.specs._base import Num
from foretell.specs.silicon import Die, DieCost, Probe, Process, Wafer, YieldModel

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
