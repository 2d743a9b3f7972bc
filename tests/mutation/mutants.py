"""Single changes to the engine's source that a test should notice, found in its syntax tree."""

import ast
import difflib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SWAPS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div,
}  # fmt: skip
"""Arithmetic operators and what takes their place."""
OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip
"""Comparisons and what takes their place: the opposite."""
FUNCTIONS = {
    "maximum": "minimum",
    "minimum": "maximum",
    "max": "min",
    "min": "max",
    "ceil": "floor",
    "floor": "ceil",
}
"""Functions and what takes their place."""
NOT_FOR_NUMBERS = (ast.Assert, ast.Raise, ast.JoinedStr, ast.Slice)
"""Nodes whose inside is left alone: checks, messages and ranges of texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change of one expression."""

    file: str
    """Path below the package."""
    line: int
    """Line of the expression, from 1."""
    kind: str
    """What was done, in words."""
    start: int
    """Offset of the expression in the file's bytes."""
    end: int
    """Offset behind it."""
    text: str
    """What takes its place."""

    def apply(self, source: bytes) -> bytes:
        """Return the file's bytes with the change made."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    def diff(self, source: bytes) -> str:
        """Return the change as a unified diff without context."""
        before, after = (x.decode().splitlines() for x in (source, self.apply(source)))
        lines = list(difflib.unified_diff(before, after, lineterm="", n=0))[3:]
        return "\n".join(lines)

    @property
    def where(self) -> str:
        """FILE:LINE, as `--only` takes it."""
        return f"{self.file}:{self.line}"


def mutants_of(package: Path, file: str) -> list[Mutant]:
    """Return every mutant of one file, in the order of its text."""
    source = (package / file).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def mutant(node: ast.expr, kind: str, new: ast.expr) -> Mutant:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return Mutant(
            file=file,
            line=node.lineno,
            kind=kind,
            start=starts[node.lineno - 1] + node.col_offset,
            end=starts[node.end_lineno - 1] + node.end_col_offset,
            text=f"({ast.unparse(new)})" if _needs_brackets(new) else ast.unparse(new),
        )

    found = (mutant(*change) for node in _numeric(ast.parse(source)) for change in _changes(node))
    return sorted(set(found), key=lambda m: (m.start, m.end, m.kind, m.text))


def _needs_brackets(node: ast.expr) -> bool:
    """Whether an expression could be read differently once it stands inside another one."""
    return isinstance(node, ast.BinOp | ast.BoolOp | ast.Compare | ast.IfExp | ast.UnaryOp)


def _numeric(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions of a file that a number or a choice depends on."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, NOT_FOR_NUMBERS):
                continue
            if isinstance(child, ast.keyword) and child.arg == "strict":  # a check, as of zip
                continue
            if isinstance(child, ast.expr):
                yield child
            yield from _numeric(child)


def _changes(node: ast.expr) -> Iterator[tuple[ast.expr, str, ast.expr]]:
    """Yield what can be done to one expression: the node, the change in words, and what takes its place."""
    match node:
        case ast.BinOp(left=left, op=op, right=right) if not _is_text(node):
            if type(op) in SWAPS:
                new = SWAPS[type(op)]()
                yield node, "swap operator", ast.BinOp(left=left, op=new, right=right)
            if isinstance(op, ast.Add | ast.Sub):
                yield node, "drop term", left
                if isinstance(op, ast.Add):
                    yield node, "drop term", right
            elif isinstance(op, ast.Mult | ast.Div):
                yield node, "drop factor", left
                if isinstance(op, ast.Mult):
                    yield node, "drop factor", right
        case ast.BoolOp(op=op, values=values):
            word = "or" if isinstance(op, ast.Or) else "and"
            for i in range(len(values)):
                rest = values[:i] + values[i + 1 :]
                new_value = rest[0] if len(rest) == 1 else ast.BoolOp(op=op, values=rest)
                yield node, f"drop {word}", new_value
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in OPPOSITES:
            new_op = OPPOSITES[type(op)]()
            yield node, "turn comparison", ast.Compare(left=left, ops=[new_op], comparators=[right])
        case ast.UnaryOp(op=ast.Not() | ast.Invert() | ast.USub(), operand=operand):
            if not isinstance(operand, ast.Constant):
                yield node, "drop sign", operand
        case ast.IfExp(test=test, body=body, orelse=other):
            yield node, "swap branches", ast.IfExp(test=test, body=other, orelse=body)
        case ast.Call():
            yield from _call_changes(node)
        case ast.Constant(value=bool() as value):
            yield node, "turn constant", ast.Constant(value=not value)
        case ast.Constant(value=int() as value):
            yield node, "off by one", ast.Constant(value=value + 1)
        case ast.Constant(value=float() as number):
            yield node, "change constant", ast.Constant(value=2.0 * number if number else 1.0)


def _call_changes(node: ast.Call) -> Iterator[tuple[ast.expr, str, ast.expr]]:
    """Yield the changes of a call: another function, the branches of `where` swapped."""
    match node.func:
        case ast.Name(id=name) if name in FUNCTIONS:
            yield node.func, f"{name} -> {FUNCTIONS[name]}", ast.Name(id=FUNCTIONS[name])
        case ast.Attribute(value=owner, attr=name) if name in FUNCTIONS:
            new = ast.Attribute(value=owner, attr=FUNCTIONS[name])
            yield node.func, f"{name} -> {FUNCTIONS[name]}", new
        case ast.Attribute(attr="where") if len(node.args) == 3:
            test, yes, no = node.args
            swapped = ast.Call(func=node.func, args=[test, no, yes], keywords=node.keywords)
            yield node, "swap branches", swapped


def _is_text(node: ast.BinOp) -> bool:
    """Whether an operator joins texts, or types as in `Array | None`."""
    sides = (node.left, node.right)
    if any(isinstance(side, ast.JoinedStr | ast.List | ast.Tuple) for side in sides):
        return True
    return any(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in sides)


def files_of(package: Path, rooms: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the files of each room that exists: a folder or one module below the package."""
    found = {}
    for room in rooms:
        path = package / room
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.is_file() else []
        if files:
            found[room] = [file.relative_to(package).as_posix() for file in files]
    return found


def choose(package: Path, rooms: tuple[str, ...], *, count: int, seed: int) -> list[Mutant]:
    """Return a sample of mutants: rooms in turn, and in each of them kinds of change in turn."""
    chance = random.Random(seed)
    heaps: dict[str, dict[str, list[Mutant]]] = {}
    for room, files in files_of(package, rooms).items():
        kinds: dict[str, list[Mutant]] = {}
        for mutant in (m for file in files for m in mutants_of(package, file)):
            kinds.setdefault(mutant.kind, []).append(mutant)
        heaps[room] = {kind: kinds[kind] for kind in chance.sample(sorted(kinds), len(kinds))}
    chosen: list[Mutant] = []
    while len(chosen) < count and any(heaps.values()):
        for kinds in heaps.values():
            if kinds and len(chosen) < count:
                kind = next(iter(kinds))
                heap = kinds.pop(kind)
                chosen.append(heap.pop(chance.randrange(len(heap))))
                if heap:
                    kinds[kind] = heap  # behind the other kinds
    return chosen
