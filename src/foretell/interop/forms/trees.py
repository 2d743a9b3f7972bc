"""YAML, JSON and TOML as plain values with the line of every key.

Templates inside YAML (`{{ .Values.x }}`) become variables without a value.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from foretell.errors import BadInput, bad_input
from foretell.interop.documents import DEEPEST, located_documents
from foretell.interop.forms.records import ConfigSetting
from foretell.records import dataclass

Path = tuple[str, ...]
MOST_FOLDED = 200
"""Lines of one folded text."""
MOST_KEYS = 20_000
"""Keys of one document."""
_TEMPLATE = re.compile(r"\{\{-?\s*([^\n{]{0,1000}?)\s*-?\}\}")
_TEMPLATE_LINE = re.compile(r"^[ \t]*\{\{-?[^\n]*\}\}[ \t]*$", re.MULTILINE)
_BLOCK = re.compile(r"[|>][+-]?\d?[ \t]*(?:#.*)?$")
_COMMA = re.compile(r"([^\s,{\[])([ \t]*\n(?:[ \t]*(?:#.*)?\n)*[ \t]*\"[\w.-]+\"[ \t]*:)")
"""A key of a flow mapping behind a line without its comma."""
_SECTION = re.compile(r"[ \t]*\[{1,2}([\w.\-\"' ]{1,200})\]{1,2}[ \t]*(?:#.*)?")
_KEY = re.compile(r"[ \t]*([\w.\-\"']{1,200})[ \t]*=")
_JSON_KEY = re.compile(r'"((?:[^"\\]|\\.)*)"\s*:')


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """One document."""

    value: Any
    """Mappings, lists and plain values."""
    lines: Mapping[Path, int]
    """The line of each key and element, by its path."""
    text: str = ""
    """The text that it was read from."""

    def placed(self, value: str, line: int) -> tuple[str, int]:
        """(a text, its first line in the file); where YAML folded lines into one, each ends with a
        backslash, so that a shell reads the same."""
        rows = self.text.splitlines()
        here = rows[line - 1] if 0 < line <= len(rows) else ""
        first = line + 1 if _BLOCK.search(here) or (not here and "\n" in value) else line
        if (
            "\n" in value
            or "'" in value.strip("'")
            or " " not in value.strip()
            or value.strip() in here
        ):
            return value, first
        found: list[list[str]] = [[]]
        row, at = first - 1, 0
        for word in value.split():
            place = rows[row].find(word, at) if row < len(rows) else -1
            while place < 0 and row + 1 < min(len(rows), first + MOST_FOLDED):
                row, at = row + 1, 0
                found.append([])
                if rows[row].strip():
                    place = rows[row].find(word)
                    break
            if place < 0:
                return value, first
            found[-1].append(word)
            at = place + len(word)
        return " \\\n".join(" ".join(one) for one in found), first

    def line(self, *path: str) -> int:
        """The line of a path, or of the nearest one above it."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[:-1]
        return 1


def yaml_trees(text: str) -> list[Tree]:
    """Every document of a YAML text."""
    try:
        found = located_documents(text)
    except BadInput:
        if text.lstrip().startswith("{") and (repaired := _COMMA.sub(r"\1,\2", text)) != text:
            return yaml_trees(repaired)
        if "{{" not in text:
            raise
        plain = _TEMPLATE_LINE.sub("", text)
        found = located_documents(_TEMPLATE.sub(lambda m: f"${{{_name(m[1])}}}", plain))
    return [Tree(value=value, lines=lines, text=text) for value, lines in found]


def _name(text: str) -> str:
    return re.sub(r"\W+", "_", text).strip("_")[:60] or "template"


def json_tree(text: str) -> Tree:
    """A JSON text; keys are found in order, comments and trailing commas are accepted."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise bad("is nested too deeply") from None
    except ValueError as error:
        cleaned = re.sub(r"^[ \t]*//[^\n]*$", "", text, flags=re.MULTILINE)
        cleaned = re.sub(r",(\s*[}\]])", r"\1", cleaned)
        try:
            value = json.loads(cleaned)
        except (ValueError, RecursionError):
            raise bad(f"is not JSON: {error}") from None
    places: dict[str, list[int]] = {}
    for match in _JSON_KEY.finditer(text):
        places.setdefault(match[1], []).append(text.count("\n", 0, match.start()) + 1)
    lines: dict[Path, int] = {}
    for path, _ in walked(value):
        key = next((part for part in reversed(path) if part in places), None)
        if key is not None and path[-1] == key:
            lines[path] = places[key].pop(0) if len(places[key]) > 1 else places[key][0]
    return Tree(value=value, lines=lines)


def toml_tree(text: str) -> Tree:
    """A TOML text."""
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise bad("is nested too deeply") from None
    except ValueError as error:
        raise bad(f"is not TOML: {error}") from None
    lines: dict[Path, int] = {}
    section: Path = ()
    for number, line in enumerate(text.splitlines(), 1):
        if match := _SECTION.fullmatch(line):
            section = tuple(part.strip("\"' ") for part in match[1].split("."))
            lines[section] = number
        elif match := _KEY.match(line):
            lines[(*section, *(part.strip("\"'") for part in match[1].split(".")))] = number
    return Tree(value=value, lines=lines)


def walked(value: Any, path: Path = (), depth: int = 0) -> Iterator[tuple[Path, Any]]:
    """Every key and element of a document with its path, in order."""
    if depth > DEEPEST:
        raise bad("is nested too deeply")
    inner: Iterator[tuple[str, Any]] = iter(())
    if isinstance(value, Mapping):
        inner = ((str(key), one) for key, one in value.items())
    elif isinstance(value, list):
        inner = ((str(at), one) for at, one in enumerate(value))
    for key, one in inner:
        yield (*path, key), one
        if isinstance(one, Mapping | list):
            yield from walked(one, (*path, key), depth + 1)


def settings(tree: Tree) -> tuple[ConfigSetting, ...]:
    """Keys and values of a document; a list of plain values is one value, tables inside lists are opened."""
    found: list[ConfigSetting] = []

    def open_(value: Any, path: Path, depth: int) -> None:
        if depth > DEEPEST:
            raise bad("is nested too deeply")
        if len(found) > MOST_KEYS:
            raise bad(f"has more than {MOST_KEYS} keys")
        if isinstance(value, Mapping) and value:
            for key, one in value.items():
                open_(one, (*path, str(key)), depth + 1)
        elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
            for at, one in enumerate(value):
                open_(one, (*path, str(at)), depth + 1)
        elif path:
            found.append(
                ConfigSetting(path=path, value=value, line=tree.line(*path), raw=str(value)[:200])
            )

    open_(tree.value, (), 0)
    return tuple(found)


def bad(message: str) -> BadInput:
    """What is wrong with a text of keys and values."""
    allowed = "a command or script, JSON, TOML, YAML or key=value words"
    return bad_input("import", None, message, allowed)
