"""YAML documents by PyYAML's safe loader: mappings, lists and scalars, never an object of Python.

Anchors and merge keys are followed. A few lines of anchors can stand for more nodes than memory holds, so
the nodes are counted before any is built. PyYAML comes with the extra `interchange`.
"""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from functools import lru_cache
from typing import Any

from foretell.errors import BadInput, bad_input

DEEPEST = 32
"""Levels of nesting; no options file has more."""
MOST_NODES = 50_000
"""Nodes of all documents of a text, each counted as often as anchors repeat it."""
MOST_OPENINGS = 1000
"""Beginnings of levels up to which a text cannot be too deep for the loader."""
INSTALL = 'pip install "foretell[interchange]"'
"""What brings the loader."""


def read_documents(text: str) -> list[Any]:
    """Every document of a text; BadInput with the line where it is no YAML."""
    return deepcopy(_parsed(text))


def located_documents(text: str) -> list[tuple[Any, dict[tuple[str, ...], int]]]:
    """Every document of a text with the line of each key and element, by its path."""
    return [(deepcopy(value), lines) for value, lines in zip(*_located(text), strict=True)]


@lru_cache(maxsize=2)
def _parsed(text: str) -> list[Any]:
    """Documents of a text, kept: a launch is looked at for one tool after the other."""
    return _located(text)[0]


@lru_cache(maxsize=2)
def _located(text: str) -> tuple[list[Any], list[dict[tuple[str, ...], int]]]:
    """(documents, lines by path) of a text."""
    yaml = _loader()
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        _check_depth(yaml.parse(text, Loader=loader) if _openings(text) > MOST_OPENINGS else ())
        roots = [node for node in yaml.compose_all(text, Loader=loader) if node]
        known: dict[int, tuple[int, int]] = {}
        sizes = [_size(node, known) for node in roots]
        if sum(many for many, _ in sizes) > MOST_NODES:
            raise _bad(f"expands to more than {MOST_NODES} values")
        if any(deep > DEEPEST for _, deep in sizes):
            raise _bad("is nested too deeply")
        for node in roots:
            _without_tags(node, set())
        built = [(yaml.SafeLoader("").construct_document(node), node) for node in roots]
        found = [(value, node) for value, node in built if value is not None]
        places = [dict(_lines(node, ())) for _, node in found]
        return [value for value, _ in found], places
    except RecursionError:
        raise _bad("is nested too deeply") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "import" if mark is None else f"import: line {mark.line + 1}"
        what = getattr(error, "problem", None) or "cannot be read"
        raise _bad(f"is not YAML: {what}", where) from None
    except ValueError as error:  # a date that is none, an int of too many digits
        raise _bad(f"is not YAML: {error}") from None


def _openings(text: str) -> int:
    """How often a level of nesting may begin."""
    return sum(text.count(word) for word in ("{", "[", "- ", "? "))


def _check_depth(events: Iterable[Any]) -> None:
    """BadInput where a text is nested too deeply for the loader, which ends the process there."""
    deep = 0
    for event in events:
        name = type(event).__name__
        deep += name.endswith(("MappingStartEvent", "SequenceStartEvent"))
        deep -= name.endswith(("MappingEndEvent", "SequenceEndEvent"))
        if deep > 10 * DEEPEST:
            raise _bad("is nested too deeply")


def _lines(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    """(path, line) of every key and element below a node."""
    if not isinstance(node.value, list):
        return
    for at, item in enumerate(node.value):
        key, value = item if isinstance(item, tuple) else (None, item)
        name = (*path, str(at) if key is None else str(key.value))
        yield name, (value if key is None else key).start_mark.line + 1
        yield from _lines(value, name)


def _without_tags(node: Any, seen: set[int]) -> None:
    """A program's own tags taken off: `!include FILE` is the text, a tagged mapping a mapping."""
    if id(node) in seen:
        return
    seen.add(id(node))
    inner = node.value if isinstance(node.value, list) else None
    if node.tag.startswith("!") and node.tag != "!":
        kind = "str" if inner is None else "map" if node.id == "mapping" else "seq"
        node.value = f"{node.tag} {node.value}" if inner is None else inner
        node.tag = f"tag:yaml.org,2002:{kind}"
    for item in inner or ():
        for part in item if isinstance(item, tuple) else (item,):
            _without_tags(part, seen)


def _size(node: Any, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """(values, levels) that a node stands for, anchors written out; a node inside itself is refused."""
    if id(node) in known:
        many, deep = known[id(node)]
        if many < 0:
            raise _bad("has an anchor inside itself")
        return many, deep
    known[id(node)] = (-1, 0)
    inner = node.value if isinstance(node.value, list) else []
    parts = [part for item in inner for part in (item if isinstance(item, tuple) else (item,))]
    sizes = [_size(part, known) for part in parts]
    found = (1 + sum(many for many, _ in sizes), 1 + max((deep for _, deep in sizes), default=0))
    known[id(node)] = found
    return found


def _loader() -> Any:
    try:
        import yaml
    except ImportError:
        message = f"is YAML, which needs PyYAML: {INSTALL}"
        raise _bad(message) from None
    return yaml


def _bad(message: str, where: str = "import") -> BadInput:
    return bad_input(where, None, message, "mappings, lists and plain values")
