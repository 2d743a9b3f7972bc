"""The part of YAML that options files are written in, and nothing of the rest.

Mappings by indentation, lists of `- item`, `{a: b}` and `[a, b]` on one line, quoted and plain scalars,
comments. Tags, anchors, references and multi-line scalars are refused: no text can make an object.
"""

import re
from collections.abc import Sequence
from typing import Any

from foretell.errors import BadInput, Problem

DEEPEST = 32
"""Levels of nesting; no options file has more."""
_NO_KEY = "{}[],&*!|>%@`#?-"
"""How no key begins."""
_NUMBER = re.compile(
    r"[+-]?(\d{1,18}|\d{0,18}\.\d{0,18}(e[+-]?\d{1,3})?|\d{1,18}e[+-]?\d{1,3})", re.I
)
_WORDS = {"true": True, "false": False, "null": None, "none": None, "~": None, "": None}
_QUOTED = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)')""")

Line = tuple[int, int, str]
"""Number in the text, indentation, content."""


def read_yaml(text: str) -> Any:
    """Mappings, lists and scalars of a text; BadInput names the line that is beyond the subset."""
    lines = [_line(number, raw) for number, raw in enumerate(text.splitlines(), start=1)]
    kept = [line for line in lines if line[2] and line[2] not in ("---", "...")]
    if not kept:
        return {}
    value, end = _block(kept, 0, kept[0][1], 0)
    if end < len(kept):
        raise _bad(kept[end], "is indented less than what it belongs to")
    return value


def _line(number: int, raw: str) -> Line:
    """A line without its comment."""
    content = re.sub(r"(?:^|\s)#.*$", "", raw) if "#" in raw and not _inside(raw) else raw
    stripped = content.strip()
    return number, len(content) - len(content.lstrip()), stripped


def _inside(raw: str) -> bool:
    """Whether the first # stands inside quotes."""
    before = raw[: raw.index("#")]
    return before.count('"') % 2 == 1 or before.count("'") % 2 == 1


def _block(lines: Sequence[Line], at: int, indent: int, depth: int) -> tuple[Any, int]:
    """The mapping or list that begins at a line, and where it ends."""
    if depth > DEEPEST:
        raise _bad(lines[at], "is nested too deeply")
    if lines[at][2].startswith("- ") or lines[at][2] == "-":
        return _list(lines, at, indent, depth)
    found: dict[str, Any] = {}
    while at < len(lines) and lines[at][1] == indent:
        key, rest = _pair(lines[at])
        at += 1
        if rest:
            found[key] = _scalar(rest, lines[at - 1])
        elif at < len(lines) and lines[at][1] > indent:
            found[key], at = _block(lines, at, lines[at][1], depth + 1)
        elif at < len(lines) and lines[at][1] == indent and lines[at][2].startswith("- "):
            found[key], at = _list(lines, at, indent, depth + 1)
        else:
            found[key] = None
    if at < len(lines) and lines[at][1] > indent:
        raise _bad(lines[at], "is indented more than what it belongs to")
    return found, at


def _pair(line: Line) -> tuple[str, str]:
    """Key and value of `key: value`; a key may be quoted, or begin with the dashes of a flag."""
    content = line[2]
    if content[:1] in ("'", '"'):
        end = content.find(content[0], 1)
        key, rest = content[1:end], content[end + 1 :].lstrip()
        found = end > 0 and (rest == ":" or rest.startswith((": ", ":\t")))
        rest = rest[1:]
    else:
        key, colon, rest = content.partition(": ")
        if not colon and content.endswith(":"):
            key, colon, rest = content[:-1], ":", ""
        bare = key.removeprefix("--")
        found = bool(colon) and bool(bare.strip()) and bare[0] not in _NO_KEY and " #" not in key
    if not found:
        raise _bad(line, "is not `key: value`")
    return key.strip(), rest.strip()


def _list(lines: Sequence[Line], at: int, indent: int, depth: int) -> tuple[list[Any], int]:
    """Items of one line each; what an item nests is refused."""
    items: list[Any] = []
    while at < len(lines) and lines[at][1] == indent and lines[at][2].startswith("-"):
        items.append(_scalar(lines[at][2][1:].strip(), lines[at]))
        at += 1
        if at < len(lines) and lines[at][1] > indent:
            raise _bad(lines[at], "nests inside a list, which is not read")
    return items, at


def _scalar(text: str, line: Line) -> Any:
    """A plain, quoted or bracketed value."""
    if text[:1] in ("{", "["):
        value, rest = _flow(text, line, 0)
        if rest.strip():
            raise _bad(line, "has more behind its brackets")
        return value
    if text[:1] in ("&", "*", "!", "|", ">", "%", "@", "`"):
        raise _bad(line, "has a tag, an anchor or a text of several lines, which are not read")
    match = _QUOTED.fullmatch(text)
    if match:
        return match[1] if match[1] is not None else match[2]
    return plain_value(text)


def plain_value(text: str) -> Any:
    """A word as true, false, null, a number, or itself."""
    lower = text.lower()
    if lower in _WORDS:
        return _WORDS[lower]
    if _NUMBER.fullmatch(text) and any(ch.isdigit() for ch in text):
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    return text


def _flow(text: str, line: Line, depth: int) -> tuple[Any, str]:
    """`{a: b, c: d}` or `[a, b]`, and what follows it."""
    if depth > DEEPEST:
        raise _bad(line, "is nested too deeply")
    close, text = {"{": "}", "[": "]"}[text[0]], text[1:].lstrip()
    table: dict[str, Any] = {}
    items: list[Any] = []
    while not text.startswith(close):
        if close == "}":
            key, colon, text = text.partition(":")
            if not colon:
                raise _bad(line, "is not `{key: value}`")
            table[key.strip().strip("\"'")], text = _item(text.lstrip(), line, depth)
        else:
            value, text = _item(text, line, depth)
            items.append(value)
        text = text.lstrip()
        if text.startswith(","):
            text = text[1:].lstrip()
        elif not text.startswith(close):
            raise _bad(line, "has a bracket that is not closed")
    return (table if close == "}" else items), text[1:]


def _item(text: str, line: Line, depth: int) -> tuple[Any, str]:
    """One value inside brackets, and what follows it."""
    if text[:1] in ("{", "["):
        return _flow(text, line, depth + 1)
    quoted = _QUOTED.match(text)
    if quoted:
        return quoted[1] if quoted[1] is not None else quoted[2], text[quoted.end() :]
    end = next((i for i, ch in enumerate(text) if ch in ",]}"), len(text))
    return plain_value(text[:end].strip()), text[end:]


def _bad(line: Line, message: str) -> BadInput:
    allowed = "mappings, lists and plain values"
    where = f"import: line {line[0]}"
    return BadInput([Problem(path=where, value=line[2][:200], message=message, allowed=allowed)])
