"""A small evaluator over the syntax tree of a shell script: what it would start, without running anything.

Assignments, expansions, arithmetic, arrays, branches, loops, functions, here-documents and files that it
sources are followed. A branch that the file does not decide is read both ways: what both agree on is known,
the rest stays unknown by name. Commands go to `starts.py`, which takes their launchers off.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from foretell.interop.forms import conditions, outputs, starts
from foretell.interop.forms.arithmetic import worked_out
from foretell.interop.forms.conditions import NO, OPEN, YES, Verdict
from foretell.interop.forms.expansion import Expander, array_of
from foretell.interop.forms.records import LaunchedProcess, LauncherLayer, Word
from foretell.interop.forms.scope import RANKS, Scope
from foretell.interop.forms.syntax import assigned_names, branches, parsed
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
    names_of,
    text_of,
    tokens_of,
    unknown,
)
from foretell.records import dataclass

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_STEPS = 20_000
"""Statements of all scripts together."""
MOST_TURNS = 64
"""Turns of one loop."""
MOST_PROCESSES = 400
"""Processes of one file."""
DEEPEST = 12
"""Scripts and functions inside one another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """What all scripts of one file share."""

    open_file: Callable[[str], str | None]
    """The text of a file beside the launch; None where there is none."""
    processes: list[LaunchedProcess] = field(default_factory=list)
    """What was started so far."""
    files: dict[str, str] = field(default_factory=dict)
    """Files that were written so far."""
    functions: dict[str, tuple["Node", Source]] = field(default_factory=dict)
    """Functions that were defined so far."""
    called: set[str] = field(default_factory=set)
    """Those that were called."""
    missing: dict[str, None] = field(default_factory=dict)
    """Files that were named and are not there."""
    steps: list[int] = field(default_factory=lambda: [0])
    """Statements so far."""
    rays: list[Word] = field(default_factory=list)
    """GPUs that `ray start` is told of."""


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

    def _list(self, node: "Node") -> str:
        left, *rest = node.children
        signal, verdict = self._part(left)
        for at in range(0, len(rest) - 1, 2):
            both = rest[at].type == "&&"
            if signal:
                return "" if signal == "fail" else signal
            if verdict.holds is not None and verdict.holds != both:
                continue
            if verdict.holds is None or verdict.unset:
                signal, verdict = self._maybe(rest[at + 1], verdict)
            else:
                signal, verdict = self._part(rest[at + 1])
        return "" if signal == "fail" else signal

    def _part(self, node: "Node") -> tuple[str, Verdict]:
        """(signal, status) of one command of a list: a command is taken to succeed."""
        if node.type in ("test_command", "negated_command", "list") or self._is_test(node):
            if node.type == "list":
                signal = self._list(node)
                return signal, YES
            return "", self.status(node)
        return self.run(node), YES

    def _maybe(self, node: "Node", verdict: Verdict) -> tuple[str, Verdict]:
        """A command behind an undecided condition, or one that holds for want of a value: one that leaves
        is not followed."""
        before, count = self.scope.copied(), len(self.house.processes)
        signal, status = self._part(node)
        if signal in _LEAVES and len(self.house.processes) == count:
            self.scope = before
            return "", YES
        if verdict.holds is None:
            after, self.scope = self.scope, before.copied()
            self.scope.merge(after, before, self.source.place(node.start_byte)[0],
                             _decider(verdict))  # fmt: skip
        return "", status

    def _is_test(self, node: "Node") -> bool:
        first = (node.text or b"").split()[:1]
        return node.type == "command" and first in ([b"test"], [b"true"], [b"false"], [b":"])

    # Conditions

    def status(self, node: "Node") -> Verdict:
        """What a condition comes to; a command that it runs is followed and decides nothing."""
        kind = node.type
        if kind == "test_command":
            if node.children[0].type == "((":
                return self._counted(self.source.text[node.start_byte + 2 : node.end_byte - 2])
            inner = [one for one in node.children if one.is_named]
            return self._tested(inner[0]) if len(inner) == 1 else OPEN
        if kind == "compound_statement" and node.children[0].type == "((":
            return self._counted(self.source.text[node.start_byte + 2 : node.end_byte - 2])
        if kind == "list":
            left, sign, right = node.children[0], node.children[1], node.children[-1]
            return conditions.join_verdicts(
                self.status(left), self.status(right), both=sign.type == "&&"
            )
        if kind == "negated_command":
            return conditions.negated(self.status(node.children[-1]))
        if self._is_test(node):
            words = self.plain_words(node)
            if words[0].text in ("true", ":"):
                return YES
            if words[0].text == "false":
                return NO
            rest = words[1:]
            if len(rest) == 3:
                return conditions.binary(
                    [*rest[0].pieces], rest[1].text, [*rest[2].pieces], self.scope
                )
            if len(rest) == 2:
                return conditions.unary(rest[0].text, [*rest[1].pieces], self.scope, self._written)
            return OPEN
        if kind == "command" and node.text and node.text.startswith(b"getopts"):
            return NO
        self.run(node)
        return OPEN

    def _written(self, name: str) -> bool:
        return name in self.house.files

    def _counted(self, text: str) -> Verdict:
        pieces = self._inline(text)
        plain, names = conditions.settled_text(pieces, self.scope)
        if plain is None:
            return Verdict(holds=None, unset=names)
        if any(sign in plain for sign in ("++", "--", "+=", "-=")):
            self.calculate(text, 0)
            return YES
        value = worked_out(
            plain, lambda one: 0 if self.scope.get(one) is None else self.scope.number(one)
        )
        return Verdict(holds=None if value is None else bool(value), unset=names)

    def _tested(self, node: "Node") -> Verdict:
        """An expression inside `[ ]` or `[[ ]]`."""
        kind = node.type
        if kind == "binary_expression":
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            sign = node.child_by_field_name("operator")
            if left is None or right is None or sign is None or not sign.text:
                return OPEN
            operator = sign.text.decode()
            if operator in ("&&", "||", "-a", "-o"):
                both = operator in ("&&", "-a")
                return conditions.join_verdicts(self._tested(left), self._tested(right), both=both)
            return conditions.binary(self.pieces(left), operator, self.pieces(right), self.scope)
        if kind == "unary_expression":
            sign = node.child_by_field_name("operator")
            operand = node.children[-1]
            operator = sign.text.decode() if sign is not None and sign.text else "!"
            if operator == "!":
                return conditions.negated(self._tested(operand))
            return conditions.unary(operator, self.pieces(operand), self.scope, self._written)
        if kind in ("parenthesized_expression", "negated_command", "negated_expression"):
            inner = [one for one in node.children if one.is_named]
            found = self._tested(inner[0]) if inner else OPEN
            return found if kind == "parenthesized_expression" else conditions.negated(found)
        return conditions.unary("-n", self.pieces(node), self.scope, self._written)

    def _if(self, node: "Node") -> str:
        parts = branches(node)
        if any(_RANK.search(self._spelt(condition)) for condition, _ in parts if condition):
            return self._by_rank(parts)
        return self._branch(parts, node)

    def _spelt(self, nodes: Sequence["Node"]) -> str:
        return " ".join(self.source.text[one.start_byte : one.end_byte] for one in nodes)

    def _by_rank(self, parts: list[tuple[list["Node"], list["Node"]]]) -> str:
        """Branches that nodes take by their rank: all of them start something, the first node's variables
        are kept."""
        before, kept, signal = self.scope, self.scope, ""
        for condition, body in parts:
            holds = bool(condition) and self.status(condition[-1]).holds
            mine = kept is before and (holds or not condition)
            self.scope = before.copied()
            left = self.run_each(body)
            if mine:
                kept, signal = self.scope, left
        self.scope = kept
        return signal if signal in ("break", "continue") else ""

    def _branch(
        self,
        rest: list[tuple[list["Node"], list["Node"]]],
        node: "Node",
        doubts: tuple[str, ...] = (),
    ) -> str:
        """The first branch whose condition holds; undecided ones are followed both ways."""
        if not rest:
            return ""
        (condition, body), *others = rest
        if not condition:
            return self.run_each(body)
        for one in condition[:-1]:
            self.run(one)
        verdict = self.status(condition[-1])
        doubts = (*doubts, *verdict.unset)
        if verdict.holds is False:
            if others:
                return self._branch(others, node, doubts)
            self._left_open(node, doubts)
            return ""
        before, count = self.scope.copied(), len(self.house.processes)
        signal = self._conditional(body, node) if verdict.holds is None else self.run_each(body)
        leaves = signal in _LEAVES and len(self.house.processes) == count
        if verdict.holds and not (leaves and (verdict.unset or signal == "fail")):
            return signal
        taken, self.scope = self.scope, before.copied()
        second = len(self.house.processes)
        other = self._branch(others, node, doubts) if others else ""
        if leaves:
            return "" if other in _LEAVES and second == len(self.house.processes) else other
        if other in _LEAVES and len(self.house.processes) == second:
            self.scope = taken
            return signal
        line = self.source.place(node.start_byte)[0]
        self.scope.merge(taken, before, line, _decider(verdict))
        return signal if signal == other else ""

    def _conditional(self, body: Sequence["Node"], node: "Node") -> str:
        """Statements behind an undecided condition: what they start carries it."""
        kept = self.condition
        first = self.source.text[node.start_byte : node.end_byte].partition("\n")[0]
        self.condition = kept or first[:120].strip()
        signal = self.run_each(body)
        self.condition = kept
        return signal

    def _left_open(self, node: "Node", doubts: Sequence[str]) -> None:
        """Variables that only branches set, none of which is taken for want of a value, depend on it."""
        name = next((one for one in doubts if not one.startswith("$(")), "")
        if not name:
            return
        line = self.source.place(node.start_byte)[0]
        for label in assigned_names([node]):
            if label not in self.scope.values:
                self.scope.values[label] = unknown(self._called(name), line)

    def _called(self, name: str) -> str:
        """A position by the variable that holds it."""
        if not name.isdigit():
            return name
        return next(
            (one for one, value in self.scope.values.items()
             if not isinstance(value, ArrayValue) and names_of(value) == (name,)), name,
        )  # fmt: skip

    def _case(self, node: "Node") -> str:
        value = node.child_by_field_name("value")
        pieces = self.pieces(value) if value is not None else []
        text, names = conditions.settled_text(pieces, self.scope)
        items = [one for one in node.children if one.type == "case_item"]
        bodies = [(one, [child for child in one.children if child.is_named
                         and child not in one.children_by_field_name("value")])
                  for one in items]  # fmt: skip
        before, count = self.scope.copied(), len(self.house.processes)
        if text is not None:
            for item, body in bodies:
                patterns = [
                    text_of(self.pieces(one)) for one in item.children_by_field_name("value")
                ]
                if any(conditions._alike(text, one) for one in patterns):
                    signal = self.run_each(body)
                    if signal in _LEAVES and names and len(self.house.processes) == count:
                        self.scope = before
                        break
                    return signal
            if names:
                self._left_open(node, names)
            return ""
        scopes = []
        for _, body in bodies:
            self.scope = before.copied()
            signal = self._conditional(body, node)
            if not (signal in _LEAVES and len(self.house.processes) == count):
                scopes.append(self.scope)
        self.scope = scopes[0] if scopes else before
        for other in scopes[1:]:
            self.scope.merge(
                other, before, self.source.place(node.start_byte)[0], names[0] if names else ""
            )
        return ""

    # Loops and functions

    def _for(self, node: "Node") -> str:
        name = node.child_by_field_name("variable")
        body = node.child_by_field_name("body")
        if name is None or body is None or not name.text:
            return ""
        tokens = self.tokens(node.children_by_field_name("value"))
        label = name.text.decode()
        if not tokens or any(token.word.unknown for token in tokens):
            line = self.source.place(node.start_byte)[0]
            self.scope.set(label, unknown(label, line))
            signal = self.run_each(body.children)
            return signal if signal in ("exit", "fail") else ""
        for token in tokens[:MOST_TURNS]:
            self.scope.set(label, token.pieces)
            signal = self.run_each(body.children)
            if signal == "break":
                break
            if signal in _LEAVES:
                return signal
        return ""

    def _c_for(self, node: "Node") -> str:
        body = node.child_by_field_name("body")
        parts = {
            name: node.child_by_field_name(name) for name in ("initializer", "condition", "update")
        }
        text = {name: "" if one is None else self.source.text[one.start_byte : one.end_byte]
                for name, one in parts.items()}  # fmt: skip
        line = self.source.place(node.start_byte)[0]
        if body is None:
            return ""
        self.calculate(text["initializer"], line)
        for _ in range(MOST_TURNS):
            verdict = self._counted(text["condition"])
            if verdict.holds is False:
                break
            signal = self.run_each(body.children)
            if signal in _LEAVES:
                return signal
            if signal == "break" or verdict.holds is None:
                break
            self.calculate(text["update"], line)
        return ""

    def _while(self, node: "Node") -> str:
        body = node.child_by_field_name("body")
        conditions_ = [one for one in node.children_by_field_name("condition") if one.is_named]
        if body is None or not conditions_:
            return ""
        turns = 0
        while turns < MOST_TURNS:
            verdict = self.status(conditions_[-1])
            verdict = conditions.negated(verdict) if node.children[0].type == "until" else verdict
            if verdict.holds is False:
                return ""
            before = self.scope.copied()
            signal = self.run_each(body.children)
            if verdict.holds is None:
                self.scope.merge(before, before, self.source.place(node.start_byte)[0], "")
                return ""
            turns += 1
            if signal == "break" or (turns > 1 and before.values == self.scope.values):
                return ""
            if signal in _LEAVES:
                return signal
        return ""

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
        self.status(node)
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


def _decider(verdict: Verdict) -> str:
    return next((one for one in verdict.unset if not one.startswith("$(")), "")


_RANK = re.compile(rf"\$\{{?(?:{'|'.join(sorted(RANKS))})\b", re.IGNORECASE)
_LEAVES = ("exit", "return", "fail")
"""Signals by which a script or function ends; `fail` is an exit with an error."""
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
    "list": Shell._list, "if_statement": Shell._if, "case_statement": Shell._case,
    "for_statement": Shell._for, "c_style_for_statement": Shell._c_for, "while_statement": Shell._while,
    "function_definition": Shell._define, "redirected_statement": Shell._redirected,
    "command": Shell._command, "test_command": Shell._test, "ERROR": Shell._error, "program": Shell._error,
    "negated_command": Shell._negated, "do_group": Shell._error,
}  # fmt: skip
"""What is done with each kind of statement."""
