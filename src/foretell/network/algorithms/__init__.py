"""Collective algorithms, one file each, found by their `ALGORITHMS`.

A new file offers that tuple and nothing here changes. A cost is affine in the bytes, so a search prices the
distinct groups once and gathers; closed forms are those of one collective by itself on links of its own.

cost = find("ring").cost("all-reduce", of_tier(tier, members))
cost.seconds(size_bytes)
"""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from foretell.errors import bad_input, nearest_name
from foretell.network.algorithms.base import Algorithm, Collective
from foretell.network.topologies.base import Topology


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
