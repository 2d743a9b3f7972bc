"""Does it fit? `validate memory`: every run of a table beside the memory of its chip.

`fits` is whether a run is more likely to fit than not (`fit_probability` of one half or more), `too_close`
whether the verdict of an estimate is borderline. Where a column `outcome` says what happened (ran, oom), the
answers are scored: runs that ran and were called no, runs out of memory that were called fits, and the Brier
score of the probability.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from foretell.catalog.files import csv_rows, read_table
from foretell.errors import BadInput, bad_input, unknown
from foretell.lab.validate.scores import table_text
from foretell.lab.validate.training import prediction_of
from foretell.lab.validate.training_rows import NEEDED, TrainingRow, row_of
from foretell.records import dataclass
from foretell.specs.result import Fits
from foretell.uncertainty.intervals import fit_of

OOM_NEEDED = ("layers", "hidden", "tp", "pp", "dp", "micro_batch")
"""Columns without which a file is no table of runs out of memory."""
SWEEP: Mapping[str, str] = read_table(Path(__file__).with_name("memory_sweep.toml"))
"""What every run of the sweep had."""
OUTCOMES = ("ran", "oom")
"""What a table may say of a run in its column `outcome`."""
FEWER_KV = 8
"""Key and value heads of the sweep's models with grouped attention."""


def read_memory_rows(path: Path) -> list[TrainingRow]:
    """Rows of a table of training runs, or of runs that ran out of memory; BadInput for other tables."""
    have, rows = csv_rows(table_text(path), str(path))
    read = row_of if all(name in have for name in NEEDED) else failed_row
    missing = [name for name in OOM_NEEDED if name not in have]
    if missing and read is failed_row:
        message = f"is no table of training runs: it has no column {', '.join(missing)}"
        raise bad_input(str(path), None, message)
    found = [read(cells, str(n)) for n, cells in enumerate(rows, start=1)]
    made = [replace(row, outcome=row.outcome.lower()) for row in found]
    problems = [
        unknown(f"{path}: outcome of {row.id}", row.outcome, OUTCOMES)
        for row in made
        if row.outcome and row.outcome not in OUTCOMES
    ]
    if problems:
        raise BadInput(problems)
    return made


def failed_row(cells: Mapping[str, str | None], number: str) -> TrainingRow:
    """A run of the sweep from its cells: batch from accumulation, kv_heads from the weights in print."""
    given = {name: text or "" for name, text in cells.items()}
    named = {
        "id": given.get("job_id", "") or number,
        "source": "runs out of memory",
        "model": "nanotron Llama-style",
        "family": "dense",
        "n_params_b": given.get("params_b", ""),
        "outcome": given.get("outcome", "") or ("oom" if given.get("status") == "OOM" else ""),
    }
    row = row_of({**given, **{k: v for k, v in SWEEP.items() if not given.get(k)}, **named}, number)
    batch = (row.dp or 1) * (row.micro_batch or 1) * (row.grad_accum or 1)
    changes = {"global_batch": str(row.global_batch or batch)}
    changes["n_gpus"] = str(row.gpus or (row.dp or 1) * (row.tp or 1) * (row.pp or 1))
    changes["kv_heads"] = str(row.kv_heads or _kv_heads(row))
    return row_of({**SWEEP, **given, **named, **changes}, number)


def _kv_heads(row: TrainingRow) -> int:
    """As many as heads, or eight, by which reproduces the weights in print, tied or not."""
    heads, hidden = row.heads or 1, row.hidden or 1
    if row.params_b is None or heads % FEWER_KV:
        return heads

    def misses(kv: int) -> float:
        attention = 2 * hidden * hidden * (1.0 + kv / heads)
        layers = (row.layers or 1) * (attention + 3 * hidden * (row.ffn or 4 * hidden))
        table = (row.vocab or 0) * hidden
        printed = (row.params_b or 1.0) * 1e9
        return min(abs(math.log((layers + n * table) / printed)) for n in (1, 2))

    return min((heads, FEWER_KV), key=misses)


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
    plan: str
    """The plan in words."""
    outcome: str
    """What happened: ran, oom, or blank."""

    @property
    def fits(self) -> bool:
        """Whether it is more likely to fit than not."""
        return self.fit_probability >= EVEN

    @property
    def too_close(self) -> bool:
        """Whether the verdict is borderline."""
        return self.verdict == "too_close"

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        names = (
            "predicted",
            "allocated",
            "capacity",
            "fit_probability",
            "fits",
            "too_close",
            "verdict",
        )
        return {
            "id": self.id,
            "metric": "peak_memory_bytes",
            **{name: getattr(self, name) for name in names},
            "outcome": self.outcome or None,
            "plan": self.plan,
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
            "too_close": sum(answer.too_close for answer in self.answers),
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
                plan=str(told.plan),
                outcome=row.outcome,
            )
        )
    return MemoryScores(rows=len(rows), unsupported=tuple(unsupported), answers=tuple(answers))
