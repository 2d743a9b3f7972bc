"""What a reproduction consists of: figures made of tables and findings, works made of figures, and ladders.

A work is described by a file of text: its figures, and what it states, with places for numbers. A ladder goes
from a published number to ours: every rung is the number with one more mechanism of ours, and its factor is
over the rung before, so that factors multiply to the whole. They depend on the order of the rungs, which is
the same for all numbers. A mechanism is named as the reason only where it carries at least half of the whole,
on a logarithmic scale.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from math import exp, inf, isfinite, log
from pathlib import Path
from typing import Any

from foretell.catalog.files import read_table
from foretell.errors import BadInput, Infeasible, bad_input, nearest_name, wrong
from foretell.records import as_json, dataclass
from foretell.specs.questions.flags import asks
from foretell.specs.questions.reproduce import ReproduceQuestion

SAME = 0.02
"""Two numbers that differ by a smaller share are the same: nothing needs a reason."""
HALF = 0.5
"""Share of the whole from which on a mechanism is the reason."""
SEEN = 0.015
"""Least change of a factor that a sentence has."""
NARROW = 2.0
"""Upper end over lower end of an interval from which on a statement is not decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """The number with one more mechanism of ours."""

    mechanism: str
    """What was added."""
    value: float
    """The number; infinite where nothing fits."""
    factor: float
    """Over the rung before; 1 where both are infinite."""

    def to_dict(self) -> dict[str, str | float | None]:
        """The same as JSON; nothing for what is infinite."""
        numbers = {"value": self.value, "factor": self.factor}
        known = {name: one if isfinite(one) else None for name, one in numbers.items()}
        return {"mechanism": self.mechanism, **known}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """A number from a published model to ours."""

    rungs: tuple[Rung, ...]
    """The published number first, ours last."""

    to_dict = as_json()

    @property
    def first(self) -> float:
        """The published number."""
        return self.rungs[0].value

    @property
    def last(self) -> float:
        """Ours."""
        return self.rungs[-1].value

    @property
    def whole(self) -> float:
        """Ours over the published number."""
        return _over(self.last, self.first)

    @property
    def reason(self) -> Rung | None:
        """The mechanism that carries most, where that is at least half of the whole."""
        steps = self.rungs[1:]
        if not isfinite(self.first):
            return next((r for r in steps if isfinite(r.value)), None)
        if abs(log(self.whole)) < SAME:
            return None
        most = max(steps, key=lambda r: log(r.factor) / log(self.whole))
        return most if log(most.factor) / log(self.whole) >= HALF else None

    @property
    def because(self) -> str:
        """Why the two numbers differ, in a sentence."""
        if not isfinite(self.first):
            found = self.reason
            return "" if found is None else f"Because of {found.mechanism}: nothing fits without."
        if abs(log(self.whole)) < SAME:
            return "The two agree."
        steps = [r for r in self.rungs[1:] if abs(r.factor - 1.0) >= SEEN]
        reason = self.reason
        if reason is None:
            most = sorted(steps, key=lambda r: -abs(log(r.factor)))
            listed = ", ".join(_said(r) for r in most)
            return f"No mechanism carries half of x{self.whole:.2f}: {listed}."
        rest = ", ".join(_said(r) for r in steps if r is not reason)
        text = f"Because of {reason.mechanism}: x{reason.factor:.2f} of x{self.whole:.2f}"
        return f"{text} ({rest})." if rest else f"{text}."


def ladder_of(values: Mapping[str, float]) -> Ladder:
    """The ladder of a number: mechanism added -> the number then; the published one comes first."""
    before: float | None = None
    rungs = []
    for mechanism, value in values.items():
        factor = 1.0 if before is None else _over(value, before)
        rungs.append(Rung(mechanism=mechanism, value=value, factor=factor))
        before = value
    return Ladder(rungs=tuple(rungs))


def mean_ladder(ladders: Sequence[Ladder]) -> Ladder:
    """The geometric mean of some numbers, rung by rung."""
    names = [rung.mechanism for rung in ladders[0].rungs]
    columns = zip(*((rung.value for rung in one.rungs) for one in ladders), strict=True)
    return ladder_of(dict(zip(names, map(mean, columns), strict=True)))


def mean(values: Sequence[float]) -> float:
    """The geometric mean; 1 of nothing."""
    if not values:
        return 1.0
    if not all(map(isfinite, values)):
        return inf
    return exp(sum(map(log, values)) / len(values))


def ladder_rows(statement: str, ladders: Mapping[str, Ladder]) -> list[dict[str, object]]:
    """Rows of a table: every rung of the numbers that a statement is about, by case."""
    return [
        {"statement": statement, "case": case, "rung": place, **rung.to_dict()}
        for case, ladder in ladders.items()
        for place, rung in enumerate(ladder.rungs)
    ]


