"""What is paid once: modules, integration, masks and package, spread over everything that uses them."""

import numpy as np

from foretell.economics.tree import Branch, leaf, total
from foretell.specs._base import Num
from foretell.specs.package import Finish
from foretell.specs.silicon import Die, Process


def die_nre(die: Die, process: Process, finish: Finish) -> Branch:
    """Modules K_m A, integration K_c A and what is fixed, masks apart (Chiplet Actuary).

    K_m and K_c are the shares of a node's NRE over its reference area; modules are counted on the area
    without the interfaces to other dies, which are bought or designed once.
    """
    per_mm2 = process.nre_usd / finish.nre_reference_mm2
    own = die.area_mm2 * (1.0 - die.interface_share)
    fixed = process.nre_usd * (1.0 - finish.module_nre_share - finish.chip_nre_share)
    masks = np.minimum(process.mask_set_usd, fixed)
    return total(
        "design of " + die.name,
        [
            leaf("modules", finish.module_nre_share * per_mm2 * own),
            leaf("integration", finish.chip_nre_share * per_mm2 * die.area_mm2),
            leaf("masks", masks),
            leaf("other fixed", fixed - masks),
        ],
    )


def spread_over(count: Num, volume: Num, elsewhere: Num) -> Num:
    """Share of a design's NRE that one package with `count` of it bears.

    count / (count x volume + elsewhere): over all packages and all other uses the shares sum to 1.
    """
    built = count * np.asarray(volume, float) + elsewhere
    return np.where(np.asarray(volume) > 0.0, count / np.maximum(built, 1e-300), 0.0)


def package_nre_usd(finish: Finish, substrate_mm2: Num) -> Num:
    """Fixed, and more with the area."""
    return finish.package_nre_usd + finish.package_nre_usd_per_mm2 * substrate_mm2
