"""`foretell characterize trace`: files to breakdowns, with the prediction of the same job beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretell.api.answers import Estimate
from foretell.api.training import estimate
from foretell.errors import BadInput, Infeasible, Problem, ProblemsError, wrong
from foretell.lab.characterize.traces.breakdown import PARTS, StepBreakdown, breakdowns
from foretell.lab.characterize.traces.rank_trace import RankTrace
from foretell.lab.characterize.traces.read import read_files
from foretell.lab.characterize.traces.share_rows import (
    Imbalance,
    ShareRow,
    StepPrediction,
    imbalances,
    share_rows,
    step_prediction,
)
from foretell.records import Answer, JsonRecord
from foretell.specs.questions.flags import asks, fields_of, given_of
from foretell.specs.questions.training import StepQuestion, TraceQuestion

JOB = tuple(field.name for field in fields_of(StepQuestion) if field.name != "set")
"""What a trace of our own says of its job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReport(JsonRecord, Answer):
    """Everything that a trace says."""

    verb = "characterize"

    traces: tuple[RankTrace, ...]
    """Ranks as they were read."""
    steps: tuple[StepBreakdown, ...]
    """Every step of every rank, ranks together."""
    imbalance: tuple[Imbalance, ...]
    """Ranks beside each other, step by step."""
    busiest: int
    """The rank with most compute, which a prediction is set beside."""
    predicted: StepPrediction | None
    """The prediction of the same job; None where no job is known."""
    rows: tuple[ShareRow, ...]
    """Measured beside predicted, the largest disagreement of each level first."""
    notes: tuple[str, ...]
    """What is worth saying."""

    def of(self, rank: int) -> list[StepBreakdown]:
        """Steps of one rank."""
        return [step for step in self.steps if step.rank == rank]

    def mean(self, rank: int) -> dict[str, float]:
        """Parts of a mean step of one rank."""
        steps = self.of(rank)
        names = ("step_s", *PARTS)
        return {n: sum(float(getattr(s, n)) for s in steps) / len(steps) for n in names}

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        answer = self.predicted.estimate if self.predicted else None
        ranks = [
            {"rank": t.rank, "file": t.file, "device": t.device, "mean": self.mean(t.rank)}
            for t in self.traces
        ]
        return {
            "ranks": ranks,
            "steps": [step.to_dict() for step in self.steps],
            "imbalance": [one.to_dict() for one in self.imbalance],
            "busiest": self.busiest,
            "predicted": None if answer is None else answer.to_dict(),
            "beside": [row.to_dict() for row in self.rows],
            "notes": list(self.notes),
        }


@asks(TraceQuestion)
def characterize_trace(question: TraceQuestion) -> TraceReport:
    """Break traces down; with a model and a system (as of `foretell.estimate`), beside their prediction.

    `step` keeps one of the profiler's steps. A trace of our own brings its job along. Raises BadInput with
    every problem of every file.
    """
    problems: list[Problem] = []
    files, step = question.files, question.step
    paths = [files] if isinstance(files, str | Path) else list(files)
    answer: Estimate | None = None
    job_given = {n: v for n, v in given_of(question).items() if n not in ("files", "model", "step")}
    if question.model is not None:
        answer = _asked(question.model, job_given, problems)
    elif job_given:
        message = "a system or a plan alone is no job: say the model too"
        problems.append(wrong("model", None, message))
    try:
        traces, job, notes = read_files(paths)
    except BadInput as error:
        raise BadInput([*problems, *error.problems]) from error
    told = [_chosen(breakdowns(trace), step, trace, problems) for trace in traces]
    if problems:
        raise BadInput(problems)
    if answer is None and job:
        answer = _own_job(job, notes)
    busiest = max(told, key=lambda steps: sum(s.compute_s for s in steps) / len(steps))
    ours = None if answer is None else step_prediction(answer)
    return TraceReport(
        traces=tuple(traces),
        steps=tuple(one for steps in told for one in steps),
        imbalance=imbalances(traces, told),
        busiest=busiest[0].rank,
        predicted=ours,
        rows=() if ours is None else share_rows(busiest, ours),
        notes=tuple(notes),
    )


def _asked(model: Any, question: Mapping[str, Any], problems: list[Problem]) -> Estimate | None:
    """The estimate of a job; one that does not fit is answered all the same."""
    try:
        return estimate(model, **question)
    except Infeasible as error:
        if isinstance(error.answer, Estimate):
            return error.answer
        problems += error.problems
    except BadInput as error:
        problems += error.problems
    return None


def _own_job(job: Mapping[str, Any], notes: list[str]) -> Estimate | None:
    """The estimate of what a trace of our own was made for, where its names are the catalogue's."""
    known: dict[str, Any] = {name: job.get(name) for name in JOB}
    try:
        return estimate(str(known.pop("model")), **known)
    except ProblemsError as error:
        notes.append(f"the trace's own job is not known here: {error.problems[0]}")
        return None


def _chosen(
    steps: Sequence[StepBreakdown],
    wanted: str | int | None,
    trace: RankTrace,
    problems: list[Problem],
) -> list[StepBreakdown]:
    """All steps of a rank, or the one asked for."""
    found = [s for s in steps if wanted is None or s.step == str(wanted)]
    if not found:
        have = ", ".join(s.step for s in steps)
        problems.append(wrong("step", wanted, f"{trace.file} has no such step", have))
    return found
