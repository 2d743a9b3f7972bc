"""Does it fit? `validate memory`: every run of a table said to fit or not, by the central estimate.

`said_to_fit` and `said_not_to_fit` add up to the rows scored; `too_close` counts those of both that lie
within what the estimate can tell, where no answer is more than a guess.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foretell.lab.validate.memory_rows import read_memory_rows
from foretell.lab.validate.training import prediction_of
from foretell.lab.validate.training_rows import TrainingRow
from foretell.records import dataclass
from foretell.uncertainty.intervals import fit_of

BAND = 0.1
"""On either side of the chip's memory, the share within which the answer is borderline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryVerdict:
    """One run's memory beside its chip's."""

    id: str
    """The row's id."""
    fits: bool
    """Whether the central estimate fits."""
    too_close: bool
    """Whether it is within what can be told."""
    predicted: float
    """Peak bytes, ours."""
    capacity: float
    """The chip's."""
    fit_probability: float | None
    """How likely it is to fit, by the interval of its peak."""
    reason: str
    """The plan in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryScores:
    """A table of runs, each said to fit or not."""

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
            "too_close": sum(answer.too_close for answer in self.answers),
            "unsupported": [{"id": row, "reason": reason} for row, reason in self.unsupported],
            "predictions": [
                {
                    "id": answer.id,
                    "metric": "peak_memory_bytes",
                    "predicted": answer.predicted,
                    "capacity": answer.capacity,
                    "fit_probability": answer.fit_probability,
                    "fits": answer.fits,
                    "too_close": answer.too_close,
                    "plan": answer.reason,
                }
                for answer in self.answers
            ],
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
        need, have = told.answer.peak_memory_bytes, told.answer.memory_capacity_bytes
        answers.append(
            MemoryVerdict(
                id=row.id,
                fits=told.answer.fits != "no",
                too_close=told.answer.fits == "too_close" or abs(need / have - 1.0) < BAND,
                predicted=need,
                capacity=have,
                fit_probability=fit_of(told.answer),
                reason=str(told.plan),
            )
        )
    return MemoryScores(rows=len(rows), unsupported=tuple(unsupported), answers=tuple(answers))
