"""`foretell cost`: what chips, packages and systems cost."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

from cyclopts import Parameter

from foretell.cli import names
from foretell.cli.flags import Json, Plot, PriceList, by_name
from foretell.cli.output import no_as_json, write_json
from foretell.cli.plots import plot_file, write_plot
from foretell.economics.answer import CostAnswer

T = TypeVar("T")

Name = Annotated[
    str,
    Parameter(
        metavar="CHIP|PATH",
        show_default=False,
        help="A chip's id or alias, or a TOML file; or --node.",
    ),
]
SystemName = Annotated[
    str,
    Parameter(
        completer=names.systems,
        metavar="ID|PATH",
        show_default=False,
        help="A system's or a chip's id or alias, or a TOML file.",
    ),
]
Sweep = Annotated[
    tuple[str, ...],
    Parameter(
        negative="",
        metavar="FIELD=VALUES",
        show_default=False,
        help="A flag or --set path over a,b,c or low:high:steps[:log]; once or twice.",
    ),
]
Set = Annotated[
    tuple[str, ...],
    Parameter(
        negative="",
        metavar="PATH=VALUE",
        show_default=False,
        help="Any field or figure, as in prices.processes.N5.wafer_usd=17000; once for each.",
    ),
]

HourPrice = Annotated[
    str,
    Parameter(
        metavar="USD",
        show_default=False,
        help="Rent of a chip for an hour, in the place of the catalogue's.",
    ),
]
Years = Annotated[
    str, Parameter(metavar="N", show_default=False, help="Years that servers are used; else 5.")
]
Utilisation = Annotated[
    str,
    Parameter(
        metavar="SHARE",
        show_default=False,
        help="Share of the hours in which owned or reserved chips work; else 0.8.",
    ),
]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Silicon:
    """What is asked about a chip or package."""

    node: Annotated[
        str, Parameter(metavar="NODE", show_default=False, help="Process of the dies: N7, N5, ...")
    ] = ""
    area: Annotated[
        str,
        Parameter(
            metavar="MM2",
            show_default=False,
            help="Silicon of all dies, less interfaces between them.",
        ),
    ] = ""
    dies: Annotated[
        str, Parameter(metavar="N", show_default=False, help="Dies that it is divided over.")
    ] = ""
    package: Annotated[
        str,
        Parameter(
            metavar="KIND",
            show_default=False,
            help="organic, fan-out, interposer, bridge, glass, hybrid-3d, ...",
        ),
    ] = ""
    die_to_die: Annotated[
        str,
        Parameter(
            metavar="RATE",
            show_default=False,
            help="Out of one die; else interfaces are a tenth of each.",
        ),
    ] = ""
    volume: Annotated[
        str,
        Parameter(
            metavar="N",
            show_default=False,
            help="Packages to spread NRE over; else it is left out.",
        ),
    ] = ""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Owning:
    """What is asked about a system."""

    gpus: Annotated[
        str, Parameter(metavar="N", show_default=False, help="Chips; else one node.")
    ] = ""
    price: HourPrice = ""
    prices: PriceList = ""
    years: Years = ""
    utilisation: Utilisation = ""
    watts: Annotated[
        str,
        Parameter(
            metavar="W",
            show_default=False,
            help="Mean draw of one node in use, else of the site's load.",
        ),
    ] = ""


NO_SILICON, NO_OWNING = Silicon(), Owning()


def chip(
    name: Name = "",
    *,
    silicon: Silicon = NO_SILICON,
    set: Set = (),
    sweep: Sweep = (),
    plot: Plot = None,
    json: Json = False,
) -> int:
    """The dies of a chip, good and tested: wafers, defects, harvesting, NRE."""
    from foretell.economics.ask import PackageQuestion, chip_cost

    question = PackageQuestion(name=name, set=set, **by_name(silicon))
    return answered(chip_cost, question, sweep, plot, json)


def package(
    name: Name = "",
    *,
    silicon: Silicon = NO_SILICON,
    set: Set = (),
    sweep: Sweep = (),
    plot: Plot = None,
    json: Json = False,
) -> int:
    """A whole package: dies, memory, carrier, substrate, losses in assembly, test, NRE."""
    from foretell.economics.ask import PackageQuestion, package_cost

    question = PackageQuestion(name=name, set=set, **by_name(silicon))
    return answered(package_cost, question, sweep, plot, json)


def system(
    system: SystemName,
    *,
    owning: Owning = NO_OWNING,
    set: Set = (),
    sweep: Sweep = (),
    plot: Plot = None,
    json: Json = False,
) -> int:
    """A cluster: servers, fabric, building, years, the hour of a chip, and renting beside it."""
    from foretell.economics.ask_system import SystemQuestion, system_cost

    question = SystemQuestion(system=system, set=set, **by_name(owning))
    return answered(system_cost, question, sweep, plot, json)


def answered(
    ask: Callable[[T], CostAnswer],
    question: T,
    sweep: tuple[str, ...],
    plot: str | None,
    json: bool,
) -> int:
    """One answer, or a table of them, as text or JSON, and a picture where one is wanted."""
    from foretell.economics.sweeps import swept
    from foretell.report.cost_charts import cost_picture

    file = plot_file(plot, drawn=True)
    with no_as_json(json):
        if sweep:
            found = swept(ask, question, sweep)
        else:
            found = ask(question).to_dict()
    write_plot(file, "cost", lambda: found, lambda: cost_picture(found))
    if json:
        write_json(found)
    else:
        from foretell.report import console
        from foretell.report.cost import cost_text, sweep_text

        console.show(sweep_text(found) if sweep else cost_text(found))
    return 0
