"""Published post-training runs beside our predictions: `validate post-training`.

Every row is asked as the question that a user would type (post_training_rows.py), and `--commands` prints
it: what is scored is a number of its answer, without runs of the row's own source. A step of reinforcement
learning is scored whole and phase by phase, a synchronisation by its seconds, fine-tuning by its step, its
run and its peak of memory. A phase is scored as its source counts it: verl's generation holds wake, reshard
and sleep, and in an asynchronous run only what the trainer waits for.
"""

import csv
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from foretell.api.post_training import PostTraining, post_training_of, printed_phases
from foretell.catalog import model as catalogue_model
from foretell.catalog.error_models import QuestionFacts
from foretell.catalog.model_names import stand_in
from foretell.catalog.post_training import post_training_loop, recognise_loop
from foretell.errors import ProblemsError, bad_input
from foretell.inputs.system import system_of
from foretell.lab.validate.post_training_cells import Cells, chip_of, model_of, number
from foretell.lab.validate.post_training_rows import PHASES, command_of, question_of
from foretell.lab.validate.scores import (
    Prediction,
    Scores,
    UnsupportedRun,
    attempt,
    mean_of,
    median_of,
    scores_of,
    table_text,
    typed_commands,
)
from foretell.posttraining.evidence import figure_ends, loop_facts
from foretell.posttraining.step import spread_interval
from foretell.records import as_json, dataclass
from foretell.specs.questions.post_training import PostTrainingQuestion

GIB, GB, HOUR = 2.0**30, 1e9, 3600.0
NEEDED = ("id", "kind", "source_id", "model", "framework")
"""Columns without which a file is no table of post-training runs."""
Pairs = dict[str, tuple[float, float | None]]
"""Metric -> ours, and what is printed."""
LONGEST = 200
"""Characters of a reason."""
SKIPPED = ("do not score", "phase ratios only", "misconfigured, not scored", "must be hidden")
"""Words of rows that their own notes take out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostTrainingPrediction(Prediction):
    """One number of a row beside ours, in the unit of the row's column."""

    kind: str
    """rl_step, finetune_step, finetune_run or weight_sync."""
    source: str
    """The row's source."""

    to_dict = as_json()


def score_post_training(
    path: Path, *, leave_one_out: str | None = "source", anchors: int = 0, seed: int = 0
) -> Scores:
    """Score a table of post-training runs; values and intervals are made without the row's own source.
    `anchors` says from how many other rows of its source each is predicted too, chosen by the seed."""
    rows = read_cells(path)
    found: list[PostTrainingPrediction] = []
    unsupported: list[tuple[str, str]] = []
    for cells in rows:
        told = predictions_of(cells, left_out=leave_one_out is not None)
        if isinstance(told, str):
            unsupported.append((cells["id"], told))
        else:
            found += told
    facts = bars(rows, found)
    if anchors:
        from foretell.lab.validate.anchors import anchored_loops, loop_facts

        scored = {one.id for one in found}
        known = {row["id"]: (row, cells_facts(row)) for row in rows if row["id"] in scored}
        found = anchored_loops(
            known, found, lambda p: figure_kind(p.kind, p.metric), (anchors, seed)
        )
        facts |= {"anchors": anchors, "seed": seed, **loop_facts(found)}
    labels = {
        "by_metric": [metric_group(p) for p in found],
        "by_source": [p.source for p in found],
        "by_kind": [p.kind for p in found],
    }
    return scores_of(
        len(rows), found, unsupported, labels, leave_one_out=leave_one_out, facts=facts
    )


def read_cells(path: Path) -> list[dict[str, str]]:
    """Every row of a table; BadInput where it is none."""
    reader = csv.DictReader(table_text(path).splitlines())
    try:
        missing = [name for name in NEEDED if name not in (reader.fieldnames or ())]
        if missing:
            message = f"is no table of post-training runs: it has no column {', '.join(missing)}"
            raise bad_input(str(path), None, message)
        return [{key: value or "" for key, value in row.items() if key} for row in reader]
    except csv.Error as error:
        raise bad_input(str(path), None, f"cannot be read: {error}") from None


