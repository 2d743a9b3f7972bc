"""Figures set by hand (`--set prices.processes.N5.wafer_usd=17000`), and fields swept over."""

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from foretell import units
from foretell.catalog.money import NAMED, SINGLE, Sheet, kind_of
from foretell.catalog.values import field_plan
from foretell.errors import BadInput, Problem, bad_input, nearest_name, wrong
from foretell.inputs.overrides import Setting
from foretell.specs.check import check_value
from foretell.specs.cost import Figure

SHORT = {"usd_per_kwh": "site.usd_per_kwh", "pue": "site.pue"}
"""Names of `prices` that other verbs know too, and where they are here."""
MOST_ROWS = 2000
"""A sweep of more rows is refused."""


def set_prices(
    sheet: Sheet, settings: Sequence[Setting], seen: dict[str, object], others: Sequence[str] = ()
) -> Sheet:
    """The sheet with every `prices.` setting in place, which then has no range; others are passed by."""
    problems: list[Problem] = []
    for setting in settings:
        if setting.root != "prices" or ".".join(setting.steps) in others:
            continue
        try:
            sheet = _set_price(sheet, setting)
            seen[setting.path] = setting.text
        except BadInput as error:
            problems += error.problems
    if problems:
        raise BadInput(problems)
    return sheet


def _set_price(sheet: Sheet, setting: Setting) -> Sheet:
    steps = tuple(SHORT.get(".".join(setting.steps), ".".join(setting.steps)).split("."))
    where = f"--set {setting.path}"
    if steps[0] not in SINGLE and steps[0] not in NAMED:
        raise BadInput([_unknown(where, steps[0], (*SINGLE, *NAMED, *SHORT))])
    if steps[0] in NAMED and len(steps) == 3:
        steps = (steps[0], sheet.resolve(steps[0], steps[1], where), steps[2])
    entry, name = ".".join(steps[:-1]), steps[-1]
    plan = field_plan(kind_of(entry))
    if len(steps) != (3 if steps[0] in NAMED else 2) or name not in plan:
        raise BadInput([_unknown(where, name, tuple(plan))])
    path, field = f"{entry}.{name}", plan[name]
    if field.kind == "number":
        value = units.parse(setting.text, field.unit, where)
        _check(value, field.hint, where)
        figure = Figure(path=path, value=value, low=value, high=value, status="set")
        return sheet.with_figure(figure)
    if field.kind == "list":
        raise bad_input(where, setting.text, "a list cannot be set")
    plain: Any = setting.text
    if plain.lower() in ("true", "false"):
        plain = plain.lower() == "true"
    _check(plain, field.hint, where)
    return dataclasses.replace(sheet, plain={**sheet.plain, path: plain})


def _check(value: object, hint: Any, where: str) -> None:
    problems = check_value(value, hint, where)
    if problems:
        raise BadInput(problems)


def _unknown(where: str, word: str, known: Sequence[str]) -> Problem:
    return wrong(where, word, "no such field", ", ".join(known), nearest_name(word, known))


def parse_sweeps(texts: Sequence[str], flags: Sequence[str]) -> dict[str, list[str]]:
    """`field=100,200,400`, `field=100:800:8` or `field=1:1000:7:log`, by field.

    A field is a flag of the verb, in snake case, or a `--set` path; the last two forms have the first
    and the last value and how many there are.
    """
    found: dict[str, list[str]] = {}
    problems: list[Problem] = []
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().removeprefix("--").replace("-", "_" if "." not in name else "-")
        if not equals or not values.strip() or ("." not in name and name not in flags):
            allowed = f"field=a,b,c or field=low:high:steps, a field one of {', '.join(flags)}, "
            allowed += "or a path that --set takes"
            near = nearest_name(name, flags)
            problems.append(
                wrong("--sweep", text, "cannot be read", allowed, near)
            )  # fmt: skip
            continue
        try:
            found[name] = _values(values, text)
        except BadInput as error:
            problems += error.problems
    rows = int(np.prod([len(values) for values in found.values()])) if found else 0
    if rows > MOST_ROWS:
        problems.append(wrong("--sweep", None, f"has {rows} rows", f"up to {MOST_ROWS}"))
    if problems:
        raise BadInput(problems)
    return found


def _values(text: str, whole: str) -> list[str]:
    parts = [part.strip() for part in text.split(":")]
    if len(parts) == 1:
        return [part.strip() for part in text.split(",") if part.strip()]
    log = len(parts) == 4 and parts[3] == "log"
    allowed = "low:high:steps, or low:high:steps:log above 0"
    no_range = wrong("--sweep", whole, "is no range", allowed)
    if len(parts) != 3 and not log:
        raise BadInput([no_range])
    try:
        low, high, steps = float(parts[0]), float(parts[1]), int(parts[2])
    except ValueError:
        raise BadInput([no_range]) from None
    if not 1 <= steps <= MOST_ROWS or not np.isfinite(low + high) or (log and min(low, high) <= 0):
        raise BadInput([no_range])
    spaced = np.geomspace(low, high, steps) if log else np.linspace(low, high, steps)
    return [f"{value:.10g}" for value in spaced]


def combinations(sweeps: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Every combination of the swept values, the last field fastest."""
    return [dict(zip(sweeps, values, strict=True)) for values in product(*sweeps.values())]
