"""The whole published study: 54 searches over 13 GPU counts each, and its two tables.

The candidates do not depend on the chip, so one task enumerates a space once and searches it for
each chip.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from foretell.errors import BadInput, Problem
from foretell.inputs.question import collect
from foretell.interop.user_files import made_folder, write_rows
from foretell.lab.reference.check import check_quirks, whole
from foretell.lab.reference.iteration import ReferenceQuestion
from foretell.lab.reference.records import CHIPS, MODELS, STRATEGIES, Quirks, Strategy
from foretell.lab.reference.rows import COLUMNS, Row
from foretell.lab.reference.search import ReferenceSearch, search_space
from foretell.lab.reference.space import enumerate_space, join
from foretell.records import dataclass

STUDY_MODELS = ("gpt3_1T", "vit_era5")
"""Models of the study."""
STUDY_CHIPS = ("A100", "H200", "B200")
"""Chips of the study."""
STUDY_FAST_DOMAINS = (4, 8, 64)
"""Fast domains of the study, in GPUs."""
STUDY_GPUS = tuple(2**k for k in range(2, 15))
"""GPU counts of the study, 4 to 16384."""
STUDY_GLOBAL_BATCH = 4096
"""Global batch of the study, in samples."""
STUDY_SEARCHES = len(STUDY_MODELS) * len(STUDY_CHIPS) * len(STUDY_FAST_DOMAINS) * len(STRATEGIES)
"""Searches of the study, each over all GPU counts."""
COUNT_COLUMNS = (
    *("model", "nvs", "n_gpus", "cand_1d", "cand_2d", "cand_seqp"),
    *("enum_s_1d", "enum_s_2d", "enum_s_seqp"),
)
"""Columns of candidate_counts.csv; enum_s_ are the seconds spent enumerating, here, on this
machine."""
AS_PUBLISHED = Quirks()
"""Every quirk kept."""
MAX_WORKERS = 1024
"""Most worker processes."""

Progress = Callable[[int, int], None]
"""Called with the searches done and their total after each group of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceTask:
    """One space, searched for several chips."""

    model: str
    """Model, as the published tables spell it."""
    strategy: Strategy
    """Strategy."""
    fast_domain: int
    """GPUs of one fast domain."""
    chips: tuple[str, ...] = STUDY_CHIPS
    """Chips to search for."""
    gpus: tuple[int, ...] = STUDY_GPUS
    """GPU counts to search for."""
    top: int = 10
    """Plans kept of each search and GPU count."""
    quirks: Quirks = AS_PUBLISHED
    """Which published quirks hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What one task found."""

    task: SpaceTask
    """The task."""
    enumerate_s: dict[int, float]
    """Seconds spent enumerating each GPU count."""
    results: tuple[ReferenceSearch, ...]
    """One result per chip and GPU count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResult:
    """Both tables of the study."""

    plans: list[Row]
    """Rows of best_plans.csv."""
    counts: list[Row]
    """Rows of candidate_counts.csv."""
    evaluations: int
    """Candidates over all searches, those that memory ruled out included."""
    feasible: int
    """Candidates that fit in memory."""
    wall_s: float
    """Wall seconds from enumeration to ranking, without writing."""
    files: tuple[Path, ...] = ()
    """The files written."""

    def to_dict(self) -> dict[str, object]:
        """Counts and files, as JSON has them; the tables are in the files."""
        return {
            "searches": STUDY_SEARCHES,
            "evaluations": self.evaluations,
            "feasible": self.feasible,
            "plans": len(self.plans),
            "wall_s": self.wall_s,
            "files": [str(path) for path in self.files],
        }


def study(
    out_dir: str | os.PathLike[str],
    workers: int = 2,
    quirks: Quirks | None = None,
    progress: Progress | None = None,
) -> StudyResult:
    """Run all 54 searches into `out_dir`/best_plans.csv and `out_dir`/candidate_counts.csv."""
    problems: list[Problem] = []
    whole("workers", workers, MAX_WORKERS, problems)
    check_quirks(quirks, problems)
    folder = collect(lambda: made_folder(out_dir), problems)
    if problems or folder is None:
        raise BadInput(problems)
    found = run_study(workers=workers, quirks=quirks, progress=progress)
    paths = (folder / "best_plans.csv", folder / "candidate_counts.csv")
    write_rows(paths[0], found.plans, COLUMNS)
    write_rows(paths[1], found.counts, COUNT_COLUMNS)
    return StudyResult(
        plans=found.plans,
        counts=found.counts,
        evaluations=found.evaluations,
        feasible=found.feasible,
        wall_s=found.wall_s,
        files=paths,
    )


def run_study(
    *,
    workers: int = 2,
    quirks: Quirks | None = None,
    top: int = 10,
    progress: Progress | None = None,
) -> StudyResult:
    """The study without files."""
    start = time.perf_counter()
    tasks = [
        SpaceTask(model=m, strategy=s, fast_domain=d, top=top, quirks=quirks or AS_PUBLISHED)
        for s in ("2d", "2d-seqp", "1d")  # the largest spaces first, so that no worker ends alone
        for d in reversed(STUDY_FAST_DOMAINS)
        for m in STUDY_MODELS
    ]
    done: list[TaskResult] = []
    for result in run_tasks(tasks, workers):
        done.append(result)
        if progress is not None:
            progress(sum(len(r.task.chips) for r in done), STUDY_SEARCHES)
    results = sorted((r for part in done for r in part.results), key=_study_order)
    return StudyResult(
        plans=[row for result in results for row in result.plans],
        counts=_counts(done),
        evaluations=sum(result.candidates for result in results),
        feasible=sum(result.feasible for result in results),
        wall_s=time.perf_counter() - start,
    )


def run_tasks(tasks: Sequence[SpaceTask], workers: int) -> Iterator[TaskResult]:
    """Results as they come; one worker stays in this process."""
    if workers == 1 or len(tasks) <= 1:
        yield from map(run_task, tasks)
        return
    from concurrent.futures import ProcessPoolExecutor, as_completed

    with ProcessPoolExecutor(max_workers=min(workers, len(tasks))) as pool:
        for future in as_completed([pool.submit(run_task, task) for task in tasks]):
            yield future.result()


def run_task(task: SpaceTask) -> TaskResult:
    """Enumerate once, search for each chip."""
    model = MODELS[task.model]
    seconds: dict[int, float] = {}
    spaces = []
    for count in task.gpus:
        start = time.perf_counter()
        spaces.append(
            enumerate_space(model, task.strategy, count, task.fast_domain, STUDY_GLOBAL_BATCH)
        )
        seconds[count] = time.perf_counter() - start
    space = join(spaces)
    results: list[ReferenceSearch] = []
    for chip in task.chips:
        question = ReferenceQuestion(
            model=model,
            strategy=task.strategy,
            chip=CHIPS[chip],
            fast_domain=task.fast_domain,
            global_batch=STUDY_GLOBAL_BATCH,
            quirks=task.quirks,
        )
        results.extend(search_space(question, space, task.gpus, task.top))
    return TaskResult(task=task, enumerate_s=seconds, results=tuple(results))


def _study_order(result: ReferenceSearch) -> tuple[int, ...]:
    """Strategy, model, chip, domain, GPUs: the order of the published table."""
    return (
        [str(s) for s in STRATEGIES].index(result.strategy),
        STUDY_MODELS.index(result.model),
        STUDY_CHIPS.index(result.chip),
        result.fast_domain,
        result.gpus,
    )


def _counts(done: Iterable[TaskResult]) -> list[Row]:
    """One row per model, domain and GPU count, the strategies side by side."""
    rows: dict[tuple[str, int, int], Row] = {
        (m, d, n): dict.fromkeys(COUNT_COLUMNS) | {"model": m, "nvs": d, "n_gpus": n}
        for m in STUDY_MODELS
        for d in STUDY_FAST_DOMAINS
        for n in STUDY_GPUS
    }
    for part in done:
        short = part.task.strategy.removeprefix("2d-")
        for result in part.results[: len(part.task.gpus)]:  # the first chip: all count alike
            row = rows[part.task.model, part.task.fast_domain, result.gpus]
            row[f"cand_{short}"] = result.candidates
            row[f"enum_s_{short}"] = round(part.enumerate_s[result.gpus], 6)
    return list(rows.values())
