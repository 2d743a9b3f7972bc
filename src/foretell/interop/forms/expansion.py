"""Expansion of a shell's words: quotes, `$X`, `${X:-8}`, `${X##*/}`, `$((...))`, arrays.

The text of a word goes in, pieces with their lines come out. Outputs of commands are asked of `substitute`.
"""

import re
from collections.abc import Callable
from fnmatch import translate

from foretell.interop.forms.scope import Scope
from foretell.interop.forms.values import (
    BREAK,
    LONGEST,
    MOST_WORDS,
    ArrayValue,
    Source,
    TextPiece,
    Value,
    literal,
    names_of,
    placed_at,
    text_of,
    unknown,
    worked_out,
)

_NAME = re.compile(r"[A-Za-z_]\w*|[0-9]|[@*#?$!-]")
_INSIDE = re.compile(
    r"(?P<mark>[!#]?)(?P<name>[A-Za-z_]\w*|[0-9]+|[@*#?$!-])(?:\[(?P<index>[^\]]*)\])?(?P<rest>.*)",
    re.DOTALL,
)
_OPERATOR = re.compile(r":?[-=+?]|##?|%%?|//?|\^\^?|,,?|:|@", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"', "r": "\r", "0": ""}
_PLAIN = re.compile(r"[^\\'\"$`]+")
_HERE = re.compile(r"<<-?[ \t]*['\"]?(\w+)['\"]?")
_EVERY = re.compile(r"\$(?:@|\{(?:@|\w+\[@\])[^-=?+}]*\})")
"""Every element of an array inside quotes: of an empty one no word."""
_DEEPEST = 12


class Expander:
    """Words of one text, expanded in a scope."""

    __slots__ = ("depth", "scope", "source", "substitute")

    def __init__(
        self, scope: Scope, source: Source, substitute: Callable[[Value], Value], depth: int = 0
    ) -> None:
        self.scope, self.source, self.substitute, self.depth = scope, source, substitute, depth

    def expand(self, start: int, end: int) -> list[TextPiece]:
        """Pieces of the word between two offsets of the source."""
        return self._scan(start, end, quoted=False)

    def document(self, start: int, end: int) -> list[TextPiece]:
        """Pieces of a here-document that is expanded: quotes are plain characters."""
        return self._scan(start, end, quoted=True, keeps_quotes=True)

    def _literal(self, start: int, text: str) -> TextPiece:
        line, origin = self.source.place(start)
        return TextPiece(text, line, origin)

    def _scan(
        self, at: int, end: int, *, quoted: bool, keeps_quotes: bool = False
    ) -> list[TextPiece]:
        text, found = self.source.text, list[TextPiece]()
        while at < end:
            if match := _PLAIN.match(text, at, end):
                found.append(self._literal(at, match[0]))
                at = match.end()
                continue
            sign = text[at]
            if sign == "\\" and at + 1 < end:
                after = text[at + 1]
                if after != "\n":
                    keep = quoted and after not in '"\\$`'
                    found.append(self._literal(at, ("\\" if keep else "") + after))
                at += 2
            elif sign == "'" and not quoted:
                close = text.find("'", at + 1, end)
                close = end if close < 0 else close
                found.append(self._literal(at + 1, text[at + 1 : close]))
                at = close + 1
            elif sign == '"' and not keeps_quotes:
                close = self._closing(at + 1, end)
                inner = self._scan(at + 1, close, quoted=True)
                if inner or not _EVERY.fullmatch(text, at + 1, close):
                    found += inner or [self._literal(at, "")]
                at = close + 1
            elif sign == "$" and at + 1 < end:
                pieces, at = self._dollar(at, end, quoted=quoted)
                found += pieces
            elif sign == "`":
                close = text.find("`", at + 1, end)
                close = end if close < 0 else close
                found += self._output(at + 1, close, quoted=quoted)
                at = close + 1
            else:
                found.append(self._literal(at, sign))
                at += 1
        return found

    def _closing(self, at: int, end: int) -> int:
        """Where a double quote ends, expansions with quotes of their own inside passed over."""
        text = self.source.text
        while at < end and text[at] != '"':
            at = at + 1 if text[at] in "'`" else self._past(at, end)
        return min(at, end)

    def word_end(self, at: int) -> int:
        """Where the word that begins at an offset ends."""
        text, end = self.source.text, len(self.source.text)
        while at < end and text[at] not in " \t\n;&|()<>":
            at = self._past(at, end)
        return min(at, end)

    def _past(self, at: int, end: int) -> int:
        """Behind a character, or behind what begins with it: an escape, quotes, `$(...)`."""
        text, sign = self.source.text, self.source.text[at]
        if sign == "\\":
            return at + 2
        if text.startswith(("$(", "${"), at):
            return self._bracket(at + 1, end) + 1
        if sign == '"':
            return self._closing(at + 1, end) + 1
        if sign in "'`":
            close = text.find(sign, at + 1, end)
            return end if close < 0 else close + 1
        return at + 1

    def _bracket(self, at: int, end: int) -> int:
        """Where the bracket that opens at an offset is closed."""
        text = self.source.text
        pairs = {"(": ")", "{": "}"}
        opens, closes, depth = text[at], pairs[text[at]], 0
        while at < end:
            sign = text[at]
            if sign == "\\":
                at += 1
            elif sign == opens:
                depth += 1
            elif sign == closes:
                depth -= 1
                if not depth:
                    return at
            elif sign == "'" and opens == "(":
                close = text.find("'", at + 1, end)
                at = close if close > 0 else at
            elif sign == '"':
                at = self._closing(at + 1, end)
            elif sign == "<" and (mark := _HERE.match(text, at, end)):
                ends = re.compile(rf"^[ \t]*{mark[1]}[ \t]*$", re.MULTILINE)
                last = ends.search(text, mark.end(), end)
                at = last.end() - 1 if last else at
            at += 1
        return end

    def _dollar(self, at: int, end: int, *, quoted: bool) -> tuple[list[TextPiece], int]:
        """(pieces of the expansion at an offset, where it ends)."""
        text = self.source.text
        line, _ = self.source.place(at)
        after = text[at + 1]
        if text.startswith("((", at + 1):
            close = self._bracket(at + 1, end)
            return self._arithmetic(at + 3, close - 1, quoted=quoted), close + 1
        if after == "(":
            close = self._bracket(at + 1, end)
            return self._output(at + 2, close, quoted=quoted), close + 1
        if after == "{":
            close = self._bracket(at + 1, end)
            return self._parameter(at + 2, close, line=line, quoted=quoted), close + 1
        if after == "'" and not quoted:
            close = text.find("'", at + 2, end)
            close = end if close < 0 else close
            plain = re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), text[at + 2 : close])
            return [self._literal(at + 2, plain)], close + 1
        if match := _NAME.match(text, at + 1, end):
            if match[0] in "@*":
                return self._all("@", line=line, quoted=quoted), match.end()
            value = self.scope.get(match[0])
            pieces = unknown(match[0], line) if value is None else value
            return list(placed_at(pieces, line, split=not quoted)), match.end()
        return [self._literal(at, "$")], at + 1

    def _output(self, start: int, end: int, *, quoted: bool) -> list[TextPiece]:
        """What a command would print, where it can be known."""
        line, _ = self.source.place(start)
        if self.depth > _DEEPEST:
            return list(unknown("$(...)", line))
        inner = tuple(self._literal(at, part) for at, part in self._lines(start, end))
        return list(placed_at(self.substitute(inner), line, split=not quoted))

    def _lines(self, start: int, end: int) -> list[tuple[int, str]]:
        """Lines of a part of the source, with where each begins."""
        found = []
        for part in self.source.text[start:end].splitlines(keepends=True):
            found.append((start, part))
            start += len(part)
        return found

    def _arithmetic(self, start: int, end: int, *, quoted: bool) -> list[TextPiece]:
        line, _ = self.source.place(start)
        pieces = self._scan(start, end, quoted=True)
        names = dict.fromkeys(names_of(pieces))
        text = text_of(pieces)

        def number(name: str) -> int | None:
            found = self.scope.number(name)
            if found is None:
                inner = self.scope.get(name)
                names.update(dict.fromkeys(names_of(inner) if inner else (name,)))
            return found

        value = None if names else worked_out(text, number)
        if value is None:
            shown = f"$(({text.strip()}))"
            return [TextPiece(shown, line, line, names=tuple(names) or ("$((...))",))]
        origin = next((one.origin for one in pieces if one.origin != one.line), line)
        return [TextPiece(str(value), line, origin, names=(), split=not quoted)]

    def _all(self, name: str, *, line: int, quoted: bool, keys: bool = False) -> list[TextPiece]:
        """Every element of an array or every position, a word each."""
        if name == "@":
            if self.scope.positions is None:
                return [TextPiece("${@}", line, line, names=("@",), split=True)]
            elements = list(self.scope.positions)
        else:
            array = self.scope.array(name)
            if array is None:
                return [TextPiece(f"${{{name}}}", line, line, names=(name,), split=True)]
            elements = [
                literal(key, line) if keys else value for key, value in array.items
            ]  # fmt: skip
        found: list[TextPiece] = []
        for value in elements:
            found += [] if not found else [BREAK]
            found += [piece if quoted else piece._replace(split=True) for piece in value]
        return found

    def _parameter(self, start: int, end: int, *, line: int, quoted: bool) -> list[TextPiece]:
        """`${...}`."""
        inside = self.source.text[start:end]
        match = _INSIDE.fullmatch(inside)
        if match is None:
            return list(unknown(inside[:60], line))
        name, index, rest = match["name"], match["index"], match["rest"]
        if name == "#" and not match["mark"] and rest:  # ${#NAME}
            match = _INSIDE.fullmatch(rest)
            if match is None:
                return list(unknown(rest[:60], line))
            return self._length(match["name"], match["index"], line)
        if match["mark"] == "#":
            return self._length(name, index, line)
        if match["mark"] == "!":
            return self._indirect(name, index, line=line, quoted=quoted)
        every = index in ("@", "*") or name in ("@", "*")
        if every and (not rest or name in ("@", "*")):
            return self._all("@" if name in ("@", "*") else name, line=line, quoted=quoted)
        value = self._element(name, index)
        operator = _OPERATOR.match(rest)
        if not rest or operator is None:
            pieces = unknown(name, line) if value is None else value
            return list(placed_at(pieces, line, split=not quoted))
        behind = start + len(inside) - len(rest) + operator.end()
        return self._operated(name, value, operator[0], behind, end, line=line, quoted=quoted,
                              every=every)  # fmt: skip

    def _element(self, name: str, index: str | None) -> Value | None:
        if index in (None, "", "@", "*"):
            array = self.scope.array(name) if index in ("@", "*") else None
            if array is None:
                return self.scope.get(name)
            return tuple(piece for _, value in array.items for piece in (*value, BREAK))[:-1]
        array = self.scope.array(name)
        if array is None:
            return None
        key = text_of(self._rescanned(str(index))).strip("\"'")
        number = worked_out(key, self.scope.number)
        if array.get(key) is None and number is not None:
            key = str(number if number >= 0 else len(array.items) + number)
        return array.get(key)

    def _rescanned(self, text: str) -> list[TextPiece]:
        return Expander(self.scope, Source(text), self.substitute, self.depth + 1).expand(
            0, len(text)
        )

    def _length(self, name: str, index: str | None, line: int) -> list[TextPiece]:
        if index in ("@", "*") or name in ("@", "*"):
            array = self.scope.array(name)
            if name in ("@", "*"):
                return list(literal(str(len(self.scope.positions or ())), line))
            if array is None or any(names_of(value) for _, value in array.items):
                hosts = array is not None and {"$(scontrol)"} == {
                    one for _, value in array.items for one in names_of(value)
                }
                nodes = self.scope.get("SLURM_NNODES") if hosts else None
                return list(nodes or unknown("SLURM_NNODES" if hosts else name, line))
            return list(literal(str(len(array.items)), line))
        value = self.scope.get(name)
        if value is None or names_of(value):
            return list(unknown(name, line))
        return list(literal(str(len(text_of(value))), line))

    def _indirect(
        self, name: str, index: str | None, *, line: int, quoted: bool
    ) -> list[TextPiece]:
        if index in ("@", "*"):
            return self._all(name, line=line, quoted=quoted, keys=True)
        value = self.scope.get(name)
        wanted = "" if value is None or names_of(value) else text_of(value)
        found = self.scope.get(wanted) if wanted else None
        return list(placed_at(unknown(wanted or name, line) if found is None else found, line,
                           split=not quoted))  # fmt: skip

    def _operated(
        self, name: str, value: Value | None, operator: str, start: int, end: int, *, line: int,
        quoted: bool, every: bool,
    ) -> list[TextPiece]:  # fmt: skip
        """`${NAME<operator>argument}`."""
        there = value is not None and (not operator.startswith(":") or bool(text_of(value)))
        kind = operator.lstrip(":")
        if kind in ("-", "=", "?", "+") and operator != ":":
            if kind == "+":
                return self._argument(start, end, quoted=quoted) if there else []
            if there:
                return list(placed_at(value or (), line, split=not quoted))
            default = [] if kind == "?" else self._argument(start, end, quoted=quoted)
            if kind == "?" or (names_of(default) and len(default) == 1):
                return list(placed_at(unknown(name, line), line, split=not quoted))
            if kind == "=":
                self.scope.set(name, tuple(default))
            return default
        if value is None or names_of(value):
            names = names_of(value) if value else (name,)
            return [TextPiece(f"${{{names[0]}}}", line, line, names=names)]
        argument = text_of(self._argument(start, end, quoted=True))
        parts = self._parts(value) if every else [value]
        found: list[TextPiece] = []
        for part in parts:
            changed = changed_text(text_of(part), operator, argument, self.scope.number)
            origin = part[0].origin if part else line
            found += [BREAK] if found else []
            found.append(TextPiece(changed[:LONGEST], line, origin, names=(), split=not quoted))
        return found

    def _argument(self, start: int, end: int, *, quoted: bool) -> list[TextPiece]:
        pieces = self._scan(start, end, quoted=False)
        return [piece._replace(split=not quoted) if piece.text and " " in piece.text else piece
                for piece in pieces]  # fmt: skip

    @staticmethod
    def _parts(value: Value) -> list[Value]:
        parts: list[Value] = [()]
        for piece in value:
            if piece is BREAK:
                parts.append(())
            else:
                parts[-1] = (*parts[-1], piece)
        return parts


