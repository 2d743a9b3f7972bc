"""Of plans that are equal within their errors, the simplest first.

The fastest plan of a search is often one of many that no measurement could tell apart. Two plans are equal
where nine in ten cases of their difference, errors that both share drawn once (search/differences.py), have
either sign. Among the plans equal to the fastest one the simplest leads: fewer kinds of parallelism, tensor
parallelism inside a node, equal stages, the usual placement.
"""

from collections.abc import Iterable
from math import prod

import numpy as np

from foretell.network.library_catalog import inner_tiers
from foretell.sharding.rules import layers_of
from foretell.specs.arrays import Array, Index, Mask
from foretell.specs.plan import Plans
from foretell.specs.result import StepEstimate
from foretell.specs.scenario import Scenario

NEAR = 1.02
"""A plan that is expected to take longer than this times the fastest does not lead: simplicity is worth no
more."""
MOST = 12
"""Plans that are laid beside the fastest one, the simplest first."""


def burden(scenario: Scenario, plans: Plans) -> Array:
    """How much a plan asks of who runs it: kinds of parallelism, and what is unusual about them."""
    kinds = sum((degree > 1).astype(float) for degree in (plans.tp, plans.pp, plans.cp, plans.ep))
    uneven = np.mod(layers_of(scenario.model), plans.pp * plans.vpp) > 0
    tiers = scenario.system.network.tiers
    inner = inner_tiers(tuple(tier.name for tier in tiers))
    beyond = plans.tp > prod(float(tier.size) for tier in tiers[:inner])
    odd = (plans.order > 0).astype(float) + (plans.vpp > 1) + (plans.recompute == 3)
    split = (plans.tp > 1) & (plans.sp == 0)
    return np.asarray(4.0 * kinds + 4.0 * beyond + 3.0 * uneven + odd + 0.5 * split)


def near_rows(step_s: Array, fits: Mask, weight: Array) -> Index:
    """Rows that may be equal to the fastest plan that fits, the simplest first."""
    if not fits.any():
        return np.empty(0, dtype=np.intp)
    least = step_s[fits].min()
    rows = np.flatnonzero(fits & (step_s <= NEAR * least))
    order = np.lexsort((step_s[rows], weight[rows]))
    return np.asarray(rows[order][:MOST])


def is_equal(fastest: StepEstimate, other: StepEstimate) -> bool:
    """Whether neither is faster in nine of ten cases."""
    if fastest.breakdown is None or other.breakdown is None:
        return False
    # What compares plans also searches for better ones: it is loaded where it is used.
    from foretell.search.differences import interval_of

    low, high = interval_of(fastest.breakdown, other.breakdown)["p90"]
    return low <= 0.0 <= high


def leader(fastest: StepEstimate, simpler: Iterable[StepEstimate]) -> StepEstimate:
    """The first of some plans, the simplest first, that is equal to the fastest; else that one."""
    return next((one for one in simpler if is_equal(fastest, one)), fastest)