def predictions_of(cells: Cells, *, left_out: bool = True) -> list[PostTrainingPrediction] | str:
    """Every number of a row that is printed, predicted; or the reason why none is."""
    notes = (cells.get("notes") or "").lower()
    if any(words in notes for words in SKIPPED):
        return "its notes take it out"
    out = (cells["source_id"],) if left_out else ()
    pairs = attempt(lambda: scored_pairs(cells, out))
    if isinstance(pairs, str):
        return pairs[:LONGEST]
    found, facts, kind = [], cells_facts(cells), cells["kind"]
    for metric, (ours, theirs) in pairs.items():
        if theirs and ours and np.isfinite(ours):
            ends = figure_ends(facts, figure_kind(kind, metric), out[0] if out else "")["p90"]
            low, high = spread_interval(ours, ends)
            found.append(
                PostTrainingPrediction(
                    id=cells["id"],
                    kind=kind,
                    metric=metric,
                    predicted=ours,
                    measured=theirs,
                    low=low,
                    high=high,
                    source=cells["source_id"],
                )
            )
    return found or "nothing that is printed can be scored"


def scored_pairs(cells: Cells, out: tuple[str, ...]) -> Pairs:
    """Metric -> ours, without runs of some sources, and what a row prints."""
    answer = post_training_of(PostTrainingQuestion(**question_of(cells)), out)
    if cells["kind"] == "weight_sync":
        return {"sync": (answer.step_s, number(cells, "weight_sync_s"))}
    return step_pairs(cells, answer) if cells["kind"] == "rl_step" else tuning_pairs(cells, answer)


def figure_kind(kind: str, metric: str) -> str:
    """Which figure a number of a row is: a phase, `step` or `finetune`."""
    if metric in ("step", "run"):
        return "step" if kind == "rl_step" else "finetune"
    return metric


def cells_facts(cells: Cells) -> QuestionFacts:
    """What is known of a post-training row before it is run."""
    name = model_of(cells)
    try:
        system = system_of(chip_of(cells), (), {})
    except (UnsupportedRun, ProblemsError):
        system = system_of("h100-sxm", (), {})
    return loop_facts(
        software=recognise_loop(cells.get("framework") or ""),
        system=system,
        model=catalogue_model(known.id if (known := stand_in(name)) else name),
        gpus=number(cells, "gpus_total") or number(cells, "train_gpus") or 1.0,
        length=number(cells, "mean_response") or number(cells, "max_response") or 1024.0,
    )


def commands(path: Path) -> list[dict[str, str | None]]:
    """For every row of a table the line that a user would type for it, or the reason why there is none."""
    return typed_commands((row["id"], partial(command_of, row)) for row in read_cells(path))


def step_pairs(cells: Cells, answer: PostTraining) -> Pairs:
    """Whole step and phases of a row of reinforcement learning."""
    pairs = {"step": (answer.step_s, printed_step(cells, answer))}
    loop = post_training_loop(answer.framework)
    ours = printed_phases(answer.phases, answer.placement, loop)
    if "adv" in ours and not number(cells, "reward_s"):
        ours["adv"] += ours.get("reward", 0.0)  # one timer for both
    for column, name in PHASES.items():
        if name in ours:
            pairs[name] = (ours[name], number(cells, column))
    return pairs | run_pair(cells, answer)


def run_pair(cells: Cells, answer: PostTraining) -> Pairs:
    """The whole run of a row that prints its steps."""
    steps, hours = number(cells, "run_steps"), number(cells, "run_hours")
    return {"run": (answer.step_s * steps / HOUR, hours)} if steps and hours else {}


def printed_step(cells: Cells, answer: PostTraining) -> float | None:
    """Seconds of a step as a row prints it, or by its rate of tokens or samples; None where it has none."""
    step = number(cells, "step_s")
    if step is not None:
        return step
    rate, per_gpu = number(cells, "tokens_per_s"), number(cells, "tokens_per_s_per_gpu")
    if rate or per_gpu:
        return answer.tokens / ((per_gpu or 0.0) * answer.gpus or rate or 1.0)
    samples = number(cells, "samples_per_s")
    return answer.trajectories / samples if samples else None


