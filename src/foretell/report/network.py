"""One collective as text: the answer, why this algorithm, and tables over sizes and algorithms."""

from typing import TYPE_CHECKING

from foretell.api.network import CollectiveAnswer
from foretell.report.presentation.text import card_text
from foretell.report.presentation.verbs import presentation

if TYPE_CHECKING:
    from rich.console import RenderableType


def collective_text(found: CollectiveAnswer) -> "RenderableType":
    """Headline, numbers, why this algorithm, tables, assumptions."""
    shown = presentation("network", found.to_dict())
    return card_text(shown, ("algorithm", f"{found.algorithm}: {found.reason}"))
