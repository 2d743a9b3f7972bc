"""Values of shell variables with where they are written, their words, and whole-number arithmetic on them.

A value is a row of pieces. A piece knows two lines: where it is in the command (or in the text that a
variable holds), and where the literal behind it is written. What the file does not set stays in the text as
`${NAME}`, so that a text can be parsed once more. `$((A * B))`, `((i < 8))` and `expr` are worked out here;
nothing is run.
"""

import ast
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from foretell.interop.forms.records import Word
from foretell.records import dataclass

LARGEST = 10**18
"""Results beyond this are not worked out."""
_TERNARY = re.compile(r"([^?]+)\?([^:]+):(.+)", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])0+(?=\d)")


def worked_out(text: str, value_of: Callable[[str], int | None]) -> int | None:
    """The number of an expression; None where a name has no number or the text is no expression."""
    text = text.strip()
    if match := _TERNARY.fullmatch(text):
        condition = worked_out(match[1], value_of)
        if condition is None:
            return None
        return worked_out(match[2] if condition else match[3], value_of)
    spelt = text.replace("&&", " and ").replace("||", " or ")
    spelt = re.sub(r"!(?!=)", " not ", spelt)
    spelt = _NUMBER.sub("", spelt).replace("\n", " ").strip()
    if not spelt or len(spelt) > 2000:
        return 0 if not spelt else None
    try:
        return _number(ast.parse(spelt, mode="eval").body, value_of)
    except (SyntaxError, ValueError, RecursionError, MemoryError, ZeroDivisionError, OverflowError):
        return None


def _number(node: ast.expr, value_of: Callable[[str], int | None]) -> int | None:
    if isinstance(node, ast.Constant):
        return int(node.value) if isinstance(node.value, int | float) else None
    if isinstance(node, ast.Name):
        return value_of(node.id)
    if isinstance(node, ast.UnaryOp):
        inner = _number(node.operand, value_of)
        if inner is None:
            return None
        return {"USub": -inner, "UAdd": inner, "Not": int(not inner), "Invert": ~inner}[
            type(node.op).__name__
        ]
    if isinstance(node, ast.BoolOp):
        parts = [_number(one, value_of) for one in node.values]
        if None in parts:
            return None
        return int(all(parts) if isinstance(node.op, ast.And) else any(parts))
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = _number(node.left, value_of), _number(node.comparators[0], value_of)
        if left is None or right is None:
            return None
        signs = {"Lt": left < right, "LtE": left <= right, "Gt": left > right,
                 "GtE": left >= right, "Eq": left == right, "NotEq": left != right}  # fmt: skip
        return int(signs[type(node.ops[0]).__name__])
    if isinstance(node, ast.BinOp):
        left, right = _number(node.left, value_of), _number(node.right, value_of)
        return None if left is None or right is None else _joined(node.op, left, right)
    return None


def _joined(sign: ast.operator, left: int, right: int) -> int | None:
    if isinstance(sign, ast.Div | ast.FloorDiv):
        found = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    elif isinstance(sign, ast.Mod):
        found = abs(left) % abs(right) * (1 if left >= 0 else -1)
    elif isinstance(sign, ast.Pow):
        found = left**right if 0 <= right < 64 and abs(left) < 1000 else LARGEST + 1
    else:
        simple = {
            "Add": left + right, "Sub": left - right, "Mult": left * right, "BitAnd": left & right,
            "BitOr": left | right, "BitXor": left ^ right,
        }  # fmt: skip
        name = type(sign).__name__
        if name in ("LShift", "RShift") and 0 <= right < 64:
            simple[name] = left << right if name == "LShift" else left >> right
        if name not in simple:
            return None
        found = simple[name]
    return found if abs(found) <= LARGEST else None


LONGEST = 100_000
"""Characters of one value."""
MOST_PIECES = 20_000
"""Pieces of one value."""
MOST_WORDS = 20_000
"""Words of one command."""
_WORD = re.compile(r"\S+")
_RANGE = re.compile(r"(.*?)\{(-?\d{1,6})\.\.(-?\d{1,6})\}(.*)", re.DOTALL)
_CHOICES = re.compile(r"([^{}\s]*)\{([^{}\s\"']*,[^{}\s\"']*)\}([^{}\s]*)")


class TextPiece(NamedTuple):
    """A part of a value."""

    text: str
    """Its characters."""
    line: int
    """Line on which it is."""
    origin: int
    """Line on which the literal behind it is written."""
    names: tuple[str, ...] = ()
    """Variables in it without a value."""
    split: bool = False
    """Whether it is split into words: an expansion outside of quotes."""


