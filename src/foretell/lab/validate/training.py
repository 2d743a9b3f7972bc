"""Published training runs beside our predictions: `validate training`.

Every row of a table is predicted, step time and peak memory, as the question that a user would type
(training_question.py), its blank cells filled as a user's are, or reported as unsupported with the reason.
The step time is scored against the table's, or against what its rate and the global batch imply. Memory is
apart.

Rows of grade C are beside their source in `by_source`, under a name of their own: what they state is a trend.
No row is set aside by its own outcome; `by_mfu` lists those that reach less than 15 % of the peak as a group.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from foretell.api.training import best_plan, fixed_fields, plan_with_room
from foretell.catalog import model as catalogue_model
from foretell.catalog.software import seen_values
from foretell.inputs.question import ask, plan_of
from foretell.lab.validate.held_out import (
    NOTHING,
    HeldOut,
    LeftOut,
    left_out_of,
    sightings_of,
    unnamed,
)
from foretell.lab.validate.scores import (
    Prediction,
    Score,
    Scores,
    UnsupportedRun,
    attempt,
    mean_of,
    median_of,
    score,
    scores_of,
    typed_commands,
)
from foretell.lab.validate.training_question import PublishedQuestion, question_of, system_record
from foretell.lab.validate.training_rows import TrainingRow, read_rows
from foretell.records import dataclass
from foretell.simulation.answer import overlaps, with_step
from foretell.simulation.streams import played_step
from foretell.specs.plan import Plan
from foretell.specs.result import StepEstimate
from foretell.specs.scenario import Scenario
from foretell.training.answer import answer_of
from foretell.uncertainty.intervals import memory_of as of_memory

STEP, MEMORY = "step_s", "peak_memory_bytes"
"""What is compared."""
NO_TARGET = "no target: neither a step time nor a rate to score against"
"""Why a row is not scored that could be predicted."""
LOW_MFU = 15.0
"""Rows whose table states a smaller percentage of the peak than this are a group of `by_mfu`."""
GIB = float(2**30)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPrediction:
    """One run, predicted."""

    row: TrainingRow
    """The row."""
    asked: PublishedQuestion
    """The question in words."""
    scenario: Scenario
    """What was asked."""
    plan: Plan
    """The plan."""
    answer: StepEstimate
    """The estimate."""
    said: tuple[str, ...]
    """What was filled."""

    @property
    def measured_s(self) -> float | None:
        """Step time of the table, or what its rate implies; None without a target."""
        if self.row.step_s:
            return self.row.step_s
        job = self.scenario.job
        return job.tokens_per_step / (self.row.rate * job.gpus) if self.row.rate else None


def score_training(
    path: Path,
    *,
    leave_one_out: HeldOut | None = None,
    simulate: bool = False,
    anchors: int = 0,
    seed: int = 0,
) -> Scores:
    """Score a table; with `leave_one_out`, each run without what rests on its source, its family of
    frameworks or its chip (held_out.py).

    `simulate` runs the rows with a pipeline or replicas, and puts both scores side by side. `anchors`
    predicts every row given so many others of its source as well, chosen by the seed, with the source left
    out.
    """
    told = "source" if anchors else leave_one_out
    return score_rows(read_rows(Path(path)), told, simulate, (anchors, seed))


def commands(path: Path) -> list[dict[str, str | None]]:
    """For every row of a table the line that a user would type for it, or the reason why there is none."""

    def typed(row: TrainingRow) -> str:
        return question_of(row).command()

    return typed_commands((row.id, partial(typed, row)) for row in read_rows(Path(path)))


def score_rows(
    rows: Sequence[TrainingRow],
    leave_one_out: HeldOut | None = None,
    simulate: bool = False,
    anchors: tuple[int, int] = (0, 0),
) -> Scores:
    """The scoreboard of some rows; `anchors` says how many others each is predicted from, and a seed."""
    told: list[RunPrediction] = []
    unsupported: list[tuple[str, str]] = []
    memory: list[Prediction] = []
    seen = sightings_of(rows) if leave_one_out else frozenset()
    for row in rows:
        found = prediction_of(row, left_out_of(row, leave_one_out, seen))
        memory += [] if isinstance(found, str) else memory_of(found)
        if not (row.step_s or row.rate):
            unsupported.append((row.id, NO_TARGET))
        elif isinstance(found, str):
            unsupported.append((row.id, found))
        else:
            told.append(found)
    more: dict[str, Any] = {}
    if simulate:
        closed, told = told, [simulated(one) for one in told]
        more = side_by_side(closed, told)
    predictions = [step_of(one) for one in told]
    if anchors[0]:
        from foretell.lab.validate.anchors import anchored_steps, step_facts

        predictions = anchored_steps(told, predictions, *anchors)
        more |= {"anchors": anchors[0], "seed": anchors[1], **step_facts(told, predictions)}
    labels = labels_of(told)
    scores = scores_of(len(rows), predictions, unsupported, labels, leave_one_out=leave_one_out)
    graded = graded_coverage(told, predictions)
    facts = {
        **summary(rows, told, scores, memory),
        "graded": graded,
        "inside_p90_of_all_rows": scores.inside_p90,
        **more,
        "memory_predictions": [one.to_dict() for one in memory],
    }
    # Rows that stand beside their source have lines of their own: the headline is of those that count.
    return replace(scores, inside_p90=graded.get("inside_p90", scores.inside_p90), facts=facts)


def prediction_of(
    row: TrainingRow,
    left_out: LeftOut = NOTHING,
    *,
    named: bool = True,
    settings: tuple[str, ...] = (),
) -> RunPrediction | str:
    """A row predicted, or the reason why it is not; never an error."""
    return attempt(lambda: predict_row(row, left_out, named=named, settings=settings))


def predict_row(
    row: TrainingRow,
    left_out: LeftOut = NOTHING,
    *,
    named: bool = True,
    settings: tuple[str, ...] = (),
) -> RunPrediction:
    """A row predicted; UnsupportedRun or ProblemsError with the reason where it cannot be.

    `named` is False where its framework is not to be stated; `settings` are of its software besides.
    """
    asked = question_of(row) if named else unnamed(question_of(row))
    # The plan's words may be settings too, where no split is told; those of the system are in its record.
    of_plan = (*(s for s in asked.settings if s.startswith("plan.")), *settings)
    of_system = tuple(s for s in asked.settings if not s.startswith("plan."))
    scenario = ask(
        model=catalogue_model(asked.model),
        system=system_record(asked.system, of_system),
        gpus=asked.gpus,
        global_batch=asked.global_batch,
        seq_len=asked.seq_len,
        plan=asked.plan,
        set=of_plan,
    )
    scenario, sources = left_out.without_chip(scenario), left_out.sources
    if asked.plan is None:
        scenario, plan = plan_of(scenario, None, of_plan, searched=True, left_out=sources)
        answer = best_plan(scenario, plan, fixed_fields(None, of_plan))
    else:
        scenario, plan = plan_with_room(scenario, asked.plan, of_plan, sources)
        answer = answer_of(scenario, plan, chosen=False)
    if not (np.isfinite(answer.step_s) and answer.step_s > 0.0):
        raise UnsupportedRun("the estimate has no finite step time")
    said = tuple(dict.fromkeys(scenario.assumptions))
    return RunPrediction(
        row=row, asked=asked, scenario=scenario, plan=answer.plan, answer=answer, said=said
    )


def simulated(told: RunPrediction) -> RunPrediction:
    """A row with the step of the events, where something runs beside its passes."""
    if not overlaps(told.plan):
        return told
    _, played = played_step(told.scenario, told.plan)
    return replace(told, answer=with_step(told.answer, played.step_s))


def side_by_side(
    closed: Sequence[RunPrediction], played: Sequence[RunPrediction]
) -> dict[str, Any]:
    """Scores of the rows that were simulated: by the closed form, and by the events."""
    rows = [(c, e) for c, e in zip(closed, played, strict=True) if overlaps(c.plan)]
    labels = {"by_source": [source_label(c.row) for c, _ in rows]}
    found: dict[str, Any] = {}
    for name, ones in (("closed", [c for c, _ in rows]), ("events", [e for _, e in rows])):
        scores = scores_of(len(ones), [step_of(one) for one in ones], (), labels)
        found[name] = {
            "median_ape": scores.median_ape,
            **over_sources(scores),
            "by_source": {
                source: {n: getattr(s, n) for n in ("rows", "median_ape", "median_error")}
                for source, s in scores.groups["by_source"].items()
            },
        }
    return {"simulated_rows": len(rows), "simulated": found}


def over_sources(scores: Scores) -> dict[str, float | None]:
    """Median and mean of the medians of sources that rows count for."""
    medians = [s.median_ape for s in graded_sources(scores) if s.median_ape is not None]
    return {"median_of_sources": median_of(medians), "mean_of_sources": mean_of(medians)}


def graded_sources(scores: Scores) -> list[Score]:
    """Scores of sources, without the rows that are shown beside them."""
    return [s for name, s in scores.groups["by_source"].items() if not name.endswith("]")]


def step_of(told: RunPrediction) -> Prediction:
    """A row's step time beside ours."""
    low, high = (told.answer.interval or {}).get("p90", (None, None))
    return Prediction(
        id=told.row.id,
        source=told.row.source,
        metric=STEP,
        predicted=told.answer.step_s,
        measured=told.measured_s or float("nan"),
        low=low,
        high=high,
    )


