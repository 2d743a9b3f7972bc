"""Typed access to the arguments of one tool, which remembers what was read and what was wrong.

As the reader of configs does (huggingface/config.py), it never stops at the first fault: a value that
cannot be is recorded, and all faults are raised together.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from foretell.errors import BadInput, Problem, nearest_name
from foretell.interop.arguments import ArgumentTable

LARGEST = 10**9
"""Degrees, batches and lengths above this are a typing error."""
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}(\.0{1,6})?")
_TRUTH = {
    "true": True, "1": True, "yes": True, "on": True,
    "false": False, "0": False, "no": False, "off": False,
}  # fmt: skip
_NONE = ("none", "null", "auto", "default", "")
"""How tools spell that a value is left to them."""


class Keys:
    """The arguments of one tool."""

    __slots__ = ("_pairs", "_used", "notes", "problems", "tool", "variables", "words")

    tool: str
    """Whose arguments, in messages."""
    notes: list[str]
    """What was converted or taken for granted."""
    problems: list[Problem]
    """What is wrong so far."""
    words: list[str]
    """Words that belong to no flag, in order."""

    def __init__(
        self, given: ArgumentTable, *, tool: str, switches: Iterable[str] = (), last: bool = False
    ) -> None:
        """`switches` are flags that take no value: a word behind one stands by itself.

        With `last`, the last part of a dotted key counts alone: `model.seq_length` is seq_length.
        """
        alone = frozenset(switches)
        self.tool, self.notes, self.problems = tool, [], []
        self.variables = given.variables
        self.words = list(given.words)
        self._pairs: dict[str, Any] = {}
        self._used: set[str] = {"m"}  # `python -m` is the program's, not the tool's
        for key, value in given.pairs:
            name = key.rpartition(".")[2] if last else key
            if name in alone and not _is_truth(value):
                self.words += [
                    str(item) for item in (value if isinstance(value, list) else [value])
                ]
                value = True
            before = self._pairs.get(name)
            if before is not None and before != value:
                self.notes.append(f"{name[:60]} is given more than once: the last counts")
            self._pairs[name] = value

    def has(self, *names: str) -> bool:
        """Whether any of the names is given."""
        return any(name in self._pairs for name in names)

    def raw(self, *names: str) -> Any:
        """The first of the names that is given, as it stands; None where none is."""
        self._used.update(name for name in names if name in self._pairs)
        for name in names:
            value = self._pairs.get(name)
            if value is not None:
                return value
        return None

    def whole(self, *names: str, low: int = 1, high: int = LARGEST) -> int | None:
        """A whole number, None where absent, left to the tool, or not in the text."""
        value = self._one(*names)
        if value is None:
            return None
        text = str(value).strip().replace("_", "")
        if isinstance(value, bool) or not _WHOLE.fullmatch(text):
            self.problem(names[0], "is not a whole number", value, f"{low} to {high}")
            return None
        number = int(text.partition(".")[0])
        if not low <= number <= high:
            self.problem(names[0], "is out of range", value, f"{low} to {high}")
            return None
        return number

    def number(self, *names: str, low: float = 0.0, high: float = 1e12) -> float | None:
        """A number between two ends."""
        value = self._one(*names)
        if value is None:
            return None
        try:
            number = float("nan") if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = float("nan")
        if not low <= number <= high:
            self.problem(names[0], "is not a usable number", value, f"{low:g} to {high:g}")
            return None
        return number

    def flag(self, *names: str) -> bool | None:
        """Whether a switch is on; None where it is not given."""
        for name in names:
            if self.has(f"no_{name}"):
                self._used.add(f"no_{name}")
                return False
        value = self._one(*names)
        if value is None or isinstance(value, bool):
            return value
        if str(value).lower() in _TRUTH:
            return _TRUTH[str(value).lower()]
        self.problem(names[0], "is neither true nor false", value, "true or false")
        return None

    def text(self, *names: str) -> str | None:
        """A text; the words of several are joined by spaces."""
        value = self.raw(*names)
        if value is None or isinstance(value, bool):
            return None
        if isinstance(value, list):
            value = " ".join(str(item) for item in value)
        return None if str(value).strip().lower() in _NONE else str(value).strip()

    def choice(self, names: Sequence[str], known: Mapping[str, str]) -> str | None:
        """Our word for one of their words; another word is a problem."""
        value = self.text(*names)
        if value is None:
            return None
        plain = value.lower()
        if plain in known:
            return known[plain]
        self.problem(names[0], "is none of the values known here", value, ", ".join(known),
                     nearest_name(plain, known))  # fmt: skip
        return None

    def problem(
        self, key: str, message: str, value: object = None, allowed: str | None = None,
        nearest: str | None = None,
    ) -> None:  # fmt: skip
        """Record that an argument is wrong."""
        shown = value if isinstance(value, int | float) else str(value)[:200]
        self.problems.append(
            Problem(
                path=f"import: {key}",
                value=shown,
                message=message,
                allowed=allowed,
                nearest=nearest,
            )
        )

    def note(self, sentence: str) -> None:
        """Record what was converted or taken for granted."""
        self.notes.append(sentence)

    def rest(self, ignored: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(known and without effect, unknown): what no reader asked for."""
        known = frozenset(ignored)
        left = [name for name in self._pairs if name not in self._used]
        quiet = [name for name in left if _among(name, known)]
        return tuple(quiet), tuple(name for name in left if name not in quiet)

    def unmodelled(self, relevant: Iterable[str]) -> tuple[str, ...]:
        """Arguments that are given, that no reader asked for and that bear on the answer."""
        known = frozenset(relevant)
        found = [n for n in self._pairs if n not in self._used and _among(n, known)]
        self._used.update(found)
        return tuple(found)

    def raise_problems(self) -> None:
        """Raise BadInput with everything that is wrong."""
        if self.problems:
            raise BadInput(self.problems)

    def _one(self, *names: str) -> Any:
        """A single value; a variable that the text does not set is none, and is said."""
        value = self.raw(*names)
        if isinstance(value, list):
            value = value[0] if value else None
        if isinstance(value, str):
            value = value.strip().strip("\"'")
            if "$" in value:
                self.notes.append(f"{names[0]} is {value[:60]}, which the text does not set")
                return None
            if value.lower() in _NONE:
                return None
        if isinstance(value, dict):
            self.problem(names[0], "is a table", "{...}", "a single value")
            return None
        return value


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool) or value is None or str(value).lower() in _TRUTH


