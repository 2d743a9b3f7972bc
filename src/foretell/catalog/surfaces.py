"""The `[[surface]]` tables of a calibrated chip's file: its own kernels, as they were measured."""

import math
from dataclasses import fields
from typing import Any

from foretell.errors import Problem, nearest_name, wrong
from foretell.specs.check import check_value, field_types
from foretell.specs.surface import Surface

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
            message = "is not a field here"
            problems.append(
                Problem(path=f"{path}.{key}", value=None, message=message, nearest=near)
            )
    absent = [name for name in names if name not in table]
    problems += [Problem(path=f"{path}.{n}", value=None, message="is missing") for n in absent]
    if len(problems) > before:
        return None
    values = {**table}
    for name, kind in (("residuals", list), ("coefficients", dict)):
        if not isinstance(values[name], kind):
            what = "is not a list of numbers" if kind is list else "is not a table of numbers"
            problems.append(Problem(path=f"{path}.{name}", value=values[name], message=what))
            return None
    values["residuals"] = tuple(values["residuals"])
    for name, hint in field_types(Surface).items():
        problems += check_value(values[name], hint, f"{path}.{name}")
    if len(problems) == before and len(values["residuals"]) != QUANTILES:
        what = f"does not hold {QUANTILES} quantiles"
        problems.append(Problem(path=f"{path}.residuals", value=table["residuals"], message=what))
    for name, value in values["coefficients"].items():
        if len(problems) == before and not (math.isfinite(value) and value >= 0.0):
            what = "is no coefficient"
            here = f"{path}.coefficients.{name}"
            problems.append(Problem(path=here, value=value, message=what, allowed="0 and above"))
    return None if len(problems) > before else Surface(**values)