def memory_of(told: RunPrediction) -> list[Prediction]:
    """A row's peak memory beside ours, where the table has one."""
    if not told.row.peak_mem_gb:
        return []
    name = printed_peak(told.row)
    low, high = of_memory(told.answer)[name]["p90"]
    ours, theirs = getattr(told.answer, name), told.row.peak_mem_gb * GIB
    return [
        replace(step_of(told), metric=MEMORY, predicted=ours, measured=theirs, low=low, high=high)
    ]


def printed_peak(row: TrainingRow) -> str:
    """What a table's peak is, by its notes: what tensors took, what the process held, or, as most frameworks
    print it, what the allocator had reserved."""
    notes = row.notes.lower()
    words = ("peak_mem is allocated", "peak allocated in peak_mem", "real reserved")
    if any(text in notes for text in words):
        return "allocated_bytes"
    return "peak_memory_bytes" if "nvidia-smi" in notes else "reserved_bytes"


def source_label(row: TrainingRow) -> str:
    """The source a row counts for, or the name under which it is shown beside the sources."""
    if row.quality == "C":
        return f"{row.source} [grade C]"
    return row.source


def mfu_label(row: TrainingRow) -> str:
    """The group of a row by the MFU that its table states: listed, never left out of a headline."""
    if row.mfu is None:
        return "not stated"
    return f"below {LOW_MFU:.0f} %" if row.mfu < LOW_MFU else f"from {LOW_MFU:.0f} % on"


