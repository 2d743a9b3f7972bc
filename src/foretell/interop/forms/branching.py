"""Branches and loops of a shell script: what is taken, how often, and what is left open.

A variable that nobody sets is empty in a test. A branch that ends the script because of that is not followed.
Branches on a rank are those of different nodes: all of them start something. Turns of loops are followed up
to a bound.
"""

import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from foretell.interop.forms import scope
from foretell.interop.forms.outputs import assigned_names, branches
from foretell.interop.forms.scope import CLUSTER, NO, OPEN, RANKS, YES, Scope, Verdict
from foretell.interop.forms.values import ArrayValue, names_of, text_of, unknown, worked_out

if TYPE_CHECKING:
    from tree_sitter import Node

    from foretell.interop.forms.shell import Shell

LEAVES = ("exit", "return", "fail")
"""Signals by which a script or function ends; `fail` is an exit with an error."""
_RANK = re.compile(rf"\$\{{?(?:{'|'.join(sorted(RANKS))})\b", re.IGNORECASE)


def run_list(shell: "Shell", node: "Node") -> str:
    """`A && B || C`: a command is taken to succeed."""
    left, *rest = node.children
    signal, verdict = _part(shell, left)
    for at in range(0, len(rest) - 1, 2):
        both = rest[at].type == "&&"
        if signal:
            return "" if signal == "fail" else signal
        if verdict.holds is not None and verdict.holds != both:
            continue
        if verdict.holds is None or verdict.unset:
            signal, verdict = _maybe(shell, rest[at + 1], verdict)
        else:
            signal, verdict = _part(shell, rest[at + 1])
    return "" if signal == "fail" else signal


def _part(shell: "Shell", node: "Node") -> tuple[str, Verdict]:
    """(signal, status) of one command of a list: a command is taken to succeed."""
    if node.type in ("test_command", "negated_command", "list") or is_test(shell, node):
        if node.type == "list":
            signal = run_list(shell, node)
            return signal, YES
        return "", status(shell, node)
    return shell.run(node), YES


def _maybe(shell: "Shell", node: "Node", verdict: Verdict) -> tuple[str, Verdict]:
    """A command behind an undecided condition, or one that holds for want of a value: one that leaves
    is not followed."""
    before, count = shell.scope.copied(), len(shell.house.processes)
    signal, status = _part(shell, node)
    if signal in LEAVES and len(shell.house.processes) == count:
        shell.scope = before
        return "", YES
    if verdict.holds is None:
        after, shell.scope = shell.scope, before.copied()
        shell.scope.merge(after, before, shell.source.place(node.start_byte)[0],
                         decider(verdict))  # fmt: skip
    return "", status


def is_test(shell: "Shell", node: "Node") -> bool:
    """Whether a command is a test: test, true, false, `:`."""
    first = (node.text or b"").split()[:1]
    return node.type == "command" and first in ([b"test"], [b"true"], [b"false"], [b":"])


def status(shell: "Shell", node: "Node") -> Verdict:
    """What a condition comes to; a command that it runs is followed and decides nothing."""
    kind = node.type
    if kind == "test_command":
        if node.children[0].type == "((":
            return counted(shell, shell.source.text[node.start_byte + 2 : node.end_byte - 2])
        inner = [one for one in node.children if one.is_named]
        return _tested(shell, inner[0]) if len(inner) == 1 else OPEN
    if kind == "compound_statement" and node.children[0].type == "((":
        return counted(shell, shell.source.text[node.start_byte + 2 : node.end_byte - 2])
    if kind == "list":
        left, sign, right = node.children[0], node.children[1], node.children[-1]
        return scope.join_verdicts(
            status(shell, left), status(shell, right), both=sign.type == "&&"
        )
    if kind == "negated_command":
        return scope.negated(status(shell, node.children[-1]))
    if is_test(shell, node):
        words = shell.plain_words(node)
        if words[0].text in ("true", ":"):
            return YES
        if words[0].text == "false":
            return NO
        rest = words[1:]
        if len(rest) == 3:
            return scope.binary([*rest[0].pieces], rest[1].text, [*rest[2].pieces], shell.scope)
        if len(rest) == 2:
            return scope.unary(
                rest[0].text, [*rest[1].pieces], shell.scope, partial(_written, shell)
            )
        return OPEN
    if kind == "command" and node.text and node.text.startswith(b"getopts"):
        return NO
    shell.run(node)
    return OPEN


def _written(shell: "Shell", name: str) -> bool:
    return name in shell.house.files


def counted(shell: "Shell", text: str) -> Verdict:
    """What `(( ))` comes to."""
    pieces = shell._inline(text)
    plain, names = scope.settled_text(pieces, shell.scope)
    if plain is None:
        return Verdict(holds=None, unset=names)
    if any(sign in plain for sign in ("++", "--", "+=", "-=")):
        shell.calculate(text, 0)
        return YES
    value = worked_out(
        plain, lambda one: 0 if shell.scope.get(one) is None else shell.scope.number(one)
    )
    return Verdict(holds=None if value is None else bool(value), unset=names)


