"""Models, systems and chips as a stranger may name them: an id, an alias or an inline object, never a file.

Whatever comes through here opens no file but the catalogue's own and reaches no other machine.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from foretell.catalog import model as catalog_model
from foretell.catalog import system as catalog_system
from foretell.catalog import system_from_table
from foretell.catalog.names import exists
from foretell.errors import BadInput, Problem

_COUNTED = re.compile(r"\s*[0-9]+\s*[xX\u00d7]\s*(\S.*)", re.DOTALL)
"""`512xH100`: a number of chips that names the system too."""
_PATHS = (".json", ".toml", ".csv", ".jsonl")
NOT_A_NAME = "is no name of the catalogue; files are not read here"
NAMED = ("model", "system", "name", "gpus", "arrivals")
"""Flags that the command line may take a path in."""


def safe(given: Mapping[str, Any]) -> dict[str, Any]:
    """The flags with every name looked up and every inline system made; BadInput with all that are wrong."""
    problems: list[Problem] = []
    checked = dict(given)
    for name in NAMED:
        if given.get(name) is None:
            continue
        try:
            checked[name] = _checked(name, given[name])
        except BadInput as error:
            problems += [replace(p, path=p.path or name) for p in error.problems]
    for text in given.get("sweep") or ():
        problems += _swept(text)
    if problems:
        raise BadInput(problems)
    return checked


def _checked(name: str, value: Any) -> Any:
    match name:
        case "model":
            return model_name(value)
        case "system":
            return system_name(value)
        case "name":
            return _plain_name(name, value, ("chip",))
        case "gpus":
            named = _COUNTED.fullmatch(value) if isinstance(value, str) else None
            if named:
                _plain_name("gpus", named[1].strip(), ("system", "chip"))
            return value
        case _:  # arrivals of requests: a kind, or a file
            if str(value).lower().endswith(_PATHS):
                raise _refused(name, value)
            return value


def model_name(value: Any) -> Any:
    """A model's name as it was given, once it is known to be one; an inline object as it is."""
    if isinstance(value, Mapping):
        return value
    if not isinstance(value, str) or _looks_like_path(value):
        raise _refused("model", value)
    try:
        catalog_model(value, files=False)
    except BadInput as error:
        raise BadInput(
            replace(p, message=NOT_A_NAME if "nor a file" in p.message else p.message)
            for p in error.problems
        ) from None
    return value


def system_name(value: Any) -> Any:
    """A system's name as it was given, once it is known to be one; the record of an inline object."""
    if isinstance(value, Mapping):
        return system_from_table(value)
    return _plain_name("system", value, ("system", "chip"))


def _plain_name(path: str, value: Any, kinds: tuple[str, ...]) -> str:
    """The text, where it is a name of the catalogue."""
    if not isinstance(value, str) or _looks_like_path(value):
        raise _refused(path, value)
    if not value and path == "name":  # a chip of no name is described by its flags
        return value
    if not exists(value, kinds):
        if kinds == ("chip",):
            raise _refused(path, value)
        catalog_system(value, files=False)  # says what is wrong, and what is near
    return value


def _swept(text: str) -> list[Problem]:
    """Problems of a sweep that goes over names."""
    field, _, values = text.partition("=")
    name = field.strip().removeprefix("--").replace("-", "_")
    problems: list[Problem] = []
    if name in NAMED:
        for value in values.split(","):
            try:
                _checked(name, value.strip())
            except BadInput as error:
                problems += [replace(p, path=f"sweep.{name}") for p in error.problems]
    return problems


def _looks_like_path(name: str) -> bool:
    return name.lower().endswith(_PATHS) or name.startswith((".", "/", "~")) or "\\" in name


def _refused(path: str, value: object) -> BadInput:
    allowed = "an id or alias of the catalogue"
    if path in ("model", "system"):
        allowed += ", or an object"
    return BadInput([Problem(path=path, value=value, message=NOT_A_NAME, allowed=allowed)])
