"""What is asked by GET: the catalogue, what words mean, and published runs beside ours."""

from collections.abc import Callable, Mapping
from typing import Any

from foretell.errors import BadInput, Problem

KINDS = ("chips", "systems", "models")


def catalogue(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`foretell catalog chips|systems|models`."""
    from foretell.report.entry import listing

    return listing(str(given["kind"]).removesuffix("s"))


def shown(given: Mapping[str, Any]) -> dict[str, Any]:
    """`foretell catalog show NAME`, of names of the catalogue alone."""
    from foretell.catalog.models import find_model
    from foretell.catalog.names import exists, find, nearest
    from foretell.report.entry import entry

    name = str(given["name"])
    if exists(name):
        return entry(find(name).id)
    found = find_model(name)
    if found is not None:
        return entry(found.id)
    near = " or ".join(nearest(name)) or None
    message = "is no model, chip or system of the catalogue"
    raise BadInput([Problem(path="name", value=name, message=message, nearest=near)])


def published(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every published step of the package's own table beside ours: rows of the accuracy page."""
    from dataclasses import asdict

    from foretell.validate.published import runs

    return [{**asdict(run), "error": run.error} for run in runs()]


LISTS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "catalog": catalogue,
    "catalog show": shown,
    "validate published": published,
}
"""Questions without flags, as a worker knows them."""
