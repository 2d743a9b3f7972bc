"""YAML documents by PyYAML's safe loader: mappings, lists and scalars, never an object of Python.

Anchors and merge keys are followed. A few lines of anchors can stand for more nodes than memory holds, so
the nodes are counted before any is built. PyYAML comes with the extra `interchange`.
"""

from copy import deepcopy
from functools import lru_cache
from typing import Any

from foretell.errors import BadInput, Problem

DEEPEST = 32
"""Levels of nesting; no options file has more."""
MOST_NODES = 50_000
"""Nodes of all documents of a text, each counted as often as anchors repeat it."""
INSTALL = 'pip install "foretell[interchange]"'
"""What brings the loader."""


def read_documents(text: str) -> list[Any]:
    """Every document of a text; BadInput with the line where it is no YAML."""
    return deepcopy(_parsed(text))


@lru_cache(maxsize=2)
def _parsed(text: str) -> list[Any]:
    """The same, kept: a launch is looked at for one tool after the other."""
    yaml = _loader()
    try:
        roots = [node for node in yaml.compose_all(text, Loader=yaml.SafeLoader) if node]
        known: dict[int, tuple[int, int]] = {}
        sizes = [_size(node, known) for node in roots]
        if sum(many for many, _ in sizes) > MOST_NODES:
            raise _bad(f"expands to more than {MOST_NODES} values")
        if any(deep > DEEPEST for _, deep in sizes):
            raise _bad("is nested too deeply")
        found = [yaml.SafeLoader("").construct_document(node) for node in roots]
        return [one for one in found if one is not None]
    except RecursionError:
        raise _bad("is nested too deeply") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "import" if mark is None else f"import: line {mark.line + 1}"
        what = getattr(error, "problem", None) or "cannot be read"
        raise _bad(f"is not YAML: {what}", where) from None
    except ValueError as error:  # a date that is none, an int of too many digits
        raise _bad(f"is not YAML: {error}") from None


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
    allowed = "mappings, lists and plain values"
    return BadInput([Problem(path=where, value=None, message=message, allowed=allowed)])
