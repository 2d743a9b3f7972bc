"""Are a record's values what its fields say? Types and ranges from the annotations, all problems at once."""

import dataclasses
import math
import types
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from foretell.errors import Problem, nearest_name, wrong
from foretell.specs._base import Ge, Le

Check = Callable[[Any, str], list[Problem]]
"""Problems of a value under one annotation, given its path."""


def problems_of(record: Any, path: str) -> list[Problem]:
    """Every field of a record (and of the records in it) that breaks its annotation."""
    found: list[Problem] = []
    for name, check in _field_checks(record.__class__):
        found += check(getattr(record, name), f"{path}.{name}")
    return found


@lru_cache(maxsize=256)
def _field_checks(record_type: Any) -> tuple[tuple[str, Check], ...]:
    return tuple((name, _check_of(hint)) for name, hint in field_types(record_type).items())


@lru_cache(maxsize=256)
def field_types(record_type: type[Any]) -> dict[str, Any]:
    """Resolved annotations of a record, ranges included."""
    hints = get_type_hints(record_type, include_extras=True)
    return {f.name: _ranged(hints[f.name]) for f in dataclasses.fields(record_type)}


def _ranged(hint: Any) -> Any:
    """An annotation with its ranges alone: flags say nothing of values."""
    if get_origin(hint) is not Annotated:
        return hint
    marks = tuple(mark for mark in get_args(hint)[1:] if isinstance(mark, Ge | Le))
    return Annotated[(hint.__origin__, *marks)] if marks else hint.__origin__


def check_value(value: Any, hint: Any, path: str) -> list[Problem]:
    """Problems of one value under one annotation."""
    return _check_of(hint)(value, path)


@lru_cache(maxsize=1024)
def _check_of(hint: Any) -> Check:
    """What checks values under an annotation, which is taken apart once."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        base, marks = _check_of(parts[0]), list(parts[1:])
        return lambda value, path: base(value, path) or _check_range(value, marks, path)
    if origin in (Union, types.UnionType):
        return partial(_check_options, [_check_of(option) for option in parts])
    if origin is Literal:
        return lambda value, path: _check_choice(value, parts, path)
    if origin is tuple:
        item = _check_of(parts[0])
        return lambda value, path: [p for i, v in enumerate(value) for p in item(v, f"{path}.{i}")]
    if origin in (dict, Mapping) or hint is Mapping:
        kind = _check_of(parts[1] if parts else object)
        return lambda value, path: [p for k, v in value.items() for p in kind(v, f"{path}.{k}")]
    if dataclasses.is_dataclass(hint):
        return lambda value, path: _check_record(value, hint, path)
    return lambda value, path: _check_plain(value, hint, path)


def _check_options(options: list[Check], value: Any, path: str) -> list[Problem]:
    """Problems under the option that has the fewest."""
    fewest: list[Problem] | None = None
    for option in options:
        found = option(value, path)
        if not found:
            return found
        fewest = found if fewest is None or len(found) < len(fewest) else fewest
    return fewest or []


def _check_record(value: Any, hint: Any, path: str) -> list[Problem]:
    if not isinstance(value, hint):
        return [wrong(path, value, "not a record of this kind")]
    return problems_of(value, path)


def _check_plain(value: Any, hint: Any, path: str) -> list[Problem]:
    if hint is float:
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good:
            return [wrong(path, value, "not a number")]
        if not math.isfinite(value):
            return [wrong(path, value, "not a finite number")]
    elif hint is int:
        if not isinstance(value, int) or isinstance(value, bool):
            return [wrong(path, value, "not a whole number")]
        if abs(value) > 10**18:
            return [wrong(path, value, "too large", "at most 1e18")]
    elif hint in (bool, str) and not isinstance(value, hint):
        return [wrong(path, value, "wrong type", "true or false" if hint is bool else "a text")]
    elif hint is type(None) and value is not None:
        return [wrong(path, value, "must be absent")]
    return []


def _check_choice(value: Any, choices: tuple[Any, ...], path: str) -> list[Problem]:
    if value in choices:
        return []
    names = [str(c) for c in choices]
    return [wrong(path, value, "not a choice", ", ".join(names), nearest_name(str(value), names))]


def _check_range(value: Any, marks: list[Any], path: str) -> list[Problem]:
    for mark in marks:
        if isinstance(mark, Ge) and not value >= mark.ge:
            return [wrong(path, value, "too small", f"at least {mark.ge}")]
        if isinstance(mark, Le) and not value <= mark.le:
            return [wrong(path, value, "too large", f"at most {mark.le:g}")]
    return []
