"""A scored table as text: how many rows, how far off, by group."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from foretell.report.console import table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

REASONS = 8
"""Reasons for unsupported rows that are shown; the JSON has all."""


def scores_text(scores: Mapping[str, Any]) -> "RenderableType":
    """The JSON of a `validate` verb as tables: one for each way of grouping."""
    from rich.console import Group
    from rich.text import Text

    said = (
        f"{scores['scored']:,} of {scores['rows']:,} rows scored, median error "
        f"{percent(scores['median_ape'])}, ninetieth percentile {percent(scores['p90_ape'])}"
    )
    parts: list[RenderableType] = [Text(said, "bold")]
    for key, groups in scores.items():
        if key.startswith("by_") and groups:
            parts += [Text(), _groups(key.removeprefix("by_").replace("_", " "), groups)]
    reasons: dict[str, int] = {}
    for item in scores["unsupported"]:
        reason = item["reason"] if isinstance(item, Mapping) else item[1]
        reasons[reason] = reasons.get(reason, 0) + 1
    if reasons:
        parts += [Text(), Text("Not scored", "bold")]
        shown = sorted(reasons.items(), key=lambda pair: -pair[1])[:REASONS]
        parts += [Text(f"- {count:,} rows: {reason}") for reason, count in shown]
    return Group(*parts)


def percent(share: float | None) -> str:
    """A share in percent, or a dash where there is none."""
    return "-" if share is None else f"{share:.1%}"


def _groups(name: str, groups: Mapping[str, Mapping[str, Any]]) -> "Table":
    made = table(name, "rows", "median error", right=("rows", "median error"))
    for label, score in groups.items():
        made.add_row(label, f"{score['rows']:,}", percent(score["median_ape"]))
    return made
