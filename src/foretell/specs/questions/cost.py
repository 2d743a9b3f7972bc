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
from foretell.specs.questions.flags import Flag, flag
from foretell.specs.questions.serving import LoadQuestion, Spread
from foretell.specs.questions.training import TrainingQuestion

Figures = Annotated[
    Settings,
    flag(
        "Any field or figure, as in prices.processes.N5.wafer_usd=17000; once for each.",
        "PATH=VALUE",
        "settings",
    ),
]
HourPrice = Annotated[
    Given, flag("Rent of a chip for an hour, in the place of the catalogue's.", "USD", "amount")
]
Years = Annotated[Given, flag("Years that servers are used (default: 5).", "N", "amount")]
Utilisation = Annotated[
    Given,
    flag(
        "Share of the hours in which owned or reserved chips work (default: 0.8).",
        "SHARE",
        "amount",
    ),
]


@dataclass(frozen=True, slots=False, kw_only=True)
class PackageQuestion:
    """A chip or a package by its name, or by a node and an area: `foretell cost chip`, `cost package`."""

    name: Annotated[
        str,
        flag(
            "A chip's id or alias, or a TOML file; or --node.",
            "CHIP|PATH",
            names_file="maybe",
            placed=True,
        ),
    ] = ""
    node: Annotated[str, flag("Process of the dies: N7, N5, ...", "NODE")] = ""
    area: Annotated[
        Given, flag("Silicon of all dies, less interfaces between them.", "MM2", "amount")
    ] = ""
    dies: Annotated[str | int, flag("Dies that it is divided over.", "N", "count")] = ""
    package: Annotated[
        str, flag("organic, fan-out, interposer, bridge, glass, hybrid-3d, ...", "KIND")
    ] = ""
    die_to_die: Annotated[
        Given, flag("Out of one die (default: interfaces are a tenth of each).", "RATE", "amount")
    ] = ""
    volume: Annotated[
        Given, flag("Packages to spread NRE over (default: it is not included).", "N", "amount")
    ] = ""
    set: Figures = ()
    typed: ClassVar[bool] = True
    edges: ClassVar[tuple[Flag, ...]] = (SWEEP, PLOT, JSON)


@dataclass(frozen=True, slots=False, kw_only=True)
class SystemQuestion:
    """A cluster: `foretell cost system`."""

    system: Annotated[
        str | Mapping[str, Any],
        flag(
            "A system's or a chip's id or alias, or a TOML file.",
            "ID|PATH",
            "named",
            names_file="maybe",
            lists="systems",
            inline=INLINE,
            placed=True,
        ),
    ]
    gpus: Annotated[
        str | int, flag("Chips (default: one node).", "N", "count", most=MOST_CHIPS)
    ] = ""
    price: HourPrice = ""
    prices: PriceList = ""
    years: Years = ""
    utilisation: Utilisation = ""
    watts: Annotated[
        Given, flag("Mean draw of one node in use (default: the site's load).", "W", "amount")
    ] = ""
    set: Figures = ()
    typed: ClassVar[bool] = True
    edges: ClassVar[tuple[Flag, ...]] = (SWEEP, PLOT, JSON)


@dataclass(frozen=True, slots=False, kw_only=True)
class Payment:
    """How work is paid for, and where it runs; the same for every kind of work."""

    rent: Annotated[
        str,
        flag(
            "on-demand, spot, reserved, 1-year, 3-year or own (default: on-demand where it is known).",
            "TERM",
        ),
    ] = ""
    region: Annotated[str, flag("Whose grid: a country, or a cloud's region.", "PLACE")] = "world"
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
        flag(
            "Any field or figure, as in prices.site.pue=1.1; once for each.",
            "PATH=VALUE",
            "settings",
        ),
    ] = ()
    typed: ClassVar[bool] = True
    edges: ClassVar[tuple[Flag, ...]] = (*IMPORTS, SWEEP, PLOT, JSON)
