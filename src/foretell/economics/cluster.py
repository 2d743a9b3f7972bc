"""From chips to a cluster: what is bought, what a year costs, and what an hour of a chip costs."""

import numpy as np

from foretell.economics.fabric import TierParts
from foretell.economics.total_cost import HOURS, charge_usd, interest_usd
from foretell.economics.tree import Branch, central, leaf, rename_branch, times, total
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.cost import FabricParts, Finance, ServerParts, Site

GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What is in the building."""

    chips: Num
    """Accelerators."""
    nodes: Num
    """Nodes."""
    node: Branch
    """One node, as a tree."""
    node_watts: Num
    """Its highest draw."""
    fabric: tuple[TierParts, ...]
    """Parts of each tier."""
    mean_watts: Num = 0.0
    """Draw of one node while in use, as a workload gives it; 0: the site's mean load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPrice:
    """A cluster with its price."""

    tree: Branch
    """All that is bought."""
    watts: Num
    """Highest draw of what is in the building."""
    switches: Num
    """Switches."""
    links: Num
    """Cables and fibres that are paid for."""
    optics: Num
    """Transceivers."""
    racks: Num
    """Racks."""


def node_of_parts(
    chip: Branch,
    chips: Num,
    cards: Branch,
    parts: ServerParts,
    scale_up: tuple[Num, Num] = (1.0, 1.0),
) -> Branch:
    """A node from its parts: chips at their price, the host, cards, and the maker's markup.

    `scale_up` is the rate of a chip's own links and what switches they pass, over those of the reference.
    """
    rate, switched = scale_up
    share = parts.scale_up_switch_share
    host = total(
        "host",
        [
            leaf("processors", parts.cpu_usd),
            leaf("memory", parts.memory_usd),
            leaf("local storage", parts.local_storage_usd),
            leaf("boards and chassis", parts.board_usd),
            leaf("cooling", parts.cooling_usd),
            leaf("power supplies", parts.power_supply_usd),
            leaf("assembly and test", parts.assembly_usd),
        ],
    )
    inside = [
        times(chip, chips, f"{central(chips):g} of them"),
        leaf(
            "scale-up",
            parts.scale_up_usd_per_chip * chips * rate * (1.0 - share + share * switched),
        ),
        host,
        cards,
    ]
    bare = total("node", inside)
    return total("node", [*inside, leaf("maker's markup", bare.usd * parts.maker_markup)])


def priced_chip(cost: Branch, gross_margin: Num) -> Branch:
    """A chip at the price that its maker asks: cost / (1 - margin)."""
    margin = cost.usd * (1.0 / (1.0 - np.asarray(gross_margin)) - 1.0)
    made = Branch(name="manufacture", usd=cost.usd, children=cost.children)
    return total("chips", [made, leaf("chip maker's margin", margin)])


def purchase_price(cluster: Cluster, fabric: FabricParts, site: Site) -> ClusterPrice:
    """Everything of a cluster that is paid for once."""
    paid = [tier for tier in cluster.fabric if not tier.in_node_price]
    network, switches, links, optics, network_watts = _network(paid, fabric)
    it_watts = (
        cluster.nodes * cluster.node_watts
        + network_watts
        + cluster.chips * site.storage_watts_per_chip
    )
    racks = np.ceil(cluster.nodes * cluster.node_watts / site.rack_watts)
    storage = cluster.chips * site.storage_bytes_per_chip / GB * site.storage_usd_per_gb
    nodes = central(cluster.nodes)
    parts = [
        times(rename_branch(cluster.node, "servers"), cluster.nodes, f"{nodes:,.0f} nodes"),
        network,
        leaf("storage", storage),
        total(
            "racks",
            [
                leaf("racks", racks * site.rack_usd, f"{central(racks):,.0f} of them"),
                leaf("cooling of racks", site.rack_cooling_usd_per_watt * it_watts),
            ],
        ),
        total(
            "building",
            [
                leaf("land and shell", site.shell_usd_per_watt * it_watts),
                leaf("power", site.power_usd_per_watt * it_watts),
                leaf("cooling", site.cooling_usd_per_watt * it_watts),
            ],
            f"{central(it_watts) / 1e6:,.3g} MW",
        ),
    ]
    return ClusterPrice(
        tree=total("capital", parts),
        watts=it_watts,
        switches=switches,
        links=links,
        optics=optics,
        racks=racks,
    )