def changed_text(
    text: str, operator: str, argument: str, number_of: Callable[[str], int | None]
) -> str:
    """A value changed by an operator of `${NAME<operator>argument}`."""
    if operator in ("#", "##", "%", "%%"):
        return _stripped(text, operator, argument)
    if operator in ("/", "//"):
        before, _, after = argument.partition("/")
        pattern = translate(before).removesuffix(r"\Z").removesuffix(r"\z")
        if not before:
            return text
        return re.sub(pattern, lambda _: after, text, count=0 if operator == "//" else 1)
    if operator in ("^", "^^", ",", ",,"):
        head, tail = (text[:1], text[1:]) if len(operator) == 1 else (text, "")
        return (head.upper() if operator[0] == "^" else head.lower()) + tail
    if operator == ":":
        first, _, length = argument.partition(":")
        low = worked_out(first, number_of) or 0
        many = worked_out(length, number_of) if length else None
        rest = text[low:]
        return rest if many is None else rest[:many]
    return text


def _stripped(text: str, operator: str, pattern: str) -> str:
    """The text without a beginning (#) or an end (%) that a pattern matches, the longest where doubled."""
    wanted = re.compile(translate(pattern))
    text = text[:2000]
    if operator[0] == "#":
        cuts = range(len(text) + 1)
        cuts = cuts if operator == "#" else reversed(cuts)  # type: ignore[assignment]
        return next((text[at:] for at in cuts if wanted.match(text[:at])), text)
    cuts = range(len(text), -1, -1)
    cuts = cuts if operator == "%" else reversed(cuts)  # type: ignore[assignment]
    return next((text[:at] for at in cuts if wanted.match(text[at:])), text)


def array_of(values: list[Value]) -> ArrayValue:
    """An array of some elements."""
    return ArrayValue(items=tuple((str(at), value) for at, value in enumerate(values[:MOST_WORDS])))
