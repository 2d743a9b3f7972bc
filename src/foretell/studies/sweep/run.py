"""`foretell.sweep`: ask a study's points, keep what is answered, and go on where a run was ended."""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from foretell.errors import BadInput, Problem, bad_input, wrong
from foretell.inputs.question import collect
from foretell.interop.user_files import write_whole
from foretell.records import Answer, as_json
from foretell.specs.questions.flags import asks
from foretell.specs.questions.sweep import SweepQuestion
from foretell.specs.study import Study
from foretell.studies.axes import point_count
from foretell.studies.study_file import read_study
from foretell.studies.sweep.columns import wish_problems
from foretell.studies.sweep.executors import MOST_WORKERS, _not_installed, run_shards, shard_runner
from foretell.studies.sweep.frames import shard_points
from foretell.studies.sweep.questions import check, question
from foretell.studies.sweep.shards import (
    MANIFEST,
    SHARDS,
    is_locked,
    lock_folder,
    manifest_of,
    read_folder,
    read_manifest,
    tidy,
    write_shard,
)

MANY = 100_000
"""Points that are asked without a `yes`."""
MOST = 10**9
"""Points that are refused whatever is stated."""
TRIED = 200
"""Values of one axis that are looked at before a sweep begins."""
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepStatus(Answer):
    """How far a sweep is."""

    verb = "sweep"

    folder: str
    """Where its results are."""
    complete: bool
    """Whether every shard is there and whole."""
    running: bool
    """Whether a process is writing there now."""
    points: int
    """Points of the study."""
    points_done: int
    """Points whose answers are kept."""
    shards: int
    """Shards of the study."""
    shards_done: int
    """Shards that are there and whole."""
    corrupt: tuple[str, ...]
    """Names of shards whose bytes are not those they were written with."""
    points_per_s: float | None
    """Points a second, by when shards were written; none while fewer than two are there."""
    seconds_left: float | None
    """What is left at that rate; none where no rate is known."""

    objectives: Mapping[str, str]
    """Columns that are to be small or large."""
    limits: Mapping[str, float]
    """Columns and the largest value that will do."""

    to_dict = as_json()


@asks(SweepQuestion)
def sweep(question: SweepQuestion) -> SweepStatus:
    """Ask every point of a study and keep the answers in a folder; what it has already is not asked again.

    `executor` is process, dask (a cluster of our own), dask://host:port, or any executor of
    `concurrent.futures`. Raises BadInput for what cannot be understood, and OSError where the folder
    cannot be written: what was done before is kept.
    """
    study, out, workers = question.study, question.out, question.workers
    executor, yes, progress = question.executor, question.yes, question.progress
    problems: list[Problem] = []
    known = collect(lambda: read_study(study), problems)
    place = collect(lambda: shard_runner(executor, _workers(workers)), problems)
    if known is not None:
        problems += study_problems(known, yes)
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        problems.append(wrong("out", str(out), "is a file, not a folder"))
    if problems or known is None:
        raise BadInput(problems)
    needs_polars()
    _prepare(folder, known)
    return _run(folder, known, place, progress)


def resume(
    folder: str | Path,
    *,
    workers: int = 1,
    executor: str | Executor = "process",
    progress: Progress | None = None,
) -> SweepStatus:
    """Go on with a sweep that was ended, from its folder alone; corrupt shards are done again."""
    problems: list[Problem] = []
    there = collect(lambda: read_manifest(Path(folder)), problems)
    place = collect(lambda: shard_runner(executor, _workers(workers)), problems)
    if problems or there is None:
        raise BadInput(problems)
    needs_polars()
    _same(Path(folder), there[1], manifest_of(there[0]))
    return _run(Path(folder), there[0], place, progress)


def status(folder: str | Path) -> SweepStatus:
    """How far the sweep of a folder is; every shard is read and compared with its hash."""
    study, _ = read_manifest(Path(folder))
    return _status(Path(folder), study)


