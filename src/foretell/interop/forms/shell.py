"""A small evaluator over the syntax tree of a shell script: what it would start, without running anything.

Assignments, expansions, arithmetic, arrays, branches, loops, functions, here-documents and files that it
sources are followed. A branch that the file does not decide is read both ways: what both agree on is known,
the rest stays unknown by name. Commands go to `starts.py`, which takes their launchers off.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from foretell.interop.forms import branching, outputs, starts
from foretell.interop.forms.expansion import Expander, array_of
from foretell.interop.forms.outputs import parsed
from foretell.interop.forms.records import LauncherLayer, Word
from foretell.interop.forms.scope import House, Scope
from foretell.interop.forms.values import (
    BREAK,
    SPACE,
    ArrayValue,
    Source,
    TextPiece,
    Token,
    Value,
    braced,
    literal,
    text_of,
    tokens_of,
    unknown,
    worked_out,
)

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_STEPS = 20_000
"""Statements of all scripts together."""
MOST_PROCESSES = 400
"""Processes of one file."""
DEEPEST = 12
"""Scripts and functions inside one another."""


class Shell:
    """One script while it is read."""

    def __init__(
        self, source: Source, scope: Scope, house: House, *, layers: tuple[LauncherLayer, ...] = (),
        env: Mapping[str, Word] | None = None, image: str = "", depth: int = 0, condition: str = "",
    ) -> None:  # fmt: skip
        self.source, self.scope, self.house = source, scope, house
        self.layers, self.env, self.image = layers, dict(env or {}), image
        self.depth, self.condition, self.background = depth, condition, False
        self.skip_to = 0

    def run_all(self) -> str:
        """Follow the whole script; the signal that ended it."""
        return self.run_each(parsed(self.source.text).children)

    def run_each(self, nodes: Sequence["Node"]) -> str:
        """Follow statements in order up to one that leaves: exit, return, break."""
        for at, node in enumerate(nodes):
            if not node.is_named or node.type == "comment" or node.start_byte < self.skip_to:
                continue
            before = self.background
            self.background = before or (at + 1 < len(nodes) and nodes[at + 1].type == "&")
            signal = self.run(node)
            self.background = before
            if signal:
                return signal
        return ""

    def run(self, node: "Node") -> str:
        """Follow one statement; the signal by which it leaves, else nothing."""
        self.house.steps[0] += 1
        if self.house.steps[0] > MOST_STEPS:
            return "exit"
        method = _STATEMENTS.get(node.type)
        return method(self, node) if method is not None else ""

    # Words

    def expander(self) -> Expander:
        """Expansion of this script's words in its scope."""
        return Expander(self.scope, self.source, self.substitute, self.depth)

    def pieces(self, node: "Node") -> list[TextPiece]:
        """A word's pieces."""
        return self.expander().expand(node.start_byte, node.end_byte)

    def tokens(self, nodes: Sequence["Node"]) -> list[Token]:
        """The words of some nodes."""
        found: list[Token] = []
        for node in nodes:
            raw = self.source.text[node.start_byte : node.end_byte]
            many = braced(raw)
            if len(many) > 1:
                line, origin = self.source.place(node.start_byte)
                found += [t for one in many for t in tokens_of(literal(one, line, origin), raw)]
            else:
                found += tokens_of(self.pieces(node), raw)
        return found

    def substitute(self, text: Value) -> Value:
        """What `$(text)` prints."""
        source = Source(text)
        line = text[0].line if text else 0
        root = parsed(source.text)
        inner = Shell(source, self.scope.copied(), self.house, depth=self.depth + 1)
        nodes = [one for one in root.children if one.is_named and one.type != "comment"]
        if len(nodes) == 1 and nodes[0].type == "list":  # cd X && pwd
            parts = [one for one in nodes[0].children if one.is_named]
            if len(parts) == 2 and parts[1].text == b"pwd":
                words = inner.plain_words(parts[0])
                where = [one for one in words[1:] if not one.text.startswith("-")]
                return where[-1].pieces if where else literal(".", line)
            nodes = parts[-1:]
        if not nodes and not root.has_error:  # `# a comment`
            return literal("", line)
        if len(nodes) != 1 or inner.depth > DEEPEST:
            return outputs.unknown_output((), line)
        document = inner.document_of(nodes[0])
        if document is not None:
            return document
        commands = [inner.plain_words(one) for one in _piped(nodes[0])]
        given = {name: value for name, wanted in (("nodes", "SLURM_NNODES"), ("gpus", "SLURM_GPUS_ON_NODE"))
                 if (value := self.scope.get(wanted)) is not None}  # fmt: skip
        found = outputs.printed(commands, line, given) if all(commands) else None
        if found is None and commands and commands[0] and commands[0][0].text == "cat":
            written = self.house.files.get(commands[0][-1].text)
            found = None if written is None else literal(written, line)
        return (
            outputs.unknown_output(commands[0] if commands else (), line)
            if found is None
            else found
        )

    def plain_words(self, node: "Node") -> list[Token]:
        """Words of a command, or of one with redirections."""
        if node.type == "redirected_statement":
            body = node.child_by_field_name("body")
            return [] if body is None else self.plain_words(body)
        if node.type != "command":
            return []
        return self.tokens([one for one in node.children if one.is_named and one.type in _WORDS])

    def document_of(self, node: "Node") -> Value | None:
        """The here-document of a command that prints it."""
        if node.type != "redirected_statement":
            return None
        words = self.plain_words(node)
        if not words or words[0].text != "cat":
            return None
        for child in node.children:
            if child.type == "heredoc_redirect":
                return tuple(self.here_document(child))
        return None

    def _echoed(self, node: "Node") -> Value | None:
        """What `echo TEXT` hands to the next command of a pipeline."""
        words = self.plain_words(node) if node.type == "command" else []
        if len(words) < 2 or words[0].text not in ("echo", "printf"):
            return None
        return tuple(piece for word in words[1:] for piece in (*word.pieces, SPACE))

    def here_document(self, node: "Node") -> list[TextPiece]:
        """Pieces of a here-document, expanded unless its mark is quoted."""
        start = next((one for one in node.children if one.type == "heredoc_start"), None)
        body = next((one for one in node.children if one.type == "heredoc_body"), None)
        if body is None or start is None:
            return []
        mark = self.source.text[start.start_byte : start.end_byte]
        begin = self.source.text.find("\n", start.end_byte) + 1
        begin = begin if 0 < begin <= body.start_byte else body.start_byte
        if mark[:1] in "'\"\\":
            line, origin = self.source.place(begin)
            return [TextPiece(self.source.text[begin : body.end_byte], line, origin)]
        return self.expander().document(begin, body.end_byte)

    # Statements

    def _assign(self, node: "Node") -> str:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None:
            return ""
        adds = any(child.type == "+=" for child in node.children)
        label = self.source.text[name.start_byte : name.end_byte]
        if value is not None and value.type == "array":
            self._assign_array(label, value, adds=adds)
        elif name.type == "subscript":
            self._assign_element(label, self.pieces(value) if value is not None else [], adds=adds)
        else:
            pieces = [] if value is None else self._whole(value)
            line, origin = self.source.place(node.start_byte)
            made = tuple(SPACE if one is BREAK else one._replace(split=False) for one in pieces)
            made = made or literal("", line, origin)
            if adds and (before := self.scope.get(label)) is not None:
                made = (*before, *made)
            self.scope.set(label, made)
        return ""

    def _whole(self, value: "Node") -> list[TextPiece]:
        """Pieces of an assigned word up to where a shell ends it: `"a "b=$C" d"` is one word."""
        if value.type not in ("string", "concatenation"):
            return self.pieces(value)
        expander = self.expander()
        end = expander.word_end(value.start_byte)
        if end > value.end_byte:
            self.skip_to = end
        return expander.expand(value.start_byte, max(end, value.end_byte))

    def _assign_array(self, name: str, node: "Node", *, adds: bool) -> None:
        inside = [one for one in node.children if one.is_named and one.type != "comment"]
        raws = [self.source.text[one.start_byte : one.end_byte] for one in inside]
        if raws and all(raw.startswith("[") and "]=" in raw for raw in raws):
            keyed = []
            for one, raw in zip(inside, raws, strict=True):
                key, _, _ = raw[1:].partition("]=")
                at = one.start_byte + len(key) + 3
                keyed.append((key.strip("\"'"), tuple(self.expander().expand(at, one.end_byte))))
            self.scope.set(name, ArrayValue(items=tuple(keyed)))
            return
        values = [token.pieces for token in self.tokens(inside) if "@" not in token.word.unknown]
        before = self.scope.array(name) if adds else None
        self.scope.set(name, array_of(values) if before is None else before.added(values))

    def _assign_element(self, label: str, pieces: list[TextPiece], *, adds: bool) -> None:
        name, _, key = label.rstrip("]").partition("[")
        plain = text_of(self.expander()._rescanned(key)).strip("\"'")
        array = self.scope.array(name) or ArrayValue(items=())
        value = tuple(pieces)
        if adds and (before := array.get(plain)):
            value = (*before, *value)
        kept = tuple(item for item in array.items if item[0] != plain)
        self.scope.set(name, ArrayValue(items=(*kept, (plain, value))))

    def _declare(self, node: "Node") -> str:
        names = []
        for child in node.children:
            if child.type == "variable_assignment":
                self._assign(child)
                label = child.child_by_field_name("name")
                names.append(label.text.decode() if label is not None and label.text else "")
            elif child.type == "variable_name" and child.text:
                names.append(child.text.decode())
        if node.children and node.children[0].type in ("export", "declare", "typeset"):
            self.scope.exported |= {*names}
        return ""

    def _unset(self, node: "Node") -> str:
        for child in node.children[1:]:
            if child.text:
                self.scope.values.pop(child.text.decode(), None)
        return ""

    def _compound(self, node: "Node") -> str:
        if node.children and node.children[0].type == "((":
            text = self.source.text[node.start_byte + 2 : node.end_byte - 2]
            self.calculate(text, self.source.place(node.start_byte)[0])
            return ""
        return self.run_each(node.children)

    def calculate(self, text: str, line: int) -> int | None:
        """An arithmetic statement: `i++`, `n = 2 * m`, or a comparison."""
        label, sign, rest = starts.arithmetic_statement(text)
        if not label:
            return worked_out(text_of(self._inline(text)), self.scope.number)
        change = worked_out(text_of(self._inline(rest)), self.scope.number)
        old = self.scope.number(label) if sign else 0
        made = None if change is None or old is None else worked_out(
            f"({old}){sign or '+'}({change})", lambda _: None
        )  # fmt: skip
        self.scope.set(label, unknown(label, line) if made is None else literal(str(made), line))
        return made

    def _inline(self, text: str) -> list[TextPiece]:
        inner = Expander(self.scope, Source(text), self.substitute, self.depth + 1)
        return inner.document(0, len(text))

    def _subshell(self, node: "Node") -> str:
        kept = self.scope
        self.scope = kept.copied()
        self.run_each(node.children)
        self.scope = kept
        return ""

    def _pipeline(self, node: "Node") -> str:
        parts = _piped(node)
        document: list[TextPiece] | None = None
        for at, part in enumerate(parts):
            if at == 0 and len(parts) > 1:
                found = self.document_of(part) or self._echoed(part)
                if found is not None:
                    document = list(found)
                    continue
            elif at + 1 < len(parts) and document is not None and part.type == "command":
                words = self.plain_words(part)
                if words and words[0].text in ("tr", "sed", "envsubst", "cat"):
                    continue
            if part.type == "command":
                starts.run_command(self, part, stdin=document)
            elif part.type == "redirected_statement":
                self._redirected(part, stdin=document)
            else:
                self.run(part)
        return ""

    # Functions

    def _define(self, node: "Node") -> str:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None and name.text:
            self.house.functions[name.text.decode()] = (body, self.source)
        return ""

    def call(self, name: str, values: Sequence[Value]) -> str:
        """Follow a function with its arguments as positions."""
        if self.depth > DEEPEST:
            return ""
        body, source = self.house.functions[name]
        self.house.called.add(name)
        kept = self.source, self.scope.positions, self.depth, self.skip_to
        self.source, self.scope.positions, self.depth = source, tuple(values), self.depth + 1
        self.skip_to = 0
        signal = self.run_each(body.children)
        self.source, self.scope.positions, self.depth, self.skip_to = kept
        return "" if signal in ("return", "fail") else signal

    def _redirected(self, node: "Node", stdin: list[TextPiece] | None = None) -> str:
        body = node.child_by_field_name("body")
        target, appends = "", False
        redirects = list(node.children)
        while redirects:
            child = redirects.pop(0)
            if child.type == "heredoc_redirect":
                stdin = self.here_document(child)
                redirects += child.children
            elif child.type == "herestring_redirect":
                stdin = [
                    piece for one in child.children if one.is_named for piece in self.pieces(one)
                ]
            elif child.type == "file_redirect" and child.children[0].type in (
                ">",
                ">>",
                ">|",
                "&>",
            ):
                where = child.child_by_field_name("destination")
                if where is not None:
                    target, appends = text_of(self.pieces(where)), child.children[0].type == ">>"
            elif (
                child.type in ("pipeline", "list", "command")
                and child is not body
                and node.type == "heredoc_redirect"
            ):
                self.run(child)
        if body is None:
            return ""
        if body.type == "command":
            return starts.run_command(self, body, stdin=stdin, target=target, appends=appends)
        return self.run(body)

    def _command(self, node: "Node") -> str:
        return starts.run_command(self, node)

    def _test(self, node: "Node") -> str:
        branching.status(self, node)
        return ""

    def _error(self, node: "Node") -> str:
        return self.run_each(node.children)

    def _negated(self, node: "Node") -> str:
        self.run(node.children[-1])
        return ""


