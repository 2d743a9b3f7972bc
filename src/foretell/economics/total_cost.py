"""Total cost of ownership over the years as a waterfall: what is paid for what, and what comes back.

The parts of a year (economics/cluster.py), times the years, in the order in which a buyer meets them. Their
sum is the total: hardware is the price spread over its life, so that a network that outlives the servers is
charged for the years it is used; resale is what the servers are worth at the end, and lowers the sum.
"""

from collections.abc import Mapping

from foretell.economics.tree import Branch, central

SPACE = "building and racks"
"""The class of capital that is the room, its power and its cooling."""
RESALE = "resale"
"""What is got back."""


def total_cost_parts(year: Branch, years: float, residual: float) -> dict[str, float]:
    """Part -> USD over the years: what is paid, from hardware to people, and resale (negative)."""
    charges, upkeep = _child(year, "capital charges"), _child(year, "upkeep")
    hardware = financing = space = resale = 0.0
    for one in charges.children if charges else ():
        worn, interest = _usd(one, "depreciation"), _usd(one, "financing")
        financing += interest
        if one.name == SPACE:
            space += worn
        elif one.name == "servers and storage" and residual < 1.0:
            hardware += worn / (1.0 - residual)
            resale -= worn / (1.0 - residual) * residual
        else:
            hardware += worn
    of_year = {
        "hardware": hardware,
        "financing": financing,
        "power": _usd(year, "electricity"),
        "space": space + _usd(upkeep, "building"),
        "maintenance": _usd(upkeep, "servers") + _usd(upkeep, "network"),
        "people": _usd(upkeep, "people"),
        RESALE: resale,
    }
    return {name: years * usd for name, usd in of_year.items()}


def waterfall_steps(parts: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """Name, start and change of each step; the last step is the total, from zero."""
    steps, running = [], 0.0
    for name, usd in parts.items():
        steps.append((name, running, usd))
        running += usd
    return [*steps, ("total", 0.0, running)]


def _child(branch: Branch | None, name: str) -> Branch | None:
    """The part of a sum with a name; None where it is zero and therefore absent."""
    children = () if branch is None else branch.children
    return next((child for child in children if child.name == name), None)


def _usd(branch: Branch | None, name: str) -> float:
    found = _child(branch, name)
    return 0.0 if found is None else central(found.usd)
