"""What a system costs: capital, a year, an hour of a chip, and renting beside it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from foretell import units
from foretell.catalog.designs import build
from foretell.catalog.dies import dies_apart, system_of_packages
from foretell.catalog.money import Sheet, sheet
from foretell.catalog.prices import TERMS, price, rent_in
from foretell.economics.answer import CostAnswer
from foretell.economics.cluster import (
    Cluster,
    ClusterPrice,
    YearlyCost,
)
from foretell.economics.fabric import cards, per_node_chips
from foretell.economics.owning import OwnQuestion, own_cluster
from foretell.economics.settings import set_prices
from foretell.economics.total_cost import (
    HOURS,
    break_even_utilisation,
    break_even_years,
    total_cost_parts,
)
from foretell.economics.tree import SheetCases, central, cost_leaf, drivers, spread
from foretell.errors import BadInput, bad_input
from foretell.inputs.overrides import Setting, apply_settings, parse_settings
from foretell.inputs.question import as_texts
from foretell.inputs.system import design_system
from foretell.network.topologies import unknown
from foretell.specs._base import Num
from foretell.specs.cost import Figure
from foretell.specs.questions.cost import SystemQuestion as SystemQuestion
from foretell.specs.questions.flags import check_sizes
from foretell.specs.system import System

Rents = list[tuple[str, float, str]]
"""Term, rent of a chip-hour, and where it comes from."""
ROOTS = ("system", "network", "chip", "prices")
"""What a `--set` path of a system may begin with."""
RENT = "usd_per_chip_hour"
"""The rent of a chip, set by hand."""
MOST = 1e12
"""Watts of a node, and rent of a chip, at most."""
OF_SPEED = ("Large collectives", "Latency of one hop")
"""Beginnings of assumptions about systems that no price depends on."""


def system_cost(question: SystemQuestion) -> CostAnswer:
    """Capital, years and hours of a system."""
    check_sizes(question)
    settings: Sequence[Setting] = parse_settings(as_texts(question.set), ROOTS)
    seen: dict[str, object] = {}
    figures = set_prices(sheet(), settings, seen, (RENT,))
    figures = with_flags(figures, question.years, question.utilisation)
    rent = _rent(question, [s.text for s in settings if s.path == f"prices.{RENT}"])
    system, settings = design_system(question.system, settings, seen)
    system = apply_settings(system, settings, "system", seen)
    chip = apply_settings(system.chip, settings, "chip", seen)
    network = apply_settings(system.network, settings, "network", seen)
    system = replace(system, chip=chip, network=network)
    if problems := unknown(network.tiers):
        raise BadInput(problems)
    gpus = _gpus(question.gpus, system)
    dies = dies_apart(system)
    if dies > 1 and system.design is not None:
        system, gpus = system_of_packages(system, build(system.design).chip), np.ceil(gpus / dies)
    rents = _rents(system, rent, str(question.prices))
    said = [text for text in system.assumptions if not text.startswith(OF_SPEED)]
    name = question.system if isinstance(question.system, str) else ""
    asked = OwnQuestion(system=system, gpus=gpus, name=name, node_watts=_watts(question))
    own = own_cluster(asked, figures, seen, said)
    case, cluster, all_of_it, year = own.case, own.cluster, own.bought, own.year
    low, usd, high = spread(all_of_it.tree.usd, case)
    return CostAnswer(
        what="system",
        name=system.id,
        usd=usd,
        low_usd=low,
        high_usd=high,
        breakdown=cost_leaf(all_of_it.tree, case),
        facts=_facts(system, cluster, all_of_it, year, rents, case),
        trees={
            "year": cost_leaf(year.tree, case, "USD/year"),
            "hour": cost_leaf(year.hour, case, "USD/h"),
        },
        drivers=drivers(year.hour.usd, case),
        assumptions=tuple(said),
        overrides=seen,
    )


def with_flags(figures: Sheet, years: str | float, utilisation: str | float) -> Sheet:
    """Figures that have flags of their own."""
    for path, given, unit in (
        ("finance.server_years", years, ""),
        ("finance.utilisation", utilisation, ""),
    ):
        if given != "":
            value = units.parse(given, unit, path)
            most = 1.0 if "utilisation" in path else 100.0
            if not 0.0 < value <= most:
                raise bad_input(path, given, "out of range", f"above 0, at most {most:g}")
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
    if not 0.0 < value <= MOST:
        raise bad_input(path, text, "out of range", f"above 0, up to {MOST:.0e}")
    return value


def _gpus(asked: str | int, system: System) -> float:
    """Whole chips, not more than the network joins; one node where none are asked for."""
    most = float(np.prod([float(tier.size) for tier in system.network.tiers]))
    if asked == "":
        return min(per_node_chips(system), most)
    number = units.parse(str(asked), "", "gpus")
    if number != int(number) or not 1 <= number <= most:
        message, allowed = "not a number of chips that this system has", f"1 to {most:,.0f}"
        raise bad_input("gpus", asked, message, allowed)
    return number


def _facts(
    system: System,
    cluster: Cluster,
    all_of_it: ClusterPrice,
    year: YearlyCost,
    rents: Rents,
    case: SheetCases,
) -> dict[str, Any]:
    """Counts, watts, prices by the hour and by the year, and what renting costs."""
    finance = case.entry("finance")
    chips, u = float(cluster.chips), central(finance.utilisation)
    low, hour, high = spread(year.hour.usd, case)
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
        "total_cost": total_cost_parts(year.tree, years, central(finance.server_residual)),
        "utilisation": u,
        "usd_per_kwh": central(case.entry("site").usd_per_kwh),
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


def _rents(system: System, rent: float | None, prices: str) -> Rents:
    """Rents of the chip by term, of a price list or the catalogue; one given by hand is alone."""
    if rent is not None:
        return [("given", rent, "set by hand")]
    listed = rent_in(prices, system.chip.id) if prices else None
    found = []
    for term in TERMS:
        try:
            offer = price(system.chip.id, term=term, listed=listed)
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
    all_of_it: ClusterPrice,
    year: YearlyCost,
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
