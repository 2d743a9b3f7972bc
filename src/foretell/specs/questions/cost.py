"""Questions about money: chips, packages, systems, training runs and tokens.

They keep numbers as they were typed: a sweep goes over texts, and shows them.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from foretell.records import dataclass
from foretell.specs.questions.common import (
    IMPORTS,
    INLINE,
    JSON,
    MOST_CHIPS,
    PLOT,
    SWEEP,
    Given,
    PriceList,
    Settings,
    SettingsGiven,
)
from foretell.specs.questions.flags import Flag
from foretell.specs.questions.serving import LoadQuestion, Spread
from foretell.specs.questions.training import TrainingQuestion

Figures = Annotated[
    Settings,
    Flag(
        help="Any field or figure, as in prices.processes.N5.wafer_usd=17000; once for each.",
        kind="settings",
        metavar="PATH=VALUE",
    ),
]
HourPrice = Annotated[
    Given,
    Flag(
        help="Rent of a chip for an hour, in the place of the catalogue's.",
        kind="amount",
        metavar="USD",
    ),
]
Years = Annotated[
    Given, Flag(help="Years that servers are used (default: 5).", kind="amount", metavar="N")
]
Utilisation = Annotated[
    Given,
    Flag(
        help="Share of the hours in which owned or reserved chips work (default: 0.8).",
        kind="amount",
        metavar="SHARE",
    ),
]


@dataclass(frozen=True, slots=False, kw_only=True)
class PackageQuestion:
    """A chip or a package by its name, or by a node and an area: `foretell cost chip`, `cost package`."""

    name: Annotated[
        str,
        Flag(
            help="A chip's id or alias, or a TOML file; or --node.",
            metavar="CHIP|PATH",
            names_file="maybe",
            placed=True,
        ),
    ] = ""
    node: Annotated[str, Flag(help="Process of the dies: N7, N5, ...", metavar="NODE")] = ""
    area: Annotated[
        Given,
        Flag(
            help="Silicon of all dies, less interfaces between them.", kind="amount", metavar="MM2"
        ),
    ] = ""
    dies: Annotated[
        str | int, Flag(help="Dies that it is divided over.", kind="count", metavar="N")
    ] = ""
    package: Annotated[
        str,
        Flag(help="organic, fan-out, interposer, bridge, glass, hybrid-3d, ...", metavar="KIND"),
    ] = ""
    die_to_die: Annotated[
        Given,
        Flag(
            help="Out of one die (default: interfaces are a tenth of each).",
            kind="amount",
            metavar="RATE",
        ),
    ] = ""
    volume: Annotated[
        Given,
        Flag(
            help="Packages to spread NRE over (default: it is not included).",
            kind="amount",
            metavar="N",
        ),
    ] = ""
    set: Figures = ()
    typed: ClassVar[bool] = True
    edges: ClassVar[tuple[Flag, ...]] = (SWEEP, PLOT, JSON)


@dataclass(frozen=True, slots=False, kw_only=True)
class SystemQuestion:
    """A cluster: `foretell cost system`."""

    system: Annotated[
        str | Mapping[str, Any],
        Flag(
            help="A system's or a chip's id or alias, or a TOML file.",
            kind="named",
            metavar="ID|PATH",
            names_file="maybe",
            lists="systems",
            inline=INLINE,
            placed=True,
        ),
    ]
    gpus: Annotated[
        str | int,
        Flag(help="Chips (default: one node).", kind="count", metavar="N", most=MOST_CHIPS),
    ] = ""
    price: HourPrice = ""
    prices: PriceList = ""
    years: Years = ""
    utilisation: Utilisation = ""
    watts: Annotated[
        Given,
        Flag(
            help="Mean draw of one node in use (default: the site's load).",
            kind="amount",
            metavar="W",
        ),
    ] = ""
    set: Figures = ()
    typed: ClassVar[bool] = True
    edges: ClassVar[tuple[Flag, ...]] = (SWEEP, PLOT, JSON)


@dataclass(frozen=True, slots=False, kw_only=True)
class Payment:
    """How work is paid for, and where it runs; the same for every kind of work."""

    rent: Annotated[
        str,
        Flag(
            help="on-demand, spot, reserved, 1-year, 3-year or own (default: on-demand where it is known).",
            metavar="TERM",
        ),
    ] = ""
    region: Annotated[
        str, Flag(help="Whose grid: a country, or a cloud's region.", metavar="PLACE")
    ] = "world"
    price: HourPrice = ""
    prices: PriceList = ""
    years: Years = ""
    utilisation: Utilisation = ""
    set: SettingsGiven = ()


@dataclass(frozen=True, slots=False, kw_only=True)
class RunQuestion(Payment, TrainingQuestion):
    """A training run, compute-optimal where no tokens are given: `foretell cost run`."""

    typed: ClassVar[bool] = True
    edges: ClassVar[tuple[Flag, ...]] = (*IMPORTS, SWEEP, PLOT, JSON)


@dataclass(frozen=True, slots=False, kw_only=True)
class SteadyLoad(LoadQuestion):
    """A deployment at a steady load."""

    spread: Spread = 1.0
    set: SettingsGiven = ()


@dataclass(frozen=True, slots=False, kw_only=True)
class TokenQuestion(Payment, SteadyLoad):
    """A million answered tokens: `foretell cost token`."""

    set: Annotated[
        Settings,
        Flag(
            help="Any field or figure, as in prices.site.pue=1.1; once for each.",
            kind="settings",
            metavar="PATH=VALUE",
        ),
    ] = ()
    typed: ClassVar[bool] = True
    edges: ClassVar[tuple[Flag, ...]] = (*IMPORTS, SWEEP, PLOT, JSON)
