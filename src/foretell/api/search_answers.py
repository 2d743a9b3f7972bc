"""What `search` answers: its plans, each an answer too (see answers.py)."""

from typing import cast

from foretell.api.answers import Estimate, estimate_answer
from foretell.records import Answer, values_as_held
from foretell.search.search import SearchResult


class Search(SearchResult, Answer):
    """The plans of a search, best first, and how it went."""

    __slots__ = ()
    verb = "search"

    plans: tuple[Estimate, ...]
    """The best plans: those that clearly fit by step time, then borderline ones."""

    @property
    def best(self) -> Estimate:
        """The best plan; Infeasible where there is none."""
        return cast("Estimate", super().best)


def search_answer(found: SearchResult) -> Search:
    """The answer with a search's plans, each an answer too."""
    values = values_as_held(found)
    return Search(**{**values, "plans": tuple(estimate_answer(plan) for plan in found.plans)})
