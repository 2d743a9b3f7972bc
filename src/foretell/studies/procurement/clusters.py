"""What clusters of a kind cost: how many chips a sum pays for, bought and run or rented, on which fabric."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from foretell import catalog, units
from foretell.api.cost import Payment
from foretell.catalog.money import sheet
from foretell.catalog.prices import TERMS, provider_rents, rent
from foretell.economics.ask_system import SystemQuestion, system_cost, with_flags
from foretell.economics.fabric import per_node_chips
from foretell.economics.total_cost import HOURS
from foretell.economics.work import AHEAD, RESERVED
from foretell.errors import BadInput, Infeasible, ProblemsError, bad_input, unknown, wrong
from foretell.network.placement import built_for, members_of, with_groups
from foretell.network.topologies import names, of_tier, plain_name
from foretell.specs.system import System

Given = str | Mapping[str, Any]
"""A name, a file, or the table that such a file has."""
OF_SYSTEM = ("system", "network", "chip", "prices")
"""Settings that the price of a system knows."""
PRIMES = (2, 3, 5)
"""Factors that plans divide by well."""
NO_PRICE = "no price"
"""How a cluster is paid that nobody knows a price of."""
PRICES = ("rent", "system.node_price_usd")
"""Paths of problems that say so."""
TRIES = 6
"""Steps to the number of nodes that a sum pays for: prices are nearly straight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBill:
    """A cluster and what it costs over its years."""

    system: Given
    """Of what."""
    gpus: int
    """Chips."""
    usd: float | None
    """All that is paid over the years; none where no price is known."""
    years: float | None
    """How many."""
    paid: str
    """own, the term of the rent, or no price."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """What the sum is made of: hardware, power, space, people, resale; of a rented cluster the rent."""
    assumptions: tuple[str, ...] = ()
    """Figures of money that nobody gave."""
    rents: Mapping[str, float] = field(default_factory=dict)
    """Provider -> what it asks for a chip and hour on this term; empty where the rent is given or owned."""
    usd_per_chip_hour: float | None = None
    """The rent that is paid; None where it is bought."""
    low: float = 1.0
    """The low end of the sum, nine in ten, over the sum."""
    high: float = 1.0
    """The high end."""


def name_of(system: Given) -> str:
    """What a system is called."""
    if not isinstance(system, Mapping):
        return str(system)
    return str(system.get("id", system.get("name", "own-system")))


def cost_of(system: Given, gpus: int, paid: Payment) -> ClusterBill:
    """A cluster over its years: bought and run, or rented all along (by use: for the hours in use)."""
    settings = tuple(text for text in paid.set if text.split(".", 1)[0] in OF_SYSTEM)
    money = tuple(text for text in settings if not text.startswith("prices.usd_per_chip_hour"))
    if paid.rent in ("", "own") and paid.price == "":
        asked = SystemQuestion(
            system=system, gpus=gpus, years=paid.years, utilisation=paid.utilisation, set=money
        )
        facts = system_cost(asked).facts
        hour = "usd_per_gpu_hour"
        low, high = (facts[f"{end}_{hour}"] / facts[hour] for end in ("low", "high"))
        return ClusterBill(
            system=system, gpus=gpus, usd=facts["tco_usd"], years=facts["tco_years"], paid="own",
            parts=facts["total_cost"], assumptions=_figures_of(system, paid, facts),
            low=low, high=high,
        )  # fmt: skip
    way, usd_per_hour = rent_of(system, paid)
    years, use = years_of(paid)
    hours = HOURS * years * (1.0 if way in RESERVED else use)
    usd = gpus * usd_per_hour * hours
    said = () if way in RESERVED else _use_of(paid, use)
    return ClusterBill(
        system=system,
        gpus=gpus,
        usd=usd,
        years=years,
        paid=way,
        parts={"rent": usd},
        assumptions=said,
        rents={} if paid.price != "" else provider_rents(catalog.system(system).chip.id, way),
        usd_per_chip_hour=usd_per_hour,
    )


def years_of(paid: Payment) -> tuple[float, float]:
    """Years that a cluster is had, and the share of their hours in which it is in use."""
    figures = with_flags(sheet(), paid.years, paid.utilisation).figures
    return figures["finance.server_years"].value, figures["finance.utilisation"].value


def _figures_of(system: Given, paid: Payment, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """What a cluster of one's own rests on, less what was given."""
    given = {text.partition("=")[0].strip() for text in paid.set}
    said = _use_of(paid, facts["utilisation"])
    if not any(path.endswith("usd_per_kwh") for path in given):
        said += (f"electricity: {facts['usd_per_kwh']:g} USD/kWh (prices.usd_per_kwh)",)
    if "system.node_price_usd" not in given:
        said += (
            f"{name_of(system)}: a node costs {facts['node_usd']:,.0f} USD (system.node_price_usd)",
        )
    return said


