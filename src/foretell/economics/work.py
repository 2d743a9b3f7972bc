"""What work on a cluster comes to: money, energy and carbon of so many hours of its chips.

Work is a training run, or a million tokens answered: hours of chips (with a range), their mean draw, what
the hours go into, tokens and operations. Everything is a batch of one case, so that each result has a
range from the ranges of all figures, those of the work itself included.

    money    hours x rent, a reservation's rent over the share of hours in use; or hours x an owned hour
    energy   hours x (chips + rest of nodes + fabric + storage) x PUE
    carbon   energy x grid, and embodied (carbon.py)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from foretell.catalog.designs import build
from foretell.catalog.dies import dies_apart, system_of_packages
from foretell.catalog.money import Sheet
from foretell.catalog.prices import TERMS, rent, rent_in
from foretell.economics.answer import CostAnswer
from foretell.economics.ask_system import RENT
from foretell.economics.carbon import made_kg, share_kg
from foretell.economics.owning import WATTS, OwnedCluster, OwnQuestion, buildable, own_cluster
from foretell.economics.packages import PackagePrice, price_package, sections
from foretell.economics.products import package_of_system
from foretell.economics.tree import (
    Branch,
    SheetCases,
    central,
    cost_leaf,
    drivers,
    leaf,
    rename_branch,
    spread,
    times,
    total,
)
from foretell.errors import BadInput, bad_input, nearest_name
from foretell.records import later
from foretell.specs._base import Num
from foretell.specs.cost import Figure
from foretell.specs.package import Package
from foretell.specs.system import System
from foretell.uncertainty.intervals import Intervals, watts_cause

HOURS_OF_WORK = "work.gpu_hours"
"""Figure of the hours of chips."""
RENT_PATH = f"rent.{RENT}"
"""Figure of the rent that is paid."""
RESERVED = ("1-year", "3-year")
"""Terms that are paid whether chips work or not, as an owned cluster is."""
WAYS = ("own", "reserved", *TERMS)
"""How chips may be paid for; reserved is the first of the next that is offered."""
AHEAD = (*RESERVED, "capacity-block")
"""Terms that are paid ahead; a block is taken for the work alone, so that none of it is idle."""
MEGA = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidWork:
    """Hours of chips and what they are for."""

    what: str
    """run or token."""
    name: str
    """The model."""
    system: System
    """Where."""
    gpus: int
    """Chips."""
    gpu_hours: tuple[float, float, float]
    """Hours of chips: low, expected, high."""
    watts_per_gpu: float | None
    """Mean draw of a chip over them; None: the site's mean load of its highest."""
    shares: Mapping[str, float]
    """What the hours go into, as shares of 1."""
    tokens: float
    """Tokens that come of it."""
    flop: float
    """Operations of the model, each counted once."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else is stated."""
    intervals: Intervals = field(default_factory=dict)
    """Of what is stated of the work itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paying:
    """How it is paid for, and where it runs."""

    way: str = ""
    """One of WAYS; empty: on demand where a rent is known, else owned."""
    price: float | None = None
    """Rent of a chip-hour by hand."""
    region: str = "world"
    """Whose grid."""
    name: str = ""
    """What the user called the system: a file may hold a design."""
    listed: str = ""
    """A price list in the place of the catalogue's offers (catalog/prices.py)."""


