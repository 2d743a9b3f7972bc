"""A system with other fabrics between its nodes, of equal ports or of a fat tree's bisection."""

from collections.abc import Sequence
from typing import Any

from foretell import catalog
from foretell.errors import BadInput, Problem, unknown
from foretell.network.placement import built_for, members_of, with_groups
from foretell.network.topologies import names, of_tier, plain_name
from foretell.specs.system import System
from foretell.studies.procurement.clusters import Given

USUAL = (
    *("ring", "torus-3d", "mesh-3d", "hypercube", "fully-connected"),
    *("fat-tree", "rail-clos", "dragonfly"),
)
"""What `all` means."""
EQUALS = ("ports", "bisection")
"""What fabrics may have in common."""
REFERENCE = "fat-tree"
"""Whose bisection the others get."""


def on_topologies(
    systems: Sequence[Given], topologies: str, equal: str, gpus: int | None
) -> list[Given]:
    """Each system with each fabric as its outermost tier; BadInput with every problem."""
    asked = topologies.replace(",", " ").split()
    chosen = list(USUAL) if asked == ["all"] else asked
    problems = [
        unknown("topologies", one, names()) for one in chosen if plain_name(one) not in names()
    ]
    if equal not in EQUALS:
        problems.append(unknown("equal", equal, EQUALS))
    elif equal == "bisection" and gpus is None:
        message = "bisections are equal on so many chips"
        problems.append(Problem(path="equal", value=equal, message=message, allowed="with --gpus"))
    problems += [
        Problem(path="systems", value=one, message="is a table", allowed="names, for --topologies")
        for one in systems
        if not isinstance(one, str)
    ]
    if problems:
        raise BadInput(problems)
    return [_with_fabric(str(one), name, equal, gpus) for one in systems for name in chosen]


def _with_fabric(system: str, topology: str, equal: str, gpus: int | None) -> dict[str, Any]:
    """The table of a system with this fabric."""
    base = catalog.system(system)
    outer = base.network.tiers[-1]
    tier: dict[str, Any] = {"topology": topology}
    table: dict[str, Any] = {
        "base": system,
        "name": f"{system} {topology}",
        "network": {outer.name: tier},
    }
    if equal == "bisection" and gpus is not None:
        reference = {"base": system, "network": {outer.name: {"topology": REFERENCE}}}
        wanted, own = (bisection(catalog.system(one), gpus) for one in (reference, table))
        tier["bandwidth_bytes_per_s"] = float(outer.bandwidth_bytes_per_s) * wanted / own
        if float(base.nic_bytes_per_s):
            table["nic_bytes_per_s"] = float(base.nic_bytes_per_s) * wanted / own
    return table


def bisection(system: System, gpus: int) -> float:
    """Bytes per second through the middle of the fabric that joins the job's nodes."""
    members = members_of(system.network, gpus)
    tier = with_groups(built_for(system.network, members)).tiers[-1]
    return float(of_tier(tier, max(members[-1], 2.0)).bisection_bytes_per_s())