def _use_of(paid: Payment, share: float) -> tuple[str, ...]:
    """How many of the hours a cluster is in use, where nobody says."""
    return () if paid.utilisation else (f"utilisation {share:g}: in use {share:.0%} of all hours",)


def usd_of(system: Given, gpus: int, paid: Payment) -> float:
    """What it costs over its years."""
    usd = cost_of(system, gpus, paid).usd
    assert usd is not None  # without a price there is no cost_of
    return usd


def lacks_price(error: ProblemsError) -> bool:
    """Whether a cost is unknown for the one reason that no price is known."""
    return any(problem.path in PRICES for problem in error.problems)


def same_system(one: Given, other: Given) -> bool:
    """Whether two names or tables are one system: a chip and its reference system are."""
    mine, other_one = catalog.system(one), catalog.system(other)
    alike = {name: getattr(mine, name) for name in ("id", "name", "assumptions")}
    return mine == replace(other_one, **alike)


def rent_of(system: Given, paid: Payment) -> tuple[str, float]:
    """The term and the rent of a chip for an hour; BadInput where none is offered."""
    way = paid.rent.lower() or "on-demand"
    if paid.price != "":
        return ("1-year" if way == "reserved" else way), units.parse(
            paid.price, "usd_per_chip_hour", "price"
        )
    chip = catalog.system(system).chip.id
    offered = {term: found for term in TERMS if (found := rent(chip, term)) is not None}
    if way == "reserved":
        way = next((term for term in AHEAD if term in offered), way)
    if way not in offered:
        message = f"{name_of(system)}: {chip} has no such offer in the catalogue"
        known = ", ".join(["own", *offered])
        raise bad_input("rent", paid.rent, message, f"{known}, or --price")
    return way, offered[way][1]


def affordable(system: Given, budget_usd: float, paid: Payment) -> list[ClusterBill]:
    """Clusters of whole nodes that a sum pays for: the largest, and smaller ones that divide better."""
    made = catalog.system(system)
    each = max(round(per_node_chips(made)), 1)
    most = 1.0
    for tier in made.network.tiers:
        most *= float(tier.size)
    limit = max(int(most) // each, 1)
    one_usd = usd_of(system, each, paid)
    if one_usd > budget_usd:
        years = cost_of(system, each, paid).years
        message = f"one node of {each} chips costs {one_usd:,.0f} USD over {years:g} years"
        raise Infeasible([wrong(f"budget ({name_of(system)})", budget_usd, message)])
    nodes = min(max(int(budget_usd / one_usd), 1), limit)
    for _ in range(TRIES):
        usd = usd_of(system, nodes * each, paid)
        better = min(max(int(nodes * budget_usd / usd), 1), limit)
        if better == nodes:
            break
        nodes = better
    while nodes > 1 and usd_of(system, nodes * each, paid) > budget_usd:
        nodes -= max(nodes // 500, 1)
    chosen = dict.fromkeys((nodes, smooth(nodes), 2 ** (nodes.bit_length() - 1)))
    return [cost_of(system, many * each, paid) for many in chosen]


def smooth(most: int) -> int:
    """The largest number up to `most` that has no prime factor above 5."""
    best, powers = 1, [1]
    for prime in PRIMES:
        powers = [
            value * prime**exponent
            for value in powers
            for exponent in range(most.bit_length() + 1)
            if value * prime**exponent <= most
        ]
        best = max(best, *powers)
    return best


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
        problems.append(wrong("equal", equal, message, "with --gpus"))
    problems += [
        wrong("systems", one, "is a table", "names, for --topologies")
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
