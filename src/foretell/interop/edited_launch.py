"""A launch with some of its keys changed, all else as its author wrote it: comments, order, other keys.

A key may stand as a flag (`--per_device_train_batch_size 2`), as a line of YAML or as a keyword of a call or
an override (`per_device_train_batch_size=2`). Where it stands, its value is replaced; where not, it is
added beside a key that does. Whoever asks reads the text again to see that it says what is meant.
"""

import re
import shlex
from collections.abc import Collection, Mapping, Sequence

from foretell.interop.tool_tables import ToolTable

_VALUE = r"(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s,)#\\]+)"


def changed_keys(
    table: ToolTable,
    own: Collection[str],
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
        name = next((one for one in (key, *alike) if one in own), key)
        found[name] = after.get(key)
    return found


def edited_launch(
    text: str, changes: Mapping[str, str | None], beside: Sequence[str] = ()
) -> str | None:
    """The text with keys set to new values, or left out (None); None where a key has no place in it.

    `beside` are keys that the launch has and that a new one may stand beside.
    """
    for key, value in changes.items():
        changed = _replaced(text, key, value)
        if changed is None and value is not None:
            changed = _added(text, key, value, [*changes, *beside])
        if changed is None:
            if value is None:
                continue
            return None
        text = changed
    return text


def has_key(text: str, key: str) -> bool:
    """Whether a key stands in a text, in any of the forms."""
    return any(pattern.search(text) for pattern in (_flag(key), _line(key), _keyword(key)))


def _replaced(text: str, key: str, value: str | None) -> str | None:
    """The text with the key's value replaced, or the key left out; None where it is not in the text."""
    for pattern in (_flag(key), _line(key), _keyword(key)):
        found = [one for one in pattern.finditer(text) if not _commented(text, one.start())]
        if not found:
            continue
        one = found[-1]
        if value is None:
            return text[: one.start()] + text[one.end() :]
        if "value" not in one.groupdict() or one["value"] is None:  # a switch
            return text[: one.end()] + f" {shlex.quote(value)}" + text[one.end() :]
        told = _spelt(value, one["value"])
        told = shlex.quote(told) if text[one.start() : one.start() + 2] == "--" else told
        return text[: one.start("value")] + told + text[one.end("value") :]
    return None


def _added(text: str, key: str, value: str, known: Sequence[str]) -> str | None:
    """The text with a new key beside one that is there."""
    parent, _, last = key.rpartition(".")
    if parent and (
        block := re.search(rf"^([ \t]*){re.escape(parent)}:[ \t]*$", text, re.MULTILINE)
    ):
        return text[: block.end()] + f"\n{block[1]}  {last}: {value}" + text[block.end() :]
    for other in known:
        if other == key:
            continue
        for pattern, form in (
            (_flag(other), "flag"),
            (_line(other), "line"),
            (_keyword(other), "word"),
        ):
            found = [one for one in pattern.finditer(text) if not _commented(text, one.start())]
            if not found:
                continue
            one = found[-1]
            if form == "flag":
                return text[: one.end()] + f" --{key} {shlex.quote(value)}" + text[one.end() :]
            if form == "word":
                told = f", {last}={_literal(value)}" if "(" in text else f" {key}={value}"
                return text[: one.end()] + told + text[one.end() :]
            if "." in key:
                block_of = f"\n{parent}:\n  {last}: {value}\n"
                return text.rstrip("\n") + block_of
            end = text.find("\n", one.end())
            end = len(text) if end < 0 else end
            return text[:end] + f"\n{one['indent']}{key}: {value}" + text[end:]
    return None


def _flag(key: str) -> re.Pattern[str]:
    """`--key value`, `--key=value` or `--key`, with dashes or underscores."""
    name = re.escape(key).replace("_", "[-_]")
    return re.compile(rf"(?<![\w-])--{name}(?:(?:=|[ \t]+)(?P<value>(?!-){_VALUE}))?(?![\w-])")


def _line(key: str) -> re.Pattern[str]:
    """`key: value` as a line of YAML; of a dotted key its last part."""
    last = re.escape(key.rpartition(".")[2])
    return re.compile(
        rf"^(?P<indent>[ \t]*)[\"']?{last}[\"']?[ \t]*:[ \t]*(?P<value>[^#\n]*?)(?=[ \t]*(?:#[^\n]*)?$)",
        re.MULTILINE,
    )


def _keyword(key: str) -> re.Pattern[str]:
    """`key=value` of a call or an override."""
    last = re.escape(key.rpartition(".")[2])
    return re.compile(rf"(?<![\w-]){last}[ \t]*=[ \t]*(?P<value>{_VALUE})")


def _commented(text: str, at: int) -> bool:
    """Whether a place is inside a comment."""
    return "#" in text[text.rfind("\n", 0, at) + 1 : at]


def _literal(value: str) -> str:
    """A value as Python writes it."""
    if value in ("true", "false"):
        return value.capitalize()
    return value if re.fullmatch(r"-?[\d.]+", value) else repr(value)


def _spelt(value: str, before: str) -> str:
    """A value as the one that it replaces is written: True in Python, quotes where there were some."""
    if value in ("true", "false") and before[:1].isupper():
        value = value.capitalize()
    if before[:1] in "\"'" and before[:1]:
        return f"{before[0]}{value}{before[0]}"
    return value