Value = tuple[TextPiece, ...]
"""Pieces of a value in order."""
BREAK = TextPiece("", -1, -1)
"""Between the elements of an array."""
SPACE = TextPiece(" ", 0, 0)
"""Between the elements of an array that becomes one text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayValue:
    """An array of a shell: elements by index or key."""

    items: tuple[tuple[str, Value], ...]
    """Elements in order."""

    def get(self, key: str) -> Value | None:
        """One element."""
        return next((value for name, value in self.items if name == key), None)

    def added(self, more: Iterable[Value]) -> "ArrayValue":
        """The array with further elements behind."""
        start = len(self.items)
        new = tuple((str(start + at), value) for at, value in enumerate(more))
        return ArrayValue(items=(self.items + new)[:MOST_WORDS])


def text_of(value: Sequence[TextPiece]) -> str:
    """The characters of a value; elements of an array are joined by spaces."""
    return "".join(" " if piece is BREAK else piece.text for piece in value)


def names_of(value: Iterable[TextPiece]) -> tuple[str, ...]:
    """Names without a value in it, each once."""
    return tuple(dict.fromkeys(name for piece in value for name in piece.names))


def shortened(value: Value) -> Value:
    """A value that doubled itself too often, cut."""
    if len(value) > MOST_PIECES:
        value = value[:MOST_PIECES]
    if sum(len(piece.text) for piece in value) <= LONGEST:
        return value
    return (value[0]._replace(text=text_of(value)[:LONGEST]),)


def literal(text: str, line: int, origin: int | None = None) -> Value:
    """A value of one piece."""
    return (TextPiece(text, line, line if origin is None else origin),)


def unknown(name: str, line: int) -> Value:
    """What the file does not set."""
    return (TextPiece(f"${{{name}}}", line, line, names=(name,)),)


def placed_at(value: Value, line: int, *, split: bool) -> Value:
    """A variable's value where it is used: a plain word is there, flags and texts of many keep their
    lines."""
    words = text_of(value).split()
    several = len(words) > 1 or (len(words) == 1 and words[0].startswith("-"))
    if several:
        return tuple(piece if piece is BREAK else piece._replace(split=split) for piece in value)
    return tuple(piece._replace(line=line, split=split) for piece in value)


class Source:
    """A text to be parsed, and the line of each of its characters.

    Characters outside of ASCII are replaced by `?`, so that offsets in bytes are offsets in characters.
    """

    __slots__ = ("_lines", "_pieces", "_starts", "text")

    def __init__(self, value: Sequence[TextPiece] | str, first_line: int = 1) -> None:
        pieces = [TextPiece(value, first_line, first_line)] if isinstance(value, str) else [*value]
        pieces = [SPACE if piece is BREAK else piece for piece in pieces]
        self._pieces = [piece for piece in pieces if piece.text]
        self._starts: list[int] = []
        at = 0
        for piece in self._pieces:
            self._starts.append(at)
            at += len(piece.text)
        whole = "".join(piece.text for piece in self._pieces)
        self.text = whole.encode("ascii", "replace").decode()
        self._lines = [0, *(found.end() for found in re.finditer("\n", self.text))]

    def place(self, at: int) -> tuple[int, int]:
        """(line, line of the literal) of a character."""
        index = max(bisect_right(self._starts, at) - 1, 0)
        if not self._pieces:
            return 0, 0
        piece = self._pieces[index]
        ends = bisect_right(self._lines, at) - bisect_right(self._lines, self._starts[index])
        return piece.line + ends, piece.origin + ends


class Token(NamedTuple):
    """A word with the pieces it is made of, by which a text in it is parsed once more."""

    word: Word
    """The word."""
    pieces: Value
    """Its pieces."""

    @property
    def text(self) -> str:
        """The word's text."""
        return self.word.text


def tokens_of(value: Sequence[TextPiece], raw: str = "") -> list[Token]:
    """The words of an expanded value: split at spaces outside of quotes and between elements."""
    made: list[list[TextPiece]] = []
    current: list[TextPiece] | None = None
    for piece in value:
        if piece is BREAK:
            if current is not None:
                made.append(current)
            current = None
        elif not piece.split or piece.names:
            current = [] if current is None else current
            current.append(piece)
        else:
            at = 0
            for found in _WORD.finditer(piece.text):
                if found.start() > at or (found.start() == at == 0 and piece.text[:1].isspace()):
                    made += [current] if current is not None else []
                    current = None
                ends = piece.text.count("\n", 0, found.start())
                part = TextPiece(
                    found[0], piece.line + ends, piece.origin + ends, names=piece.names
                )
                current = [] if current is None else current
                current.append(part)
                at = found.end()
            if at < len(piece.text) and piece.text[at:].isspace():
                made += [current] if current is not None else []
                current = None
    made += [current] if current is not None else []
    return [_token(pieces, raw if len(made) == 1 else "") for pieces in made[:MOST_WORDS]]


def _token(pieces: Sequence[TextPiece], raw: str) -> Token:
    text = "".join(piece.text for piece in pieces)[:LONGEST]
    first = pieces[0]
    origin = next((one.origin for one in reversed(pieces) if one.origin != one.line), first.line)
    word = Word(text=text, line=first.line, raw=raw or text, unknown=names_of(pieces),
                set_line=origin)  # fmt: skip
    return Token(word, tuple(pieces))


def braced(raw: str) -> list[str]:
    """`{0..7}` and `a{b,c}` of a word without quotes and variables, written out; else the word alone."""
    if "{" not in raw or any(mark in raw for mark in "\"'$`="):
        return [raw]
    if match := _RANGE.fullmatch(raw):
        low, high = int(match[2]), int(match[3])
        step = 1 if high >= low else -1
        numbers = range(low, high + step, step)[:1000]
        return [f"{match[1]}{number}{match[4]}" for number in numbers]
    if match := _CHOICES.fullmatch(raw):
        return [f"{match[1]}{part}{match[3]}" for part in match[2].split(",")]
    return [raw]
