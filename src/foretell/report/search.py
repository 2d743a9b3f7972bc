"""A search as a table of its best plans, with what was looked at and what was skipped."""

from typing import TYPE_CHECKING

from foretell.api.search_answers import Search
from foretell.records import with_values
from foretell.report.estimate import CONVENTIONS, gib
from foretell.report.presentation.text import card_text
from foretell.report.presentation.verbs import presentation
from foretell.search.search import launchers_of
from foretell.training.feasibility import CLOSE_SHARE

if TYPE_CHECKING:
    from rich.console import RenderableType


def search_text(found: Search) -> "RenderableType":
    """Headline, counts, plans, what the columns mean, and what was assumed."""
    from rich.text import Text

    shown = presentation("search", found.to_dict())
    capacity = found.best.memory_capacity_bytes
    fits = (
        f"fits: up to {gib(CLOSE_SHARE * capacity)} GiB, {CLOSE_SHARE:.0%} of the chip's memory; "
        f"borderline while its tensors fit {gib(capacity)} GiB; clear ones come first."
    )
    notes = [
        fits,
        CONVENTIONS,
        launchers(found),
    ]
    if (alike := sum(found.equal)) > 1:
        more = " (marked =); of them the simplest is first"
        notes.append(f"{alike} plans are equal to the fastest within 90%{more}.")
    shown = with_values(shown, lines=(counts(found),))
    return card_text(shown, beside=[Text("\n".join(notes), "dim")])


def launchers(found: Search) -> str:
    """Which plans each framework can run, by their places."""
    places: dict[str, list[str]] = {}
    for place, plan in enumerate(found.plans, start=1):
        for name in launchers_of(plan) or ("none known",):
            places.setdefault(name, []).append(str(place))
    said = (f"{name} {', '.join(those)}" for name, those in places.items())
    return f"launchable with: {'; '.join(said)}."


def counts(found: Search) -> str:
    """How many plans, how fast, and how many were invalid, by rule."""
    many = found.plans_evaluated + found.plans_pruned
    rate = many / max(found.evaluation_seconds, 1e-9)
    said = (
        f"{many:,} plans in {found.evaluation_seconds:.2f} s ({rate:,.0f} per second): "
        f"{found.plans_pruned:,} pruned by a bound on their step, {found.plans_evaluated:,} evaluated, "
        f"of which {found.plans_feasible:,} fit or are borderline"
    )
    if found.rejected:
        rules = ", ".join(f"{rule} {count:,}" for rule, count in found.rejected.items())
        said += f"\nSkipped as invalid: {sum(found.rejected.values()):,} ({rules})"
    return said
