"""A launch with some of its keys changed, all else as its author wrote it: comments, order, other keys.

A key may be as a flag (`--micro-batch-size 2`), as a line of YAML or JSON, or as a keyword of a call, an
override or TOML (`micro_batch_size=2`). Where it is, its value is replaced, or that of the variable that
its value is (`MBS=2 ... --micro-batch-size $MBS`); where not, it is added beside a key that does. Whoever
asks reads the text again to see that it says what is meant.
"""

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from foretell.interop.arguments import ArgumentTable, spell_key
from foretell.interop.keys import LAUNCHER_FLAGS, LONGEST_KEY
from foretell.interop.tool_tables import CHIP_KEYS, ToolTable

_VALUE = r"(?:\"[^\"\n]*\"|'[^'\n]*'|\$\(\w+\)|[^\s,)#\\\"']+)"
_NEXT = r"(?:=|[ \t]+|[\"']?[ \t]*\n[ \t]*-[ \t]+|[\"'],[ \t\n]*)"
"""What is between a flag and its value: in a list of words the end of one and the start of the next."""
_TRAILING = re.compile(r",(\s*[}\]])")
"""A comma behind the last member, which JSON does not have."""
_LITERAL = re.compile(r"[\"'$]|-?\d|true\b|false\b", re.IGNORECASE)
"""How a value begins that is none of another name's."""
_VARIABLE = re.compile(r"[\"']?\$\{?(\w+)\}?[\"']?")
_SPEAKING = ("echo", "printf", "NAME", "JOB_NAME", "name")
"""Words before a variable that no program reads."""
_NAME = re.compile(r"(?!(?:true|false|none)$)([a-z]\w*)", re.IGNORECASE)
"""A value that is a name of a program."""
_PYTHON = re.compile(r"^(?:from [\w.]+ )?import \w", re.MULTILINE)
_LISTED = re.compile(r"[ \t]*-[ \t]+[\"']?--")
"""A line that is a flag of a list of words."""


def changed_keys(
    table: ToolTable,
    has: Callable[[str], bool],
    before: Mapping[str, str],
    after: Mapping[str, str],
) -> dict[str, str | None]:
    """Keys and their new values (None: left out) where two texts of a tool's writer differ, by the names that
    a launch has for them: of keys that say one field it may have another than the writer's."""
    found: dict[str, str | None] = {}
    for key in dict.fromkeys((*after, *before)):
        if before.get(key) == after.get(key):
            continue
        alike = [one for names in table.fields.values() if key in names for one in names]
        name = next((one for one in (key, *alike) if has(one)), key)
        if key in after or has(name):
            found[name] = after.get(key)
    return found


def edited_launch(
    text: str,
    changes: Mapping[str, str | None],
    beside: Sequence[str] = (),
    lines: Mapping[str, int] | None = None,
) -> str | None:
    """The text with keys set to new values, or left out (None); None where a key has no place in it.

    `beside` are keys that the launch has and that a new one may be beside, `lines` where keys stay in
    place."""
    before, at = text, dict(lines or {})
    for key, value in changes.items():
        changed = _replaced(text, key, value, at.get(key))
        if changed is None and value is not None:
            near = [*beside, *changes] if _PYTHON.search(text) else [*changes, *beside]
            changed = _added(text, key, value, near)
        if changed is None:
            if value is None:
                continue
            return None
        if changed.count("\n") != text.count("\n"):
            at = {}  # lines have moved
        text = changed
    strict = text.lstrip()[:1] == "{" and not _TRAILING.search(before)
    return _TRAILING.sub(r"\1", text) if strict else text


def flag_name(text: str, key: str) -> str:
    """A flag in the spelling that most flags of a text have: dashes or underscores."""
    dashes, lines = len(re.findall(r"--\w+-\w", text)), len(re.findall(r"--\w+_\w", text))
    return f"--{key if lines > dashes else key.replace('_', '-')}"


def has_key(text: str, key: str) -> bool:
    """Whether a key is in a text, in any of the forms."""
    return _place(text, key, None) is not None


def has_block(text: str, key: str) -> bool:
    """Whether a text has a block of YAML of this name, or of these names inside one another."""
    return _block(text, key) is not None


