"""Where the members of a group stand: how many of them share each tier.

Ranks are numbered along an order of the groups, innermost first. A group whose inner neighbours take
`stride` ranks has, inside a unit of C chips, the largest divisor d of its size with d x stride dividing C
(at least one). A tier's count is how many units of the level below the group touches inside one unit of it.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from foretell.specs._base import Num
from foretell.specs.plan import Plans
from foretell.specs.system import Network

Array = NDArray[np.float64]


def capacities(network: Network) -> list[Num]:
    """Chips in one unit of each tier, innermost first."""
    sizes: list[Num] = []
    total: Num = 1.0
    for tier in network.tiers:
        total = total * tier.size
        sizes.append(total)
    return sizes


def members_inside(size: Array, stride: Array, capacity: Num) -> Array:
    """Members of a group inside one unit: gcd(size, capacity / stride), 1 where they do not align."""
    room = np.asarray(capacity, float) / stride
    whole = np.floor(room + 1e-9)
    aligned = np.abs(room - whole) < 1e-9
    inside = np.gcd(size.astype(np.int64), np.maximum(whole, 1.0).astype(np.int64))
    return np.where(aligned, inside, 1).astype(float)


def group_counts(plans: Plans, network: Network) -> Mapping[str, Array]:
    """For each group, (tiers, plans): members of the level below per unit of each tier."""
    sizes = {"tp": plans.tp, "dp": plans.dp, "pp": plans.pp, "cp": np.ones(len(plans))}
    result = {name: np.ones((len(network.tiers), len(plans))) for name in ("tp", "dp", "pp")}
    for code, order in enumerate(plans.orders):
        rows = np.flatnonzero(plans.order == code)
        if not len(rows):
            continue
        stride = np.ones(len(rows))
        for name in order:
            size = sizes[name][rows]
            if name in result:
                result[name][:, rows] = tier_counts(size, stride, network)
            stride = stride * size
    return result


def tier_counts(size: Array, stride: Array, network: Network) -> Array:
    """(tiers, groups): how the members of each group divide over the tiers; their product is the size."""
    caps: Sequence[Num] = capacities(network)
    below = np.ones_like(size)
    rows = []
    for i, capacity in enumerate(caps):
        last = i == len(caps) - 1
        inside = size if last else members_inside(size, stride, capacity)
        inside = np.maximum(inside, below)
        rows.append(inside / below)
        below = inside
    return np.stack(rows)