def _tested(shell: "Shell", node: "Node") -> Verdict:
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
            return scope.join_verdicts(_tested(shell, left), _tested(shell, right), both=both)
        return scope.binary(shell.pieces(left), operator, shell.pieces(right), shell.scope)
    if kind == "unary_expression":
        sign = node.child_by_field_name("operator")
        operand = node.children[-1]
        operator = sign.text.decode() if sign is not None and sign.text else "!"
        if operator == "!":
            return scope.negated(_tested(shell, operand))
        return scope.unary(operator, shell.pieces(operand), shell.scope, partial(_written, shell))
    if kind in ("parenthesized_expression", "negated_command", "negated_expression"):
        inner = [one for one in node.children if one.is_named]
        found = _tested(shell, inner[0]) if inner else OPEN
        return found if kind == "parenthesized_expression" else scope.negated(found)
    return scope.unary("-n", shell.pieces(node), shell.scope, partial(_written, shell))


def run_if(shell: "Shell", node: "Node") -> str:
    """`if`, its `elif`s and `else`."""
    parts = branches(node)
    if any(_RANK.search(_spelt(shell, condition)) for condition, _ in parts if condition):
        return _by_rank(shell, parts)
    return _branch(shell, parts, node)


def _spelt(shell: "Shell", nodes: Sequence["Node"]) -> str:
    return " ".join(shell.source.text[one.start_byte : one.end_byte] for one in nodes)


def _by_rank(shell: "Shell", parts: list[tuple[list["Node"], list["Node"]]]) -> str:
    """Branches that nodes take by their rank: all of them start something, the first node's variables
    are kept."""
    before, kept, signal = shell.scope, shell.scope, ""
    for condition, body in parts:
        holds = bool(condition) and status(shell, condition[-1]).holds
        mine = kept is before and (holds or not condition)
        shell.scope = before.copied()
        left = shell.run_each(body)
        if mine:
            kept, signal = shell.scope, left
    shell.scope = kept
    return signal if signal in ("break", "continue") else ""


def _branch(
    shell: "Shell",
    rest: list[tuple[list["Node"], list["Node"]]],
    node: "Node",
    doubts: tuple[str, ...] = (),
) -> str:
    """The first branch whose condition holds; undecided ones are followed both ways."""
    if not rest:
        return ""
    (condition, body), *others = rest
    if not condition:
        return shell.run_each(body)
    for one in condition[:-1]:
        shell.run(one)
    verdict = status(shell, condition[-1])
    doubts = (*doubts, *verdict.unset)
    if verdict.holds is False:
        if others:
            return _branch(shell, others, node, doubts)
        _left_open(shell, node, doubts)
        return ""
    before, count = shell.scope.copied(), len(shell.house.processes)
    signal = shell.run_each(body) if verdict.holds else _conditional(shell, body, node, verdict)
    leaves = signal in LEAVES and len(shell.house.processes) == count
    if verdict.holds and not (leaves and (verdict.unset or signal == "fail")):
        return signal
    taken, shell.scope = shell.scope, before.copied()
    second = len(shell.house.processes)
    kept, shell.condition = shell.condition, shell.condition or _name(shell, node, verdict, "not ")
    other = _branch(shell, others, node, doubts) if others else ""
    shell.condition = kept
    if leaves:
        return "" if other in LEAVES and second == len(shell.house.processes) else other
    if other in LEAVES and len(shell.house.processes) == second:
        shell.scope = taken
        return signal
    line = shell.source.place(node.start_byte)[0]
    if shell.scope.merge(taken, before, line, decider(verdict)):
        _ask(shell, verdict, line)
    return signal if signal == other else ""


def _ask(shell: "Shell", verdict: Verdict, line: int) -> None:
    """Note the variable, or the line of the test, that decides words of a command; what a cluster sets
    decides none that matter."""
    name = decider(verdict) or f"what line {line} tests"
    if not CLUSTER.fullmatch(name):
        shell.house.deciders[_called(shell, name)] = None


def _name(shell: "Shell", node: "Node", verdict: Verdict, sign: str = "") -> str:
    """An undecided condition as a process carries it: what decides it, and its line."""
    line = shell.source.place(node.start_byte)[0]
    return f"{sign}{decider(verdict) or 'the condition'} (line {line})"


def _conditional(shell: "Shell", body: Sequence["Node"], node: "Node", verdict: Verdict) -> str:
    """Statements behind an undecided condition: what they start carries it."""
    kept = shell.condition
    shell.condition = kept or _name(shell, node, verdict)
    signal = shell.run_each(body)
    shell.condition = kept
    return signal


def _left_open(shell: "Shell", node: "Node", doubts: Sequence[str]) -> None:
    """Variables that only branches set, none of which is taken for want of a value, depend on it."""
    name = next((one for one in doubts if not one.startswith("$(")), "")
    if not name:
        return
    line = shell.source.place(node.start_byte)[0]
    for label in assigned_names([node]):
        if label not in shell.scope.values:
            shell.scope.values[label] = unknown(_called(shell, name), line)


