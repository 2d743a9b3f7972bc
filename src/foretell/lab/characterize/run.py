"""The runner: predicts every point, starts processes, watches them, keeps what is finished.

Processes of one launch train point after point; one that dies, hangs or runs out of memory costs the point it
was at, and the others are started anew without it. Processes end with the supervisor, however that ends.
"""

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from foretell.catalog.names import exists, find
from foretell.catalog.systems import named_system, system_from_file
from foretell.errors import BadInput, bad_input, wrong
from foretell.interop.user_files import write_whole
from foretell.lab.characterize import launch
from foretell.lab.characterize.config import (
    CharacterizeConfig,
    JobPoint,
    RunnerSettings,
    read_config,
)
from foretell.lab.characterize.launch import FAILED, POINTS, LaunchTask, NodePlace
from foretell.records import JsonRecord, dataclass
from foretell.specs.chip import Chip

HOW = "calibrate measure and calibrate fit write a file of this machine for --system"


def device_note(system: str, device: str, environments: Iterable[Mapping[str, Any]] = ()) -> str:
    """A warning where what ran, or what the file says will run, is not the predicted system; else empty."""
    chip = _chip(system)
    if chip is None:
        return ""
    ran = sorted({str(told.get("chip") or "") for told in environments} - {""})
    other = [name for name in ran if not same_device(chip, name)]
    if other:
        return _words(", ".join(other), chip)
    if not ran and device == "cpu" and chip.architecture != "cpu":
        return _words("the CPU of this machine", chip)
    return ""


def same_device(chip: Chip, name: str) -> bool:
    """Whether a device's own name means the chip: its id or name, or a name of the catalogue for it."""
    if name in (chip.id, chip.name) or chip.name.startswith(f"{name},"):
        return True
    return exists(name) and find(name, ("chip",), "chip").id in (chip.id, _base(chip))


def _base(chip: Chip) -> str:
    """The catalogue chip that a calibrated one starts from."""
    return find(chip.name, ("chip",), "chip").id if exists(chip.name) else chip.id


def _words(ran: str, chip: Chip) -> str:
    return (
        f"warning: runs on {ran}, but predictions are for {chip.name}: their times are not comparable "
        f"({HOW})"
    )


def _chip(system: str) -> Chip | None:
    """The chip that is predicted; None where the name means nothing, which `predict` says."""
    if not system:
        return None
    try:
        path = Path(system)
        return (system_from_file(path) if path.is_file() else named_system(system)).chip
    except BadInput:
        return None


if TYPE_CHECKING:
    from foretell.lab.characterize.predict import PointPrediction

