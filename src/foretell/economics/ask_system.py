"""What a system costs: capital, a year, an hour of a chip, and renting beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from foretell import catalog, units
from foretell.catalog.files import catalogue_table
from foretell.catalog.money import Sheet, sheet
from foretell.catalog.names import find
from foretell.catalog.prices import TERMS, operating, price
from foretell.catalog.systems import own_file
from foretell.economics.ask import named_package
from foretell.economics.cases import Case, case_of, drivers, finished, spread
from foretell.economics.cluster import (
    Bought,
    Cluster,
    Yearly,
    bought,
    node_of_parts,
    priced_chip,
    yearly,
)
from foretell.economics.fabric import card_gbit_s, cards, fabric_of, per_node_chips
from foretell.economics.packages import priced, sections
from foretell.economics.products import package_of_chip
from foretell.economics.settings import set_prices
from foretell.economics.tree import Branch, central, leaf
from foretell.economics.years import HOURS, break_even_utilisation, break_even_years
from foretell.errors import BadInput, Infeasible, Problem
from foretell.overrides import apply_settings, parse_settings
from foretell.specs._base import Num
from foretell.specs.cost import CostAnswer, Figure
from foretell.specs.package import Package
from foretell.specs.site import FabricParts, ServerParts
from foretell.specs.system import System

ROOTS = ("system", "network", "chip", "prices")
"""What a `--set` path of a system may begin with."""
RENT = "usd_per_chip_hour"
"""The rent of a chip, set by hand."""
NODE = "system.node_price_usd"
"""Figure of a node's price."""
CHIP = "system.chip_price_usd"
"""Figure of a chip's price, where a node is put together from parts."""
OF_SPEED = ("Large collectives", "Latency of one hop")
"""Beginnings of assumptions about systems that no price depends on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemQuestion:
    """What is asked about."""

    system: str
    """A system's or a chip's id or alias, or a file."""
    gpus: str | int = ""
    """Chips; else one whole node."""
    price: str | float = ""
    """Rent of a chip for an hour, instead of the catalogue's."""
    years: str | float = ""
    """Years that servers are used."""
    utilisation: str | float = ""
    """Share of the hours in which chips work."""
    watts: str | float = ""
    """Mean draw of one node while in use, as an estimate gives it."""
    set: Sequence[str] = ()
    """Fields set by hand."""


def system_cost(question: SystemQuestion) -> CostAnswer:
    """Capital, years and hours of a system."""
    settings = parse_settings(tuple(question.set), ROOTS)
    seen: dict[str, object] = {}
    figures = _flags(set_prices(sheet(), settings, seen, (RENT,)), question)
    rent = _rent(question, [s.text for s in settings if s.path == f"prices.{RENT}"])
    system = catalog.system(question.system)
    system = apply_settings(system, settings, "system", seen)
    chip = apply_settings(system.chip, settings, "chip", seen)
    network = apply_settings(system.network, settings, "network", seen)
    system = replace(system, chip=chip, network=network)
    gpus = _gpus(question.gpus, system)
    said = [text for text in system.assumptions if not text.startswith(OF_SPEED)]
    figures, package = _node_price(system, question.system, figures, seen, said)
    case = case_of(figures, _sections(package, figures))
    with np.errstate(all="ignore"):  # what is not finite is refused below
        cluster = _cluster(system, gpus, package, case, _watts(question), said)
        all_of_it = bought(cluster, case.entry("fabric"), case.entry("site"))
        year = yearly(cluster, all_of_it, case.entry("site"), case.entry("finance"))
    if not np.all(np.isfinite(np.asarray(year.tree.usd))):
        message = "has no finite price with these settings"
        raise Infeasible([Problem(path="system", value=system.id, message=message)])
    low, usd, high = spread(all_of_it.tree.usd, case)
    return CostAnswer(
        what="system",
        name=system.id,
        usd=usd,
        low_usd=low,
        high_usd=high,
        breakdown=finished(all_of_it.tree, case),
        facts=_facts(system, cluster, all_of_it, year, rent, case),
        trees={
            "year": finished(year.tree, case, "USD/year"),
            "hour": finished(year.hour, case, "USD/h"),
        },
        drivers=drivers(year.hour.usd, case),
        assumptions=tuple(said),
        overrides=seen,
    )


def _sections(package: Package | None, figures: Sheet) -> list[str]:
    named = ["server", "fabric", "site", "finance"]
    named += [path.rsplit(".", 1)[0] for path in figures.figures if path in (NODE, CHIP)]
    return named + (list(sections(package)) if package else [])