def _network(tiers: list[TierParts], parts: FabricParts) -> tuple[Branch, Num, Num, Num, Num]:
    """Switches, optics and cables of the fabric; links between switches are optical."""
    found: list[Branch] = []
    switches: Num = 0.0
    links: Num = 0.0
    optics: Num = 0.0
    watts: Num = 0.0
    for tier in tiers:
        boxes_gbit = tier.switches * parts.switch_ports * tier.gbit_s
        in_rack = (np.asarray(tier.reach) > 0) & (tier.reach <= np.asarray(parts.backplane_chips))
        share = parts.direct_copper_share if tier.direct else parts.copper_share
        copper = tier.end_links * np.where(in_rack, 1.0, share)
        each = np.where(in_rack, parts.backplane_usd_per_gbit_s, parts.copper_usd_per_gbit_s)
        # Mirrors turn light alone, and have no optical ends: those are at the cards.
        copper = copper * (0.0 if tier.circuits else 1.0)
        light = tier.end_links - copper + tier.far_links
        packaged = light + tier.far_links if tier.packaged and not tier.circuits else 0.0
        sent = (1.0 if tier.circuits else 2.0) * light - packaged
        ports = tier.end_links if tier.circuits else 0.0
        found.append(
            total(
                tier.name,
                [
                    leaf(
                        "switches",
                        boxes_gbit * parts.switch_usd_per_gbit_s
                        + ports * parts.circuit_usd_per_port,
                        f"{central(ports):,.0f} ports of circuits"
                        if tier.circuits
                        else f"{central(tier.switches):,.0f} of {central(tier.gbit_s):g} Gbit/s ports",
                    ),
                    leaf(
                        "optics",
                        tier.gbit_s
                        * (
                            sent * parts.optics_usd_per_gbit_s
                            + packaged * parts.packaged_usd_per_gbit_s
                        ),
                        f"{central(sent):,.0f} transceivers",
                    ),
                    leaf("fibres", light * parts.fibre_usd),
                    leaf("copper", copper * tier.gbit_s * each),
                ],
                tier.topology,
            )
        )
        switches, links, optics = switches + tier.switches, links + light + copper, optics + sent
        watts = watts + boxes_gbit * parts.switch_watts_per_gbit_s
        watts = watts + ports * parts.circuit_watts_per_port
        watts = watts + tier.gbit_s * (
            sent * parts.optics_watts_per_gbit_s + packaged * parts.packaged_watts_per_gbit_s
        )
    return total("network", found), switches, links, optics, watts


@dataclass(frozen=True, slots=True, kw_only=True)
class YearlyCost:
    """What a year costs, and an hour of a chip's work."""

    tree: Branch
    """A year."""
    hour: Branch
    """An hour in which a chip works: the year over the hours and the chips."""
    running_usd: Num
    """The part of a year that is paid while running: energy, upkeep, people."""
    fixed_usd: Num
    """A year in which nothing runs: charges, upkeep, people and the draw at rest."""
    work_usd_per_hour: Num
    """What an hour of work of all chips adds to it."""
    kwh: Num
    """Energy of a year, the building's share included."""


def yearly_cost(
    cluster: Cluster, all_of_it: ClusterPrice, site: Site, finance: Finance
) -> YearlyCost:
    """Charges by class, energy, upkeep and people."""
    by_name = {branch.name: branch.usd for branch in all_of_it.tree.children}
    servers = by_name.get("servers", 0.0) + by_name.get("storage", 0.0)
    network = by_name.get("network", 0.0)
    building = by_name.get("building", 0.0) + by_name.get("racks", 0.0)
    used, idle = _loads(cluster, all_of_it, site)
    u = finance.utilisation
    kwh = HOURS * (u * used + (1.0 - u) * idle) / 1000.0
    energy = total(
        "electricity",
        [
            leaf("in use", HOURS * u * used / 1000.0 * site.usd_per_kwh),
            leaf("at rest", HOURS * (1.0 - u) * idle / 1000.0 * site.usd_per_kwh),
        ],
        f"{central(kwh) / 1e3:,.4g} MWh",
    )
    charges = total(
        "capital charges",
        [
            _charge(
                "servers and storage",
                servers,
                finance.rate,
                finance.server_years,
                finance.server_residual,
            ),
            _charge("network", network, finance.rate, finance.network_years),
            _charge("building and racks", building, finance.rate, finance.building_years),
        ],
    )
    people = cluster.nodes / 1000.0 * site.staff_per_1000_nodes * site.staff_usd_per_year
    upkeep = total(
        "upkeep",
        [
            leaf("servers", cluster.nodes * site.maintenance_usd_per_node_year),
            leaf("network", network * site.network_maintenance_share),
            leaf("building", by_name.get("building", 0.0) * site.building_maintenance_share),
            leaf("people", people),
        ],
    )
    year = total("year", [charges, upkeep, energy])
    work = (used - idle) / 1000.0 * site.usd_per_kwh
    return YearlyCost(
        tree=year,
        hour=rename_branch(times(year, 1.0 / (HOURS * u * cluster.chips)), "hour of a chip"),
        running_usd=upkeep.usd + energy.usd,
        fixed_usd=charges.usd + upkeep.usd + HOURS * idle / 1000.0 * site.usd_per_kwh,
        work_usd_per_hour=work,
        kwh=kwh,
    )


def _charge(name: str, capital: Num, rate: Num, years: Num, residual: Num = 0.0) -> Branch:
    """One class of capital: the loss of worth spread evenly, and what the money costs."""
    interest = interest_usd(capital, rate, years, residual)
    worn = charge_usd(capital, rate, years, residual) - interest
    note = f"over {central(years):g} years"
    return total(name, [leaf("depreciation", worn), leaf("financing", interest)], note)


def _loads(cluster: Cluster, all_of_it: ClusterPrice, site: Site) -> tuple[Num, Num]:
    """Watts of the building in use and at rest: the workload's where it is known."""
    rest = all_of_it.watts - cluster.nodes * cluster.node_watts
    node = np.where(
        np.asarray(cluster.mean_watts) > 0.0,
        cluster.mean_watts,
        site.mean_load * cluster.node_watts,
    )
    used = (cluster.nodes * node + rest) * site.pue
    idle = np.minimum(all_of_it.watts * site.idle_load * site.pue, used)
    return used, idle
