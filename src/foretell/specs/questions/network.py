"""The question about a collective: `foretell network`."""

from dataclasses import field
from typing import TYPE_CHECKING, Annotated, ClassVar

from foretell.records import dataclass
from foretell.specs.questions.common import INLINE, JSON, MOST_CHIPS, PLOT, Given, SettingsGiven
from foretell.specs.questions.flags import Flag, decimal, flag, whole

if TYPE_CHECKING:
    from foretell.specs.questions.common import SystemGiven


@dataclass(frozen=True, slots=False, kw_only=True)
class NetworkQuestion:
    """One collective on a system."""

    system: Annotated[
        "SystemGiven",
        flag(
            "A system's or a chip's id or alias, or a TOML file.",
            kind="named",
            names_file="maybe",
            lists="systems",
            inline=INLINE,
        ),
    ] = field(kw_only=False)
    collective: Annotated[
        str, flag("all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, ...", "NAME")
    ]
    size: Annotated[
        Given,
        flag("The full buffer of one rank, such as 64MiB.", "SIZE", "amount", names=("bytes",)),
    ]
    group: Annotated[int, whole("Chips that take part.", most=MOST_CHIPS)]
    placement: Annotated[
        str,
        flag(
            "Members per tier, as in node=4,cluster=4 (default: as close as they fit).",
            "TIER=N,...",
        ),
    ] = ""
    algorithm: Annotated[
        str, flag("One of the algorithms offered (default: the fastest).", "NAME")
    ] = ""
    neighbours: Annotated[
        int, whole("Other groups like this one that send at the same time.", most=MOST_CHIPS)
    ] = 0
    imbalance: Annotated[
        float, decimal("All-to-all: the busiest member's part over the mean.", "X")
    ] = 1.0
    set: SettingsGiven = ()
    edges: ClassVar[tuple[Flag, ...]] = (PLOT, JSON)
