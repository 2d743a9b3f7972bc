"""The syntax tree of a shell script by tree-sitter-bash, as nodes with what the reader asks of them."""

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


_INSIDE = re.compile(rb"\$\{[^{}\n]+\}")
_REPEATED = re.compile(rb"(\S{1,4}?)\1{500,}")
"""The same characters hundreds of times: no shell that anybody wrote, and its parsing takes their square."""


@lru_cache(maxsize=1)
def _parser() -> "Parser":
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def parsed(text: str) -> "Node":
    """The root of a text's tree; offsets are of ASCII characters. What cannot be parsed is a node ERROR."""
    content = _REPEATED.sub(_shortened, text.encode("ascii", "replace"))
    root = _parser().parse(content).root_node
    if not root.has_error:
        return root
    # What is inside ${...} is expanded from the text itself: a plain name in its place has the same length.
    plain = _parser().parse(_INSIDE.sub(_masked, content)).root_node
    return root if plain.has_error and plain.descendant_count < root.descendant_count else plain


def _shortened(match: "re.Match[bytes]") -> bytes:
    """One word that begins as the run does, as long as it."""
    return match[0][:1].ljust(len(match[0]), b"a")


def _masked(match: "re.Match[bytes]") -> bytes:
    return b"${" + b"a" * (len(match[0]) - 3) + b"}"


def branches(node: "Node") -> list[tuple[list["Node"], list["Node"]]]:
    """(condition, body) of `if`, each `elif` and `else`, whose condition is empty."""
    found: list[tuple[list[Node], list[Node]]] = [([], [])]
    state = 0
    for child in node.children:
        if child.type in ("if", "elif"):
            state = 0
        elif child.type == "then":
            state = 1
        elif child.type == "elif_clause":
            found += branches(child)
        elif child.type == "else_clause":
            found.append(([], child.children[1:]))
        elif child.is_named or state:
            found[0][state].append(child)
    return found


def assigned_names(nodes: list["Node"]) -> dict[str, None]:
    """Variables that some statements assign, in order."""
    found: dict[str, None] = {}
    stack = list(reversed(nodes))
    while stack:
        node = stack.pop()
        if node.type == "variable_assignment":
            name = node.child_by_field_name("name")
            if name is not None and name.type == "variable_name" and name.text:
                found[name.text.decode()] = None
        if node.type not in ("command_substitution", "function_definition"):
            stack += reversed(node.children)
    return found