def _over(value: float, before: float) -> float:
    """One number over another; 1 where both are infinite."""
    return value / before if isfinite(value) or isfinite(before) else 1.0


def _said(rung: Rung) -> str:
    return f"{rung.mechanism} x{rung.factor:.2f}"


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
    """A published work, as its file describes it."""

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
    findings: Mapping[str, Mapping[str, str]]
    """Texts of its findings, with places for numbers."""
    missing: tuple[str, ...] = ()
    """What of the work cannot be computed, and why."""

    def finding(
        self, name: str, verdict: str, ladder: Ladder | None = None, **numbers: Any
    ) -> Finding:
        """A finding with its numbers; why the two sides differ is the ladder's to say where there is one."""
        words = {"published": "", "ours": ""} | dict(self.findings[name])
        words = {field: text.format(**numbers) for field, text in words.items()}
        words |= {} if ladder is None or "why" in words else {"why": ladder.because}
        return Finding(verdict=verdict, ladder=ladder, **words)

    def figure(
        self,
        name: str,
        rows: Sequence[Row],
        *findings: Finding,
        more: Mapping[str, Sequence[Row]] | None = None,
        notes: tuple[str, ...] = (),
    ) -> PaperFigure:
        """A figure: its rows, what the work concludes from them, and further tables."""
        tables, title = {name: rows, **(more or {})}, self.figures[name]
        return PaperFigure(name=name, title=title, tables=tables, findings=findings, notes=notes)


def some_cells(row: Row, names: Iterable[str]) -> dict[str, Any]:
    """Some columns of a row."""
    return {name: row[name] for name in names}


def ours(found: Any) -> dict[str, float]:
    """Our seconds of a step, and the ends of their 90 % interval."""
    low, high = found.interval["p90"]
    return {"ours_s": found.step_s, "ours_low_s": low, "ours_high_s": high}


def errors(rows: Iterable[Row], column: str) -> list[float]:
    """What a column of seconds is off by of what was measured, with its sign; blank cells do not count."""
    return [r[column] / r["measured_s"] - 1 for r in rows if r[column] is not None]


def inside_words(rows: Sequence[Row]) -> str:
    """How many measurements our intervals hold, in words."""
    held = sum(r["ours_low_s"] <= r["measured_s"] <= r["ours_high_s"] for r in rows)
    return f"{held} of {len(rows)} inside our 90 % interval"


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


WORKS = ("nersc-2024", "scaling-2024", "imec-2025", "anthe-2023")
"""Names of the works; each is a file of text and a module, of which one alone is loaded."""
FOLDER = Path(__file__).parent
"""Where they are."""
MOST_WORKERS = 1024
"""Most processes."""


def described(name: str) -> Mapping[str, Any]:
    """The file of a work."""
    return read_table(FOLDER / f"{name.replace('-', '_')}.toml")


def read_work(name: str) -> PublishedWork:
    """A work as its file describes it."""
    table = described(name)
    texts = {key: table[key] for key in ("name", "title", "source", "example", "figures")}
    missing = tuple(table["missing"])
    return PublishedWork(**texts, findings=table.get("findings", {}), missing=missing)


def work_named(name: object) -> PublishedWork:
    """The work of that name; BadInput where there is none."""
    if not isinstance(name, str) or name not in WORKS:
        near = nearest_name(name, WORKS) if isinstance(name, str) else None
        message = "is not a work that can be reproduced"
        raise bad_input("work", name, message, ", ".join(WORKS), near)
    return read_work(name)


@asks(ReproduceQuestion)
def reproduce(question: ReproduceQuestion) -> list[PaperFigure]:
    """The figures of a work as tables and findings, by the published model and by ours."""
    work = work_named(question.work)
    asked = (question.figure,) if isinstance(question.figure, str) else tuple(question.figure)
    allowed = list(work.figures)
    problems = [
        wrong(
            "figure",
            one,
            f"is no figure of {work.name}",
            ", ".join(allowed),
            nearest_name(str(one), allowed),
        )
        for one in asked
        if one not in allowed
    ]
    if not 1 <= question.workers <= MOST_WORKERS:
        allowed_counts = f"1 to {MOST_WORKERS}"
        problems.append(wrong("workers", question.workers, "is not a usable count", allowed_counts))
    if problems:
        raise BadInput(problems)
    names = asked or tuple(allowed)
    module = import_module(f"{__package__}.{work.name.replace('-', '_')}")
    makers = module.makers(names, question.workers)
    found = []
    for done, one in enumerate(names, start=1):
        found.append(makers[one]())
        if question.progress is not None:
            question.progress(done, len(names))
    return found
