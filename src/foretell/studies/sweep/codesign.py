"""`foretell.codesign`: performance and cost together over the choices of a study, and its exact front.

Every point is a system, perhaps of a chip that does not exist: the same fields give its peaks, its network
and its price. A sweep asks all of them; mix.py makes one answer of a point's workloads.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from foretell.errors import BadInput, bad_input, unknown
from foretell.records import Answer, JsonRecord, dataclass
from foretell.specs.questions.flags import asks
from foretell.specs.questions.sweep import CodesignQuestion
from foretell.specs.study import Study
from foretell.studies.axes import point_count
from foretell.studies.study_file import read_study
from foretell.studies.sweep.columns import POINT, axis_type, columns_of, own_columns
from foretell.studies.sweep.export import results
from foretell.studies.sweep.frames import shard_count, shard_frame, shard_points
from foretell.studies.sweep.mix import (
    MixFront,
    MixPoints,
    best_of,
    column_of,
    mix_columns,
    mix_front,
    mix_points,
    objectives_of,
    reasons,
    share_parts,
    shares,
)
from foretell.studies.sweep.run import needs_polars, study_problems, sweep, trial_problems
from foretell.studies.sweep.shards import read_manifest

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Codesign(JsonRecord, Answer):
    """A study with its front."""

    verb = "codesign"

    study: Study
    """What was asked."""
    table: MixPoints
    """Every point."""
    chosen: MixFront
    """Those that will do, and the front."""
    rows: Mapping[str, Any]
    """The rows of each workload on the front, as the sweep has them; by workload, a polars DataFrame."""

    @property
    def order(self) -> list[int]:
        """Places of the front's points in the table, by the first objective, the best first."""
        places = np.flatnonzero(self.chosen.front)
        if not self.chosen.objectives:
            return [int(place) for place in places]
        name, way = next(iter(self.chosen.objectives.items()))
        values = self.value(name)[places] * (-1.0 if way == "max" else 1.0)
        return [int(place) for place in places[np.argsort(values, kind="stable")]]

    def value(self, name: str) -> Any:
        """A column over all points."""
        return column_of(self.table, name)

    @property
    def asked(self) -> list[str]:
        """Columns that objectives and limits name, once each."""
        return list(dict.fromkeys((*self.chosen.objectives, *self.study.limits)))

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON; a point of the front with all its columns, the others with what was asked."""
        table, found = self.table, self.chosen
        front = {int(place) for place in np.flatnonzero(found.front)}
        return {
            "kind": self.study.kind,
            "points": len(table.points),
            "possible": int(table.possible.sum()),
            "within_limits": int(found.within.sum()),
            "objectives": dict(found.objectives),
            "limits": dict(self.study.limits),
            "workloads": [
                {"name": w.name, "kind": w.kind or self.study.kind, "verb": w.verb,
                 "weight": w.weight, "share": shares(self.study)[w.name]}
                for w in self.study.workloads
            ],
            "front": [self._whole(place) for place in self.order],
            "best": [
                {"workload": workload, **self._point(place), "column": name,
                 "value": _plain(self.table.columns[f"{workload}.{name}"][place])}
                for workload, (name, place) in best_of(self.study, table, found).items()
            ],
            "rows": [
                {**self._point(place), "possible": bool(table.possible[place]),
                 "within_limits": bool(found.within[place]), "front": place in front,
                 **{name: _plain(self.value(name)[place]) for name in self.asked},
                 "problem": table.problems[place] or None}
                for place in range(len(table.points))
            ],
            "reasons": [{"problem": text, "points": many} for text, many in reasons(table)],
        }  # fmt: skip

    def why_not(self) -> list[str]:
        """Why no point will do, in lines."""
        told = [f"{many:,} points: {text}" for text, many in reasons(self.table)]
        for name, most in self.study.limits.items():
            values = self.value(name)[self.table.possible]
            if len(values) and not (values <= most).any():
                told.append(
                    f"limits.{name}: the least is {np.nanmin(values):.6g}, above {most:.6g}"
                )
        if self.table.possible.any():
            told.append(
                f"none of {int(self.table.possible.sum()):,} possible points is within all limits"
            )
        return told or ["no point is there yet"]

    def _point(self, place: int) -> dict[str, Any]:
        values = {name: column[place] for name, column in self.table.values.items()}
        return {"point": int(self.table.points[place]), "values": values}

    def _whole(self, place: int) -> dict[str, Any]:
        """A point of the front: the mix, and each workload's own row."""
        mine = {name: _plain(self.table.columns[name][place]) for name in mix_columns(self.study)}
        at = int(self.table.points[place])
        own = {}
        for name, rows in self.rows.items():
            row = rows.filter(rows[POINT] == at).row(0, named=True)
            verb = next((w.verb for w in self.study.workloads if w.name == name), self.study.verb)
            own[name] = {
                key: _plain(row[key]) for key in (*columns_of(self.study, verb), "problem")
            }
        return {**self._point(place), "mix": mine, "workloads": own}


