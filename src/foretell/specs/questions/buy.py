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
from foretell.specs.questions.flags import Flag, decimal, file_flag, flag
from foretell.specs.questions.plan_flags import PlanFlags

if TYPE_CHECKING:
    from foretell.specs.questions.common import SystemGiven


@dataclass(frozen=True, slots=False, kw_only=True)
class BuyQuestion(PlanFlags):
    """A model, the money and the time: `foretell buy`."""

    model: ModelName = field(kw_only=False)
    budget: Annotated[
        Given | None, flag("Such as 10M: what all of it may cost.", "USD", "amount")
    ] = None
    deadline: Annotated[
        Given, flag("When training has to be done, as in 90days.", "TIME", "amount")
    ] = "90days"
    tokens: Annotated[
        Given | None,
        flag("Tokens to train, such as 2T; chinchilla: compute-optimal.", kind="amount"),
    ] = None
    rate: Annotated[float | None, decimal("Requests a second to serve, then or alone.", "R")] = None
    users: Annotated[
        float | None,
        decimal("Users at a time, each with one request, in the place of a rate.", "N"),
    ] = None
    isl: Annotated[float, decimal("Prompt tokens of a request.", None)] = 1024
    osl: Annotated[float, decimal("Answer tokens of a request.", None)] = 1024
    pay: Annotated[
        str, flag("buy, rent, both, or one term of rent: on-demand, reserved, spot.", "WAY")
    ] = "both"
    systems: Annotated[
        "str | Sequence[SystemGiven]",
        flag(
            "Systems to choose from, with commas between them (default: four of today).",
            "IDS",
            inline=OF_EACH,
        ),
    ] = ""
    region: Annotated[str, flag("Whose electricity: a country, or a cloud's region.", "PLACE")] = (
        "world"
    )
    years: Years = ""
    utilisation: Utilisation = ""
    seq_len: Length = None
    global_batch: Batch = None
    plan: Annotated[
        str | None, flag("Words of the plan of training; without, the best.", kind="words")
    ] = None
    set: SettingsGiven = ()
    edges: ClassVar[tuple[Flag, ...]] = (
        file_flag(
            "Write one printable page: .html, or .pdf where a browser is.", names=("report",)
        ),
        JSON,
    )
