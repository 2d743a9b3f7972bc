"""Predictions that moved between two versions, as text."""

from typing import TYPE_CHECKING

from foretell.lab.versions.changes import VersionChanges
from foretell.report.console import table
from foretell.report.presentation.numbers import value_text

if TYPE_CHECKING:
    from rich.console import RenderableType


def changes_text(found: VersionChanges) -> "RenderableType":
    """The verdict, each number that moved with its cause, and what differs in the package."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(found.title, "bold")]
    parts += [Text(line) for line in found.conclusions]
    if found.moved:
        right = ("before", "after", "change")
        made = table("prediction", "metric", *right, "cause", right=right)
        for one in found.moved:
            change = "" if one.change is None else f"{one.change:+.2%}"
            before, after = (value_text(one.metric, value) for value in (one.before, one.after))
            made.add_row(one.name, one.metric, before, after, change, one.cause)
        parts += [Text(), made]
    return Group(*parts)
