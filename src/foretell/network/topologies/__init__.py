"""Topologies, one file each, found by the names in their `NAMES`.

A file offers `NAMES` and `from_tier(tier, members) -> Topology`; members may be an array over plans. The
rates are the tier's nominal ones: its `efficiency` is left to whoever fits measurements. A number of
axes may follow a name (`torus-3d`).
"""

import re
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from foretell.errors import BadInput, Problem, nearest_name, wrong
from foretell.network.topologies.base import Claim, Cost, LinkGraph, Topology
from foretell.specs._base import Num
from foretell.specs.system import Tier

__all__ = ["Claim", "Cost", "LinkGraph", "Topology", "names", "of_tier", "plain_name", "unknown"]
USUAL = frozenset({"switch", "clos", "rail-clos", "roce-clos", "fat-tree", "fully-connected"})
"""Names that are known without a look into the files: those of most systems."""


@cache
def _modules() -> dict[str, ModuleType]:
    """Name -> the file that makes it."""
    found = (import_module(f"{__name__}.{info.name}") for info in iter_modules(__path__))
    return {name: module for module in found for name in getattr(module, "NAMES", ())}


def names() -> tuple[str, ...]:
    """All names, sorted."""
    return tuple(sorted(_modules()))


def of_tier(tier: Tier, members: Num) -> Topology:
    """The topology of a group of so many members of the tier."""
    problems = unknown((tier,))
    if problems:
        raise BadInput(problems)
    made: Topology = _modules()[plain_name(tier.topology)].from_tier(tier, members)
    return made


def unknown(tiers: Iterable[Tier]) -> list[Problem]:
    """A problem for each tier whose topology has no file."""
    return [
        wrong(
            f"network.{tier.name}.topology",
            tier.topology,
            "no such topology",
            ", ".join(names()),
            nearest_name(plain_name(tier.topology), names()),
        )
        for tier in tiers
        if tier.topology not in USUAL and plain_name(tier.topology) not in _modules()
    ]


def plain_name(name: str) -> str:
    """A name without the number of axes that may follow it."""
    return re.sub(r"-\d+d$", "", name)
