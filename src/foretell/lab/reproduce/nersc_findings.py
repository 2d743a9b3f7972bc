"""What the 2024 study concludes (nersc_2024.toml), checked the same way in its own model and in ours."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite
from statistics import median
from typing import Any

from foretell.lab.reference.study import GPT
from foretell.lab.reproduce.nersc_ladder import Climb, Quotient, Spot
from foretell.lab.reproduce.nersc_ours import OurTask
from foretell.lab.reproduce.records import (
    Finding,
    Ladder,
    Row,
    described,
    errors,
    inside_words,
    ladder_rows,
    mean_ladder,
    read_work,
    verdict,
    widest,
)
from foretell.records import dataclass

WORK = read_work("nersc-2024")
NEAR = 0.25
"""Median error of collectives within which a model predicts them."""
EIGHT = OurTask(model=GPT, chip="B200", domain=8, gpus=1024)
"""B200 in domains of eight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One conclusion of the study, and the numbers that it is about."""

    figure: str
    """The figure that it is drawn from."""
    text: str
    """What the study states."""
    numbers: Mapping[str, Quotient]
    """The numbers by case."""
    above: float = -inf
    """It is so where all of them are above this,"""
    below: float = inf
    """and below this;"""
    never: bool = False
    """or where all are infinite."""
    form: str = "x{:.2f}"
    """A number in words."""

    def holds(self, values: Sequence[float]) -> bool:
        """Whether it is so, from the numbers of one side."""
        if self.never:
            return min(values) == inf
        return min(values) > self.above and (self.below == inf or max(values) < self.below)

    def words(self, values: Sequence[float]) -> str:
        """The numbers in words, of one side."""
        if not all(map(isfinite, values)):
            return "no such plan fits"
        low, high = self.form.format(min(values)), self.form.format(max(values))
        return low if low == high else f"{low} to {high}"

    def ladders(self, climbs: Mapping[OurTask, Climb]) -> dict[str, Ladder]:
        """From the published model to ours, by case."""
        return {case: one.ladder(climbs) for case, one in self.numbers.items()}

    def finding(self, climbs: Mapping[OurTask, Climb]) -> Finding:
        """Set beside what both models give."""
        ladders = list(self.ladders(climbs).values())
        theirs, ours = [one.first for one in ladders], [one.last for one in ladders]
        width = max(one.width(climbs) for one in self.numbers.values())
        found = mean_ladder(ladders)
        held = verdict(self.holds(ours), width, self.holds(theirs))
        return Finding(
            statement=self.text,
            published=self.words(theirs),
            ours=f"{self.words(ours)}, 90 % interval a factor of {width:.2f} wide",
            verdict="not comparable" if self.figure == "factor" else held,
            why=found.because,
            ladder=found,
        )


def _spot(task: OurTask, changes: Mapping[str, Any]) -> Spot:
    """The days of a search with something else; `kind` is of the plans, the rest of the task."""
    rest = {name: value for name, value in changes.items() if name != "kind"}
    return Spot(task=replace(task, **rest), kind=changes.get("kind", "any"))


def _statement(table: Mapping[str, Any]) -> Statement:
    """A statement as the work's file has it."""
    numbers = {}
    for one in table.get("number", [table]):
        for gpus in one["gpus"]:
            task = replace(EIGHT, model=table["model"], gpus=gpus)
            numbers[one.get("case", f"{gpus:,} GPUs")] = Quotient(
                above=_spot(task, one.get("days", {})),
                below=_spot(task, one["over"]) if "over" in one else None,
                scale=one.get("scale", 1.0),
            )
    names = ("figure", "text", "above", "below", "never", "form")
    return Statement(numbers=numbers, **{name: table[name] for name in names if name in table})


_EVERY = [_statement(table) for table in described("nersc-2024")["statement"]]
STATEMENTS: Mapping[str, tuple[Statement, ...]] = {
    figure: tuple(one for one in _EVERY if one.figure == figure)
    for figure in dict.fromkeys(one.figure for one in _EVERY)
}
"""Figure -> what the study concludes from it."""


def tasks_of(figures: Sequence[str]) -> list[OurTask]:
    """Searches that the statements of some figures need, each once."""
    numbers = (
        one for name in figures for s in STATEMENTS.get(name, ()) for one in s.numbers.values()
    )
    return list(dict.fromkeys(spot.task for one in numbers for spot in one.spots))


def findings_of(figure: str, climbs: Mapping[OurTask, Climb]) -> tuple[Finding, ...]:
    """The statements of a figure."""
    return tuple(one.finding(climbs) for one in STATEMENTS.get(figure, ()))


def rungs_table(figure: str, climbs: Mapping[OurTask, Climb]) -> dict[str, list[Row]]:
    """The ladders of a figure's statements as a table; none where it has no statements."""
    rows: list[Row] = []
    for one in STATEMENTS.get(figure, ()):
        rows += ladder_rows(one.text, one.ladders(climbs))
    return {f"{figure}-ladder": rows} if rows else {}


def collective_finding(rows: Sequence[Row]) -> Finding:
    """Both models against NCCL."""
    theirs, ours = (
        median(abs(error) for error in errors(rows, side)) for side in ("published_s", "ours_s")
    )
    width = widest(rows, "ours_low_s", "ours_high_s")
    numbers: dict[str, Any] = {
        "theirs": 100 * theirs,
        "ours": 100 * ours,
        "inside": inside_words(rows),
    }
    return WORK.finding("collectives", verdict(ours < NEAR, width, theirs < NEAR), **numbers)


def measured_finding(rows: Sequence[Row]) -> Finding:
    """Both models against real runs."""
    off = {
        name: [100 * error for error in errors(rows, f"{side}_s")]
        for name, side in (("theirs", "published"), ("ours", "ours"))
    }
    ends: dict[str, Any] = {name: (min(some), max(some)) for name, some in off.items()}
    return WORK.finding("measured", "not comparable", inside=inside_words(rows), **ends)
