"""From a TOML table to the fields of a record: one reader for the catalogue and for users' files.

A value is alone (`tdp_watts = "700 W"`) or in a table with where it comes from:
`{ value = "700 W", source = "sheet", status = "datasheet" }`, the source a key of the file's
`[sources]`. What a field may hold is read off its record: its type, its range marks and the unit
that ends its name. Every problem is collected with its path; nothing stops at the first.
"""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args, get_origin

from foretell import units
from foretell.catalog.files import Table
from foretell.errors import BadInput, Problem, nearest_name, wrong
from foretell.records import dataclass
from foretell.specs._base import Count, Positive, Status
from foretell.specs.check import check_value, field_types

FACT_KEYS = frozenset({"value", "source", "status", "note", "low", "high", "date"})
"""What a value's table may hold."""
DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8")
"""Keys of a chip's `matrix_flop_per_s`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """What one field of a record may hold."""

    kind: str
    """`number`, `plain`, `numbers` (a table by dtype), `list` or `record`."""
    hint: Any
    """Its annotation, with its range marks."""
    unit: str
    """The unit that ends its name, as `units` spells it."""
    required: bool
    """Whether it has no default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A value with where it comes from."""

    value: Any
    """As the record holds it: a float in the field's unit, a text, ..."""
    source: str | None = None
    """Key of the file's sources."""
    status: str | None = None
    """One of the statuses."""
    note: str | None = None
    """What else there is to say."""
    low: float | None = None
    """Lowest printed value, where there are several."""
    high: float | None = None
    """Highest printed value."""
    date: str | None = None
    """When it held, where that matters."""


def read_fields(
    record: type, table: Table, path: str, problems: list[Problem], also: Iterable[str] = ()
) -> dict[str, Any]:
    """The record's fields that a table gives, by name; keys that are not of `also` must be fields.

    Fields that hold records are left to the caller. Problems are added to the list, and the fields
    they concern are left out.
    """
    facts = read_facts(record, table, path, problems, also)
    nested = {}
    for name, held in facts.items():
        nested[name] = (
            {key: fact.value for key, fact in held.items()}
            if isinstance(held, dict)
            else held.value
        )
    return nested


def read_facts(
    record: type, table: Table, path: str, problems: list[Problem], also: Iterable[str] = ()
) -> dict[str, Fact | dict[str, Fact]]:
    """As `read_fields`, with where each value comes from."""
    plan = field_plan(record)
    found: dict[str, Fact | dict[str, Fact]] = {}
    known = [*plan, *also]
    for key, raw in table.items():
        field = plan.get(key)
        here = f"{path}.{key}" if path else key
        if field is None:
            if key not in known:
                message, near = "is not a field here", nearest_name(key, known)
                problems.append(wrong(here, None, message, nearest=near))
        elif field.kind == "numbers":
            if held := _by_dtype(field, raw, here, problems):
                found[key] = held
        elif field.kind != "record" and (fact := _fact(field, raw, here, problems)):
            found[key] = fact
    return found


def check_missing(
    record: type, given: Mapping[str, object], path: str, problems: list[Problem]
) -> None:
    """Add a problem for each field without a default that is neither given nor complained of."""
    noted = [problem.path for problem in problems]
    for name, field in field_plan(record).items():
        here = f"{path}.{name}"
        complained = any(text == here or text.startswith(f"{here}.") for text in noted)
        if field.required and name not in given and not complained:
            problems.append(wrong(here, None, "is missing"))


@lru_cache(maxsize=16)
def field_plan(record: type) -> Mapping[str, Field]:
    """What each field of a record may hold, by name."""
    hints = field_types(record)
    return MappingProxyType(
        {
            field.name: Field(
                kind=_kind(hints[field.name]),
                hint=hints[field.name],
                unit=units.field_unit(field.name),
                required=field.default is MISSING and field.default_factory is MISSING,
            )
            for field in fields(record)
        }
    )


def _kind(hint: Any) -> str:
    """How a field's value is read."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if hint in (str, bool, int) or get_origin(hint) is Literal:
        return "plain"
    if hint in (tuple[Count, ...], tuple[str, ...]):
        return "list"
    if get_origin(hint) is Mapping:
        return "numbers"
    return "number" if hint is float else "record"


def _fact(field: Field, raw: object, path: str, problems: list[Problem]) -> Fact | None:
    """The value with where it comes from, or None and a problem."""
    if not isinstance(raw, dict):
        value = _value(field, raw, path, problems)
        return None if value is None else Fact(value=value)
    before = len(problems)
    for key in raw.keys() - FACT_KEYS:
        near, here = nearest_name(key, FACT_KEYS), f"{path}.{key}"
        problems.append(wrong(here, None, "is not known", nearest=near))
    if "value" not in raw:
        problems.append(wrong(f"{path}.value", None, "is missing"))
        return None
    value = _value(field, raw["value"], path, problems)
    for key in {"source", "note", "date"} & raw.keys():
        problems += check_value(raw[key], str, f"{path}.{key}")
    status = raw.get("status")
    if status is not None:
        problems += check_value(status, Status, f"{path}.status")
    ends = {
        key: _value(field, raw[key], f"{path}.{key}", problems)
        for key in ("low", "high")
        if key in raw
    }
    if len(problems) > before:
        return None
    said = {key: raw.get(key) for key in ("source", "note", "date")}
    return Fact(value=value, status=status, **said, **ends)


def _by_dtype(
    field: Field, raw: object, path: str, problems: list[Problem]
) -> dict[str, Fact] | None:
    """A table of numbers by dtype."""
    if not isinstance(raw, dict) or not raw:
        message, allowed = "is not a table with a rate for each dtype", ", ".join(DTYPES)
        problems.append(wrong(path, raw, message, allowed))
        return None
    one = Field(kind="number", hint=Positive, unit=field.unit, required=False)
    found = {}
    for dtype, value in raw.items():
        if dtype not in DTYPES:
            allowed, near = ", ".join(DTYPES), nearest_name(dtype, DTYPES)
            problems.append(wrong(f"{path}.{dtype}", None, "is not a dtype", allowed, near))
        elif fact := _fact(one, value, f"{path}.{dtype}", problems):
            found[dtype] = fact
    return found


def _value(field: Field, raw: Any, path: str, problems: list[Problem]) -> Any:
    """What the record holds, or None and a problem."""
    value = raw
    if field.kind == "number" and type(raw) is not float:
        try:
            value = units.parse(raw, field.unit, path)
        except BadInput as error:
            problems += error.problems
            return None
    elif field.kind == "list":
        if not isinstance(raw, list):
            problems.append(wrong(path, raw, "is not a list"))
            return None
        value = tuple(raw)
    found = check_value(value, field.hint, path)
    problems += found
    return None if found else value
