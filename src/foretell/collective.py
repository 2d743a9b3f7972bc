"""One collective on a system: its time, bandwidths, the candidate a library takes, and a table over sizes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell import units
from foretell.catalog import system as catalog_system
from foretell.errors import BadInput, Problem, nearest_name
from foretell.network.library import KINDS, candidates, prepare, seconds
from foretell.network.library_catalog import library_for
from foretell.network.placement import tier_counts
from foretell.network.placement import units as filled_units
from foretell.specs.system import System

Array = NDArray[np.float64]

NEVER_S = 1e9
"""A candidate that takes longer than this is not offered."""
SIZES = tuple(float(2**k) for k in range(10, 34, 2))
"""Sizes of the table: 1 KiB to 8 GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveAnswer:
    """What one message costs a group."""

    system: str
    """System id."""
    collective: str
    """Which collective."""
    size_bytes: float
    """The full buffer of one rank, as nccl-tests counts it."""
    group: int
    """Members."""
    placement: Mapping[str, float]
    """Tier -> members of the level below inside one unit of it."""
    seconds: float
    """Time of the collective."""
    algorithm_bytes_per_s: float
    """Size over time."""
    bus_bytes_per_s: float
    """The same, times what every link must carry: comparable with the link's rate."""
    algorithm: str
    """The candidate that the library takes."""
    candidates_s: Mapping[str, float]
    """Time of every candidate that is offered here."""
    sizes: tuple[Mapping[str, Any], ...]
    """The same over sizes."""
    assumptions: tuple[str, ...]
    """What was assumed."""

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON."""
        return {name: _plain(getattr(self, name)) for name in self.__slots__}


def collective(
    system: str | System,
    *,
    collective: str,
    size: str | float,
    group: int,
    placement: str = "",
) -> CollectiveAnswer:
    """Ask for one collective; every problem of every argument at once."""
    problems: list[Problem] = []
    the_system = None
    try:
        the_system = system if isinstance(system, System) else catalog_system(system)
    except BadInput as error:
        problems += error.problems
    if collective not in KINDS:
        near = nearest_name(collective, KINDS)
        problems.append(Problem(path="collective", value=collective, message="unknown",
                                allowed=", ".join(KINDS), nearest=near))  # fmt: skip
    size_bytes = 0.0
    try:
        size_bytes = units.parse(size, "bytes", "bytes")
    except BadInput as error:
        problems += error.problems
    if type(group) is not int or not 1 <= group <= 10**7:
        problems.append(Problem(path="group", value=group, message="not a whole number of members",
                                allowed="1 to 10000000"))  # fmt: skip
    if size_bytes < 0:
        problems.append(Problem(path="bytes", value=size, message="below zero"))
    if problems or the_system is None:
        raise BadInput(problems)
    room = math.prod(float(tier.size) for tier in the_system.network.tiers)
    if group > room:
        raise BadInput([Problem(path="group", value=group, message=f"{the_system.id} has {room:.0f} chips",
                                allowed=f"1 to {room:.0f}")])  # fmt: skip
    counts = _counts(the_system, group, placement)
    return _answer(the_system, collective, size_bytes, group, counts)


def _counts(system: System, group: int, placement: str) -> Array:
    """Members per tier: as close together as they fit, or as `node=2,cluster=8` says."""
    tiers = system.network.tiers
    if not placement:
        return tier_counts(
            np.array([float(group)]), np.ones(1), filled_units(system.network, group), group
        )
    names = [tier.name for tier in tiers]
    given: dict[str, float] = {}
    for word in placement.replace(" ", ",").split(","):
        name, _, text = word.partition("=")
        if name not in names or not text.isdecimal() or int(text[:9]) < 1:
            raise BadInput([Problem(path="placement", value=word, message="not of the form tier=count",
                                    allowed=", ".join(f"{n}=N" for n in names))])  # fmt: skip
        given[name] = float(text)
    over = [t for t in tiers if given.get(t.name, 1.0) > float(t.size)]
    if over:
        raise BadInput([Problem(path=f"placement.{t.name}", value=given[t.name], message="more than it joins",
                                allowed=f"1 to {float(t.size):g}") for t in over])  # fmt: skip
    counts = np.array([[given.get(name, 1.0)] for name in names])
    if counts.prod() != group:
        raise BadInput([Problem(path="placement", value=placement, allowed=f"a product of {group}",
                                message=f"gives {counts.prod():.0f} members, not {group}")])  # fmt: skip
    return counts


def _answer(
    system: System, kind: str, size_bytes: float, group: int, counts: Array
) -> CollectiveAnswer:
    library = library_for(system)
    if library is None:
        raise BadInput([Problem(path="system", value=system.id, message="no library is known for its chip",
                                allowed="systems with NVLink, xGMI or PCIe chips")])  # fmt: skip
    prepared = prepare(library, system.network, counts, (kind,))  # type: ignore[arg-type]

    def row(size: float) -> dict[str, Any]:
        time = float(np.squeeze(seconds(kind, size, prepared)))  # type: ignore[arg-type]
        offered = candidates(kind, size, prepared)  # type: ignore[arg-type]
        each = {name: float(np.squeeze(t)) for name, t in offered.items()}
        each = {name: t for name, t in each.items() if t < NEVER_S and time > 0.0}
        rate = size / time if time > 0 else 0.0
        return {
            "size_bytes": size,
            "seconds": time,
            "algorithm_bytes_per_s": rate,
            "bus_bytes_per_s": rate * bus_factor(kind, group),
            "algorithm": min(each, key=lambda name: each[name]) if each else "none",
            "candidates_s": each,
        }

    asked = row(size_bytes)
    table = tuple({k: v for k, v in row(s).items() if k != "candidates_s"} for s in SIZES)
    tiers = [tier.name for tier in system.network.tiers]
    return CollectiveAnswer(
        system=system.id,
        collective=kind,
        group=group,
        placement=dict(zip(tiers, counts[:, 0].tolist(), strict=True)),
        sizes=table,
        assumptions=(*system.assumptions, f"library {library.id}"),
        **asked,
    )


def bus_factor(kind: str, members: int) -> float:
    """What nccl-tests multiplies by: the share of the size that every link carries in a ring."""
    if members == 1:
        return 1.0
    share = (members - 1) / members
    return {"all-reduce": 2.0 * share, "all-gather": share, "reduce-scatter": share,
            "all-to-all": share}.get(kind, 1.0)  # fmt: skip


def _plain(value: Any) -> Any:
    """Tuples and mappings as JSON has them."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