@asks(CodesignQuestion)
def codesign(question: CodesignQuestion) -> Codesign:
    """The points of a study that no other beats in its objectives, within its limits.

    `out` keeps what was asked, as a sweep's folder: a study that was ended goes on there.
    """
    study, out, workers = question.study, question.out, question.workers
    executor, yes, progress = question.executor, question.yes, question.progress
    known = read_study(study)
    check_wishes(known)
    if out is None and workers == 1 and executor == "process":
        return designed_here(known, yes=yes, progress=progress)
    options: dict[str, Any] = {
        "workers": workers, "executor": executor, "yes": yes, "progress": progress,
    }  # fmt: skip
    if out is not None:
        sweep(study, out=out, **options)
        return designs(out)
    with TemporaryDirectory(prefix="foretell-") as folder:
        sweep(study, out=folder, **options)
        return designs(folder)


def designed_here(study: Study, *, yes: bool = False, progress: Progress | None = None) -> Codesign:
    """The same in this process, shard by shard; nothing is written."""
    if problems := study_problems(study, yes):
        raise BadInput(problems)
    needs_polars()
    import polars as pl

    frames, total = [], point_count(study)
    for number in range(shard_count(study)):
        if progress is not None:
            progress(number * shard_points(study), total)
        frames.append(shard_frame(study, number))
    if progress is not None:
        progress(total, total)
    return of_frame(study, pl.concat(frames))


def check_wishes(study: Study) -> None:
    """Raise BadInput where nothing is wanted, or what only some workloads of a mix have."""
    wanted = {"objectives": objectives_of(study), "limits": study.limits}
    if not wanted["objectives"]:
        message = "nothing is wanted of this study"
        allowed = '[objectives], or rent = "own" in [base] for money and speed'
        raise bad_input("objectives", None, message, allowed)
    known = [*mix_columns(study), *own_columns(study)]
    known += [axis.path for axis in study.axes if axis_type(axis) in ("int", "float")]
    problems = [
        unknown(f"{table}.{name}", name, known)
        for table, wishes in wanted.items()
        for name in wishes
        if name not in known
    ]
    if problems:
        raise BadInput([*problems, *trial_problems(study)])


def designs(folder: str | Path, *, wanted: bool = False) -> Codesign:
    """The front of a sweep's folder: of all its points, or of those that are there so far."""
    study, _ = read_manifest(Path(folder))
    if wanted:
        check_wishes(study)
    return of_frame(study, results(folder).collect())


def of_frame(study: Study, frame: Any) -> Codesign:
    """The front of rows of whole points."""
    table = mix_points(study, frame)
    found = mix_front(study, table)
    kept = table.points[found.front].tolist()
    rows = {
        name: part.filter(part[POINT].is_in(kept))
        for name, part in share_parts(study, frame).items()
    }
    return Codesign(study=study, table=table, chosen=found, rows=rows)


def _plain(value: Any) -> Any:
    """A number as JSON has it: unknown is none."""
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value
