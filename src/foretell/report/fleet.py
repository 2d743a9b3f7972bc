"""Several models on one fleet, on one screen."""

from typing import TYPE_CHECKING

from foretell.api.fleet_answer import FleetAnswer
from foretell.report.presentation.text import card_text
from foretell.report.presentation.verbs import presentation

if TYPE_CHECKING:
    from rich.console import RenderableType


def fleet_text(found: FleetAnswer) -> "RenderableType":
    """Chips and rent of all, the models, the pools, and what was assumed."""
    return card_text(presentation("fleet", found.to_dict()))
