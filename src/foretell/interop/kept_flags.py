"""The flags of a launch in its own spelling, which a command that is written for the same tool keeps: also
those that change no answer (host, port, template, data)."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from foretell.interop.arguments import ArgumentTable, spell_key
from foretell.interop.keys import LAUNCHER_FLAGS, LONGEST_KEY
from foretell.interop.tool_tables import CHIP_KEYS

OwnFlags = tuple[tuple[str, str], ...]
"""Flags as a launch spells them, each with its value as a shell takes it; "" stands for a flag alone."""
NOT_FLAGS = frozenset({"m", "model", "model_path", "serve"})
"""What the start of a command says."""
HALVES = ("kv_transfer_config", "disaggregation_")
"""How flags begin that say which half of a service an instance is: a script of both says them itself."""


def own_flags(given: ArgumentTable, pairs: Mapping[str, Any]) -> OwnFlags:
    """Flags of a launch in its own spelling; keys of a file of options that it writes are not flags."""
    found = []
    for key, value in pairs.items():
        if (
            key in NOT_FLAGS
            or key.startswith(HALVES)
            or "." in key
            or value is None
            or value is False
            or len(key) > LONGEST_KEY
        ):
            continue
        if isinstance(value, Mapping):
            continue
        dash = re.search(
            rf"(?<![\w-])(--?{re.escape(key).replace('_', '[-_]')})(?=[\s=\"',\]]|$)", given.text
        )
        if dash is None and "--" in given.text:
            continue
        spelt = dash[1] if dash else f"--{key.replace('_', '-')}"
        found.append((spelt, _shell(value)))
    return tuple(found)


def _shell(value: Any) -> str:
    if value is True:
        return ""
    items = value if isinstance(value, list) else [value]
    return " ".join(_quoted(str(item)) for item in items)


def _quoted(text: str) -> str:
    """A word as a shell takes it; one with a variable that the launch leaves open stays open."""
    # One set of characters alone: a pattern with the sign in its midst would try every one of many.
    spares = "$" in text and re.fullmatch(r"[\w./:${}-]*", text)
    return f'"{text}"' if spares else shlex.quote(text)


DATA = frozenset({"data_path", "train_data_path", "data_args_path", "per_split_data_args_path"})
"""Flags of Megatron that name data."""
MADE_UP = ("--mock-data", "--split 99,1,0")
"""What a benchmark says instead."""


def quiet_flags(own: OwnFlags, ignored: Sequence[str]) -> OwnFlags:
    """Flags of a training program that change no answer."""
    kept = {*ignored} - LAUNCHER_FLAGS - {*CHIP_KEYS}
    return tuple((flag, value) for flag, value in own if spell_key(flag) in kept)


def with_own(lines: Sequence[str], own: OwnFlags) -> list[str]:
    """Lines of a program's flags with a launch's own: in the place of the same flag, else at the end."""
    found, more = list(lines), list[str]()
    if any(spell_key(flag) in DATA for flag, _ in own):
        for text in MADE_UP:
            found = [line.replace(text, "").strip() for line in found]
    for flag, value in own:
        said = f"{flag} {value}".strip()
        name = re.escape(spell_key(flag)).replace("_", "[-_]")
        same = re.compile(rf"--{name}(?![\w-])(?: (?!--)\S+)*")
        places = [at for at, line in enumerate(found) if same.search(line)]
        for at in places:
            found[at] = same.sub(lambda _, said=said: said, found[at])  # type: ignore[misc]
        more += [] if places else [said]
    return [line for line in (*found, *more) if line]
