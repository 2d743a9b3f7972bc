"""The question about a collective: `foretell network`."""

from dataclasses import field
from typing import TYPE_CHECKING, Annotated, ClassVar

from foretell.records import dataclass
from foretell.specs.questions.common import INLINE, JSON, MOST_CHIPS, PLOT, Given, SettingsGiven
from foretell.specs.questions.flags import Flag

if TYPE_CHECKING:
    from foretell.specs.questions.common import SystemGiven


@dataclass(frozen=True, slots=False, kw_only=True)
class NetworkQuestion:
    """One collective on a system."""

    system: Annotated[
        "SystemGiven",
        Flag(
            help="A system's or a chip's id or alias, or a TOML file.",
            kind="named",
            names_file="maybe",
            lists="systems",
            inline=INLINE,
        ),
    ] = field(kw_only=False)
    collective: Annotated[
        str,
        Flag(
            help="all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, ...",
            metavar="NAME",
        ),
    ]
    size: Annotated[
        Given,
        Flag(
            help="The full buffer of one rank, such as 64MiB.",
            kind="amount",
            metavar="SIZE",
            names=("bytes",),
        ),
    ]
    group: Annotated[
        int, Flag(help="Chips that take part.", kind="whole", metavar="N", most=MOST_CHIPS)
    ]
    placement: Annotated[
        str,
        Flag(
            help="Members per tier, as in node=4,cluster=4 (default: as close as they fit).",
            metavar="TIER=N,...",
        ),
    ] = ""
    algorithm: Annotated[
        str, Flag(help="One of the algorithms offered (default: the fastest).", metavar="NAME")
    ] = ""
    neighbours: Annotated[
        int,
        Flag(
            help="Other groups like this one that send at the same time.",
            kind="whole",
            metavar="N",
            most=MOST_CHIPS,
        ),
    ] = 0
    imbalance: Annotated[
        float,
        Flag(
            help="All-to-all: the busiest member's part over the mean.",
            kind="decimal",
            metavar="X",
        ),
    ] = 1.0
    set: SettingsGiven = ()
    edges: ClassVar[tuple[Flag, ...]] = (PLOT, JSON)