def bill_work(
    work: PaidWork, paying: Paying, figures: Sheet, seen: Mapping[str, object], said: list[str]
) -> CostAnswer:
    """The answer: money as a tree, by time, energy, carbon, and performance for each of them."""
    work = by_package(work)
    way, figures = _way(work.system, paying, figures, said)
    grid = figures.resolve("grids", paying.region, "region")
    figures = _with_work(work, figures, said)
    package = _package(work.system, figures, said)
    also = ["work", "rent", f"grids.{grid}", "embodied"]
    if package is not None:
        also += [*sections(package), *(f"fabs.{die.node}" for die in package.dies)]
    asked = OwnQuestion(
        system=work.system,
        gpus=float(work.gpus),
        name=paying.name,
        also=also,
        unpriced=way != "own",
    )
    own = own_cluster(asked, figures, seen, said)
    case = own.case
    hours = case.number(HOURS_OF_WORK)
    tree = _money(work, way, own, hours)
    energy = energy_mwh(work, own, hours)
    intensity = case.number(f"grids.{grid}.grams_per_kwh")
    emitted = total(
        "carbon",
        [
            rename_branch(times(energy, intensity), "operational"),
            share_kg(made_kg(own, package), own, hours),
        ],
    )
    low, usd, high = spread(tree.usd, case)
    return CostAnswer(
        what=work.what,
        name=work.name,
        usd=usd,
        low_usd=low,
        high_usd=high,
        # A study looks at facts alone: trees and drivers are made when they are read.
        breakdown=later(lambda: cost_leaf(tree, case)),
        facts={
            "system": work.system.id,
            "gpus": work.gpus,
            **work.facts,
            "paid": way,
            "region": grid,
            **_results(work, tree.usd, energy.usd, emitted, case),
            "grams_per_kwh": central(intensity),
            **_hardware(own, package),
            "terms": _terms(work, own, hours, way),
        },
        trees=later(lambda: _trees(work, tree, energy, emitted, case)),
        drivers=later(lambda: drivers(tree.usd, case, most=len(case.knobs))),
        assumptions=tuple(said),
        overrides=seen,
        work_intervals=work.intervals,
    )


