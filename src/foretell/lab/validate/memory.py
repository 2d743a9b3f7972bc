"""Does it fit? `validate memory`: every run of a table beside the memory of its chip.

`fits` is whether a run is more likely to fit than not (`fit_probability` of one half or more), `too_close`
whether the verdict of an estimate is borderline. Where a column `outcome` says what happened (ran, oom), the
answers are scored: runs that ran and were called no, runs out of memory that were called fits, and the Brier
score of the probability.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foretell.lab.validate.memory_rows import read_memory_rows
from foretell.lab.validate.training import prediction_of
from foretell.lab.validate.training_rows import TrainingRow
from foretell.records import dataclass
from foretell.specs.result import Fits
from foretell.uncertainty.intervals import fit_of

EVEN = 0.5
"""Probability from which a run is predicted to fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryVerdict:
    """One run's memory beside its chip's."""

    id: str
    """The row's id."""
    verdict: Fits
    """The estimate's verdict."""
    allocated: float
    """Bytes of tensors, ours."""
    predicted: float
    """Bytes that the process holds, ours."""
    capacity: float
    """The chip's."""
    fit_probability: float
    """How likely it is to fit."""
    reason: str
    """The plan in words."""
    outcome: str
    """What happened: ran, oom, or blank."""

    @property
    def fits(self) -> bool:
        """Whether it is more likely to fit than not."""
        return self.fit_probability >= EVEN

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        return {
            "id": self.id,
            "metric": "peak_memory_bytes",
            "predicted": self.predicted,
            "allocated": self.allocated,
            "capacity": self.capacity,
            "fit_probability": self.fit_probability,
            "fits": self.fits,
            "too_close": self.verdict == "too_close",
            "verdict": self.verdict,
            "outcome": self.outcome or None,
            "plan": self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryScores:
    """A table of runs, each predicted to fit or not."""

    rows: int
    """Rows of the file."""
    unsupported: tuple[tuple[str, str], ...]
    """Id and reason of every row that is not scored."""
    answers: tuple[MemoryVerdict, ...]
    """Every scored row."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        fit = sum(answer.fits for answer in self.answers)
        return {
            "rows": self.rows,
            "scored": len(self.answers),
            "said_to_fit": fit,
            "said_not_to_fit": len(self.answers) - fit,
            "too_close": sum(answer.verdict == "too_close" for answer in self.answers),
            **outcome_scores(self.answers),
            "unsupported": [{"id": row, "reason": reason} for row, reason in self.unsupported],
            "predictions": [answer.to_dict() for answer in self.answers],
        }


def outcome_scores(answers: Sequence[MemoryVerdict]) -> dict[str, Any]:
    """How answers compare with what happened; None where a table does not say."""
    ran = [one for one in answers if one.outcome == "ran"]
    failed = [one for one in answers if one.outcome == "oom"]
    known = [*ran, *failed]
    squares = [(one.fit_probability - (one.outcome == "ran")) ** 2 for one in known]
    return {
        "ran": len(ran),
        "oom": len(failed),
        "ran_called_no": sum(not one.fits for one in ran) / len(ran) if ran else None,
        "oom_called_fits": sum(one.fits for one in failed) / len(failed) if failed else None,
        "brier_score": sum(squares) / len(known) if known else None,
    }


def score_memory(path: Path) -> MemoryScores:
    """Say of every run of a table whether it fits."""
    return score_memory_rows(read_memory_rows(Path(path)))


def score_memory_rows(rows: Sequence[TrainingRow]) -> MemoryScores:
    """Say of every row whether it fits."""
    answers: list[MemoryVerdict] = []
    unsupported: list[tuple[str, str]] = []
    for row in rows:
        told = prediction_of(row)
        if isinstance(told, str):
            unsupported.append((row.id, told))
            continue
        answer = told.answer
        answers.append(
            MemoryVerdict(
                id=row.id,
                verdict=answer.fits,
                allocated=answer.allocated_bytes,
                predicted=answer.peak_memory_bytes,
                capacity=answer.memory_capacity_bytes,
                fit_probability=fit_of(answer) or 0.0,
                reason=str(told.plan),
                outcome=row.outcome,
            )
        )
    return MemoryScores(rows=len(rows), unsupported=tuple(unsupported), answers=tuple(answers))
