"""A ranking of systems as text: money first, then speed, then what the total cost is made of."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from foretell.report.console import table
from foretell.report.posterior import compared_table
from foretell.report.presentation.text import card_text
from foretell.report.presentation.verbs import presentation

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from foretell.studies.procurement.ranking import Ranking


def compare_text(found: "Ranking", *, why: bool = False) -> "RenderableType":
    """The verdict, the systems by cost, the total cost by part, and what each cluster runs; `why` adds the
    main uncertainties and how often each system beats each other."""
    told = found.to_dict()
    beside = _uncertainty(told) if why else []
    able = [one for one in told["systems"] if one["problem"] is None]
    if (measured := compared_table(able)) is not None:
        beside.append(measured)
    return card_text(presentation("compare", told), beside=beside)


def _uncertainty(told: Mapping[str, Any]) -> "list[RenderableType]":
    """What the certainty of the order rests on."""
    from rich.text import Text

    parts: list[RenderableType] = []
    if told["doubts"]:
        lines = [f"±{100 * d['half_width']:>3.0f} %  {d['cause']}" for d in told["doubts"]]
        parts.append(Text("\n".join(["Main uncertainties in this ranking", *lines])))
    if len(told["beats"]) > 1:
        what = "cheaper" if told["by"] == "usd" else "faster"
        title = f"Share of draws in which the row is {what} than the column"
        parts += [Text(title, "bold"), _beats(told)]
    return parts


def _beats(told: Mapping[str, Any]) -> "Table":
    names = list(told["beats"])
    made = table("", *names, right=tuple(names))
    for a in names:
        cells = ["" if a == b else f"{told['beats'][a][b]:.0%}" for b in names]
        made.add_row(a, *cells)
    return made
