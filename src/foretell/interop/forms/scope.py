"""Variables of a shell script while it is read, what all scripts of a file share, and tests of variables.

A variable that the file never sets is empty in `[ -z "$X" ]`, `[[ $Y == a* ]]` or `(( n > 1 ))`, as in a
shell in which nobody set it; what a cluster or the output of a command decides is not decided here. A script
that branches on its rank is followed as the first.
"""

import re
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from foretell.interop.forms.records import LaunchedProcess, Word
from foretell.interop.forms.values import (
    ArrayValue,
    Source,
    TextPiece,
    Value,
    literal,
    names_of,
    shortened,
    text_of,
    unknown,
    worked_out,
)
from foretell.records import dataclass

RANKS = frozenset(
    """RANK NODE_RANK NODERANK LOCAL_RANK GROUP_RANK MACHINE_RANK SLURM_PROCID SLURM_NODEID SLURM_LOCALID
    PMI_RANK OMPI_COMM_WORLD_RANK LWS_WORKER_INDEX JOB_COMPLETION_INDEX PET_NODE_RANK SKYPILOT_NODE_RANK
    DSTACK_NODE_RANK POD_INDEX PBS_TASKNUM JOB_INDEX VC_TASK_INDEX SLURM_ARRAY_TASK_ID NODE_INDEX
    MLP_ROLE_INDEX ARNOLD_ID REPLICA_INDEX""".split()
)
"""Variables that number a node or process: where a script branches on one, the first is followed."""
CLUSTER = re.compile(
    r"(?:SLURM|PBS|OMPI|PMI|LSB|PET|SKYPILOT|DSTACK|KUBERNETES|MLP|ARNOLD|VC|AZ|AWS|SM|COBALT|FLUX)_\w+"
    r"|HOSTNAME|HOME|USER|TMPDIR|SCRATCH|RANDOM|CUDA_HOME|PATH|PYTHONPATH|LD_LIBRARY_PATH"
)
"""Variables that the cluster, the launcher or the user's account sets: never empty, never known."""
OWN: Mapping[str, str] = {
    "PWD": ".", "OLDPWD": ".", "0": "./launch.sh", "BASH_SOURCE": "./launch.sh", "?": "0",
    "-": "", "LINENO": "1", "IFS": " ", "OPTIND": "1", "SECONDS": "0",
}  # fmt: skip
"""Variables of the shell itself."""
PLACEHOLDER = re.compile(r"<[^<>\n]+>[\w./-]*")
"""What stands for a value that the user puts in."""
_NUMBER = re.compile(r"-?\d{1,18}")
_SPELT = re.compile(r"[A-Za-z_]\w*")