MOST_LOST = 3
"""Launches that may end between two points before the run is given up."""
Status = Literal["planned", "finished", "failed", "left out"]
Tell = Callable[[int, int, str], None]
"""Called with points done, points in all, and what is done now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointRow:
    """One point of the matrix."""

    key: str
    """What it is known by."""
    point: JobPoint
    """The point."""
    predicted: "PointPrediction | None"
    """What is predicted of it; None without a system."""
    status: Status
    """What came of it."""
    why: str = ""
    """Why it failed or was left out."""
    measured: Mapping[str, Any] | None = None
    """Its file, where finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CharacterizeResult(JsonRecord):
    """What a run did."""

    out: str
    """The folder; empty where nothing was run."""
    settings: RunnerSettings
    """How."""
    rows: tuple[PointRow, ...]
    """Every point."""
    parquet: str = ""
    """The table of all finished points; empty where none was written."""
    note: str = ""
    """What the reader should know."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        from foretell.lab.characterize.table import summary

        return {
            "out": self.out or None,
            "parquet": self.parquet or None,
            "note": self.note or None,
            "settings": self.settings.to_dict(),
            "points": [summary(row) for row in self.rows],
        }


def characterize(
    config: str | Path | Mapping[str, Any],
    *,
    out: str | Path | None = None,
    dry_run: bool = False,
    resume: bool = False,
    timeout: float | None = None,
    system: str | None = None,
    place: NodePlace | None = None,
    tell: Tell | None = None,
) -> CharacterizeResult:
    """Run every point of a file, or with `dry_run` say what would be run."""
    read = read_config(config)
    settings = read.settings
    if timeout is not None:
        settings = replace(settings, timeout_s=timeout)
    if system is not None:
        settings = replace(settings, system=system)
    rows, note = _planned(replace(read, settings=settings))
    if dry_run:
        note = "; ".join(filter(None, (note, device_note(settings.system, settings.device))))
        return CharacterizeResult(out="", settings=settings, rows=rows, note=note)
    here = place or NodePlace()
    folder = _folder(out, rows, resume, settings, here)
    run = _MatrixRun(folder, settings, here, tell or (lambda done, many, text: None))
    run.all([row for row in rows if row.status == "planned"])
    return assemble(folder, settings, rows, note)


def assemble(
    folder: Path, settings: RunnerSettings, rows: Sequence[PointRow], note: str = ""
) -> CharacterizeResult:
    """What a folder holds of the matrix, and its table."""
    found = []
    for row in rows:
        done, lost = launch.read_finished(folder, row.key), launch.read_failure(folder, row.key)
        if done is not None:
            row = replace(row, status="finished", measured=done, why="")
        elif lost is not None and row.status == "planned":
            row = replace(row, status="failed", why=str(lost.get("why", "")))
        found.append(row)
    from foretell.lab.characterize.table import write_parquet

    parquet, said = write_parquet(folder, found)
    ran = [row.measured["environment"] for row in found if row.measured is not None]
    other = device_note(settings.system, settings.device, ran)
    return CharacterizeResult(
        out=str(folder),
        settings=settings,
        rows=tuple(found),
        parquet=parquet,
        note="; ".join(text for text in (note, other, said) if text),
    )


def _planned(config: CharacterizeConfig) -> tuple[tuple[PointRow, ...], str]:
    """Every point with its prediction; what will not fit is left out."""
    settings, rows, note = config.settings, [], ""
    predict: Callable[[JobPoint, str], PointPrediction] | None = None
    if not settings.system:
        note = "no system is named: nothing is predicted"
    else:
        try:
            from foretell.lab.characterize.predict import predict
        except ImportError as error:
            note = f"nothing is predicted here: {error}"
    for point in config.points:
        key = point.key(settings)
        guess = predict(point, settings.system) if predict is not None else None
        status, why = "planned", ""
        if guess is not None and guess.peak_bytes > settings.memory_share * guess.capacity_bytes:
            need, have = guess.peak_bytes / 2**30, guess.capacity_bytes / 2**30
            status, why = "left out", f"will not fit: {need:.2f} GiB of {have:.2f} GiB"
        rows.append(
            PointRow(key=key, point=point, predicted=guess, status=status, why=why)  # type: ignore[arg-type]
        )
    return tuple(rows), note


def _folder(
    out: str | Path | None,
    rows: Sequence[PointRow],
    resume: bool,
    settings: RunnerSettings,
    place: NodePlace,
) -> Path:
    """The folder of results, ready to write to."""
    problems = []
    folder = Path(out) if out is not None else Path("characterization")
    if folder.exists() and not folder.is_dir():
        problems.append(wrong("out", str(folder), "is not a folder"))
    elif not resume and any(launch.read_finished(folder, row.key) is not None for row in rows):
        message, allowed = "already holds points of this matrix", "--resume, or another folder"
        problems.append(wrong("out", str(folder), message, allowed))
    if find_spec("torch") is None:
        message, how = "running needs PyTorch", "pip install torch, or --dry-run"
        problems.append(wrong("torch", None, message, how))
    if not settings.timeout_s > 0.0:
        problems.append(wrong("timeout", settings.timeout_s, "not a time"))
    host, _, port = place.master.rpartition(":")
    if any(row.point.nodes > 1 for row in rows) and not (host and port.isdigit()):
        message, allowed = "several nodes need one", "host:port of the first, the same on each"
        problems.append(wrong("master", place.master or None, message, allowed))
    if problems:
        raise BadInput(problems)
    try:
        for name in (POINTS, FAILED):
            (folder / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot be written to: {error.strerror or error}"
        raise bad_input("out", str(folder), message) from None
    return folder


class _MatrixRun:
    """All launches of a run."""

    def __init__(
        self, folder: Path, settings: RunnerSettings, place: NodePlace, tell: Tell
    ) -> None:
        self.folder, self.settings, self.place, self.tell = folder, settings, place, tell
        self.done = self.many = self.lost = 0

    def all(self, rows: Sequence[PointRow]) -> None:
        """Launch by launch, until every point is finished or failed."""
        if self.place.node > 0:
            self._follow(rows)
            return
        todo = [row for row in rows if launch.read_finished(self.folder, row.key) is None]
        self.many, self.done = len(rows), len(rows) - len(todo)
        for row in todo:
            (self.folder / FAILED / f"{row.key}.json").unlink(missing_ok=True)
        while todo:
            self._launch(_alike(todo))
            todo = [row for row in todo if not self._settled(row)]

    def _follow(self, rows: Sequence[PointRow]) -> None:
        """Another node than the first: take part in every launch; the first says which points there are."""
        todo = [row for row in rows if row.point.nodes > 1]
        while todo:
            alike = _alike(todo)
            before = self.lost
            self._launch(alike)
            if self.lost == before:
                todo = [row for row in todo if row not in alike]

    def _settled(self, row: PointRow) -> bool:
        either = launch.read_finished(self.folder, row.key) or launch.read_failure(
            self.folder, row.key
        )
        return either is not None

    def _launch(self, rows: Sequence[PointRow]) -> None:
        """One launch over some points; a fault is charged to the point it came at."""
        point, log = rows[0].point, self.folder / "log.txt"
        texts = {row.key: row.point.text for row in rows}
        first = self.place.node * point.processes // point.nodes if point.nodes > 1 else 0
        with tempfile.TemporaryDirectory(prefix="characterize-") as name:
            events, task = Path(name) / "events.jsonl", Path(name) / "task.json"
            events.touch()
            LaunchTask(
                out=str(self.folder.resolve()),
                events=str(events),
                settings=self.settings,
                points=tuple({"key": r.key, "point": r.point.to_dict()} for r in rows),
            ).write(task)
            command = launch.command(point, task, self.place)
            with log.open("ab") as file, launch.processes(command, file) as process:
                watch = launch.Watch(events, process, first, self._heard(texts))
                try:
                    fault = watch.follow(self.settings.timeout_s, log)
                finally:
                    watch.stop()
        if fault is not None:
            self._fault(*fault, began=watch.began)

    def _fault(self, key: str, why: str, *, began: bool) -> None:
        """A launch that went wrong."""
        if key and self.place.node == 0:
            self._fail(key, why)
            return
        # Between two points it costs none, but a launch that never comes to a point would go on for ever.
        self.lost += 1
        if not began or self.lost > MOST_LOST:
            raise bad_input("", None, f"nothing could be run: {why}")

    def _heard(self, texts: Mapping[str, str]) -> launch.Hears:
        """What is done when a point starts, is done or is lost."""

        def hears(what: str, key: str, why: str) -> None:
            if what == "start":
                self.tell(self.done, self.many, texts.get(key, key))
            elif what == "lost":
                self._fail(key, why)
            else:
                self.done += 1
                self.tell(self.done, self.many, "")

        return hears

    def _fail(self, key: str, why: str) -> None:
        """A point that is lost."""
        table = {"key": key, "why": why}
        write_whole(self.folder / FAILED / f"{key}.json", json.dumps(table))
        self.done += 1


def _alike(rows: Sequence[PointRow]) -> list[PointRow]:
    """Points that one launch can train: those with as many processes and nodes as the first."""

    def shape(row: PointRow) -> tuple[int, int]:
        return row.point.processes, row.point.nodes

    return [row for row in rows if shape(row) == shape(rows[0])]
