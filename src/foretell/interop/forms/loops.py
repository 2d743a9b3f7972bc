"""Loops of a shell script: over words, over numbers, while a test holds; turns are followed up to a bound."""

from typing import TYPE_CHECKING

from foretell.interop.forms import branching, conditions
from foretell.interop.forms.values import unknown

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
        if signal in branching.LEAVES:
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
        verdict = branching.counted(shell, text["condition"])
        if verdict.holds is False:
            break
        signal = shell.run_each(body.children)
        if signal in branching.LEAVES:
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
        verdict = branching.status(shell, conditions_[-1])
        verdict = conditions.negated(verdict) if node.children[0].type == "until" else verdict
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
        if signal in branching.LEAVES:
            return signal
    return ""