def _piped(node: "Node") -> list["Node"]:
    """Commands of a pipeline in order."""
    if node.type != "pipeline":
        return [node]
    return [part for one in node.children if one.is_named for part in _piped(one)]


_WORDS = frozenset(
    """command_name word string raw_string concatenation simple_expansion expansion command_substitution
    number ansi_c_string translated_string arithmetic_expansion process_substitution brace_expression
    extglob_pattern regex test_operator""".split()
)
"""Types of nodes that are words of a command."""
_STATEMENTS: Mapping[str, Callable[[Shell, "Node"], str]] = {
    "variable_assignment": Shell._assign, "variable_assignments": Shell._error,
    "declaration_command": Shell._declare, "unset_command": Shell._unset,
    "compound_statement": Shell._compound, "subshell": Shell._subshell, "pipeline": Shell._pipeline,
    "list": branching.run_list, "if_statement": branching.run_if, "case_statement": branching.run_case,
    "for_statement": branching.run_for, "c_style_for_statement": branching.run_counting,
    "while_statement": branching.run_while, "function_definition": Shell._define,
    "redirected_statement": Shell._redirected,
    "command": Shell._command, "test_command": Shell._test, "ERROR": Shell._error, "program": Shell._error,
    "negated_command": Shell._negated, "do_group": Shell._error,
}  # fmt: skip
"""What is done with each kind of statement."""
