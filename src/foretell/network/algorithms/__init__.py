"""Collective algorithms, one file each, found by their `ALGORITHMS`.

A new file offers that tuple and nothing here changes. A cost is affine in the bytes, so a search prices the
distinct groups once and gathers; closed forms are those of one collective by itself on links of its own.

cost = find("ring").cost("all-reduce", of_tier(tier, members))
cost.seconds(size_bytes)
"""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

import numpy as np

from foretell.errors import bad_input, nearest_name
from foretell.network.algorithms.base import Algorithm, Collective, Message, MessageSchedule
from foretell.network.topologies.base import Topology
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array, Index

__all__ = [
    "Algorithm",
    "Collective",
    "Message",
    "MessageSchedule",
    "able",
    "fastest",
    "find",
    "home",
    "names",
]


@cache
def _all() -> dict[str, Algorithm]:
    """Name -> algorithm, of every file here."""
    found = (import_module(f"{__name__}.{info.name}") for info in iter_modules(__path__))
    return {a.name: a for module in found for a in getattr(module, "ALGORITHMS", ())}


def names() -> tuple[str, ...]:
    """All names, sorted."""
    return tuple(sorted(_all()))


def find(name: str) -> Algorithm:
    """The algorithm of this name."""
    algorithm = _all().get(name)
    if algorithm is None:
        raise bad_input(
            "algorithm", name, "no such algorithm", ", ".join(names()), nearest_name(name, names())
        )
    return algorithm


def home(collective: Collective, topology: Topology) -> tuple[Algorithm, ...]:
    """Algorithms that do the collective and whose patterns the topology prices."""
    return tuple(
        a
        for a in _all().values()
        if collective in a.collectives and a.claim_on(topology) is not None
    )


def able(collective: Collective, topology: Topology) -> tuple[Algorithm, ...]:
    """Algorithms at home whose closed form no simulation exceeds; all at home if there is none."""
    known = home(collective, topology)
    held = tuple(a for a in known if a.claim_on(topology) != "at least")
    return held or known or (find("ring"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class FastestAlgorithm:
    """The fastest of several algorithms, group by group."""

    seconds: Array
    """Its time; infinite where none can do it."""
    index: Index
    """Its place in `names`."""
    names: tuple[str, ...]
    """The algorithms that were compared."""


def fastest(
    collective: Collective,
    topology: Topology,
    size_bytes: Num,
    among: Sequence[str] | None = None,
) -> FastestAlgorithm:
    """The fastest closed form of those at home on the topology, or of those among them named.

    `among` may be what a library has (`libraries.candidates`); what is not at home is passed over, but
    a name that does not exist is an error, as is nothing left. Of equals the first is taken.
    """
    known = home(collective, topology)
    candidates = known if among is None else tuple(a for a in map(find, among) if a in known)
    if not candidates:
        raise bad_input(
            "algorithm",
            ", ".join(among or ()) or None,
            f"no such algorithm for {collective} on {type(topology).__name__}",
            ", ".join(a.name for a in known) or "none",
        )
    times = [a.cost(collective, topology).seconds(size_bytes) for a in candidates]
    table = np.stack(np.broadcast_arrays(*times))
    return FastestAlgorithm(
        seconds=np.min(table, 0),
        index=np.argmin(table, 0),
        names=tuple(a.name for a in candidates),
    )
