"""Are a record's values what its fields say? Types and ranges from the annotations, all problems at once."""

import dataclasses
import math
import types
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from foretell.errors import Problem, nearest_name
from foretell.specs.ranges import Ge, Le


def problems_of(record: Any, path: str) -> list[Problem]:
    """Every field of a record (and of the records in it) that breaks its annotation."""
    found: list[Problem] = []
    for name, hint in field_types(record.__class__).items():
        found += check_value(getattr(record, name), hint, f"{path}.{name}")
    return found


@lru_cache(maxsize=256)
def field_types(record_type: type[Any]) -> dict[str, Any]:
    """Resolved annotations of a record, ranges included."""
    hints = get_type_hints(record_type, include_extras=True)
    return {f.name: hints[f.name] for f in dataclasses.fields(record_type)}


def check_value(value: Any, hint: Any, path: str) -> list[Problem]:
    """Problems of one value under one annotation."""
    origin = get_origin(hint)
    if origin is Annotated:
        base, *marks = get_args(hint)
        return check_value(value, base, path) or _check_range(value, marks, path)
    if origin in (Union, types.UnionType):
        options = [check_value(value, option, path) for option in get_args(hint)]
        return min(options, key=len)
    if origin is Literal:
        return _check_choice(value, get_args(hint), path)
    if origin is tuple:
        item = get_args(hint)[0]
        return [p for i, v in enumerate(value) for p in check_value(v, item, f"{path}.{i}")]
    if origin in (dict, Mapping) or hint is Mapping:
        kind = get_args(hint)[1] if get_args(hint) else object
        return [p for k, v in value.items() for p in check_value(v, kind, f"{path}.{k}")]
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, hint):  # type: ignore[arg-type]
            return [Problem(path=path, value=value, message="not a record of this kind")]
        return problems_of(value, path)
    return _check_plain(value, hint, path)


def _check_plain(value: Any, hint: Any, path: str) -> list[Problem]:
    if hint is float:
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good:
            return [Problem(path=path, value=value, message="not a number")]
        if not math.isfinite(value):
            return [Problem(path=path, value=value, message="not a finite number")]
    elif hint is int:
        if not isinstance(value, int) or isinstance(value, bool):
            return [Problem(path=path, value=value, message="not a whole number")]
        if abs(value) > 10**18:
            return [Problem(path=path, value=value, message="too large", allowed="at most 1e18")]
    elif hint in (bool, str) and not isinstance(value, hint):
        allowed = "true or false" if hint is bool else "a text"
        return [Problem(path=path, value=value, message="wrong type", allowed=allowed)]
    elif hint is type(None) and value is not None:
        return [Problem(path=path, value=value, message="must be absent")]
    return []


def _check_choice(value: Any, choices: tuple[Any, ...], path: str) -> list[Problem]:
    if value in choices:
        return []
    names = [str(c) for c in choices]
    near = nearest_name(str(value), names)
    return [
        Problem(
            path=path, value=value, message="not a choice", allowed=", ".join(names), nearest=near
        )
    ]


def _check_range(value: Any, marks: list[Any], path: str) -> list[Problem]:
    for mark in marks:
        if isinstance(mark, Ge) and not value >= mark.ge:
            return [
                Problem(path=path, value=value, message="too small", allowed=f"at least {mark.ge}")
            ]
        if isinstance(mark, Le) and not value <= mark.le:
            return [
                Problem(path=path, value=value, message="too large", allowed=f"at most {mark.le:g}")
            ]
    return []