def tuning_pairs(cells: Cells, answer: PostTraining) -> Pairs:
    """Step and memory of a row of fine-tuning."""
    pairs = run_pair(cells, answer)
    # A run's time stands on a data set whose lengths the row does not have.
    if cells["kind"] == "finetune_step":
        pairs = {"step": (answer.step_s, printed_step(cells, answer)), **pairs}
    peak = number(cells, "peak_mem_gib")
    if peak:
        pairs["memory"] = (peak_of(cells, answer), peak)
    return pairs


def peak_of(cells: Cells, answer: PostTraining) -> float:
    """The peak as a source counts it: one card or all, what the allocator gave out or has reserved."""
    notes, framework = (cells.get(n, "").lower() for n in ("notes", "framework"))
    allocated = any(name in framework for name in ("litgpt", "torchtune", "prime-rl"))
    without = {"framework", "allocator"} if allocated else {"framework"}
    size = max(
        sum(value for name, value in one.parts.items() if name not in without)
        for one in answer.memory
    )
    cards = answer.gpus if "sum of all cards" in notes else 1
    # LitGPT divides what the allocator reports by 10^9.
    return size * cards / (GB if "printed gb" in notes or "litgpt" in framework else GIB)


def metric_group(p: PostTrainingPrediction) -> str:
    """What a number counts for."""
    if p.kind == "rl_step":
        return {"step": "rl step", "run": "rl run"}.get(p.metric, "rl phase")
    return f"fine-tuning {p.metric}" if p.kind.startswith("finetune") else "weight sync"


def bars(rows: Sequence[Cells], found: Sequence[PostTrainingPrediction]) -> dict[str, Any]:
    """The figures that the bars are of."""
    by_id = {cells["id"]: cells for cells in rows}

    def median(group: str) -> float | None:
        return median_of([abs(p.error) for p in found if metric_group(p) == group])

    ratios = [p.predicted / p.measured for p in found if p.metric == "sync"]
    syncs = [max(ratio, 1.0 / ratio) <= 1.5 for ratio in ratios]
    inside = [p.inside for p in found if p.inside is not None]
    right, pairs = faster_named(by_id, found)
    fitting, outcomes = outcomes_named(rows)
    return {
        "bars": {
            "rl_step_median_ape": median("rl step"),
            "rl_phase_median_ape": median("rl phase"),
            "sync_within_1_5": mean_of(syncs),
            "finetune_step_median_ape": median("fine-tuning step"),
            "finetune_memory_median_ape": median("fine-tuning memory"),
            "faster_placement_named": right / pairs if pairs else None,
            "placement_pairs": pairs,
            "outcome_named": fitting / outcomes if outcomes else None,
            "outcome_rows": outcomes,
            "inside_p90": mean_of(inside),
        }
    }


def outcomes_named(rows: Sequence[Cells]) -> tuple[int, int]:
    """Of fine-tuning runs that say whether they ran or were out of memory, how many we say the same of; a
    borderline answer is right either way."""
    right = known = 0
    for cells in rows:
        outcome = (cells.get("outcome") or "").strip().lower()
        if not cells["kind"].startswith("finetune") or outcome not in ("ran", "out of memory"):
            continue
        try:
            asked = PostTrainingQuestion(**question_of(cells))
            answer = post_training_of(asked, (cells["source_id"],))
        except (UnsupportedRun, ProblemsError):
            continue
        known += 1
        right += answer.fits == "too_close" or (answer.fits == "yes") == (outcome == "ran")
    return right, known


def faster_named(
    by_id: Mapping[str, Cells], found: Sequence[PostTrainingPrediction]
) -> tuple[int, int]:
    """Of pairs of a synchronous and an asynchronous step of one job, how many we put in the right order."""
    steps = [p for p in found if p.kind == "rl_step" and p.metric == "step"]
    keys = ("source_id", "model", "gpus_total", "max_response", "train_engine")
    right = pairs = 0
    for one in steps:
        for other in steps:
            a, b = by_id[one.id], by_id[other.id]
            alike = all(a.get(key) == b.get(key) for key in keys)
            if (
                not alike
                or a.get("placement") != "colocated"
                or b.get("placement") != "split_async"
            ):
                continue
            pairs += 1
            right += (one.predicted < other.predicted) == (one.measured < other.measured)
    return right, pairs