class Scope:
    """Variables as they are at one place of a script."""

    __slots__ = ("exported", "positions", "values")

    def __init__(self, values: Mapping[str, Value | ArrayValue] | None = None) -> None:
        self.values: dict[str, Value | ArrayValue] = dict(values or {})
        self.exported: frozenset[str] = frozenset()
        self.positions: tuple[Value, ...] | None = None

    def copied(self) -> "Scope":
        """A scope of its own with the same values."""
        other = copy(self)
        other.values = dict(self.values)
        return other

    def set(self, name: str, value: Value | ArrayValue) -> None:
        """Give a variable a value; the output of a command that is not known takes the variable's name."""
        if not isinstance(value, ArrayValue):
            value = shortened(value)
            names = names_of(value)
            output = names and all(one.startswith("$(") for one in names)
            position = len(value) == 1 and names and names[0].isdigit()
            if output or position or (value and PLACEHOLDER.fullmatch(text_of(value))):
                value = unknown(name, value[0].line)
        self.values[name] = value

    def get(self, name: str) -> Value | None:
        """A scalar's value, or an array's first element; None where the file does not set it."""
        if name in self.values:
            found = self.values[name]
            if not isinstance(found, ArrayValue):
                return found
            first = found.get("0")
            return () if first is None and found.items else first
        if self.positions is not None:
            if name == "#":
                return literal(str(len(self.positions)), 0)
            if name.isdigit() and name != "0":
                at = int(name) - 1
                return self.positions[at] if at < len(self.positions) else ()
        if name in OWN:
            return literal(OWN[name], 0)
        return None

    def array(self, name: str) -> ArrayValue | None:
        """An array, or a scalar as one of one element; None where the file does not set it."""
        found = self.values.get(name)
        if name == "BASH_SOURCE":
            return ArrayValue(items=(("0", literal(OWN[name], 0)),))
        if found is None or isinstance(found, ArrayValue):
            return found
        return ArrayValue(items=(("0", found),))

    def number(self, name: str) -> int | None:
        """The whole number that a variable holds, expressions worked out; unset is None."""
        seen = {name}
        found = self.get(name)
        while found is not None and not names_of(found):
            text = text_of(found).strip().strip("\"'")
            if _NUMBER.fullmatch(text):
                return int(text)
            if _SPELT.fullmatch(text) and text not in seen:
                seen.add(text)
                found = self.get(text)
                continue
            return worked_out(text, lambda one: None) if text else 0
        return None

    def merge(self, other: "Scope", before: "Scope", line: int, decider: str) -> bool:
        """Take over what two branches of an undecided condition agree on; the rest becomes unknown, by the
        name of what decides or by its own. Whether they differ in an array of words.

        A value that one branch alone sets where nothing stood before is kept: the other leaves it unset.
        """
        arrays = False
        for name in {*self.values, *other.values}:
            mine, theirs = self.values.get(name), other.values.get(name)
            if _same(mine, theirs):
                continue
            if mine is None or theirs is None:
                kept = mine if mine is not None else theirs
                if name not in before.values and kept is not None:
                    self.values[name] = kept
                    continue
            if isinstance(mine, ArrayValue) or isinstance(theirs, ArrayValue):
                arrays = arrays or _matter(mine, theirs)
                continue  # words that one branch adds: those of the other are kept
            ends = sorted((text_of(mine or ()), text_of(theirs or ())), key=len)
            if ends[0] and " --" in ends[1].removeprefix(ends[0]) and ends[1].startswith(ends[0]):
                self.values[name] = min(mine or (), theirs or (), key=lambda one: len(text_of(one)))
                arrays = arrays or _matter(mine, theirs)
                continue
            self.values[name] = unknown(decider or name, line)
        self.exported |= other.exported
        return arrays


_QUIET = re.compile(
    r"load|save|resume|restore|ckpt|checkpoint(?!ing)|wandb|log|tensorboard|debug|profil|eval|data|path|"
    r"dir|name|seed|token|host|port|addr|rank|rdzv|verbose|timeout"
)
"""Parts of flags that move neither time nor memory."""


_STARTS = frozenset("python python3 uv torchrun srun mpirun accelerate deepspeed run".split())
"""Words that start a program: flags beside them are its launcher's."""


def _matter(mine: Value | ArrayValue | None, theirs: Value | ArrayValue | None) -> bool:
    """Whether flags that one of two values has alone may move time or memory."""
    one, other = _words(mine), _words(theirs)
    if _STARTS & (one | other):
        return False
    flags = [
        {word.partition("=")[0] for word in words if word[:1] == "-"} for words in (one, other)
    ]
    alone = (flags[0] ^ flags[1]) if any(flags) else one ^ other
    return any(not _QUIET.search(word.lower()) for word in alone)


def _words(value: Value | ArrayValue | None) -> set[str]:
    """The words of a value."""
    if isinstance(value, ArrayValue):
        return {word for _, words in value.items for word in text_of(words).split()}
    return {*text_of(value or ()).split()}


def _same(mine: Value | ArrayValue | None, theirs: Value | ArrayValue | None) -> bool:
    if mine is None or theirs is None:
        return mine is theirs
    if isinstance(mine, ArrayValue) or isinstance(theirs, ArrayValue):
        return mine == theirs
    return text_of(mine) == text_of(theirs)


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


if TYPE_CHECKING:
    from tree_sitter import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """What all scripts of one file share."""

    open_file: Callable[[str], str | None]
    """The text of a file beside the launch; None where there is none."""
    processes: list[LaunchedProcess] = field(default_factory=list)
    """What was started so far."""
    files: dict[str, str] = field(default_factory=dict)
    """Files that were written so far."""
    sources: dict[str, Value] = field(default_factory=dict)
    """The pieces of those that come from a here-document, by which lines are known."""
    functions: dict[str, tuple["Node", Source]] = field(default_factory=dict)
    """Functions that were defined so far."""
    called: set[str] = field(default_factory=set)
    """Those that were called."""
    missing: dict[str, None] = field(default_factory=dict)
    """Files that were named and are not there."""
    deciders: dict[str, None] = field(default_factory=dict)
    """Variables without a value that decide words of a command."""
    steps: list[int] = field(default_factory=lambda: [0])
    """Statements so far."""
    rays: list[Word] = field(default_factory=list)
    """GPUs that `ray start` is given."""
