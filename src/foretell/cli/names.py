"""Names that a shell offers while one types: ids of the catalogue, and files by the shell itself."""

from typing import Any


def models(context: Any) -> dict[str, str]:
    """Ids of models, each with its source."""
    del context
    from foretell.catalog.models import model_entries

    return {entry.id: entry.source for entry in model_entries()}


def systems(context: Any) -> dict[str, str]:
    """Ids of systems and chips, each with its name."""
    del context
    from foretell.catalog.names import load

    titles = load().titles
    return {**titles["chip"], **titles["system"]}


def entries(context: Any) -> dict[str, str]:
    """Ids of everything that `catalog show` shows."""
    return {**systems(context), **models(context)}
