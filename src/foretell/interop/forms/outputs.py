"""The syntax tree of a shell script by tree-sitter-bash, and what `$(command)` would print.

An output is known where it follows from the file: names of paths, counts, sums, echoes. Nothing is run. The
number of nodes and of GPUs that a batch system gives is asked of the scope.
"""

import ast
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from foretell.interop.forms.values import TextPiece, Token, Value, literal, names_of, worked_out

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


UNKNOWN = re.compile(r"\W+")
_PRINTED = re.compile(r"(?:import \w+;\s*)?print\((.*)\)\s*", re.DOTALL)
_FIELD = re.compile(r"\{ *print +(\$?NF|\$\d+) *;? *\}")
_LISTS_GPUS = ("-L", "--list-gpus")


def unknown_output(words: Sequence[Token], line: int) -> Value:
    """The output of a command that is not known, named after it."""
    name = words[0].text if words else "..."
    shown = f"OUTPUT_OF_{UNKNOWN.sub('_', name)[:40].strip('_')}"
    return (TextPiece(f"${{{shown}}}", line, line, names=(f"$({name[:60]})",)),)


def printed(
    commands: Sequence[Sequence[Token]], line: int, given: Mapping[str, Value]
) -> Value | None:
    """What a pipeline prints; None where it cannot be known. `given` has what a cluster's commands answer:
    `nodes` and `gpus` of a node."""
    first, *filters = commands
    if not first:
        return None
    if count := _counted(commands, given):
        return count
    value = _source(first)
    for words in filters:
        if value is None:
            return None
        made = _filtered(value, [one.text for one in words])
        value = made
    return None if value is None else literal(value.rstrip("\n"), line)


def _counted(commands: Sequence[Sequence[Token]], given: Mapping[str, Value]) -> Value | None:
    """How many nodes or GPUs a listing has."""
    name, rest = commands[0][0].text.rpartition("/")[2], [one.text for one in commands[0][1:]]
    counts = any(words and words[0].text in ("wc", "grep", "awk") for words in commands[1:])
    if not counts:
        return None
    if name == "scontrol" and "hostnames" in rest:
        return given.get("nodes")
    if name == "nvidia-smi" and (
        set(rest) & {*_LISTS_GPUS} or any("query-gpu" in one for one in rest)
    ):
        return given.get("gpus")
    if name == "rocm-smi":
        return given.get("gpus")
    return None


def _source(words: Sequence[Token]) -> str | None:
    """What the first command of a pipeline prints."""
    if any(names_of(one.pieces) for one in words):
        return None
    name, *rest = (one.text for one in words)
    plain = [one for one in rest if not re.fullmatch(r"-[a-zA-Z]+|--[a-z-]*", one)]
    makers: Mapping[str, Callable[[list[str]], str | None]] = {
        "echo": lambda _: " ".join(one for at, one in enumerate(rest) if at or one not in ("-n", "-e")),
        "printf": lambda _: None if not rest or "%" in rest[0] else rest[0],
        "pwd": lambda _: ".",
        "dirname": lambda some: posixpath.dirname(some[0]) or "." if some else None,
        "basename": _base,
        "realpath": lambda some: some[0] if some else None,
        "readlink": lambda some: some[0] if some else None,
        "expr": lambda _: _sum(" ".join(rest)),
        "seq": _sequence,
        "python": lambda _: _python(rest),
        "python3": lambda _: _python(rest),
        "bc": lambda _: None,
    }  # fmt: skip
    maker = makers.get(name.rpartition("/")[2])
    return None if maker is None else maker(plain)


def _base(some: list[str]) -> str | None:
    if not some:
        return None
    name = some[0].rstrip("/").rpartition("/")[2]
    return name.removesuffix(some[1]) if len(some) > 1 else name


def _sequence(some: list[str]) -> str | None:
    try:
        numbers = [int(one) for one in some]
    except ValueError:
        return None
    low, step, high = {1: (1, 1, *numbers), 2: (numbers[0], 1, numbers[-1])}.get(
        len(numbers), tuple(numbers[:3]) if len(numbers) == 3 else (1, 1, 0)
    )
    if not step:
        return None
    return "\n".join(map(str, range(low, high + (1 if step > 0 else -1), step)[:1000]))


def _sum(text: str) -> str | None:
    found = worked_out(text.replace("\\*", "*").replace("'", ""), lambda _: None)
    return None if found is None else str(found)


def _python(rest: list[str]) -> str | None:
    """`python -c "print(1024 // 8)"`."""
    if len(rest) != 2 or rest[0] != "-c" or not (match := _PRINTED.fullmatch(rest[1].strip())):
        return None
    text = re.sub(r"^int\((.*)\)$", r"\1", match[1].strip())
    try:
        value = ast.literal_eval(text)
        return str(value)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return _sum(text)


def _filtered(value: str, words: list[str]) -> str | None:
    """A text after one filter of a pipeline."""
    name, rest = words[0].rpartition("/")[2] if words else "", words[1:]
    lines = value.split("\n")
    if name == "wc":
        if "-w" in rest:
            return str(len(value.split()))
        return str(len([one for one in lines if one])) if "-l" in rest else None
    if name == "bc":
        return _sum(value)
    if name == "tr" and rest:
        old, new = rest[0], rest[1] if len(rest) > 1 else ""
        if old == "-d":
            return "".join(sign for sign in value if sign not in new.replace("\\n", "\n"))
        return value.replace(old.replace("\\n", "\n"), new.replace("\\n", "\n"))
    if name in ("head", "tail"):
        return lines[0] if name == "head" else lines[-1]
    if name == "awk":
        return _column(value, rest)
    if name == "cut":
        return _cut(value, rest)
    if name in ("xargs", "sort", "cat"):
        return value
    return None


def _column(value: str, rest: list[str]) -> str | None:
    """`awk -F, '{print NF}'`, `awk '{print $1}'`."""
    sign, program = None, ""
    for at, word in enumerate(rest):
        if word.startswith("-F"):
            sign = word[2:] or (rest[at + 1] if at + 1 < len(rest) else None)
        elif "{" in word:
            program = word
    match = _FIELD.search(program)
    if match is None:
        return None
    parts = value.split(sign.strip("'\"")) if sign else value.split()
    if match[1] == "NF":
        return str(len(parts))
    at = -1 if match[1] == "$NF" else int(match[1][1:]) - 1
    return parts[at] if -1 <= at < len(parts) else ""


def _cut(value: str, rest: list[str]) -> str | None:
    text = " ".join(rest)
    sign, field = re.search(r"-d *['\"]?(\S)['\"]?", text), re.search(r"-f *(\d+)\b(?!-)", text)
    if sign is None or field is None:
        return None
    parts = value.split(sign[1])
    at = int(field[1]) - 1
    return parts[at] if at < len(parts) else ""