def _flags(figures: Sheet, question: SystemQuestion) -> Sheet:
    """Figures that have flags of their own."""
    for path, given, unit in (
        ("finance.server_years", question.years, ""),
        ("finance.utilisation", question.utilisation, ""),
    ):
        if given != "":
            value = units.parse(given, unit, path)
            most = 1.0 if "utilisation" in path else 100.0
            if not 0.0 < value <= most:
                message = "out of range"
                allowed = f"above 0, at most {most:g}"
                raise BadInput([Problem(path=path, value=given, message=message, allowed=allowed)])
            figures = figures.with_figure(
                Figure(path=path, value=value, low=value, high=value, status="set")
            )
    return figures


def _watts(question: SystemQuestion) -> float:
    return 0.0 if question.watts == "" else _above_0(question.watts, "watts", "watts")


def _rent(question: SystemQuestion, set_texts: Sequence[str]) -> float | None:
    """The rent that was given by hand."""
    texts = [question.price] if question.price != "" else list(set_texts)
    return _above_0(texts[0], RENT, "price") if texts else None


def _above_0(text: str | float, unit: str, path: str) -> float:
    value = units.parse(text, unit, path)
    if not value > 0.0:
        raise BadInput([Problem(path=path, value=text, message="out of range", allowed="above 0")])
    return value


def _gpus(asked: str | int, system: System) -> float:
    """Whole chips, not more than the network joins; one node where none are asked for."""
    most = float(np.prod([float(tier.size) for tier in system.network.tiers]))
    if asked == "":
        return min(per_node_chips(system), most)
    number = units.parse(str(asked), "", "gpus")
    if number != int(number) or not 1 <= number <= most:
        message, allowed = "not a number of chips that this system has", f"1 to {most:,.0f}"
        raise BadInput([Problem(path="gpus", value=asked, message=message, allowed=allowed)])
    return number


def _node_price(
    system: System, name: str, figures: Sheet, seen: Mapping[str, object], said: list[str]
) -> tuple[Sheet, Package | None]:
    """The figure that a node's price is taken from: itself, a chip's, or the chip's manufacture."""
    if float(system.node_price_usd):
        held = {} if NODE in seen else _table_fact(system, "node_price_usd")
        same = held.get("value") == float(system.node_price_usd)
        source = "the system's file" if same else "set by hand"
        ends = (held.get("low"), held.get("high")) if same else (None, None)
        return figures.with_figure(_figure(NODE, float(system.node_price_usd), *ends, source)), None
    site, chip = operating(), system.chip.id
    if chip in site["server_usd_per_chip"]:
        held = site["server_usd_per_chip"][chip]
        each = per_node_chips(system)
        ends = (held.get("low"), held.get("high"))
        low, high = (None if end is None else end * each for end in ends)
        said.append(f"A node is taken as {each:g} eighths of a published server with {chip}.")
        source = site["sources"][held["source"]]
        return figures.with_figure(_figure(NODE, held["value"] * each, low, high, source)), None
    if chip in site["chip_usd"]:
        held = site["chip_usd"][chip]
        said.append(f"A node is put together from parts around {chip} at its published price.")
        figure = _figure(CHIP, held["value"], held.get("low"), held.get("high"), "press")
        return figures.with_figure(figure), None
    try:
        if own_file(name):  # a design says more than the chip that was made of it
            package, more = named_package(name, figures)
        else:
            package, more = package_of_chip(system.chip, figures)
    except BadInput as error:
        message = f"no price of {system.id} or {chip} is known, nor can one be made up"
        allowed = "--set system.node_price_usd=..."
        raise BadInput(
            [Problem(path=NODE, value=None, message=message, allowed=allowed), *error.problems]
        ) from None
    said.append(f"No price of {chip} is known: its manufacture, and its maker's margin, are taken.")
    said.extend(more)
    return figures, package


def _table_fact(system: System, name: str) -> Mapping[str, Any]:
    """A value of the catalogue's file, with its range; nothing for files of users."""
    try:
        match = find(system.id)
    except BadInput:
        return {}
    held = catalogue_table(match.kind, match.id).get(name, {}) if match.kind == "system" else {}
    return held if isinstance(held, Mapping) else {}


def _figure(path: str, value: float, low: Any, high: Any, source: str) -> Figure:
    return Figure(
        path=path,
        value=value,
        low=value if low is None else float(low),
        high=value if high is None else float(high),
        source=source,
        status="published",
    )


