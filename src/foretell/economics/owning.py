"""A cluster bought and run: nodes at their price or from their parts, fabric, a year, an hour of a chip."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from foretell.catalog.files import catalogue_table
from foretell.catalog.money import Sheet
from foretell.catalog.names import find
from foretell.catalog.prices import operating
from foretell.catalog.systems import own_file
from foretell.economics.ask import BOUND_USD, named_package
from foretell.economics.cluster import (
    Cluster,
    ClusterPrice,
    YearlyCost,
    node_of_parts,
    priced_chip,
    purchase_price,
    yearly_cost,
)
from foretell.economics.fabric import (
    card_gbit_s,
    cards,
    fabric_of,
    per_node_chips,
    scale_up_factor,
)
from foretell.economics.packages import price_package, sections
from foretell.economics.products import package_of_system
from foretell.economics.tree import Branch, SheetCases, case_of, central, leaf
from foretell.errors import BadInput, Infeasible, wrong
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.cost import FabricParts, Figure, ServerParts
from foretell.specs.package import Package
from foretell.specs.system import System

NODE = "system.node_price_usd"
"""Figure of a node's price."""
CHIP = "system.chip_price_usd"
"""Figure of a chip's price, where a node is put together from parts."""
WATTS = "work.watts_per_gpu"
"""Figure of a chip's mean draw in use, where a workload gives it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedCluster:
    """A cluster with what it costs to buy and to run, all as batches of one case."""

    system: System
    """Of what."""
    cluster: Cluster
    """What is there."""
    bought: ClusterPrice
    """What is paid once."""
    year: YearlyCost
    """What is paid by the year and by the hour."""
    case: SheetCases
    """The figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnQuestion:
    """A cluster that is asked about, its settings in place."""

    system: System
    """Of what."""
    gpus: float
    """Chips."""
    name: str = ""
    """What the user called it: a file may hold a design."""
    node_watts: float = 0.0
    """Mean draw of a node in use; 0: not known."""
    also: Sequence[str] = ()
    """Sections of the sheet whose ranges count too."""
    unpriced: bool = False
    """Whether nodes may cost nothing where no price of them is known."""


def own_cluster(
    question: OwnQuestion, figures: Sheet, seen: Mapping[str, object], said: list[str]
) -> OwnedCluster:
    """A cluster, bought and run."""
    system, package = question.system, None
    try:
        figures, package = _node_price(system, question.name, figures, seen, said)
        known = package is None or buildable(package, figures)
    except BadInput:
        if not question.unpriced:
            raise
        known = False
    if question.unpriced and not known:
        package, figures = None, figures.with_figure(_figure(NODE, 0.0, None, None, "not known"))
    case = case_of(figures, [*_sections(package, figures), *question.also])
    with np.errstate(all="ignore"):  # what is not finite is refused below
        cluster = _cluster(system, question.gpus, package, case, question.node_watts, said)
        if WATTS in figures.figures:
            draw = _draw(system, cluster, case.number(WATTS), case.entry("site").rest_load)
            cluster = replace(cluster, mean_watts=draw)
        all_of_it = purchase_price(cluster, case.entry("fabric"), case.entry("site"))
        year = yearly_cost(cluster, all_of_it, case.entry("site"), case.entry("finance"))
    if not np.all(np.isfinite(np.asarray(year.tree.usd))):
        raise Infeasible([wrong("system", system.id, "has no finite price with these settings")])
    return OwnedCluster(system=system, cluster=cluster, bought=all_of_it, year=year, case=case)


def buildable(package: Package, figures: Sheet) -> bool:
    """Whether a package has a price: one larger than its wafer or panel has none."""
    with np.errstate(all="ignore"):
        usd = price_package(package, SheetCases(sheet=figures, knobs={})).tree.usd
    return bool(np.all(np.asarray(usd) < BOUND_USD))


def _draw(system: System, cluster: Cluster, chip_watts: Num, rest_load: Num) -> Num:
    """Mean draw of a node: its chips', and of the rest the usual share of what its highest leaves it."""
    rest = cluster.node_watts - per_node_chips(system) * float(system.chip.tdp_watts)
    return cluster.chips / cluster.nodes * chip_watts + np.maximum(rest, 0.0) * rest_load


def _sections(package: Package | None, figures: Sheet) -> list[str]:
    named = ["server", "fabric", "site", "finance"]
    named += [path.rsplit(".", 1)[0] for path in figures.figures if path in (NODE, CHIP)]
    return named + (list(sections(package)) if package else [])


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
        if system.design is None and own_file(name):
            package, more = named_package(name, figures)
        else:
            package, more = package_of_system(system, figures)
    except BadInput as error:
        message = f"no price of {system.id} or {chip} is known, nor can one be made up"
        allowed = "--set system.node_price_usd=..."
        raise BadInput([wrong(NODE, None, message, allowed), *error.problems]) from None
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
    case: SheetCases,
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
        fabric=fabric_of(
            system,
            gpus,
            central(fabric.switch_ports),
            from_parts=NODE not in case.sheet.figures,
        ),
        mean_watts=mean_watts,
    )


def _node(
    system: System,
    package: Package | None,
    server: ServerParts,
    fabric: FabricParts,
    case: SheetCases,
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
        chip = priced_chip(price_package(package, case).tree, server.gross_margin)
    return node_of_parts(chip, each, nic, server, scale_up_factor(system, fabric))
