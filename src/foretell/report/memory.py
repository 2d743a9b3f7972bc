"""Memory over one step on one screen."""

from typing import TYPE_CHECKING

from foretell.records import with_values
from foretell.report.estimate import fit_words
from foretell.report.presentation.text import card_text
from foretell.report.presentation.verbs import presentation
from foretell.simulation.memory_answer import MemoryAnswer

if TYPE_CHECKING:
    from rich.console import RenderableType

NOTE = (
    "allocated: what tensors take at the peak of the simulated step; reserved: with what the allocator holds "
    "beyond them; total: what the process holds, with driver context and communicators."
)


def memory_text(found: MemoryAnswer) -> "RenderableType":
    """Headline, answer, every stage, and what the fullest holds at its peak."""
    from rich.text import Text

    shown, told = presentation("memory", found.to_dict()), found.estimate
    if told.refusals:
        against = f"{told.plan.framework} cannot run this plan: {'; '.join(told.refusals)}"
        shown = with_values(shown, title=f"{against}\n{shown.title}")
    return card_text(shown, ("memory", fit_words(told)), beside=[Text(NOTE, "dim")])