def _block(text: str, path: str) -> re.Match[str] | None:
    """Where a block of YAML begins: of a dotted path each part inside the one before."""
    at, end, found = 0, len(text), None
    for part in path.split("."):
        form = rf"^([ \t]*){re.escape(part)}:[ \t]*(?:#[^\n]*)?$"
        found = re.compile(form, re.MULTILINE).search(text, at, end)
        if found is None:
            return None
        at = found.end()
        after = re.compile(rf"^[ \t]{{0,{len(found[1])}}}[^\s#]", re.MULTILINE).search(
            text, at, end
        )
        end = after.start() if after else end
    return found


def _place(text: str, key: str, line: int | None) -> re.Match[str] | None:
    """Where a key is: on its line where that is known, else the last place that is no comment."""
    for pattern in (_flag(key), _line(key), _keyword(key)):
        found = [one for one in pattern.finditer(text) if not _commented(text, one.start())]
        near = [one for one in found if text.count("\n", 0, one.end()) + 1 == line]
        plain = [one for one in found if _LITERAL.match(one.groupdict().get("value") or "")]
        if found:
            return (near or plain or found)[-1]
    return None


def _replaced(text: str, key: str, value: str | None, line: int | None) -> str | None:
    """The text with the key's value replaced, or the key left out; None where it is not in the text."""
    one = _place(text, key, line)
    if one is None:
        return None
    if value is None:
        return _without(text, one.start(), one.end())
    told = one.groupdict().get("value")
    if told is None:  # a switch
        return text[: one.end()] + f" {shlex.quote(value)}".rstrip("' ") + text[one.end() :]
    value = value or "true"
    variable = _VARIABLE.fullmatch(told) or _NAME.fullmatch(told)
    if variable and (changed := _assigned(text, variable[1], value, key)) is not None:
        return changed
    spelt = _spelt(value, told, python=bool(_PYTHON.search(text)))
    if text[one.start() : one.start() + 2] == "--" and told[:1] not in "\"'":
        spelt = shlex.quote(spelt)
    return text[: one.start("value")] + spelt + text[one.end("value") :]


def _assigned(text: str, name: str, value: str, key: str) -> str | None:
    """The text with a variable set anew, where it is set once and is the value of no other key."""
    python = bool(_PYTHON.search(text))
    last = key.rpartition(".")[2]
    if python and len(re.findall(rf"=[ \t]*{name}\b", text)) > 1:
        return None
    others = re.findall(rf"([\w.-]+)(?:[ \t]+|[ \t]*[=:][ \t]*)[\"']?\$\{{?{name}\b(?!:-)", text)
    keys = (one.lstrip("-").replace("-", "_").rpartition(".")[2] for one in others)
    if not python and any(last not in one for one in keys if one not in _SPEAKING):
        return None
    equals = "[ \t]*=[ \t]*" if python else "="
    start = rf"^[ \t]*(?:(?:export|readonly|local)[ \t]+)?{name}{equals}"
    form = rf"{start}(?:\$\{{\w+:-)?[\"']?(?P<value>[^\s\"'$}}#;]+)"
    found = list(re.finditer(form, text, re.MULTILINE))
    if len(found) != 1:
        return None
    return text[: found[0].start("value")] + value + text[found[0].end("value") :]


def _without(text: str, start: int, end: int) -> str:
    """A text without a piece, and without the line that held nothing else."""
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", end)
    last = len(text) if last < 0 else last
    left = (text[first:start] + text[end:last]).strip()
    odd = any(left.count(quote) % 2 for quote in "\"'")  # the end of a string that begins elsewhere
    if odd and not left.startswith("-"):
        return text[:start].rstrip(" \t\\\n") + text[end:]
    if left.strip("\"', ") in ("", "\\", "-") or left.startswith("#"):
        return text[:first] + text[last + 1 :]
    return text[: start - (text[start - 1 : start] == " ")] + text[end:]