def _run(folder: Path, study: Study, place: Any, progress: Progress | None) -> SweepStatus:
    """Compute what is missing."""
    with lock_folder(folder):
        tidy(folder)
        kept = read_folder(folder)
        for path in kept.corrupt:
            path.unlink()
        size, total = shard_points(study), point_count(study)
        shards = -(-total // size)
        done = sum(_points_in(number, size, total) for number in kept.whole)
        left = (number for number in range(shards) if number not in kept.whole)
        if progress is not None:
            progress(done, total)
        for number, content in run_shards(study, left, place, shards - len(kept.whole)):
            _kept(folder, number, content)
            done += _points_in(number, size, total)
            if progress is not None:
                progress(done, total)
    return _status(folder, study)


def _kept(folder: Path, number: int, content: bytes) -> None:
    """Write a shard; where that fails, say what is to be done."""
    try:
        write_shard(folder, number, content)
    except OSError as error:
        said = f"{folder}: {error.strerror}; what was done is kept: foretell sweep resume {folder}"
        raise OSError(error.errno, said) from None


def _points_in(number: int, size: int, total: int) -> int:
    return min(size, total - number * size)


def _status(folder: Path, study: Study) -> SweepStatus:
    kept = read_folder(folder)
    size, total = shard_points(study), point_count(study)
    shards = -(-total // size)
    whole = {number: path for number, path in kept.whole.items() if number < shards}
    done = sum(_points_in(number, size, total) for number in whole)
    times = sorted((path.stat().st_mtime, number) for number, path in whole.items())
    rate = None
    if len(times) > 1 and times[-1][0] > times[0][0]:
        later = sum(_points_in(number, size, total) for _, number in times[1:])
        rate = later / (times[-1][0] - times[0][0])
    return SweepStatus(
        folder=str(folder),
        complete=len(whole) == shards,
        running=is_locked(folder),
        points=total,
        points_done=done,
        shards=shards,
        shards_done=len(whole),
        corrupt=tuple(path.name for path in kept.corrupt),
        points_per_s=rate,
        seconds_left=None if rate is None else (total - done) / rate,
        objectives=dict(study.objectives),
        limits=dict(study.limits),
    )


def _prepare(folder: Path, study: Study) -> None:
    """The folder with its manifest, or BadInput where it cannot be used."""
    wanted = manifest_of(study)
    try:
        (folder / SHARDS).mkdir(parents=True, exist_ok=True)
        if (folder / MANIFEST).exists():
            _same(folder, _read(folder / MANIFEST), wanted)
        else:
            if any((folder / SHARDS).iterdir()):
                message = "has shards of a sweep and no manifest"
                raise BadInput([_of_folder(folder, message, "an empty folder")])
            write_whole(folder / MANIFEST, json.dumps(wanted, indent=1).encode())
    except OSError as error:
        message = f"cannot be written: {error.strerror}"
        raise BadInput([_of_folder(folder, message, "a folder of one's own")]) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except (ValueError, TypeError, RecursionError):
        return {}


def _same(folder: Path, there: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to mix results of two studies, two programs or two versions of an input file."""
    plain = json.loads(json.dumps(wanted))
    for name, what in (
        ("study", "another study"),
        ("inputs", "other versions of the files that the study names"),
        ("program", "another version of foretell"),
        ("points_per_shard", "other shards"),
    ):
        if there.get(name) != plain[name]:
            message = f"holds results of {what}, which are not mixed"
            raise BadInput([_of_folder(folder, message, "another folder, or remove this one")])


def _of_folder(folder: Path, message: str, allowed: str) -> Problem:
    return wrong("out", str(folder), message, allowed)


def study_problems(study: Study, yes: bool) -> list[Problem]:
    """What is wrong with the points of a study, before any is asked; `yes`: they may be very many."""
    wrong = wish_problems(study) or trial_problems(study)
    return [*wrong, *_size_problems(study, yes)]


def _size_problems(study: Study, yes: bool) -> list[Problem]:
    many = point_count(study)
    if many > MOST:
        return [
            wrong(
                "vary",
                None,
                f"the study has {many:,} points",
                f'at most {MOST:,}; mode = "sample" draws some of them',
            )
        ]
    if many > MANY and not yes:
        message = f"the study has {many:,} points, more than {MANY:,}"
        return [wrong("vary", None, message, "--yes, or fewer points")]
    return []


def trial_problems(study: Study) -> list[Problem]:
    """What is wrong with the question of the first point, and with each value of each axis in it."""
    found: dict[str, Problem] = {}
    for workload in study.workloads or (None,):
        first = [(axis, _first(axis)) for axis in study.axes]
        cases = [first]
        for place, axis in enumerate(study.axes):
            before, after = first[:place], first[place + 1 :]
            # Between two ends, what holds at both holds.
            values = axis.values[1:TRIED] if axis.high == axis.low else axis.values[-1:]
            if not axis.values:
                values = (round(axis.high) if axis.whole else axis.high,)
            cases += [[*before, (axis, value), *after] for value in values]
        for case in cases:
            try:
                check(question(study, workload, case))
            except BadInput as error:
                found |= {str(problem): problem for problem in error.problems}
            except TypeError as error:
                # A flag that the verb cannot do without, or that it does not have.
                problem = wrong("base", None, str(error))
                found[str(problem)] = problem
    return list(found.values())


def _first(axis: Any) -> Any:
    if axis.values:
        return axis.values[0]
    return round(axis.low) if axis.whole else axis.low


def _workers(given: object) -> int:
    if type(given) is not int or not 1 <= given <= MOST_WORKERS:
        raise bad_input("workers", given, "not usable", f"a whole number from 1 to {MOST_WORKERS}")
    return given


def needs_polars() -> None:
    """BadInput where tables cannot be made."""
    if find_spec("polars") is None:
        raise _not_installed("polars")
