"""One launch: processes started, the lines that they write followed, all of them ended."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from foretell.interop.user_files import write_whole
from foretell.lab.characterize.config import JobPoint, RunnerSettings
from foretell.records import as_json, dataclass

POINTS, FAILED = "points", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTask:
    """What the processes of one launch are given."""

    out: str
    """The folder."""
    events: str
    """The file of lines for the supervisor."""
    settings: RunnerSettings
    """How."""
    points: tuple[Mapping[str, Any], ...]
    """`key` and `point` of each."""

    to_dict = as_json()

    def write(self, path: Path) -> None:
        """To a file."""
        write_whole(path, json.dumps(self.to_dict()))

    @staticmethod
    def read(path: Path) -> "LaunchTask":
        """Back from `write`."""
        table = json.loads(path.read_text())
        settings, points = RunnerSettings(**table.pop("settings")), tuple(table.pop("points"))
        return LaunchTask(settings=settings, points=points, **table)


def read_finished(folder: Path, key: str) -> dict[str, Any] | None:
    """A finished point, or None; a torn file is none."""
    return _table(folder / POINTS / f"{key}.json")


def read_failure(folder: Path, key: str) -> dict[str, Any] | None:
    """Why a point failed, or None."""
    return _table(folder / FAILED / f"{key}.json")


def _table(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


START_S, GRACE_S = 180.0, 5.0
"""How long processes may take to say hello, and to go when they are asked to."""
LOOK_S = 0.05
"""Between two looks at the file of lines."""
MODULE = "foretell.lab.characterize"
Hears = Callable[[str, str, str], None]
"""Called with start, done or lost, a point's key, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlace:
    """This node among others."""

    node: int = 0
    """Its number."""
    master: str = ""
    """host:port of the first; empty on a single node."""


def command(point: JobPoint, task: Path, place: NodePlace) -> list[str]:
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
def processes(command: Sequence[str], log: Any) -> "Iterator[subprocess.Popen[bytes]]":
    """A process in a group of its own; its input ends when this ends, and all that read it with it."""
    root = str(Path(__file__).resolve().parents[3])
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


class Watch:
    """Follows the lines that processes write."""

    def __init__(
        self, events: Path, process: "subprocess.Popen[bytes]", first: int, hears: Hears
    ) -> None:
        """`first` is the rank of this node that speaks for it."""
        self.events, self.process, self.first, self.hears = events, process, first, hears
        self.at = 0
        self.pids: set[int] = set()
        self.key, self.why = "", ""
        self.began = self.ended = False

    def follow(self, timeout_s: float, log: Path) -> tuple[str, str] | None:
        """Until the end; the point that was lost, and why, or None where all went well."""
        last, limit = time.monotonic(), START_S
        while True:
            over = self.process.poll() is not None
            # Taken before the look: what was written until now is seen, however long this process is held up.
            now = time.monotonic()
            for line in self._lines():
                last = now
                limit = timeout_s
                self._hear(line)
            if over:
                code = self.process.returncode
                if self.ended and code == 0:
                    return None
                return self.key, self.why or _died(code, log)
            if self.why and now - last > GRACE_S:
                return self.key, self.why
            if now - last > limit:
                return self.key, f"hung: no sign of life for {limit:.0f} s"
            time.sleep(LOOK_S)

    def _lines(self) -> list[dict[str, Any]]:
        with self.events.open("rb") as file:
            file.seek(self.at)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self.at += len(whole)
        return [json.loads(line) for line in whole.splitlines()]

    def _hear(self, line: Mapping[str, Any]) -> None:
        what, key = line["what"], line.get("key", "")
        self.pids.add(line["pid"])
        if what in ("failed", "unable"):
            # The first to say so knows why; the others only miss it.
            self.why = self.why or line["why"]
        if line["rank"] != self.first:
            return
        match what:
            case "start":
                self.key, self.began = key, True
            case "done" | "lost":
                self.key = ""
            case "end":
                self.ended = True
        if what in ("start", "done", "lost"):
            self.hears(what, key, line.get("why", ""))

    def stop(self) -> None:
        """End what is left of a launch that went wrong; torchrun starts ranks in groups of their own."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        if self.ended and self.process.poll() == 0:
            return
        if self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE_S)
        for pid in self.pids:
            _end_group(pid)


def _died(code: int, log: Path) -> str:
    """A process that ended without a word: its signal or code, as torchrun tells it."""
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
