"""What to get for a budget, a deadline and a piece of work: `foretell buy`."""

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, ClassVar

from foretell.records import dataclass
from foretell.specs.questions.common import (
    JSON,
    OF_EACH,
    Batch,
    Given,
    Length,
    ModelName,
    SettingsGiven,
)
from foretell.specs.questions.cost import Utilisation, Years
from foretell.specs.questions.flags import Flag
from foretell.specs.questions.plan_flags import PlanFlags

if TYPE_CHECKING:
    from foretell.specs.questions.common import SystemGiven


@dataclass(frozen=True, slots=False, kw_only=True)
class BuyQuestion(PlanFlags):
    """A model, the money and the time: `foretell buy`."""

    model: ModelName = field(kw_only=False)
    budget: Annotated[
        Given | None,
        Flag(help="Such as 10M: what all of it may cost.", kind="amount", metavar="USD"),
    ] = None
    deadline: Annotated[
        Given,
        Flag(help="When training has to be done, as in 90days.", kind="amount", metavar="TIME"),
    ] = "90days"
    tokens: Annotated[
        Given | None,
        Flag(help="Tokens to train, such as 2T; chinchilla: compute-optimal.", kind="amount"),
    ] = None
    rate: Annotated[
        float | None,
        Flag(help="Requests a second to serve, then or alone.", kind="decimal", metavar="R"),
    ] = None
    isl: Annotated[float, Flag(help="Prompt tokens of a request.", kind="decimal")] = 1024
    osl: Annotated[float, Flag(help="Answer tokens of a request.", kind="decimal")] = 1024
    pay: Annotated[str, Flag(help="buy, rent, or both.", metavar="WAY")] = "both"
    systems: Annotated[
        "str | Sequence[SystemGiven]",
        Flag(
            help="Systems to choose from, with commas between them (default: four of today).",
            metavar="IDS",
            inline=OF_EACH,
        ),
    ] = ""
    region: Annotated[
        str, Flag(help="Whose electricity: a country, or a cloud's region.", metavar="PLACE")
    ] = "world"
    years: Years = ""
    utilisation: Utilisation = ""
    seq_len: Length = None
    global_batch: Batch = None
    plan: Annotated[
        str | None,
        Flag(help="Words of the plan of training; without, the best.", kind="words"),
    ] = None
    set: SettingsGiven = ()
    edges: ClassVar[tuple[Flag, ...]] = (
        Flag(
            help="Write one printable page: .html, or .pdf where a browser is.",
            metavar="FILE",
            names=("report",),
            names_file="always",
        ),
        JSON,
    )
