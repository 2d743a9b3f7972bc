"""`foretell.optimise`: the best points of a study whose fields may be anything between two ends.

Optuna's multi-objective TPE asks points in batches, each batch is answered as a sweep's points are, and the
front of all of them is kept: exact over what was asked, and no promise beyond. Limits are constraints that
the sampler learns too.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foretell.errors import BadInput, Problem, wrong
from foretell.interop.user_files import made_folder, write_whole
from foretell.records import Answer, JsonRecord
from foretell.specs.questions.flags import asks
from foretell.specs.questions.sweep import OptimiseQuestion
from foretell.specs.study import Study
from foretell.studies.axes import Column
from foretell.studies.study_file import read_study
from foretell.studies.sweep.codesign import Codesign, check_wishes, of_frame
from foretell.studies.sweep.columns import all_columns, wish_problems
from foretell.studies.sweep.frames import points_frame, typed_rows
from foretell.studies.sweep.mix import column_of, mix_points, objectives_of
from foretell.studies.sweep.run import trial_problems
from foretell.studies.sweep.trials import FAR, Trials, place_of, quiet_optuna, trial_storage

MOST_TRIALS = 100_000
"""More trials are a typing error."""
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimiseResult(JsonRecord, Answer):
    """What came of the trials."""

    verb = "optimise"

    found: Codesign
    """Every trial, and the front."""
    trials: int
    """Trials that were answered."""
    asked: int
    """Trials that were asked for."""
    resumed: int
    """Trials that were there already."""
    interrupted: bool
    """Whether it was ended before all were answered."""
    storage: str | None
    """Where trials are kept."""

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON: as of codesign, and how far it is."""
        names = ("trials", "asked", "resumed", "interrupted", "storage")
        return {name: getattr(self, name) for name in names} | self.found.to_dict()


@asks(OptimiseQuestion)
def optimise(question: OptimiseQuestion) -> OptimiseResult:
    """Search a study's fields for its objectives within its limits, `trials` points in all.

    With `storage` (a journal, or SQLite by its ending) every trial is kept: `resume` goes on there. `out` has
    the front and all trials as files. Ended from the keyboard, what was found so far is returned.
    """
    study, trials, resume = question.study, question.trials, question.resume
    storage, out, progress = question.storage, question.out, question.progress
    known = _read(study, trials, storage, out)
    file = None if storage is None else Path(storage).absolute()
    with quiet_optuna(), trial_storage(file) as place:
        kept = Trials(known, place, file, resume=resume)
        before = len(kept.done())
        ended = False
        try:
            _run(known, kept, trials, progress)
        except KeyboardInterrupt:
            ended = True
        found = of_frame(known, _frame(known, kept))
    result = OptimiseResult(
        found=found,
        trials=len(found.table.points),
        asked=trials,
        resumed=before,
        interrupted=ended,
        storage=None if storage is None else str(storage),
    )
    if out is not None:
        _write(Path(out), result)
    return result


def _read(given: Any, trials: object, storage: Any, out: Any) -> Study:
    """The study, or BadInput with all that is wrong with it and the rest."""
    problems: list[Problem] = []
    known = None
    try:
        known = read_study(given, drawn=True)
        problems += wish_problems(known) or trial_problems(known)
    except BadInput as error:
        problems += error.problems
    if type(trials) is not int or not 1 <= trials <= MOST_TRIALS:
        allowed = f"a whole number from 1 to {MOST_TRIALS}"
        problems.append(wrong("trials", trials, "not usable", allowed))
    if storage is not None and not Path(storage).absolute().parent.is_dir():
        message, allowed = "no file can be written there", "a file in a folder there is"
        problems.append(wrong("storage", str(storage), message, allowed))
    if out is not None and Path(out).exists() and not Path(out).is_dir():
        problems.append(wrong("out", str(out), "is a file, not a folder"))
    if known is not None and known.mode == "list":
        message, allowed = "fields are chosen one by one", "product or sample"
        problems.append(wrong("study.mode", "list", message, allowed))
    if problems or known is None:
        raise BadInput(problems)
    check_wishes(known)
    return known


def _run(study: Study, kept: Trials, trials: int, progress: Progress | None) -> None:
    """Ask, answer and tell batches until enough trials are told."""
    answered = {_key(study, trial): rows for trial, rows in kept.rows()}
    while (done := len(kept.done())) < trials:
        if progress is not None:
            progress(done, trials)
        batch = kept.asked()[: trials - done]
        new = list({_key(study, t): t for t in batch if _key(study, t) not in answered}.values())
        if new:
            answered |= zip((_key(study, t) for t in new), _answers(study, new), strict=True)
        for trial in batch:
            rows = answered[_key(study, trial)]
            kept.tell(trial, *_told(study, rows), rows)
    if progress is not None:
        progress(done, trials)


def _key(study: Study, trial: Any) -> tuple[Any, ...]:
    return tuple(trial.params[axis.path] for axis in study.axes)


def _answers(study: Study, trials: Sequence[Any]) -> list[list[dict[str, Any]]]:
    """The rows of each trial, evaluated together."""
    points = np.arange(len(trials))
    chosen: list[Column] = []
    for axis in study.axes:
        values = [place_of(axis, trial.params[axis.path]) for trial in trials]
        column = np.array(values)
        chosen.append(column.astype(np.int64) if axis.values else column)
    frame = points_frame(study, points, chosen)
    return [frame.filter(frame["point"] == point).to_dicts() for point in points]


def _told(study: Study, rows: Sequence[Mapping[str, Any]]) -> tuple[list[float], dict[str, float]]:
    """Objectives of one trial, and by how much it misses each limit."""
    table = mix_points(study, typed_rows([{**row, "point": 0} for row in rows], all_columns(study)))
    wishes = objectives_of(study)
    values = {name: float(column_of(table, name)[0]) for name in (*wishes, *study.limits)}
    possible = bool(table.possible[0]) and bool(np.isfinite([values[n] for n in wishes]).all())
    over = {
        name: (values[name] - most) / max(abs(most), 1e-300) if np.isfinite(values[name]) else 1.0
        for name, most in study.limits.items()
    }
    if possible:
        return [values[name] for name in wishes], {"possible": 0.0, **over}
    worst = [FAR if way == "min" else -FAR for way in wishes.values()]
    return worst, {"possible": 1.0, **{name: max(by, 0.0) for name, by in over.items()}}


def _frame(study: Study, kept: Trials) -> Any:
    """All told trials as the rows of a sweep, numbered in their order."""
    rows = [{**row, "point": place} for place, (_, held) in enumerate(kept.rows()) for row in held]
    return typed_rows(rows, all_columns(study))


def _write(folder: Path, result: OptimiseResult) -> None:
    """The front as JSON and as a picture's data, and every trial as a table."""
    made_folder(folder)
    text = json.dumps(result.to_dict(), indent=1, allow_nan=False, default=str)
    write_whole(folder / "front.json", text + "\n")
    table = result.found.table
    columns = {"trial": table.points.tolist(), **{n: list(v) for n, v in table.values.items()}}
    columns |= {name: table.columns[name].tolist() for name in result.found.asked}
    columns |= {"front": result.found.chosen.front.tolist()}
    import polars as pl

    pl.DataFrame(columns, strict=False).write_csv(folder / "trials.csv")