def _added(text: str, key: str, value: str, known: Sequence[str]) -> str | None:
    """The text with a new key beside one that is there."""
    parent, _, last = key.rpartition(".")
    if parent and (block := _block(text, parent)):
        return text[: block.end()] + f"\n{block[1]}  {last}: {value}" + text[block.end() :]
    if parent and (
        block := re.search(rf'^([ \t]*)"{re.escape(parent)}":[ \t]*\{{[ \t]*\n', text, re.MULTILINE)
    ):
        return text[: block.end()] + _member(f"{block[1]}  ", last, value) + text[block.end() :]
    for other in known:
        one = _place(text, other, None) if other != key else None
        if one is None:
            continue
        if one.re.pattern == _flag(other).pattern:
            if "." in key and not re.search(r"--\w+\.\w", text):
                return None  # a section of a file is no flag
            told = f"{flag_name(text, key)} {shlex.quote(value) if value else ''}".rstrip()
            first, end = text.rfind("\n", 0, one.start()) + 1, text.find("\n", one.end())
            end = len(text) if end < 0 else end
            if _LISTED.match(text, first):
                item = text[first : one.start()].rstrip("\"'")
                words = told.replace(" ", "=" if "=" in one[0] else f"\n{item}", 1)
                return text[:end] + f"\n{item}{words}" + text[end:]
            if end > 0 and text[first:end].rstrip().endswith("\\"):  # a line of its own
                indent = text[first:end][: len(text[first:end]) - len(text[first:end].lstrip())]
                return text[: end + 1] + f"{indent}{told} \\\n" + text[end + 1 :]
            return text[: one.end()] + f" {told}" + text[one.end() :]
        if one.re.pattern == _keyword(other).pattern:
            front = text[text.rfind("\n", 0, one.start()) + 1 : one.start()]
            if not front.strip() and text[one.end() : one.end() + 1] == ",":  # of a call
                end = one.end() + 1
                rest = re.compile(r"[ \t]*#[^\n]*").match(text, end)
                end = rest.end() if rest else end
                return text[:end] + f"\n{front}{last}={_literal(value)}," + text[end:]
            if not front.strip():  # a line of TOML or of a module
                return (
                    text[: one.end()] + f"\n{front}{last} = {_literal(value)}" + text[one.end() :]
                )
            call = re.compile(r"\s*[,)]").match(text, one.end())
            told = f", {last}={_literal(value)}" if call else f" {key}={value}"
            return text[: one.end()] + told + text[one.end() :]
        if text.lstrip()[:1] == "{":
            return text[: one.start()] + _member(one["indent"], last, value) + text[one.start() :]
        if parent:  # a section that the file does not have may be none of its program's
            return None
        end = text.find("\n", one.end())
        end = len(text) if end < 0 else end
        return text[:end] + f"\n{one['indent']}{key}: {value}" + text[end:]
    return None


def _member(indent: str, name: str, value: str) -> str:
    """A line of JSON."""
    bare = re.fullmatch(r"-?[\d.]+|true|false|null", value)
    return f'{indent}"{name}": {value if bare else json.dumps(value)},\n'


def _flag(key: str) -> re.Pattern[str]:
    """`--key value`, `--key=value` or `--key`, with dashes or underscores, a short one with one dash; in a
    list of words the value is the next of them."""
    name = re.escape(key).replace("_", "[-_]")
    dashes = "--?" if len(key) < 4 else "--"
    return re.compile(rf"(?<![\w-]){dashes}{name}(?:{_NEXT}(?P<value>(?!-){_VALUE}))?(?![\w-])")


def _line(key: str) -> re.Pattern[str]:
    """`key: value` as a line of YAML or JSON; of a dotted key its last part."""
    last = re.escape(key.rpartition(".")[2]).replace("_", "[-_]")
    return re.compile(
        rf"^(?P<indent>[ \t]*)[\"']?{last}[\"']?[ \t]*:[ \t]*(?P<value>[^#\n]*?)(?=,?[ \t]*(?:#[^\n]*)?$)",
        re.MULTILINE,
    )


def _keyword(key: str) -> re.Pattern[str]:
    """`key=value` of a call, an override or TOML."""
    last = re.escape(key.rpartition(".")[2]).replace("_", "[-_]")
    return re.compile(rf"(?<![\w-]){last}[ \t]*=[ \t]*(?P<value>{_VALUE})")


def _commented(text: str, at: int) -> bool:
    """Whether a place is inside a comment."""
    return "#" in text[text.rfind("\n", 0, at) + 1 : at]


def _literal(value: str) -> str:
    """A value as Python writes it."""
    if value in ("true", "false"):
        return value.capitalize()
    return value if re.fullmatch(r"-?[\d.]+", value) else repr(value)


def _spelt(value: str, before: str, *, python: bool) -> str:
    """A value as the one that it replaces is written: True in Python, quotes where there were some."""
    if value in ("true", "false") and (python or before[:1].isupper()):
        value = value.capitalize()
    if value.lower() in ("true", "false") and before.strip("\"'").lower() not in ("true", "false"):
        return value
    if (
        before[:1] in "\"'"
        and before[:1]
        and not (before.strip("\"'") == "auto" and value.isdigit())
    ):
        return f"{before[0]}{value}{before[0]}"
    return value


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
