"""What one server does for a stranger: bytes, work, time and questions at once, each with a clear answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from foretell.errors import Problem, ProblemsError, wrong
from foretell.specs.questions import every_field

ELSEWHERE = "the command line and Python have no such limit"


class TooMuch(ProblemsError):
    """A question that this server leaves to the command line: 422."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far a server goes."""

    workers: int = 2
    """Processes that answer."""
    waiting: int = 128
    """Questions that may wait for one; further ones are answered 429."""
    deadline_s: float = 20.0
    """Longest time of one answer, not counting the wait; then 422."""
    watched_s: float = 300.0
    """The same of an answer whose progress is watched, and which can be cancelled."""
    body_bytes: int = 256 * 1024
    """Largest question; a larger one is answered 413."""
    memory_bytes: int = 8 * 2**30
    """Memory of one question; what needs more is answered 422."""
    plans: int = 4_000_000
    """Plans of one search."""


MOST: Mapping[str, float] = {
    field.called: field.flag.most for field in every_field() if field.flag.most is not None
}
"""Largest numbers of flags that work grows with, as their questions say."""
MOST_ROWS = 64
"""Rows of a sweep."""
MOST_POINTS = 20_000
"""Points of one study."""
MOST_CURVE_POINTS = 1000
"""Points of all curves of a scaling study."""


def check_work(given: Mapping[str, Any]) -> None:
    """Raise TooMuch where a number asks for more work than the limits allow."""
    problems = [
        too_much(name, value, f"at most {MOST[name]:,.0f}".replace(",", " "))
        for name, value in given.items()
        if name in MOST and _number(value) > MOST[name]
    ]
    if problems:
        raise TooMuch(problems)


def too_much(path: str, value: object, allowed: str) -> Problem:
    """One number above its limit."""
    return wrong(path, value, f"more than this server answers for; {ELSEWHERE}", allowed)


def _number(value: object) -> float:
    """The number of a value such as 512 or 512xH100; 0 where there is none."""
    if isinstance(value, str):
        digits = value.strip().lower().partition("x")[0].strip()[:15]
        return float(digits) if digits.isascii() and digits.isdigit() else 0.0
    return value if isinstance(value, int | float) else 0.0  # which no float may hold
