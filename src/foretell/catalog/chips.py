"""Chips from their tables."""

import math
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

from foretell.catalog.files import Table, catalogue_table
from foretell.catalog.names import find
from foretell.catalog.values import check_missing, read_fields
from foretell.errors import BadInput, Problem, nearest_name, wrong
from foretell.specs.check import check_value, field_types
from foretell.specs.chip import Chip, Surface

QUANTILES = 5
"""Quantiles that a surface keeps of its residuals."""


def surfaces_from(raw: object, path: str, problems: list[Problem]) -> tuple[Surface, ...]:
    """Surfaces from a list of tables; every problem is added to the list."""
    if not isinstance(raw, list) or not all(isinstance(table, dict) for table in raw):
        problems.append(wrong(path, raw, "is not a list of tables", "[[surface]] tables"))
        return ()
    found = [_surface(table, f"{path}.{i}", problems) for i, table in enumerate(raw)]
    return tuple(surface for surface in found if surface is not None)


def _surface(table: dict[str, Any], path: str, problems: list[Problem]) -> Surface | None:
    before = len(problems)
    names = [field.name for field in fields(Surface)]
    for key in table:
        if key not in names:
            near = nearest_name(key, names)
            problems.append(wrong(f"{path}.{key}", None, "is not a field here", nearest=near))
    absent = [name for name in names if name not in table]
    problems += [wrong(f"{path}.{n}", None, "is missing") for n in absent]
    if len(problems) > before:
        return None
    values = {**table}
    for name, kind in (("residuals", list), ("coefficients", dict)):
        if not isinstance(values[name], kind):
            what = "is not a list of numbers" if kind is list else "is not a table of numbers"
            problems.append(wrong(f"{path}.{name}", values[name], what))
            return None
    values["residuals"] = tuple(values["residuals"])
    for name, hint in field_types(Surface).items():
        problems += check_value(values[name], hint, f"{path}.{name}")
    if len(problems) == before and len(values["residuals"]) != QUANTILES:
        what = f"does not hold {QUANTILES} quantiles"
        problems.append(wrong(f"{path}.residuals", table["residuals"], what))
    for name, value in values["coefficients"].items():
        if len(problems) == before and not (math.isfinite(value) and value >= 0.0):
            what = "is no coefficient"
            problems.append(wrong(f"{path}.coefficients.{name}", value, what, "0 and above"))
    return None if len(problems) > before else Surface(**values)


CHIP_KEYS = (
    *("aliases", "shared_aliases", "alias_notes", "notes", "sources", "reference_system"),
    "surface",
)
"""What a chip's file holds besides the record's fields."""

NAMES = ("id", "name", "vendor", "architecture")
"""Fields that say what a chip is called."""


@lru_cache(maxsize=64)
def catalogue_chip(chip_id: str) -> Chip:
    """The catalogue's chip of this id."""
    problems: list[Problem] = []
    found = chip_from_table(catalogue_table("chip", chip_id), "chip", problems)
    if found is None:
        raise BadInput(problems)
    return found


def chip_from_table(
    table: Table, path: str, problems: list[Problem], said: list[str] | None = None
) -> Chip | None:
    """A chip from a table; with `base` or `design`, that chip with the table's fields in its place.

    None, and problems added to the list, where it cannot be made; what a design assumes is added to
    `said`.
    """
    before = len(problems)
    given = read_fields(Chip, table, path, problems, (*CHIP_KEYS, "base", "design"))
    if "surface" in table:
        given["kernels"] = surfaces_from(table["surface"], "surface", problems)
    if "base" in table or "design" in table:
        base = _underlying(table, path, problems, said)
        if base is None or len(problems) > before:
            return None
        peaks = {**base.matrix_flop_per_s, **given.pop("matrix_flop_per_s", {})}
        return replace(base, matrix_flop_per_s=peaks, **given)
    given = {**_defaults(given), **given}
    given.setdefault("rated_watts", given.get("tdp_watts", 0.0))
    check_missing(Chip, given, path, problems)
    return None if len(problems) > before else Chip(**given)


def chip_from_value(
    raw: object, path: str, problems: list[Problem], said: list[str] | None = None
) -> Chip | None:
    """A chip from its name or its table."""
    if isinstance(raw, dict):
        return chip_from_table(raw, path, problems, said)
    return _named_chip(raw, path, problems)


def _underlying(
    table: Table, path: str, problems: list[Problem], said: list[str] | None
) -> Chip | None:
    """The chip that a table starts from: one of the catalogue, or what a design comes to."""
    if "design" not in table:
        return _named_chip(table["base"], f"{path}.base", problems)
    from foretell.catalog.designs import built_from_table  # only who has a design pays for it

    if "base" in table:
        message = "is given beside design: a chip starts from one of them"
        problems.append(wrong(f"{path}.base", table["base"], message))
    raw = table["design"]
    if isinstance(raw, dict):  # what the chip is called may stand beside its design
        raw = {**{key: table[key] for key in NAMES if key in table}, **raw}
    built = built_from_table(raw, f"{path}.design", problems)
    if built is None:
        return None
    if said is not None:
        said += built.assumptions
    return built.chip


def _named_chip(name: object, path: str, problems: list[Problem]) -> Chip | None:
    if not isinstance(name, str):
        problems.append(wrong(path, name, "is neither a chip's name nor its table"))
        return None
    try:
        return catalogue_chip(find(name, ("chip",), path).id)
    except BadInput as error:
        problems += error.problems
        return None


def _defaults(given: dict[str, Any]) -> dict[str, Any]:
    """Names for a chip that a user describes by its numbers."""
    own = given.get("id", "own-chip")
    return {"id": own, "name": own, "vendor": "", "architecture": "unknown"}
