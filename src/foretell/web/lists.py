"""What is asked by GET: the catalogue, what words mean, and published runs beside ours."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from foretell.errors import bad_input

Theme = Literal["light", "dark"]


def catalogue(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`foretell catalog chips|systems|models`."""
    from foretell.report.catalogue import listing

    return listing(str(given["kind"]).removesuffix("s"))


def show_entry(given: Mapping[str, Any]) -> dict[str, Any]:
    """`foretell catalog show NAME`, of names of the catalogue alone."""
    from foretell.catalog.model_names import find_model
    from foretell.catalog.names import exists, find, nearest
    from foretell.report.catalogue import entry

    name = str(given["name"])
    if exists(name):
        return entry(find(name).id)
    found = find_model(name)
    if found is not None:
        return entry(found.id)
    near = " or ".join(nearest(name)) or None
    message = "is no model, chip or system of the catalogue"
    raise bad_input("name", name, message, nearest=near)


def published_rows(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every published step of the package's own table beside ours: rows of the accuracy page."""
    from foretell.lab.validate.page_text import kept_rows

    return kept_rows()


def first_contact(given: Mapping[str, Any]) -> dict[str, Any]:
    """The ledger of first contacts: aggregates of every wave of rows that no version had seen."""
    from foretell.lab.first_contact.page import ledger_dict

    return ledger_dict()


def held_out(given: Mapping[str, Any]) -> dict[str, Any]:
    """Errors of training steps with the source, the framework or the chip of a run held out of the fits."""
    from foretell.lab.validate.held_out_scores import held_out_scores

    return dict(held_out_scores())


def published_figure(rows: Sequence[Mapping[str, Any]], find: str, theme: Theme) -> dict[str, Any]:
    """The same as a figure, of the rows that have all words of `find`."""
    from foretell.report.figures.lines import published_beside_ours
    from foretell.report.figures.look import template

    words = find.lower().split()
    made = published_beside_ours(
        [row for row in rows if all(word in row_text(row) for word in words)]
    )
    made["layout"]["template"] = template(theme)
    return made


def row_text(row: Mapping[str, Any]) -> str:
    """What a search looks through."""
    return " ".join(str(row[name]) for name in SEARCHED).lower()


SEARCHED = ("table", "source", "model", "chip", "gpus", "global_batch", "seq_len", "plan")
LISTS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "catalog": catalogue,
    "catalog show": show_entry,
    "validate published": published_rows,
    "validate held-out": held_out,
    "validate first-contact": first_contact,
}
"""Questions without flags, as a worker knows them."""
