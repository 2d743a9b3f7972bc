"""What is known of models, chips, systems and prices, one file each, every number with its source.

A name is forgiven its case and punctuation; a question reads the index and the files it names.
"""

import os
from collections.abc import Mapping
from typing import Any

from foretell.catalog.chips import catalogue_chip
from foretell.catalog.model_names import ModelEntry, model_entries
from foretell.catalog.models import model, model_table, show_model
from foretell.catalog.names import Match, find, normalise
from foretell.catalog.prices import Offer, offers, price
from foretell.catalog.show import Entry, entries, show
from foretell.catalog.systems import (
    change_design,
    named_system,
    no_design,
    own_file,
    system_from_file,
    system_from_table,
)
from foretell.errors import BadInput
from foretell.interop.user_files import names_only, user_file
from foretell.specs.chip import Chip
from foretell.specs.system import System

__all__ = [
    "Entry",
    "Match",
    "ModelEntry",
    "Offer",
    "chip",
    "entries",
    "find",
    "model",
    "model_entries",
    "model_table",
    "normalise",
    "offers",
    "price",
    "show",
    "show_model",
    "system",
    "system_from_table",
]


def chip(name: str) -> Chip:
    """The catalogue's chip of this id or alias; BadInput with the nearest names otherwise."""
    return catalogue_chip(find(name, ("chip",), "chip").id)


def system(
    name: str | os.PathLike[str] | Mapping[str, Any],
    *,
    files: bool = True,
    design: Mapping[str, str] | None = None,
) -> System:
    """A system by a machine's id or alias, by a chip's (its reference system), from a TOML file or its table.

    What was assumed is listed in its `assumptions`. `files=False` takes names and tables alone,
    for callers that must not open what a stranger asks for. `design` are fields of the design that a
    file or table has its chip described by, in the place of its own.
    """
    if isinstance(name, Mapping):
        return system_from_table(change_design(name, design) if design else name)
    if not files:
        with names_only():
            return system(name, design=design)
    path = own_file(name) if isinstance(name, str) else user_file(name, "system")
    if path is not None:
        return system_from_file(path, design or {})
    if design:
        raise BadInput(no_design(design))
    return named_system(str(name))
