"""What goes wrong, stated once: a field's path, its value and what would have been right.

`BadInput` is a question that cannot be understood (exit code 2); `Infeasible` is one that was
understood and whose answer is no (exit code 1). Both carry every problem found, not the first.
"""

import warnings
from collections.abc import Iterable, Sequence

from foretell.records import Later, dataclass, made_when_asked, values_as_held, with_values

VALUE_WIDTH = 120
"""Longest rendering of an offending value in a message, in characters."""
LINE_WIDTH = 4000
"""Longest line of a problem: no message of ours has more, words of the input may."""


@made_when_asked("allowed", "nearest")
@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong with one field; `str()` of it is one line.

    What would have been right may take far longer to find than what is wrong: it may be given as `later`.
    """

    path: str
    """Where: field names joined with dots, such as `plan.tp`; empty when it concerns the whole."""
    value: object
    """What was given; None when nothing was."""
    message: str
    """What is wrong, or which rule failed and by how much."""
    allowed: str | None = None
    """What would have been accepted."""
    nearest: str | None = None
    """The closest valid name, value or plan."""

    def __str__(self) -> str:
        """`path: message (got value); allowed: ...; did you mean ...?`, less what is None."""
        text = f"{self.path}: {self.message}" if self.path else self.message
        if self.value is not None:
            text += f" (got {_shown(self.value)})"
        if self.allowed is not None:
            text += f"; allowed: {self.allowed}"
        if self.nearest is not None:
            text += f"; did you mean {self.nearest}?"
        return _one_line(text)


def wrong(
    path: str, value: object, message: str, allowed: str | None = None, nearest: str | None = None
) -> Problem:
    """One thing that is wrong, in the order that its line has: where, what was given, why, what would do."""
    return Problem(path=path, value=value, message=message, allowed=allowed, nearest=nearest)


def has_late_hint(problem: Problem) -> bool:
    """Whether what would have been right is still to be found."""
    return any(isinstance(value, Later) for value in values_as_held(problem).values())


def at_path(problem: Problem, path: str) -> Problem:
    """The same problem under another path; what is made when it is asked for stays so."""
    return with_values(problem, path=path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall(Problem):
    """Why something that is understood cannot be built: among many points, an answer that is no."""

    def __str__(self) -> str:
        """As of any problem."""
        return Problem.__str__(self)


class ForetellError(Exception):
    """Base of every error that Foretell raises on purpose."""


class ProblemsError(ForetellError):
    """An error made of problems; `str()` of it is one line for each."""

    problems: tuple[Problem, ...]

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        # The tuple is also `args`, so that the error survives pickling between worker processes.
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class BadInput(ProblemsError):
    """The question cannot be understood: exit code 2."""


def bad_input(
    path: str, value: object, message: str, allowed: str | None = None, nearest: str | None = None
) -> BadInput:
    """The error of a question with one thing wrong."""
    return BadInput([wrong(path, value, message, allowed, nearest)])


class Infeasible(ProblemsError):
    """The question was understood and the answer is no: exit code 1.

    `answer` is what was computed all the same, such as the memory of a plan that does not fit; `read_back` is
    what was read of a launch.
    """

    answer: object
    read_back: Sequence[object] = ()

    def __init__(self, problems: Iterable[Problem], answer: object = None) -> None:
        super().__init__(problems)
        self.answer = answer
        self.args = (self.problems, answer)


def nearest_name(word: str, names: Iterable[str]) -> str | None:
    """The name most like `word`, case and punctuation forgiven, or None when none is near."""
    import difflib  # only a failing run pays for it

    by_plain: dict[str, str] = {}
    for name in names:
        by_plain.setdefault(_plain(name), name)
    found = difflib.get_close_matches(_plain(word), by_plain, n=1, cutoff=0.6)
    return by_plain[found[0]] if found else None


def unknown(path: str, value: object, names: Iterable[str]) -> Problem:
    """A value that is none of the names that may be there."""
    known = tuple(names)
    return wrong(path, value, "unknown", ", ".join(known), nearest_name(str(value), known))


def _plain(word: str) -> str:
    """Lower case without punctuation, or the word itself where nothing else is left of it."""
    return "".join(ch for ch in word.lower() if ch.isalnum()) or word


def _shown(value: object) -> str:
    """`repr`, shortened from the middle, and never a failure of its own."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - e.g. an int of more digits than Python will print
        text = f"<{type(value).__name__}>"
    if len(text) > VALUE_WIDTH:
        half = (VALUE_WIDTH - 3) // 2
        text = f"{text[:half]}...{text[-half:]}"
    return text


def _one_line(text: str) -> str:
    """The text with runs of white space, line ends included, made one space; shortened where a word of the
    input made it very long."""
    line = " ".join(text.split())
    if len(line) > LINE_WIDTH:
        half = LINE_WIDTH // 2
        line = f"{line[:half]} ... {line[-half:]}"
    return line


class ForetellDeprecation(FutureWarning):
    """A public name, flag or argument that a later release removes; shown by default."""


def warn_deprecated(
    old: str, new: str, *, since: str, removed_in: str, stacklevel: int = 3
) -> None:
    """Warn that `old` is deprecated since one release and removed in another, and name what replaces it.

    The stability policy (docs/stability.md): at least two minor releases lie between the two.
    """
    message = f"{old} is deprecated since {since} and will be removed in {removed_in}; use {new}"
    warnings.warn(message, ForetellDeprecation, stacklevel=stacklevel)