def _among(name: str, known: frozenset[str]) -> bool:
    """Whether a name, its last part or a beginning that ends in * is among those known."""
    last = name.rpartition(".")[2]
    if name in known or last in known or last.removeprefix("no_") in known:
        return True
    return any(mark.endswith("*") and name.startswith(mark[:-1]) for mark in known)


def plan_words(values: Mapping[str, object]) -> str:
    """Fields of a plan as its words: degrees, switches, key=value; None is left out."""
    degrees = {
        "micro_batch": "mbs",
        **{n: n for n in ("tp", "pp", "vpp", "dp", "cp", "ep", "etp", "zero")},
    }
    words = []
    for name, value in values.items():
        if value is None:
            continue
        if name in degrees:
            words.append(f"{degrees[name]}{value}")
        elif isinstance(value, bool):
            words.append(name if value else f"no-{name}")
        elif isinstance(value, float):
            words.append(f"{name}={value:.6f}".rstrip("0").rstrip("."))
        else:
            words.append(f"{name}={value}")
    return " ".join(words)


def world_size(keys: Keys) -> int | None:
    """Chips of a training command: torchrun's, a batch script's, or a variable's; None where not told."""
    each = keys.whole("nproc_per_node", "gpus_per_node", "num_gpus_per_node")
    nodes = keys.whole("nnodes", "num_nodes", "nodes")
    told = keys.whole("world_size", "num_gpus", "ng")
    known = {name.lower(): value for name, value in keys.variables.items()}
    each = each or _variable(known, "nproc_per_node", "gpus_per_node", "ntasks_per_node", "ngpu")
    nodes = nodes or _variable(known, "nnodes", "num_nodes", "nodes")
    if told is not None:
        return told
    if each is None:
        return None
    return each * (nodes or 1)


def _variable(known: Mapping[str, str], *names: str) -> int | None:
    """A whole number among the variables of a script."""
    for name in names:
        value = known.get(name, "").strip()
        if value.isascii() and value.isdigit() and 0 < len(value) < 8:
            return int(value) or None
    return None
