"""Fit the families of dispatch kernels to measured exchanges.

Each direction of a family has a few coefficients (network/dispatch.py), fitted to ln(predicted / measured)
with Cauchy's loss and a weak pull to where a fit begins, a shape (chip, ranks, width, experts) counting as
one however many rows it has.

What other libraries tell of one that is left out, or that nobody has measured: coefficients of libraries
scatter around a common mean (in logarithms), the less the more two libraries have in common: the same kernels
measured elsewhere, kernels that send the same to the same end, or any. With x_j fitted to library j and H_j
what its rows tell of it, the mean that the others imply is

    mu = (P + sum_j W_j)^-1 (P x_0 + sum_j W_j x_j),    W_j = (H_j^-1 + s_j^2)^-1

where s_j is how far library j may be from the one asked for, and P the firmness of where every fit begins. A
coefficient that a library's rows do not tell (its H is next to nothing there) counts for nothing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields

import numpy as np

from foretell.lab.calibrate.dispatch_rows import DispatchRow, own_kernels
from foretell.network.dispatch import DispatchLoad, DispatchPass, dispatch_kernels, pass_seconds
from foretell.records import dataclass
from foretell.specs.arrays import Array

START = DispatchPass(core_bytes_per_s=1.5e10, lane_bytes_per_s=3e9, hop_s=1e-6)
"""Where a fit begins."""
BOUNDS: Mapping[str, tuple[float, float]] = {
    "launch_s": (2e-6, 2e-4),
    "hop_s": (1e-9, 3e-5),
    "far_hop_s": (1e-8, 3e-4),
    "expert_s": (1e-11, 2e-7),
    "row_s_per_byte": (1e-13, 4e-9),
    "near_share": (0.1, 1.0),
    "far_share": (0.02, 1.0),
    "core_bytes_per_s": (2e9, 6e10),
    "lane_bytes_per_s": (3e8, 1e11),
}
"""Least and most of a coefficient."""
PULL = 0.15
"""Weight of the pull to the start, in logarithms."""
UNIT = 0.1
"""Error that counts as one."""
STEP = 1e-3
"""Step of a slope, in logarithms."""
KINDS: Mapping[str, tuple[str, str]] = {
    "deepep": ("node", "throughput"),
    "deepep-2": ("node", "few cores"),
    "deepep-low-latency": ("expert", "latency"),
    "nvlink-one-sided": ("rank", "throughput"),
    "nvlink-two-sided": ("rank", "throughput"),
    "mori": ("node", "throughput"),
    "mori-low-latency": ("rank", "latency"),
    "pplx": ("expert", "latency"),
    "pplx-proxy": ("expert", "latency"),
    "nccl": ("expert", "throughput"),
}
"""Family -> what it sends a row for, and what it is made for."""


def stack_loads(rows: Sequence[DispatchRow]) -> DispatchLoad:
    """The loads of rows as one of arrays."""
    return DispatchLoad(
        **{
            f.name: np.array([float(np.asarray(getattr(row.load, f.name))) for row in rows])
            for f in fields(DispatchLoad)
        }
    )


def predicted_s(rows: Sequence[DispatchRow], passes: Mapping[str, DispatchPass]) -> Array:
    """Seconds of rows; `passes` by their op."""
    found = np.zeros(len(rows))
    for places in sorted_groups(rows):
        first = rows[places[0]]
        kernels = own_kernels(first, dispatch_kernels()[first.family])
        load = stack_loads([rows[i] for i in places])
        found[places] = pass_seconds(kernels, passes[first.op], load)
    return found


def sorted_groups(rows: Sequence[DispatchRow]) -> list[list[int]]:
    """Places of rows of the same family, op, unit and use of links."""
    groups: dict[tuple[str, str, str, bool], list[int]] = {}
    for i, row in enumerate(rows):
        groups.setdefault((row.family, row.op, row.unit, row.near_used), []).append(i)
    return list(groups.values())


def weights_of(rows: Sequence[DispatchRow]) -> Array:
    """Each shape of a library counts as one."""

    def key(row: DispatchRow) -> tuple[object, ...]:
        load = row.load
        sizes = (load.ranks, load.hidden, load.top_k, load.experts, load.cores)
        return (row.library, row.system.chip.id, *(float(np.asarray(v)) for v in sizes))

    many = Counter(key(row) for row in rows)
    return np.array([1.0 / np.sqrt(many[key(row)]) for row in rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedPass:
    """Coefficients of one direction, and how firmly the rows tell them."""

    logs: Array
    """Logarithms of the coefficients, in the order of BOUNDS."""
    information: Array
    """Second derivatives of half the sum of squares over these, the pull left out."""


NAMES = tuple(BOUNDS)
"""Coefficients that are fitted."""
LOW, HIGH = (np.log([BOUNDS[name][i] for name in NAMES]) for i in range(2))
"""Logarithms of their least and most."""
FIRST = np.clip(np.log([max(getattr(START, name), 1e-12) for name in NAMES]), LOW, HIGH)
"""Those of where a fit begins."""


def pass_at(logs: Array) -> DispatchPass:
    """A direction with these coefficients."""
    return DispatchPass(**dict(zip(NAMES, np.exp(np.clip(logs, LOW, HIGH)).tolist(), strict=True)))


def fit_rows(rows: Sequence[DispatchRow]) -> FittedPass:
    """Coefficients that meet rows of one direction best."""
    from scipy.optimize import least_squares

    weights, measured = weights_of(rows), np.log([row.seconds for row in rows])
    groups = [
        (places, own_kernels(rows[places[0]], dispatch_kernels()[rows[places[0]].family]),
         stack_loads([rows[i] for i in places]))
        for places in sorted_groups(rows)
    ]  # fmt: skip

    def errors(x: Array) -> Array:
        one, found = pass_at(x), np.zeros(len(rows))
        for places, kernels, load in groups:
            found[places] = pass_seconds(kernels, one, load)
        return np.asarray((np.log(found) - measured) / UNIT)

    def residuals(x: Array) -> Array:
        loss = errors(x)
        return np.concatenate(
            [np.sign(loss) * np.sqrt(np.log1p(loss**2)) * weights, PULL * (x - FIRST)]
        )

    best = least_squares(residuals, FIRST, bounds=(LOW - 1e-9, HIGH + 1e-9), max_nfev=60).x
    sides = np.eye(len(NAMES)) * STEP
    slopes = np.array([(errors(best + s) - errors(best - s)) / (2.0 * STEP) for s in sides])
    slopes = slopes * weights
    return FittedPass(logs=best, information=slopes @ slopes.T)


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