def _called(shell: "Shell", name: str) -> str:
    """A position by the variable that holds it."""
    if not name.isdigit():
        return name
    return next(
        (one for one, value in shell.scope.values.items()
         if not isinstance(value, ArrayValue) and names_of(value) == (name,)), name,
    )  # fmt: skip


def run_case(shell: "Shell", node: "Node") -> str:
    """`case`: the first pattern that matches; all items where the word is open."""
    value = node.child_by_field_name("value")
    pieces = shell.pieces(value) if value is not None else []
    text, names = scope.settled_text(pieces, shell.scope)
    items = [one for one in node.children if one.type == "case_item"]
    bodies = [(one, [child for child in one.children if child.is_named
                     and child not in one.children_by_field_name("value")])
              for one in items]  # fmt: skip
    before, count = shell.scope.copied(), len(shell.house.processes)
    if text is not None:
        for item, body in bodies:
            patterns = [text_of(shell.pieces(one)) for one in item.children_by_field_name("value")]
            if any(scope._alike(text, one) for one in patterns):
                signal = shell.run_each(body)
                if signal in LEAVES and names and len(shell.house.processes) == count:
                    shell.scope = before
                    break
                return signal
        if names:
            _left_open(shell, node, names)
        return ""
    scopes: list[Scope] = []
    kept = shell.condition
    for _, body in bodies:
        shell.scope = before.copied()
        sign = "not " if scopes else ""
        shell.condition = shell.condition or _name(
            shell, node, Verdict(holds=None, unset=names), sign
        )
        signal = shell.run_each(body)
        shell.condition = kept
        if not (signal in LEAVES and len(shell.house.processes) == count):
            scopes.append(shell.scope)
    shell.scope = scopes[0] if scopes else before
    for other in scopes[1:]:
        shell.scope.merge(
            other, before, shell.source.place(node.start_byte)[0], names[0] if names else ""
        )
    return ""


def decider(verdict: Verdict) -> str:
    """The variable that a verdict depends on, where one is named."""
    return next((one for one in verdict.unset if not one.startswith("$(")), "")


if TYPE_CHECKING:
    from tree_sitter import Node

    from foretell.interop.forms.shell import Shell

MOST_TURNS = 64
"""Turns of one loop."""


def run_for(shell: "Shell", node: "Node") -> str:
    """`for NAME in WORDS`; where the words are not known, once with the name unknown."""
    name = node.child_by_field_name("variable")
    body = node.child_by_field_name("body")
    if name is None or body is None or not name.text:
        return ""
    tokens = shell.tokens(node.children_by_field_name("value"))
    label = name.text.decode()
    if not tokens or any(token.word.unknown for token in tokens):
        line = shell.source.place(node.start_byte)[0]
        shell.scope.set(label, unknown(label, line))
        signal = shell.run_each(body.children)
        return signal if signal in ("exit", "fail") else ""
    for token in tokens[:MOST_TURNS]:
        shell.scope.set(label, token.pieces)
        signal = shell.run_each(body.children)
        if signal == "break":
            break
        if signal in LEAVES:
            return signal
    return ""


def run_counting(shell: "Shell", node: "Node") -> str:
    """`for ((i = 0; i < n; i++))`."""
    body = node.child_by_field_name("body")
    parts = {
        name: node.child_by_field_name(name) for name in ("initializer", "condition", "update")
    }
    text = {name: "" if one is None else shell.source.text[one.start_byte : one.end_byte]
            for name, one in parts.items()}  # fmt: skip
    line = shell.source.place(node.start_byte)[0]
    if body is None:
        return ""
    shell.calculate(text["initializer"], line)
    for _ in range(MOST_TURNS):
        verdict = counted(shell, text["condition"])
        if verdict.holds is False:
            break
        signal = shell.run_each(body.children)
        if signal in LEAVES:
            return signal
        if signal == "break" or verdict.holds is None:
            break
        shell.calculate(text["update"], line)
    return ""


def run_while(shell: "Shell", node: "Node") -> str:
    """`while` and `until`; a body behind an undecided test is followed once, what it sets is left open."""
    body = node.child_by_field_name("body")
    conditions_ = [one for one in node.children_by_field_name("condition") if one.is_named]
    if body is None or not conditions_:
        return ""
    turns = 0
    while turns < MOST_TURNS:
        verdict = status(shell, conditions_[-1])
        verdict = scope.negated(verdict) if node.children[0].type == "until" else verdict
        if verdict.holds is False:
            return ""
        before = shell.scope.copied()
        signal = shell.run_each(body.children)
        if verdict.holds is None:
            shell.scope.merge(before, before, shell.source.place(node.start_byte)[0], "")
            return ""
        turns += 1
        if signal == "break" or (turns > 1 and before.values == shell.scope.values):
            return ""
        if signal in LEAVES:
            return signal
    return ""
