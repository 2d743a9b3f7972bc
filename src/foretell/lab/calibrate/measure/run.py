"""Measure: a supervisor that shows progress and restarts a worker that hangs or dies."""

import json
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from foretell.errors import BadInput, Problem, bad_input, nearest_name
from foretell.lab.calibrate.measure import file
from foretell.lab.calibrate.measure.plan import GROUPS
from foretell.lab.calibrate.measure.worker import AGAIN, WorkerTask
from foretell.records import as_json, dataclass

MOST_LOST = 8
"""Workers that may hang or die before we give up."""
START_S, GRACE_S = 180.0, 60.0
"""How long a worker may take to say hello; how far the last point may run over the time."""
MODULE = "foretell.lab.calibrate.measure"
QUIET_S = 15.0
"""Time between two lines."""
LINKS, TOGETHER_SHARE = "collectives", 0.2
"""The group that takes several processes, and its share of the time where one process begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementRun:
    """What a run did."""

    file: str
    """The file of measurements."""
    chip: str
    """What was measured."""
    software: str
    """With what."""
    groups: Mapping[str, Mapping[str, int]]
    """Points of the file, done and failed, by group."""
    skipped: int
    """Points that would have taken too much memory."""
    left: int
    """Points that there was no time for; the same command goes on with them."""
    stopped: str
    """Why it ended before its time, if it did."""

    to_dict = as_json()


def measure(
    out: str | Path,
    *,
    minutes: float = 8.0,
    only: tuple[str, ...] = (),
    device: Literal["auto", "cuda", "cpu"] = "auto",
    short: bool = False,
    memory_share: float = 0.85,
    retry_failed: bool = False,
    processes: int = 0,
) -> MeasurementRun:
    """Measure for so many minutes, appending to a file; points that it already has are not repeated.

    Collectives are measured among `processes` of this machine at the end (0: one for each GPU, two on a CPU).
    """
    path = Path(out)
    _check(path, minutes, only, device, memory_share)
    later = TOGETHER_SHARE if _measures_links(only, processes) else 0.0
    task = WorkerTask(
        out=str(path),
        seconds=60.0 * minutes * (1.0 - later),
        only=only,
        device=device,
        short=short,
        memory_share=memory_share,
        retry_failed=retry_failed,
    )
    # Of several processes the first shows how far they are.
    state = _Supervisor(task, ProgressLines(task.seconds, wanted=first_rank()))
    state.run()
    if later:
        _measure_together(task, processes or state.devices, 60.0 * minutes * later)
    counts = file.summary(list(file.lines(path))) if path.exists() else {}
    return MeasurementRun(
        file=str(path),
        chip=state.where.get("chip", ""),
        software=state.where.get("software", ""),
        groups=counts,
        skipped=state.skipped,
        left=state.left,
        stopped=state.error if state.lost >= MOST_LOST else "",
    )


def _check(
    path: Path, minutes: float, only: tuple[str, ...], device: str, memory_share: float
) -> None:
    problems: list[Problem] = []

    def wrong(name: str, value: object, message: str, **more: str | None) -> None:
        problems.append(Problem(path=name, value=value, message=message, **more))

    if not (math.isfinite(minutes) and minutes > 0.0):
        wrong("minutes", minutes, "not a time", allowed="more than 0")
    if not 0.0 < memory_share <= 1.0:
        wrong("memory_share", memory_share, "not a share", allowed="above 0, up to 1")
    for name in only:
        if name not in GROUPS:
            near = nearest_name(name, GROUPS)
            wrong("only", name, "no such group", allowed=", ".join(GROUPS), nearest=near)
    if device not in ("auto", "cuda", "cpu"):
        wrong("device", device, "no such device", allowed="auto, cuda, cpu")
    if find_spec("torch") is None:
        wrong("torch", None, "measuring needs PyTorch", allowed="pip install torch")
    if path.is_dir() or not path.absolute().parent.is_dir():
        wrong(
            "out", str(path), "no file can be written there", allowed="a file in a folder there is"
        )
    elif path.exists() and path.stat().st_size and not _ours(path):
        wrong("out", str(path), "is a file of something else", allowed="a new file, or one of ours")
    if problems:
        raise BadInput(problems)


def _ours(path: Path) -> bool:
    """Whether a file begins with an environment."""
    return next(file.lines(path), {}).get("kind") == "environment"


def first_rank() -> bool:
    """Whether this process speaks for all that torchrun started."""
    return int(os.environ.get("RANK", "0")) == 0


def _measures_links(only: tuple[str, ...], processes: int) -> bool:
    """Whether this one process starts others for the collectives: torchrun's own begin together."""
    alone = int(os.environ.get("WORLD_SIZE", "1")) < 2
    return alone and processes != 1 and (not only or LINKS in only)


def _measure_together(task: WorkerTask, processes: int, seconds: float) -> None:
    """Collectives among processes of this machine, in the same file."""
    if processes < 2:
        return
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    words += ["-m", MODULE, "--out", task.out, "--only", LINKS, "--device", task.device]
    words += ["--minutes", str(seconds / 60.0), "--memory-share", str(task.memory_share)]
    words += ["--short"] * task.short + ["--retry-failed"] * task.retry_failed
    code = subprocess.run(
        [sys.executable, *words], env=_environment(), stdout=subprocess.DEVNULL, check=False
    ).returncode
    if code:
        left_out = "--processes 1 leaves them out"
        sys.stderr.write(
            f"{processes} processes for the collectives ended with code {code}; {left_out}\n"
        )


