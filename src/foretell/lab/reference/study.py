"""The whole published study: 54 searches over 13 GPU counts each, its two tables, and results as text.

The candidates do not depend on the chip, so one task enumerates a space once and searches it for
each chip.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
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

GPT, VIT = STUDY_MODELS = ("gpt3_1T", "vit_era5")
"""Models of the study, as the published tables spell them."""
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
"""Columns of candidate_counts.csv; enum_s_ are the seconds spent enumerating, here, on this machine."""
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
    return replace(found, files=paths)


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


SECONDS_PER_DAY = 86400.0
"""Seconds of a day."""


def days(row: Row) -> float | None:
    """Days of the published training run at this plan's throughput; None for other models."""
    model, throughput = MODELS.get(str(row["model"])), row["throughput"]
    if model is None or not isinstance(throughput, float):
        return None
    return model.samples / throughput / SECONDS_PER_DAY


def render(result: ReferenceSearch) -> str:
    """The plans as a table, fastest first, under one line that says what was searched."""
    head = (
        f"{result.model}, {result.strategy}, {result.gpus} x {result.chip} "
        f"in fast domains of {result.fast_domain}, global batch {result.global_batch}: "
        f"{result.candidates} candidates, {result.feasible} fit"
    )
    if not result.plans:
        return f"{head}\nNo plan fits."
    header = ["rank", "plan", "placement", "t_s", "days", "mem_GB"]
    header += ["comp%", "mem%", "tp%", "dp%", "pp%", "bubble%"]
    notes = [f"note: {note}" for note in result.notes]
    return "\n".join([head, *notes, *_aligned([header, *(_line(row) for row in result.plans)])])


def render_study(result: StudyResult) -> str:
    """What a study did, and where it is."""
    kept = f"{result.feasible} fit, {len(result.plans)} plans kept"
    head = f"{result.evaluations} candidates, {kept}, {result.wall_s:.2f} s"
    return "\n".join([head, *(f"wrote {path}" for path in result.files)])


def _line(row: Row) -> list[str]:
    """Cells of one plan."""
    split = f"tp{row['tp']}" if row["tp1"] is None else f"tp{row['tp1']}x{row['tp2']}"
    inner = row["nv_tp"] if row["tp1"] is None else f"{row['nv_tp1']}x{row['nv_tp2']}"
    panels = "" if row["nb"] is None else f" nb{row['nb']}"
    run_days = days(row)
    fractions = ("comp", "mem", "tp_comm", "dp_comm", "pp_comm", "bubble")
    return [
        str(row["rank"]),
        f"{split} pp{row['pp']} dp{row['dp']} mbs{row['mbs']}{panels}",
        f"tp{inner} pp{row['nv_pp']} dp{row['nv_dp']}",
        f"{row['t']:.4g}",
        "" if run_days is None else f"{run_days:.4g}",
        f"{row['mem']:.4g}",
        *(f"{_number(row[f'{name}_frac']) * 100:.1f}" for name in fractions),
    ]


def _number(cell: object) -> float:
    """A cell that is known to hold a number."""
    return float(str(cell))


def _aligned(lines: list[list[str]]) -> list[str]:
    """Columns padded to their widest cell: text to the left, numbers to the right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    left = {1, 2}
    return [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


SYSTEMS: tuple[tuple[str, int], ...] = tuple(
    (chip, domain) for chip in STUDY_CHIPS for domain in STUDY_FAST_DOMAINS
)
"""The nine systems: a chip and its fast domain."""

Key = tuple[str, str, str, int, int]
"""Model, strategy, chip, fast domain, GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestPlans:
    """The fastest plan of every search of one study that found any."""

    rows: dict[Key, Row]
    """Rows by model, strategy, chip, fast domain and GPUs."""

    def days(self, model: str, strategy: str, chip: str, domain: int, gpus: int) -> float | None:
        """Days of the run with the fastest plan; None where nothing fits."""
        row = self.rows.get((model, strategy, chip, domain, gpus))
        return None if row is None else days(row)

    def winner(self, model: str, chip: str, domain: int, gpus: int) -> tuple[float, str] | None:
        """Days and name of the fastest strategy; None where nothing fits."""
        found = [
            (value, strategy)
            for strategy in STRATEGIES
            if (value := self.days(model, strategy, chip, domain, gpus)) is not None
        ]
        return min(found, default=None)

    def places(self, model: str) -> list[tuple[str, int, int]]:
        """Chip, domain and GPUs of every job of the model that some strategy can run."""
        return [
            (chip, domain, gpus)
            for chip, domain in SYSTEMS
            for gpus in STUDY_GPUS
            if self.winner(model, chip, domain, gpus)
        ]


def key_of(row: Row) -> Key:
    """Which search a row answers."""
    model, strategy, chip = (str(row[name]) for name in ("model", "strategy", "system"))
    return model, strategy, chip, int(str(row["nvs"])), int(str(row["n_gpus"]))