def labels_of(told: Sequence[RunPrediction]) -> dict[str, list[str]]:
    """What the scoreboard is grouped by."""
    return {
        "by_source": [source_label(t.row) for t in told],
        "by_chip": [t.scenario.system.chip.id for t in told],
        "by_framework": [t.plan.framework.partition("@")[0] for t in told],
        "by_family": [t.row.family or "dense" for t in told],
        "by_precision": [t.row.precision_id or "bf16" for t in told],
        "by_mfu": [mfu_label(t.row) for t in told],
    }


def summary(
    rows: Sequence[TrainingRow],
    told: Sequence[RunPrediction],
    scores: Scores,
    memory: Sequence[Prediction],
) -> dict[str, Any]:
    """Figures over sources, support of the rows that have a target, fillings, memory."""
    targets = [row for row in rows if row.step_s or row.rate]
    filled = Counter(
        text.split(":", 1)[0].rstrip("0123456789 ") for one in told for text in one.said
    )
    peaks = score(memory)
    return {
        "rows_with_target": len(targets),
        "supported_share": len(told) / len(targets) if targets else None,
        "sources": len(graded_sources(scores)),
        **over_sources(scores),
        "framework_values_seen": seen_values(),
        "filled": dict(filled.most_common()),
        "memory_rows": peaks.rows,
        "memory_median_ape": peaks.median_ape,
        "memory_median_error": peaks.median_error,
        "memory_inside_p90": mean_of([bool(one.inside) for one in memory]),
    }


def graded_coverage(
    told: Sequence[RunPrediction], predictions: Sequence[Prediction]
) -> dict[str, Any]:
    """Errors and intervals of the runs that count for their source: of rows, and of sources alike."""
    pairs = zip(told, predictions, strict=True)
    own = [p for t, p in pairs if source_label(t.row) == t.row.source]
    if not own:
        return {"rows": 0}
    inside: dict[str, list[bool]] = {}
    for p in own:
        inside.setdefault(p.source, []).append(bool(p.inside))
    return {
        "rows": len(own),
        "median_ape": score(own).median_ape,
        "inside_p90": mean_of([bool(p.inside) for p in own]),
        "inside_p90_of_sources": mean_of([float(np.mean(v)) for v in inside.values()]),
        "median_high_over_low": median_of([p.high / p.low for p in own if p.low and p.high]),
    }