def _environment() -> dict[str, str]:
    """The environment of a process that imports this very package."""
    root = str(Path(__file__).resolve().parents[4])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


class ProgressLines:
    """Plain text on standard error; nothing where it is not wanted."""

    def __init__(self, limit_s: float, wanted: bool) -> None:
        self._limit_s, self._wanted = limit_s, wanted
        self._begin, self._last = time.monotonic(), 0.0
        self._text, self._failed = "", 0

    def hello(self, text: str, todo: int) -> None:
        """The machine, and how many points there are."""
        self._say(f"{text}: {todo} points, {self._limit_s:.0f} s")

    def point(self, text: str) -> None:
        """What is measured now."""
        self._text = text

    def done(self, done: int, todo: int, status: str) -> None:
        """One more point."""
        self._failed += status == "failed"
        now = time.monotonic()
        if now - self._last > QUIET_S:
            self._last = now
            at = f"{now - self._begin:.0f} of {self._limit_s:.0f} s"
            self._say(f"{at}: {done} of {todo} points, {self._failed} failed; {self._text}")

    def _say(self, text: str) -> None:
        if self._wanted:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()


class _Supervisor:
    """Watches workers until the time is over or nothing is left."""

    def __init__(self, task: WorkerTask, shown: ProgressLines) -> None:
        self.task, self.bar = task, shown
        self.begin = time.monotonic()
        self.where: dict[str, str] = {}
        self.spent_s: dict[str, float] = {}
        self.skipped = self.left = self.done = self.todo = self.lost = self.devices = 0
        self.error = ""

    def run(self) -> None:
        """Start workers until one ends well, or the time is over, or too many have not."""
        alone = int(os.environ.get("WORLD_SIZE", "1")) < 2
        while self.lost < (MOST_LOST if alone else 1):
            left_s = self.task.seconds - (time.monotonic() - self.begin)
            if left_s <= 0.0:
                return
            task = replace(self.task, seconds=left_s, spent_s=self.spent_s)
            if self._watch(task):
                return
            # What failed just now is not tried again by the next worker.
            self.task = replace(self.task, retry_failed=False)
            if not self.where:  # it never came to say hello: another try would end as this one
                break
        self.left = self.todo - self.done
        if not self.spent_s:
            raise bad_input("", None, f"nothing was measured: {self.error}")

    def _watch(self, task: WorkerTask) -> bool:
        """Follow one worker; whether it came to its end."""
        current: dict[str, Any] | None = None
        with _worker(task) as (process, messages):
            guard_s = START_S
            while True:
                # The last point may run over the time, but not without end.
                over_s = self.task.seconds + GRACE_S - (time.monotonic() - self.begin)
                try:
                    message = messages.get(timeout=max(min(guard_s, over_s), 0.1))
                except queue.Empty:
                    if over_s <= guard_s and self.where:
                        self.left = self.todo - self.done
                        return True
                    self._lost(current, f"no answer within {guard_s:.0f} s")
                    return False
                if message is None:
                    code = process.wait()
                    if code == AGAIN:
                        return False
                    self._lost(current, f"the worker ended with code {code}", fatal=code < 0)
                    return False
                match message["what"]:
                    case "end":
                        self.skipped, self.left = message["skipped"], message["left"]
                        return True
                    case "start":
                        current, guard_s = message["point"], message["guard_s"]
                        self.bar.point(message["text"])
                    case _:
                        current = None
                        self._hear(message)

    def _hear(self, message: Mapping[str, Any]) -> None:
        if message["what"] == "hello":
            self.where = {"chip": message["chip"], "software": message["software"]}
            self.done, self.todo, self.devices = 0, message["todo"], message["devices"]
            self.bar.hello(f"{message['chip']}, {message['software']}", message["todo"])
        elif message["what"] == "error":
            self.error = message["why"]
        elif message["what"] == "done":
            group = message["group"]
            self.spent_s[group] = self.spent_s.get(group, 0.0) + message["took_s"]
            self.done += 1
            self.bar.done(self.done, self.todo, message["status"])

    def _lost(self, point: Mapping[str, Any] | None, why: str, fatal: bool = False) -> None:
        """A worker is gone: its point failed, so that the next worker does not try it again.

        Where the system ended it, the next worker leaves out all points of that sort.
        """
        self.error = self.error or why
        self.lost += 1
        if point is not None and first_rank():
            line = file.failed_line(point, self.where, why)
            file.append(Path(self.task.out), {**line, "fatal": fatal})


@contextmanager
def _worker(task: WorkerTask) -> Iterator[tuple[subprocess.Popen[str], "queue.Queue[Any]"]]:
    """A worker process in a group of its own, and its messages; None is its end."""
    process = subprocess.Popen(
        [sys.executable, "-m", MODULE, "--worker", task.to_json()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=_environment(),
        start_new_session=True,
    )
    messages: queue.Queue[Any] = queue.Queue()
    listener = threading.Thread(target=_listen, args=(process, messages), daemon=True)
    listener.start()
    try:
        yield process, messages
    finally:
        with suppress(subprocess.TimeoutExpired):  # one that is done goes by itself
            process.wait(timeout=0.5)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        listener.join()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _listen(process: "subprocess.Popen[str]", messages: "queue.Queue[Any]") -> None:
    assert process.stdout is not None
    for line in process.stdout:
        messages.put(json.loads(line))
    messages.put(None)
