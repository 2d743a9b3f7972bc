"""Interfaces between dies: area, edge, energy and rate; the package as a tier is catalog/dies.py's."""

from foretell.catalog.dies import HOP_S, package_tier, system_of_dies
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.design import LinkKind

__all__ = [
    "HOP_S",
    "Interface",
    "interface",
    "interface_of_share",
    "package_tier",
    "system_of_dies",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """What one die has towards the others of its package."""

    link: str
    """How it is made."""
    bytes_per_s: Num
    """Rate out of one die, one direction."""
    area_mm2: Num
    """Area it takes on the die."""
    edge_mm: Num
    """Edge it takes."""
    watts: Num
    """Power at full rate both ways, for one die."""


def interface(link: LinkKind, bytes_per_s: Num) -> Interface:
    """An interface of a rate: rate over the link's rate by area and by edge, rate x energy."""
    return Interface(
        link=link.name,
        bytes_per_s=bytes_per_s,
        area_mm2=bytes_per_s / link.bytes_per_s_per_mm2,
        edge_mm=bytes_per_s / link.bytes_per_s_per_mm,
        watts=2.0 * bytes_per_s * link.joules_per_byte,
    )


def interface_of_share(link: LinkKind, die_mm2: Num, share: Num) -> Interface:
    """The interface that a share of a die's area gives."""
    return interface(link, die_mm2 * share * link.bytes_per_s_per_mm2)
