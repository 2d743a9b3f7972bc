"""Famous runs by short words: the command a user would type for each, and its answer beside what was printed.

A row of the table has a model, a chip, what is known of the job, the software and the plan as a report
prints it. The command says that and nothing else. Rows without a plan get the best of their software, rows
without a number of GPUs the smallest that holds the model.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from foretell.api.answers import Estimate
from foretell.api.training import estimate
from foretell.catalog.files import csv_rows, read_bytes
from foretell.catalog.software_printed import recognise_framework
from foretell.errors import Infeasible, ProblemsError, bad_input
from foretell.records import as_json, dataclass
from foretell.specs.plan_forms import GENERIC

COLUMNS = (
    "id run model gpus chip seq_len global_batch tokens precision framework plan_as_printed metric "
    "value unit"
).split()
USUAL_PRECISION = "bf16"
JOULES_PER_MWH = 3.6e9


@dataclass(frozen=True, slots=True, kw_only=True)
class FamousRun:
    """A printed number of a run, and ours."""

    id: str
    """The row."""
    run: str
    """Whose it is."""
    command: str
    """What was typed."""
    metric: str
    """step_time, gpu_hours or energy."""
    unit: str
    """Of the numbers."""
    printed: float
    """What the source says."""
    predicted: float | None
    """What the command answers; None where it answers nothing."""
    interval: tuple[float, float] | None
    """Nine in ten."""
    fits: str
    """Whether the run fits the memory; empty where nothing was answered."""
    plan: str
    """The plan of the answer."""
    problem: str
    """What the command says against the run; empty: nothing."""

    @property
    def error(self) -> float | None:
        """Predicted over printed, less one."""
        return None if self.predicted is None else self.predicted / self.printed - 1.0

    @property
    def inside(self) -> bool:
        """Whether the printed number is in the interval."""
        return self.interval is not None and self.interval[0] <= self.printed <= self.interval[1]

    to_dict = as_json(more=("error", "inside"))


@dataclass(frozen=True, slots=True, kw_only=True)
class FamousRuns:
    """All of them, and how far off they are."""

    runs: tuple[FamousRun, ...]
    """In the order of the table."""

    @property
    def median_ape(self) -> float | None:
        """The median of the absolute errors."""
        errors = [abs(run.error) for run in self.runs if run.error is not None]
        return float(np.median(errors)) if errors else None

    @property
    def inside_p90(self) -> float:
        """The share of the printed numbers that are in their interval."""
        return sum(run.inside for run in self.runs) / max(len(self.runs), 1)

    @property
    def refused(self) -> int:
        """Runs that are predicted not to fit, or not answered."""
        return sum(run.fits in ("no", "") for run in self.runs)

    to_dict = as_json(more=("median_ape", "inside_p90", "refused"))


def score_famous(path: Path) -> FamousRuns:
    """Every row of a table, asked and compared."""
    columns, rows = csv_rows(read_bytes(path).decode(), str(path))
    missing = [name for name in COLUMNS if name not in columns]
    if missing:
        raise bad_input(str(path), None, f"has no column {', '.join(missing)}")
    return FamousRuns(runs=tuple(famous_run(row) for row in rows))


def arguments_of(row: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of `estimate` that say what a row says."""
    given: dict[str, Any] = {
        "model": row["model"],
        "system": row["chip"],
        "gpus": _whole(row["gpus"]),
        "global_batch": _whole(row["global_batch"]),
        "seq_len": _whole(row["seq_len"]),
        "tokens": row["tokens"],
        "precision": "" if row["precision"] == USUAL_PRECISION else row["precision"],
        "framework": _framework(row["framework"]),
        "plan": row["plan_as_printed"],
    }
    return {name: value for name, value in given.items() if value not in ("", None)}


def command_of(given: Mapping[str, Any]) -> str:
    """The line that a user types for them."""
    flags = {f"--{name.replace('_', '-')}": str(v) for name, v in given.items() if name != "model"}
    words = [given["model"], *(word for pair in flags.items() for word in pair)]
    return f"foretell estimate {shlex.join(words)}"


def _whole(text: str) -> int | None:
    return int(text) if text else None


def _framework(printed: str) -> str:
    """The word of a plan for the software that a report names; empty where it names none that is known."""
    found = recognise_framework(printed.partition("(")[0].strip()) if printed else GENERIC
    return "" if found == GENERIC else found


def famous_run(row: Mapping[str, str]) -> FamousRun:
    """One row, asked as a user asks."""
    given = arguments_of(row)
    answer, problem = None, ""
    try:
        answer = estimate(**given)
    except ProblemsError as error:
        problem = "; ".join(map(str, error.problems))
        told = error.answer if isinstance(error, Infeasible) else None
        answer = told if isinstance(told, Estimate) else None
    predicted, interval = (None, None) if answer is None else _number(answer, row["metric"])
    return FamousRun(
        id=row["id"],
        run=row["run"],
        command=command_of(given),
        metric=row["metric"],
        unit=row["unit"],
        printed=float(row["value"]),
        predicted=predicted,
        interval=interval,
        fits="" if answer is None else answer.fits,
        plan="" if answer is None else str(answer.plan),
        problem=problem,
    )


def _number(answer: Estimate, metric: str) -> tuple[float | None, tuple[float, float] | None]:
    """What an answer says of a metric, with its interval, in the table's unit."""
    if metric == "step_time":
        low, high = answer.intervals["step_s"]["p90"]
        return answer.step_s, (low, high)
    run, name = answer.run, {"gpu_hours": "gpu_hours", "energy": "energy_joules"}[metric]
    value = None if run is None else getattr(run, name)
    if run is None or value is None:
        return None, None
    unit = JOULES_PER_MWH if metric == "energy" else 1.0
    low, high = run.intervals[name]["p90"]
    return value / unit, (low / unit, high / unit)
