"""Capital as yearly charges, the hour of a chip, and the total cost of ownership over the years.

The price of an hour of a chip's work (u the share of hours in which it works):

    [sum of C_i crf(r, n_i) + upkeep + people + idle energy] / (8760 u chips) + watts in use x PUE x price

crf(r, n) = r / (1 - (1+r)^-n), and 1/n without interest. The total cost is a waterfall of the parts of a
year (economics/cluster.py), times the years, in the order in which a buyer meets them: hardware is its
price spread over its life, so that a network that outlives the servers is charged for the years it is
used; resale is what the servers are worth at the end, and lowers the sum. All broadcast.
"""

from collections.abc import Mapping

import numpy as np

from foretell.economics.tree import Branch, central
from foretell.specs._base import Num

HOURS = 8760.0
"""Hours of a year."""


def yearly_share(rate: Num, years: Num) -> Num:
    """crf: what each of `years` equal payments is of a sum that bears interest."""
    r, n = np.asarray(rate, float), np.asarray(years, float)
    small = np.maximum(r, 1e-12)
    return np.where(r > 1e-12, small / -np.expm1(-n * np.log1p(small)), 1.0 / n)


def charge_usd(capital_usd: Num, rate: Num, years: Num, residual: Num = 0.0) -> Num:
    """Yearly charge of what is worth `residual` of its price at the end."""
    kept = np.asarray(residual) * (1.0 + np.asarray(rate)) ** -np.asarray(years, float)
    return np.asarray(capital_usd * (1.0 - kept) * yearly_share(rate, years))


def interest_usd(capital_usd: Num, rate: Num, years: Num, residual: Num = 0.0) -> Num:
    """The part of that charge that is not the loss of worth spread evenly."""
    worn = capital_usd * (1.0 - np.asarray(residual)) / years
    return charge_usd(capital_usd, rate, years, residual) - worn


def break_even_years(capital_usd: Num, rent_usd_per_year: Num, running_usd_per_year: Num) -> Num:
    """Years of rent that pay for buying; infinite where running costs as much as renting."""
    saved = np.asarray(rent_usd_per_year, float) - running_usd_per_year
    with np.errstate(divide="ignore"):
        return np.where(saved > 0.0, capital_usd / np.where(saved > 0.0, saved, 1.0), np.inf)


def break_even_utilisation(fixed_usd_per_year: Num, rent_usd_per_hour: Num, hourly_usd: Num) -> Num:
    """Share of the hours from which owning is cheaper than renting by the hour; above 1: never.

    Fixed costs of a year over 8760 x (rent - what an hour of work adds).
    """
    gain = np.asarray(rent_usd_per_hour, float) - hourly_usd
    return np.where(
        gain > 0.0, fixed_usd_per_year / (HOURS * np.where(gain > 0, gain, 1.0)), np.inf
    )


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
