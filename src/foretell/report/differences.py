"""Two plans side by side, leaf by leaf."""

from typing import TYPE_CHECKING

from foretell.report.presentation.text import card_text
from foretell.report.presentation.verbs import presentation
from foretell.search.differences import Comparison

if TYPE_CHECKING:
    from rich.console import RenderableType


def comparison_text(found: Comparison) -> "RenderableType":
    """Conclusions, both plans, leaves of time and of memory."""
    return card_text(presentation("compare-plans", found.to_dict()))