def _cluster(
    system: System,
    gpus: float,
    package: Package | None,
    case: Case,
    mean_watts: float,
    said: list[str],
) -> Cluster:
    """Nodes with their price and draw, and the fabric's parts."""
    server: ServerParts = case.entry("server")
    fabric: FabricParts = case.entry("fabric")
    each = per_node_chips(system)
    nodes = np.ceil(gpus / each)
    watts: Num = float(system.node_watts)
    if not watts:
        watts = each * float(system.chip.tdp_watts) * server.power_factor
        said.append("The draw of a node is that of its chips times a usual factor.")
    return Cluster(
        chips=gpus,
        nodes=nodes,
        node=_node(system, package, server, fabric, case),
        node_watts=watts,
        fabric=fabric_of(system, gpus, central(fabric.switch_ports)),
        mean_watts=mean_watts,
    )


def _node(
    system: System,
    package: Package | None,
    server: ServerParts,
    fabric: FabricParts,
    case: Case,
) -> Branch:
    """One node at its price, or from its parts."""
    if NODE in case.sheet.figures:
        return leaf("node", case.number(NODE))
    each = per_node_chips(system)
    ports = cards(system, each)
    rate = card_gbit_s(system)
    nic = leaf("network cards", ports * rate * fabric.nic_usd_per_gbit_s, f"{ports:g} ports")
    if package is None:
        chip = leaf("chips", case.number(CHIP))
    else:
        chip = priced_chip(priced(package, case).tree, server.gross_margin)
    return node_of_parts(chip, each, nic, server)


def _facts(
    system: System,
    cluster: Cluster,
    all_of_it: Bought,
    year: Yearly,
    rent: float | None,
    case: Case,
) -> dict[str, Any]:
    """Counts, watts, prices by the hour and by the year, and what renting costs."""
    finance = case.entry("finance")
    chips, u = float(cluster.chips), central(finance.utilisation)
    low, hour, high = spread(year.hour.usd, case)
    rents = _rents(system, rent)
    counts = [
        {
            "tier": tier.name,
            "topology": tier.topology,
            "switches": float(np.asarray(tier.switches)),
            "end_links": float(np.asarray(tier.end_links)),
            "far_links": float(np.asarray(tier.far_links)),
            "gbit_s": float(np.asarray(tier.gbit_s)),
            "in_node_price": tier.in_node_price,
        }
        for tier in cluster.fabric
    ]
    years = central(finance.server_years)
    return {
        "gpus": int(chips),
        "nodes": int(np.asarray(cluster.nodes)),
        "node_usd": central(cluster.node.usd),
        "usd_per_gpu": central(all_of_it.tree.usd) / chips,
        "usd_per_gpu_hour": hour,
        "low_usd_per_gpu_hour": low,
        "high_usd_per_gpu_hour": high,
        "usd_per_year": central(year.tree.usd),
        "tco_usd": central(year.tree.usd) * years,
        "tco_years": years,
        "utilisation": u,
        "peak_watts": central(all_of_it.watts),
        "mwh_per_year": central(year.kwh) / 1e3,
        "network_cards": int(cards(system, chips)),
        "switches": int(central(all_of_it.switches)),
        "links": int(central(all_of_it.links)),
        "transceivers": int(central(all_of_it.optics)),
        "racks": int(central(all_of_it.racks)),
        "fabric": counts,
        "renting": [
            _beside(name, usd, source, cluster, all_of_it, year, u) for name, usd, source in rents
        ],
    }


def _rents(system: System, rent: float | None) -> list[tuple[str, float, str]]:
    """Rents of the chip by term; the one given by hand alone where there is one."""
    if rent is not None:
        return [("given", rent, "set by hand")]
    found = []
    for term in TERMS:
        try:
            offer = price(system.chip.id, term=term)
        except BadInput:
            continue
        if float(offer.usd_per_chip_hour):
            found.append((term, float(offer.usd_per_chip_hour), offer.source))
    return found


def _beside(
    term: str,
    usd: float,
    source: str,
    cluster: Cluster,
    all_of_it: Bought,
    year: Yearly,
    utilisation: float,
) -> dict[str, Any]:
    """Renting on one term against buying: when buying has paid, and from which use on."""
    chips = float(cluster.chips)
    hours = HOURS * utilisation
    years = break_even_years(
        central(all_of_it.tree.usd), usd * chips * hours, central(year.running_usd)
    )
    use = break_even_utilisation(
        central(year.fixed_usd) / chips, usd, central(year.work_usd_per_hour) / chips
    )
    return {
        "term": term,
        "usd_per_gpu_hour": usd,
        "own_over_rent": central(year.hour.usd) / usd,
        "break_even_years": _finite(years),
        "break_even_utilisation": _finite(use),
        "source": source,
    }


def _finite(value: Num) -> float | None:
    """A number, or none where it never comes."""
    number = float(np.asarray(value))
    return number if np.isfinite(number) else None
