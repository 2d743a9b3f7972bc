"""What a reproduction consists of: figures made of tables and findings, and works made of figures."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from foretell.records import as_json, dataclass

Row = Mapping[str, Any]
"""One row of a table: column -> value, None where there is none."""
Progress = Callable[[int, int], None]
"""Called with the figures done and their number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One statement of a work, set beside what both models give."""

    statement: str
    """What the work states, or what its outputs show."""
    published: str
    """What its own model gives here."""
    ours: str
    """What ours gives; empty where it has no counterpart."""
    verdict: str
    """survives, survives in part, does not survive, or not comparable."""
    why: str = ""
    """Why the two differ, where they do."""

    to_dict = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperFigure:
    """One figure or table of a work."""

    name: str
    """As `--figure` takes it."""
    title: str
    """What it shows."""
    tables: Mapping[str, Sequence[Row]]
    """CSV tables by name; the first has the figure's own name."""
    findings: tuple[Finding, ...] = ()
    """What the work concludes from it."""
    notes: tuple[str, ...] = ()
    """What a reader must know to read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedWork:
    """A published work."""

    name: str
    """As the command takes it."""
    title: str
    """Its title and authors."""
    source: str
    """Where it was published."""
    example: str
    """The figure that its page shows as a command: one that takes a moment."""
    figures: Mapping[str, str]
    """Names of its figures and what each shows, in order."""
    run: Callable[[Sequence[str], int, Progress | None], list[PaperFigure]]
    """Figure names, processes and progress -> the figures."""
    missing: tuple[str, ...] = ()
    """What of the work cannot be computed, and why."""


def verdict(holds: bool, ours_holds: bool) -> str:
    """The verdict where a statement is checked the same way on both sides."""
    if holds and ours_holds:
        return "survives"
    return "does not survive" if holds else "not what the stored outputs say"


def text_of(value: object) -> str:
    """A cell of a CSV file."""
    if value is None:
        return ""
    return repr(value) if isinstance(value, float) else str(value)
