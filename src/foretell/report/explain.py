"""An explanation on one screen."""

from typing import TYPE_CHECKING

from foretell.report.estimate import set_by_hand
from foretell.report.presentation.text import card_text
from foretell.report.presentation.verbs import presentation
from foretell.search.explain import Explanation

if TYPE_CHECKING:
    from rich.console import RenderableType


def explain_text(found: Explanation) -> "RenderableType":
    """Conclusions, then shares of time and memory, operations, and elasticities."""
    return card_text(presentation("explain", found.to_dict()), beside=set_by_hand(found.estimate))
