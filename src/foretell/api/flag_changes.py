"""What differs between two texts for one tool, flag by flag."""

from collections.abc import Mapping
from typing import Any

from foretell.interop.arguments import parse_arguments
from foretell.interop.launch import ToolArguments
from foretell.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagChange:
    """One flag that differs between a launch and the better one."""

    flag: str
    """The tool's name for it."""
    before: str | None
    """Its value in the launch; none: not given."""
    after: str | None
    """Its value in the better one; none: leave it out."""


def flag_changes(old: ToolArguments | None, new: ToolArguments) -> tuple[FlagChange, ...]:
    """Flags whose value differs between two texts for one tool, in the order of the new one."""
    return value_changes({} if old is None else _flags(old.text), _flags(new.text))


def value_changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[FlagChange, ...]:
    """Keys whose value differs, in the order of the new ones."""
    names = list(dict.fromkeys((*after, *before)))
    return tuple(
        FlagChange(flag=name, before=before.get(name), after=after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    )


def _flags(text: str) -> dict[str, str]:
    """Flags and values of a text, as the tool spells them."""
    pairs = parse_arguments(text).pairs
    dashes = "--" in text
    return {
        (f"--{key.replace('_', '-')}" if dashes and "." not in key else key): _shown(value)
        for key, value in pairs
    }


def _shown(value: Any) -> str:
    if value is True:
        return "on"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
