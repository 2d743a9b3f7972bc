"""What other libraries of dispatch kernels tell of one that is left out, or that nobody has measured.

Coefficients of libraries scatter around a common mean (in logarithms), the less the more two libraries have
in common: the same kernels measured elsewhere, kernels that send the same to the same end, or any. With x_j
fitted to library j and H_j what its rows tell of it, the mean that the others imply is

    mu = (P + sum_j W_j)^-1 (P x_0 + sum_j W_j x_j),    W_j = (H_j^-1 + s_j^2)^-1

where s_j is how far library j may be from the one asked for, and P the firmness of where every fit begins. A
coefficient that a library's rows do not tell (its H is next to nothing there) counts for nothing.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from foretell.lab.calibrate.dispatch_fit import (
    FIRST,
    KINDS,
    NAMES,
    FittedPass,
    fit_rows,
    pass_at,
)
from foretell.lab.calibrate.dispatch_rows import DispatchRow
from foretell.network.dispatch import DispatchPass

SAME, KIN, FAR = 0.2, 1.0, 1.5
"""Spread between two libraries, in logarithms: of the same family, of one that sends the same to the same
end, and of any other. Their order is given, their size was chosen with the rows in sight: of 13 sets tried
between half and one and a half times these, 11 leave a median over libraries of 16 to 20 %."""
BEGIN = 0.5
"""Spread of a library around where a fit begins."""
LEAST = 1e-4
"""Information that is added so that what no row tells has a (large) spread."""
Fits = Mapping[tuple[str, str, str], FittedPass]
"""(library, family, op) -> its fit."""


def library_fits(rows: Sequence[DispatchRow]) -> Fits:
    """Every library's families and directions fitted to their own rows."""
    groups: dict[tuple[str, str, str], list[DispatchRow]] = {}
    for row in rows:
        groups.setdefault((row.library, row.family, row.op), []).append(row)
    return {key: fit_rows(mine) for key, mine in groups.items()}


def left_out(fits: Fits, library: str, family: str) -> dict[str, DispatchPass]:
    """Coefficients of a family as all libraries but one imply them."""
    found = {}
    for op in ("dispatch", "combine"):
        firm = np.eye(len(NAMES)) / BEGIN**2
        pull = firm @ FIRST
        for (other, kernels, direction), fit in fits.items():
            if other == library or direction != op:
                continue
            known = fit.information + LEAST * np.eye(len(NAMES))
            apart = np.eye(len(NAMES)) * spread_between(kernels, family) ** 2
            weight = np.linalg.inv(np.linalg.inv(known) + apart)
            firm, pull = firm + weight, pull + weight @ fit.logs
        found[op] = pass_at(np.linalg.solve(firm, pull))
    return found


def spread_between(one: str, other: str) -> float:
    """How far coefficients of two families may be apart."""
    if one == other:
        return SAME
    return KIN if KINDS[one] == KINDS[other] else FAR
