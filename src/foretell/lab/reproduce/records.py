"""What a reproduction consists of: figures made of tables and findings, and works made of figures."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from foretell.errors import Infeasible
from foretell.lab.reproduce.ladder import NARROW, Ladder
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
    """survives, does not survive, not decided, or not comparable."""
    why: str = ""
    """Why the two differ, where they do."""
    ladder: Ladder | None = None
    """From the published number to ours; the geometric mean where the statement is of several."""

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


def figure_maker(titles: Mapping[str, str]) -> Callable[..., PaperFigure]:
    """How the figures of a work are put together: its name, its rows and findings, and further tables."""

    def made(
        name: str,
        rows: Sequence[Row],
        findings: tuple[Finding, ...] = (),
        more: Mapping[str, Sequence[Row]] | None = None,
        notes: tuple[str, ...] = (),
    ) -> PaperFigure:
        tables = {name: rows, **(more or {})}
        return PaperFigure(
            name=name, title=titles[name], tables=tables, findings=findings, notes=notes
        )

    return made


def run_makers(
    makers: Mapping[str, Callable[[], PaperFigure]], names: Sequence[str], progress: Progress | None
) -> list[PaperFigure]:
    """The figures named, one after the other."""
    found = []
    for i, name in enumerate(names):
        found.append(makers[name]())
        if progress is not None:
            progress(i + 1, len(names))
    return found


def run_of(
    makers: Mapping[str, Callable[[], PaperFigure]],
) -> Callable[[Sequence[str], int, Progress | None], list[PaperFigure]]:
    """How a work runs whose figures need no processes of their own."""
    return lambda names, workers, progress: run_makers(makers, names, progress)


def some_cells(row: Row, names: str) -> dict[str, Any]:
    """Some columns of a row."""
    return {name: row[name] for name in names.split()}


def ours(found: Any) -> dict[str, float]:
    """Our seconds of a step, and the ends of their 90 % interval."""
    low, high = found.interval["p90"]
    return {"ours_s": found.step_s, "ours_low_s": low, "ours_high_s": high}


def plain_estimate(model: str, **asked: Any) -> Any:
    """Our answer of a step, where it does not fit too; None where there is none."""
    from foretell.api.training import estimate

    try:
        return estimate(model, **asked)
    except Infeasible as error:
        return error.answer


def verdict(ours_holds: bool, width: float, holds: bool = True) -> str:
    """The verdict where a statement is checked the same way on both sides.

    `width` is the upper over the lower end of the 90 % interval of what it is checked with on our side.
    """
    if not holds:
        return "not what the stored outputs say"
    if width >= NARROW:
        return "not decided"
    return "survives" if ours_holds else "does not survive"


def widest(rows: Iterable[Row], low: str, high: str) -> float:
    """The widest interval of some rows, upper over lower end; those without one do not count."""
    return max(
        (float(r[high]) / float(r[low]) for r in rows if r.get(low) and r.get(high)), default=1.0
    )


def shared_width(above: Row, below: Row, *ends: str) -> float:
    """The same of a quotient of two rows that are wrong for the same causes: at one end both are."""
    found = [float(above[end]) / float(below[end]) for end in ends]
    return max(found) / min(found)
