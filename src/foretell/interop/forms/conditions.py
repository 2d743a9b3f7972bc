"""Tests of a shell: `[ -z "$X" ]`, `[[ $Y == a* ]]`, `(( n > 1 ))`, as true, false or not decided.

A variable that the file never sets is empty, as in a shell in which nobody set it; what a cluster or the
output of a command decides is not decided here. A script that branches on its rank is followed as the first.
"""

import re
from collections.abc import Callable
from fnmatch import fnmatchcase

from foretell.interop.forms.scope import CLUSTER, RANKS, Scope
from foretell.interop.forms.values import TextPiece, names_of, text_of
from foretell.records import dataclass

NUMBERS = {"-eq": "==", "-ne": "!=", "-lt": "<", "-le": "<=", "-gt": ">", "-ge": ">="}
"""Comparisons of whole numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a condition comes to."""

    holds: bool | None
    """True, false, or None where the file does not decide it."""
    unset: tuple[str, ...] = ()
    """Variables that were taken as empty because nobody sets them, or that it depends on."""


YES, NO, OPEN = Verdict(holds=True), Verdict(holds=False), Verdict(holds=None)


def settled_text(pieces: list[TextPiece], scope: Scope) -> tuple[str | None, tuple[str, ...]]:
    """(the text of an operand, variables taken as empty or open); the text is None where it is open."""
    found, names = list[str](), names_of(pieces)
    for piece in pieces:
        if not piece.names:
            found.append(piece.text)
            continue
        if all(name in RANKS for name in piece.names):
            found.append("0")
        elif any(_is_open(name, scope) for name in piece.names):
            return None, names
    return "".join(found), names


def _is_open(name: str, scope: Scope) -> bool:
    """Whether a name without a value is set by somebody else, rather than by nobody."""
    if name.startswith("$(") or CLUSTER.fullmatch(name):
        return True
    return scope.get(name) is not None


def join_verdicts(left: Verdict, right: Verdict, *, both: bool) -> Verdict:
    """Two verdicts with && (`both`) or ||."""
    unset = (*left.unset, *right.unset)
    parts = (left.holds, right.holds)
    if both:
        holds = False if False in parts else None if None in parts else True
    else:
        holds = True if True in parts else None if None in parts else False
    return Verdict(holds=holds, unset=unset)


def negated(one: Verdict) -> Verdict:
    """The opposite verdict."""
    return Verdict(holds=None if one.holds is None else not one.holds, unset=one.unset)


def unary(
    operator: str, pieces: list[TextPiece], scope: Scope, written: Callable[[str], bool]
) -> Verdict:
    """`-z`, `-n`, `-f` and the like of one operand."""
    text, names = settled_text(pieces, scope)
    if operator in ("-z", "-n"):
        if text is None:
            return Verdict(holds=None, unset=names)
        return Verdict(holds=(not text) == (operator == "-z"), unset=names)
    if operator == "-v":
        name = text_of(pieces)
        return Verdict(holds=scope.get(name) is not None, unset=(name,))
    if operator in ("-f", "-e", "-s", "-d", "-r", "-x", "-L") and text is not None:
        return YES if written(text) else Verdict(holds=None, unset=names)
    return Verdict(holds=None, unset=names)


def binary(left: list[TextPiece], operator: str, right: list[TextPiece], scope: Scope) -> Verdict:
    """A comparison of two operands."""
    one, names = settled_text(left, scope)
    other, more = settled_text(right, scope)
    unset = (*names, *more)
    if one is None or other is None:
        return Verdict(holds=None, unset=unset)
    if operator in NUMBERS or operator in ("<", ">", "<=", ">="):
        return Verdict(holds=_compared(one, NUMBERS.get(operator, operator), other), unset=unset)
    if operator in ("=", "=="):
        return Verdict(holds=_alike(one, other), unset=unset)
    if operator == "!=":
        return Verdict(holds=not _alike(one, other), unset=unset)
    if operator == "=~":
        try:
            return Verdict(holds=bool(re.search(other[:200], one[:2000])), unset=unset)
        except re.error:
            return Verdict(holds=None, unset=unset)
    return Verdict(holds=None, unset=unset)


def _alike(one: str, other: str) -> bool:
    return one == other or (any(sign in other for sign in "*?[") and fnmatchcase(one, other))


def _compared(one: str, sign: str, other: str) -> bool | None:
    try:
        left, right = int(one.strip() or "0"), int(other.strip() or "0")
    except ValueError:
        return None
    return {
        "==": left == right, "!=": left != right, "<": left < right, "<=": left <= right,
        ">": left > right, ">=": left >= right,
    }[sign]  # fmt: skip
