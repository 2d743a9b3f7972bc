"""The runner: predicts every point, starts processes, watches them, keeps what is finished.

Processes of one launch train point after point; one that dies, hangs or runs out of memory costs the point it
was at, and the others are started anew without it. Processes end with the supervisor, however that ends.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from foretell.characterize import files
from foretell.characterize.config import Config, Point, Settings, read_config
from foretell.characterize.files import FAILED, POINTS, Task, write_whole
from foretell.errors import BadInput, Problem
from foretell.records import dataclass

if TYPE_CHECKING:
    from foretell.characterize.predict import Prediction

START_S, GRACE_S = 180.0, 5.0
"""How long processes may take to say hello, and to go when they are asked to."""
MOST_LOST = 3
"""Launches that may end between two points before the run is given up."""
LOOK_S = 0.05
"""Between two looks at the file of lines."""
MODULE = "foretell.characterize"
Status = Literal["planned", "finished", "failed", "left out"]
Tell = Callable[[int, int, str], None]
"""Called with points done, points in all, and what is done now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One point of the matrix."""

    key: str
    """What it is known by."""
    point: Point
    """The point."""
    predicted: "Prediction | None"
    """What is predicted of it; None without a system."""
    status: Status
    """What came of it."""
    why: str = ""
    """Why it failed or was left out."""
    measured: Mapping[str, Any] | None = None
    """Its file, where finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Characterized:
    """What a run did."""

    out: str
    """The folder; empty where nothing was run."""
    settings: Settings
    """How."""
    rows: tuple[Row, ...]
    """Every point."""
    parquet: str = ""
    """The table of all finished points; empty where none was written."""
    note: str = ""
    """What the reader should know."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        from foretell.characterize.table import summary

        return {
            "out": self.out or None,
            "parquet": self.parquet or None,
            "note": self.note or None,
            "settings": self.settings.to_dict(),
            "points": [summary(row) for row in self.rows],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """This node among others."""

    node: int = 0
    """Its number."""
    master: str = ""
    """host:port of the first; empty on a single node."""


def characterize(
    config: str | Path | Mapping[str, Any],
    *,
    out: str | Path | None = None,
    dry_run: bool = False,
    resume: bool = False,
    timeout: float | None = None,
    system: str | None = None,
    place: Place | None = None,
    tell: Tell | None = None,
) -> Characterized:
    """Run every point of a file, or with `dry_run` say what would be run."""
    read = read_config(config)
    settings = read.settings
    if timeout is not None:
        settings = replace(settings, timeout_s=timeout)
    if system is not None:
        settings = replace(settings, system=system)
    rows, note = _planned(replace(read, settings=settings))
    if dry_run:
        return Characterized(out="", settings=settings, rows=rows, note=note)
    folder = _folder(out, rows, resume, settings)
    run = _Run(folder, settings, place or Place(), tell or (lambda done, many, text: None))
    run.all([row for row in rows if row.status == "planned"])
    return assemble(folder, settings, rows, note)


def assemble(
    folder: Path, settings: Settings, rows: Sequence[Row], note: str = ""
) -> Characterized:
    """What a folder holds of the matrix, and its table."""
    found = []
    for row in rows:
        done, lost = files.finished(folder, row.key), files.failed(folder, row.key)
        if done is not None:
            row = replace(row, status="finished", measured=done, why="")
        elif lost is not None and row.status == "planned":
            row = replace(row, status="failed", why=str(lost.get("why", "")))
        found.append(row)
    from foretell.characterize.table import write_parquet

    parquet, said = write_parquet(folder, found)
    return Characterized(
        out=str(folder),
        settings=settings,
        rows=tuple(found),
        parquet=parquet,
        note="; ".join(text for text in (note, said) if text),
    )


def _planned(config: Config) -> tuple[tuple[Row, ...], str]:
    """Every point with its prediction; what will not fit is left out."""
    settings, rows, note = config.settings, [], ""
    predict: Callable[[Point, str], Prediction] | None = None
    if not settings.system:
        note = "no system is named: nothing is predicted"
    else:
        try:
            from foretell.characterize.predict import predict
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
            Row(key=key, point=point, predicted=guess, status=status, why=why)  # type: ignore[arg-type]
        )
    return tuple(rows), note


def _folder(out: str | Path | None, rows: Sequence[Row], resume: bool, settings: Settings) -> Path:
    """The folder of results, ready to write to."""
    problems = []
    folder = Path(out) if out is not None else Path("characterization")
    if folder.exists() and not folder.is_dir():
        problems.append(Problem(path="out", value=str(folder), message="is not a folder"))
    elif not resume and any(files.finished(folder, row.key) is not None for row in rows):
        message, allowed = "already holds points of this matrix", "--resume, or another folder"
        problems.append(Problem(path="out", value=str(folder), message=message, allowed=allowed))
    if find_spec("torch") is None:
        message, how = "running needs PyTorch", "pip install torch, or --dry-run"
        problems.append(Problem(path="torch", value=None, message=message, allowed=how))
    if not settings.timeout_s > 0.0:
        message = "not a time"
        problems.append(Problem(path="timeout", value=settings.timeout_s, message=message))
    if problems:
        raise BadInput(problems)
    try:
        for name in (POINTS, FAILED):
            (folder / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot be written to: {error.strerror or error}"
        raise BadInput([Problem(path="out", value=str(folder), message=message)]) from None
    return folder


class _Run:
    """All launches of a run."""

    def __init__(self, folder: Path, settings: Settings, place: Place, tell: Tell) -> None:
        self.folder, self.settings, self.place, self.tell = folder, settings, place, tell
        self.done = self.many = self.lost = 0

    def all(self, rows: Sequence[Row]) -> None:
        """Launch by launch, until every point is finished or failed."""
        todo = [row for row in rows if files.finished(self.folder, row.key) is None]
        self.many, self.done = len(rows), len(rows) - len(todo)
        for row in todo:
            (self.folder / FAILED / f"{row.key}.json").unlink(missing_ok=True)
        while todo:
            first = todo[0].point
            alike = [
                row
                for row in todo
                if (row.point.processes, row.point.nodes) == (first.processes, first.nodes)
            ]
            self._launch(alike)
            todo = [row for row in todo if not self._settled(row)]

    def _settled(self, row: Row) -> bool:
        either = files.finished(self.folder, row.key) or files.failed(self.folder, row.key)
        return either is not None

    def _launch(self, rows: Sequence[Row]) -> None:
        """One launch over some points; a fault is charged to the point it came at."""
        with tempfile.TemporaryDirectory(prefix="characterize-") as name:
            events, task = Path(name) / "events.jsonl", Path(name) / "task.json"
            events.touch()
            Task(
                out=str(self.folder.resolve()),
                events=str(events),
                settings=self.settings,
                points=tuple({"key": r.key, "point": r.point.to_dict()} for r in rows),
            ).write(task)
            command = _command(rows[0].point, task, self.place)
            with (self.folder / "log.txt").open("ab") as log, _processes(command, log) as process:
                watch = _Watch(events, process, self)
                fault = watch.follow({row.key: row.point.text for row in rows})
                watch.stop()
        if fault is None:
            return
        key, why = fault
        if key:
            self.fail(key, why)
            return
        # Between two points it costs none, but a launch that never comes to a point would go on for ever.
        self.lost += 1
        if not watch.began or self.lost > MOST_LOST:
            problem = Problem(path="", value=None, message=f"nothing could be run: {why}")
            raise BadInput([problem])

    def fail(self, key: str, why: str) -> None:
        """A point that is lost."""
        table = {"key": key, "why": why}
        write_whole(self.folder / FAILED / f"{key}.json", json.dumps(table))
        self.done += 1


def _command(point: Point, task: Path, place: Place) -> list[str]:
    """A lone process, or torchrun."""
    worker = ["-m", MODULE, "--worker", str(task)]
    if point.processes == 1:
        return [sys.executable, *worker]
    words = ["-m", "torch.distributed.run", "--max-restarts", "0"]
    words += ["--nproc-per-node", str(point.processes // point.nodes)]
    if point.nodes == 1:
        words += ["--standalone"]
    else:
        host, _, port = place.master.rpartition(":")
        words += ["--nnodes", str(point.nodes), "--node-rank", str(place.node)]
        words += ["--master-addr", host, "--master-port", port]
    return [sys.executable, *words, *worker]


@contextmanager
def _processes(command: Sequence[str], log: Any) -> "Iterator[subprocess.Popen[bytes]]":
    """A process in a group of its own; its input ends when this ends, and all that read it with it."""
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        _end_group(process.pid)
        process.wait()


def _end_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


class _Watch:
    """Follows the lines that processes write."""

    def __init__(self, events: Path, process: "subprocess.Popen[bytes]", run: _Run) -> None:
        self.events, self.process, self.run = events, process, run
        self.at = 0
        self.pids: set[int] = set()
        self.key, self.why = "", ""
        self.began = self.ended = False

    def follow(self, texts: Mapping[str, str]) -> tuple[str, str] | None:
        """Until the end; the point that was lost, and why, or None where all went well."""
        last, limit = time.monotonic(), START_S
        while True:
            over = self.process.poll() is not None
            for line in self._lines():
                last = time.monotonic()
                limit = self.run.settings.timeout_s
                self._hear(line, texts)
            if over:
                code = self.process.returncode
                if self.ended and code == 0:
                    return None
                return self.key, self.why or _died(code, self.run.folder / "log.txt")
            if self.why and time.monotonic() - last > GRACE_S:
                return self.key, self.why
            if time.monotonic() - last > limit:
                return self.key, f"hung: no sign of life for {limit:.0f} s"
            time.sleep(LOOK_S)

    def _lines(self) -> list[dict[str, Any]]:
        with self.events.open("rb") as file:
            file.seek(self.at)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self.at += len(whole)
        return [json.loads(line) for line in whole.splitlines()]

    def _hear(self, line: Mapping[str, Any], texts: Mapping[str, str]) -> None:
        run, what = self.run, line["what"]
        self.pids.add(line["pid"])
        if what in ("failed", "unable"):
            # The first to say so knows why; the others only miss it.
            self.why = self.why or line["why"]
        if line["rank"] != 0:
            return
        match what:
            case "start":
                self.key, self.began = line["key"], True
                run.tell(run.done, run.many, texts.get(self.key, self.key))
            case "done":
                self.key = ""
                run.done += 1
                run.tell(run.done, run.many, "")
            case "lost":
                self.key = ""
                run.fail(line["key"], line["why"])
            case "end":
                self.ended = True

    def stop(self) -> None:
        """End whatever is left: the processes themselves, which torchrun starts in groups of their own."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        if self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE_S)
        for pid in self.pids:
            _end_group(pid)


def _died(code: int, log: Path) -> str:
    """A process that ended without a word: its signal or code, as torchrun tells it."""
    import re

    tail = log.read_bytes()[-20_000:].decode(errors="replace")
    ranks = re.findall(r"rank\s+:\s+(\d+).*?\n\s+exitcode\s+:\s+(-?\d+)", tail)
    said = [(f"rank {rank}", int(number)) for rank, number in ranks[-1:]] or [("the process", code)]
    who, number = said[0]
    if number < 0:
        try:
            name = signal.Signals(-number).name
        except ValueError:
            name = f"signal {-number}"
        more = ": the system ends processes so when memory runs out" if number == -9 else ""
        return f"{who} died of {name}{more}"
    return f"{who} ended with code {number} without a word; see {log.name}"