def by_package(work: PaidWork) -> PaidWork:
    """Work of dies as work of the packages that are bought."""
    dies = dies_apart(work.system)
    if dies == 1 or work.system.design is None:
        return work
    low, hours, high = work.gpu_hours
    watts = work.watts_per_gpu
    return replace(
        work,
        system=system_of_packages(work.system, build(work.system.design).chip),
        gpus=-(-work.gpus // dies),
        gpu_hours=(low / dies, hours / dies, high / dies),
        watts_per_gpu=None if watts is None else watts * dies,
    )


def _hardware(own: OwnedCluster, package: Package | None) -> dict[str, Any]:
    """What is behind the work: capital, draw and silicon; none where a part is not known."""
    bought, known = own.bought, bool(central(own.cluster.node.usd))
    case = own.case
    low, usd, high = spread(bought.tree.usd, case)
    made = None if package is None else price_package(package, case)
    return {
        "capital_usd": usd if known else None,
        "low_capital_usd": low if known else None,
        "high_capital_usd": high if known else None,
        "peak_watts": central(bought.watts),
        "package_usd": None if made is None else central(made.tree.usd),
        "silicon_mm2": None if made is None else float(made.silicon_mm2),
        "good_die_share": None if made is None else _good_share(made),
    }


def _good_share(made: PackagePrice) -> float:
    """Of the compute dies, those that can be sold."""
    return central(next(iter(made.dies.values())).good_share)


def energy_mwh(work: PaidWork, own: OwnedCluster, hours: Num) -> Branch:
    """Energy of the work at the meter of the building."""
    case, cluster, bought = own.case, own.cluster, own.bought
    site = case.entry("site")
    running = hours / cluster.chips / MEGA  # hours of the whole cluster, MWh of a watt in them
    chips = case.number(WATTS) * cluster.chips
    storage = cluster.chips * site.storage_watts_per_chip
    fabric = bought.watts - cluster.nodes * cluster.node_watts - storage
    drawn = [
        leaf("chips", chips * running),
        leaf("rest of nodes", (cluster.nodes * cluster.mean_watts - chips) * running),
        leaf("network", fabric * running),
        leaf("storage", storage * running),
    ]
    inside = total("", drawn).usd
    return total("energy", [*drawn, leaf("building", inside * (site.pue - 1.0))])


def _money(work: PaidWork, way: str, own: OwnedCluster, hours: Num) -> Branch:
    """What is paid: an owned hour by its classes, or rent by what the hours go into."""
    if way == "own":
        whole = times(own.year.hour, hours)
        parts = [replace(part, note="") for part in whole.children]  # notes are of a year
        return replace(whole, name=work.what, children=tuple(parts))
    return total(work.what, _by_time(work, hours * _rent_paid(way, own)))


def _rent_paid(way: str, own: OwnedCluster) -> Num:
    """Rent of an hour of work; hours of a reservation without work are paid too."""
    usd = own.case.number(RENT_PATH)
    return usd / own.case.entry("finance").utilisation if way in RESERVED else usd


def _by_time(work: PaidWork, whole: Num) -> list[Branch]:
    return [leaf(name, whole * share) for name, share in work.shares.items()]


def _way(system: System, paying: Paying, figures: Sheet, said: list[str]) -> tuple[str, Sheet]:
    """How it is paid for, and the sheet with the rent."""
    chip, way = system.chip.id, paying.way.lower()
    check_way(way)
    if paying.price is not None:
        if way == "own":
            raise bad_input("price", paying.price, "has no effect on chips that are owned")
        kept = next(iter(RESERVED)) if way == "reserved" else way or "on-demand"
        held = (paying.price, paying.price, paying.price, "set by hand")
        return kept, _with_rent(figures, held, "set")
    listed = rent_in(paying.listed, chip) if paying.listed else None
    offered = {term: found for term in TERMS if (found := rent(chip, term, listed)) is not None}
    if not way:
        way = "on-demand" if "on-demand" in offered else "own"
        said.append(
            f"Paid for {'by use, on demand' if way == 'on-demand' else 'as owned: no rent is known'}."
        )
    if way == "reserved":
        way = next((term for term in AHEAD if term in offered), way)
    if way == "own":
        return way, figures
    if way not in offered:
        known = ", ".join(["own", *offered])
        message = f"{chip} has no such offer in {paying.listed or 'the catalogue'}"
        raise bad_input("rent", paying.way, message, f"{known}, or --price")
    low, usd, high, source = offered[way]
    said.append(f"{way} rent: {usd:.2f} USD per GPU-hour ({low:.2f} to {high:.2f}), {source}.")
    if way in RESERVED:
        said.append("A reservation is paid for hours without work too: its rent is over the use.")
    if way == "spot":
        said.append("Spot: chips taken back by the provider are not counted among the failures.")
    return way, _with_rent(figures, offered[way], "published")


def check_way(way: str) -> None:
    """Raise where nothing is paid like this; empty leaves it open."""
    if way and way.lower() not in WAYS:
        raise bad_input("rent", way, "is no way to pay", ", ".join(WAYS), nearest_name(way, WAYS))


def _with_rent(figures: Sheet, held: tuple[float, float, float, str], status: str) -> Sheet:
    low, usd, high, source = held
    figure = Figure(path=RENT_PATH, value=usd, low=low, high=high, source=source, status=status)
    return figures.with_figure(figure)


def _with_work(work: PaidWork, figures: Sheet, said: list[str]) -> Sheet:
    """The sheet with the hours of work and the draw of a chip."""
    low, hours, high = work.gpu_hours
    figures = figures.with_figure(
        Figure(path=HOURS_OF_WORK, value=hours, low=low, high=high, source="the estimate's interval",
               status="inferred")
    )  # fmt: skip
    limit, watts = float(work.system.chip.tdp_watts), work.watts_per_gpu
    if watts is None:
        watts = figures.figures["site.mean_load"].value * limit
        said.append("The draw of a chip is not known: a usual share of its highest is taken.")
    less, more = watts_cause(watts, limit)["p90"]
    ends = (less * watts, more * watts)
    return figures.with_figure(
        Figure(path=WATTS, value=watts, low=ends[0], high=ends[1], source="the estimate; 15 % either way, "
               "and no more than the limit, are judged", status="inferred")
    )  # fmt: skip


def _package(system: System, figures: Sheet, said: list[str]) -> Package | None:
    """The chip as a package, for what making it emitted."""
    try:
        package = package_of_system(system, figures)[0]
        if buildable(package, figures):
            return package
    except BadInput:
        pass
    said.append(f"The dies of {system.chip.id} are not known: a usual chip's carbon is taken.")
    return None


def _results(
    work: PaidWork, usd: Num, mwh: Num, emitted: Branch, case: SheetCases
) -> dict[str, Any]:
    """Every result with its range."""
    by_name = {branch.name: branch.usd for branch in emitted.children}
    joules = mwh * 3.6e9
    found = {
        "gpu_hours": case.number(HOURS_OF_WORK),
        "usd_per_gpu_hour": usd / case.number(HOURS_OF_WORK),
        "usd_per_million_tokens": usd * MEGA / work.tokens,
        "energy_mwh": mwh,
        "carbon_kg": emitted.usd,
        "operational_carbon_kg": by_name.get("operational", 0.0),
        "embodied_carbon_kg": by_name.get("embodied", 0.0),
        "carbon_g_per_million_tokens": emitted.usd * 1e3 * MEGA / work.tokens,
        "tokens_per_usd": work.tokens / usd,
        "tokens_per_joule": work.tokens / joules,
        "flop_per_usd": work.flop / usd,
        "flop_per_joule": work.flop / joules,
    }
    if points := work.facts.get("mfu"):
        found["usd_per_mfu_point"] = usd / (100.0 * points)
    if read := work.facts.get("input_tokens_per_output_token"):
        share = work.facts["prompt_share"]
        found["usd_per_million_input_tokens"] = usd * share * MEGA / (work.tokens * read)
        found["usd_per_million_output_tokens"] = usd * (1.0 - share) * MEGA / work.tokens
    told: dict[str, Any] = {}
    for name, values in found.items():
        low, value, high = spread(values, case)
        told |= {name: value, f"low_{name}": low, f"high_{name}": high}
    return told


def _trees(
    work: PaidWork, tree: Branch, energy: Branch, emitted: Branch, case: SheetCases
) -> dict[str, Any]:
    """Other sums of the same; small units for a million tokens."""
    small = work.what == "token"
    scale, energy_unit, mass = (1e3, "kWh", "g CO2e") if small else (1.0, "MWh", "kg CO2e")
    trees = {
        "by_time": cost_leaf(total("hours", _by_time(work, tree.usd)), case),
        "per_million_tokens": cost_leaf(
            times(tree, MEGA / work.tokens), case, "USD per million tokens"
        ),
        "energy": cost_leaf(times(energy, scale), case, energy_unit),
        "carbon": cost_leaf(times(emitted, scale), case, mass),
    }
    if points := work.facts.get("mfu"):
        trees["per_mfu_point"] = cost_leaf(
            times(tree, 1.0 / (100.0 * points)), case, "USD per MFU point"
        )
    return trees


def _terms(work: PaidWork, own: OwnedCluster, hours: Num, way: str) -> Sequence[dict[str, Any]]:
    """The same work paid for in every way that is known, at the middle of all figures."""
    use = central(own.case.entry("finance").utilisation)
    each: dict[str, tuple[float, str]] = {}
    for term in TERMS:
        if (offer := rent(work.system.chip.id, term)) is not None:
            each[term] = (offer[1] / (use if term in RESERVED else 1.0), offer[3])
    held = own.case.sheet.figures.get(RENT_PATH)
    if held is not None and held.status == "set":
        each = {way: (central(_rent_paid(way, own)), held.source)}
    if central(own.cluster.node.usd):
        each["own"] = (central(own.year.hour.usd), "bought and run")
    count = central(hours)
    return [
        {
            "term": term,
            "usd_per_gpu_hour": usd,
            "usd": usd * count,
            "usd_per_million_tokens": usd * count * MEGA / work.tokens,
            "source": source,
        }
        for term, (usd, source) in each.items()
    ]


def mark_front(rows: Sequence[dict[str, Any]]) -> None:
    """Say of each row whether it is `pareto`: no other is as fast and as cheap, and better in one.

    Fast are a run's tokens a second, and those that one user of a service sees; cheap a million tokens.
    """
    found = [row for row in rows if row["usd"] is not None]
    for row in rows:
        row["pareto"] = row["usd"] is not None and not any(_beats(other, row) for other in found)


def speed_of(row: Mapping[str, Any]) -> float:
    """How fast a row of a sweep is."""
    return float(row.get("tokens_per_s_per_user", row["tokens_per_s"]))


def _beats(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    cost = "usd_per_million_tokens"
    faster = speed_of(one) - speed_of(other)
    dearer = one[cost] - other[cost]
    return bool(faster >= 0.0 >= dearer and (faster > 0.0 or dearer < 0.0))
