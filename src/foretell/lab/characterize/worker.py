"""One process of a run: trains the points that the first process names, one after the other.

What is finished is written by the first process as one file, under another name and then renamed. Signs of
life and faults go to a file of lines that the supervisor reads. torch is imported here, not before.
"""

import gc
import json
import os
import signal
import statistics
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from foretell.interop.user_files import write_whole
from foretell.lab.characterize.config import JobPoint, RunnerSettings
from foretell.lab.characterize.launch import LaunchTask

SICK = 75
"""Exit code of a process whose point failed."""
NO_MEMORY = "out of memory"
"""How the reason begins where memory ran out."""
BEAT_S = 1.0
"""Between two signs of life."""
MOST_STEPS = 2000
"""Steps of one point, however short they are."""


class LineFile:
    """The file of lines that the supervisor reads."""

    def __init__(self, path: Path, rank: int) -> None:
        self.path, self.rank, self.last = path, rank, 0.0

    def tell(self, what: str, **more: Any) -> None:
        """One line, in one write."""
        text = json.dumps({"what": what, "rank": self.rank, "pid": os.getpid(), **more}) + "\n"
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, text.encode())
        finally:
            os.close(handle)
        self.last = time.monotonic()

    def beat(self) -> None:
        """A sign of life, now and then."""
        if time.monotonic() - self.last > BEAT_S:
            self.tell("beat")


def main(path: str) -> int:
    """Train what the task names; the exit code says whether all went well."""
    threading.Thread(target=_end_with_supervisor, daemon=True).start()
    warnings.simplefilter("ignore")
    task = LaunchTask.read(Path(path))
    rank = int(os.environ.get("RANK", "0"))
    line = LineFile(Path(task.events), rank)
    try:
        world = RunnerWorld(task, line)
    except Exception as error:  # noqa: BLE001 - whatever a backend throws: it is told
        line.tell("unable", why=_why(error))
        return SICK
    try:
        world.run()
    except Exception as error:  # noqa: BLE001 - the same
        line.tell("failed", key=world.key, why=_why(error), trace=traceback.format_exc()[-4000:])
        os._exit(SICK)  # other ranks may wait for this one: torchrun ends them
    return 0


def _end_with_supervisor() -> None:
    """Standard input ends when the supervisor does, however it ends."""
    with suppress(OSError, ValueError):
        sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


def _why(error: BaseException) -> str:
    text = " ".join(str(error).split())
    low = text.lower()
    lacking = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    if lacking or "can't allocate memory" in low:
        return f"{NO_MEMORY}: {text}"[:1000]
    return f"{type(error).__name__}: {text}"[:1000]


class RunnerWorld:
    """This process among the others."""

    def __init__(self, task: LaunchTask, line: LineFile) -> None:
        import torch

        self.torch, self.task, self.line, self.key = torch, task, line, ""
        self.settings: RunnerSettings = task.settings
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        local = int(os.environ.get("LOCAL_RANK", "0"))
        self.rank = line.rank
        wanted = self.settings.device
        self.device = "cuda" if wanted == "cuda" or torch.cuda.is_available() else "cpu"
        self.device = "cpu" if wanted == "cpu" else self.device
        if self.device == "cuda":
            if not torch.cuda.is_available():
                raise RuntimeError("no CUDA device: torch.cuda.is_available() is false")
            many = torch.cuda.device_count()
            if local >= many and not self.settings.share_gpus:
                raise RuntimeError(f"{local + 1} processes on a node with {many} GPUs")
            torch.cuda.set_device(local % many)
            if self.settings.share_gpus:
                # NCCL takes two ranks on one GPU for an error, but not where each is a host of its own.
                os.environ["NCCL_HOSTID"] = f"rank-{self.rank}"
        else:
            torch.set_num_threads(self.threads())
        if self.world > 1:
            import torch.distributed as dist

            backend = "nccl" if self.device == "cuda" else "gloo"
            if not dist.is_available() or not dist.is_backend_available(backend):
                raise RuntimeError(f"this PyTorch has no backend {backend}")
            from datetime import timedelta

            limit = timedelta(seconds=self.settings.timeout_s + 60.0)
            dist.init_process_group(backend, timeout=limit)
            self.dist = dist
        self.environment = self._environment() if self.rank == 0 else {}
        line.tell("hello", device=self.device, torch=torch.__version__)

    def threads(self) -> int:
        """Threads of this process."""
        nodes = max(self.world // int(os.environ.get("LOCAL_WORLD_SIZE", "1")), 1)
        cores = os.cpu_count() or 1
        return self.settings.threads or max(cores * nodes // self.world, 1)

    def shared(self, value: Any) -> Any:
        """What the first process says."""
        if self.world == 1:
            return value
        box = [value]
        self.dist.broadcast_object_list(box, src=0)
        return box[0]

    def gathered(self, value: Any) -> list[Any]:
        """What every process says."""
        if self.world == 1:
            return [value]
        boxes: list[Any] = [None] * self.world
        self.dist.all_gather_object(boxes, value)
        return boxes

    def run(self) -> None:
        """Point after point, as the first process names them."""
        todo = list(self.task.points) if self.rank == 0 else []
        while True:
            told = self.shared(todo.pop(0) if todo else None)
            if told is None:
                break
            self.key = told["key"]
            self.line.tell("start", key=self.key)
            try:
                found = self.measured(JobPoint.of_dict(told["point"]))
            except (RuntimeError, MemoryError) as error:
                if self.world > 1 or not _why(error).startswith(NO_MEMORY):
                    raise
                self._lost(error)
                continue
            rows = self.gathered(found)
            if self.rank == 0:
                self._write(told, rows)
            self.line.tell("done", key=self.key)
            self.key = ""
            self._tidy()
        self.line.tell("end")
        if self.world > 1:
            self.dist.destroy_process_group()

    def _lost(self, error: BaseException) -> None:
        """A point that a lone process survives."""
        self.line.tell("lost", key=self.key, why=_why(error))
        self.key = ""
        error.__traceback__ = None
        self._tidy()

    def _tidy(self) -> None:
        gc.collect()
        if self.device == "cuda":
            self.torch.cuda.empty_cache()

    def _write(self, told: Mapping[str, Any], rows: list[Any]) -> None:
        content = {
            "key": told["key"],
            "point": told["point"],
            "settings": self.settings.to_dict(),
            "environment": {**self.environment, "date": _now()},
            "ranks": rows,
        }
        write_whole(Path(self.task.out) / "points" / f"{told['key']}.json", json.dumps(content))

    def _environment(self) -> dict[str, Any]:
        """Versions, card, driver and host."""
        from foretell.lab.calibrate.measure.bench import open_bench
        from foretell.lab.calibrate.measure.worker import environment

        bench = open_bench(self.device, short=True, world=self.world)  # type: ignore[arg-type]
        told = environment(bench)
        if self.device == "cuda":  # a bench measures on a stream of its own
            self.torch.cuda.set_stream(self.torch.cuda.default_stream())
        backend = ("nccl" if self.device == "cuda" else "gloo") if self.world > 1 else ""
        names = ("foretell", "chip", "software", "device", "host", "libraries", "card")
        return {**{name: told[name] for name in names}, "world": self.world, "backend": backend}

    # ---- one point -------------------------------------------------------------------------------

    def measured(self, point: JobPoint) -> dict[str, Any]:
        """Warm up, count what is held, time steps; on this rank."""
        from foretell.lab.characterize.engine import Trainer, attention_context

        torch = self.torch
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        trainer = Trainer(point, self.device, overlap=self.settings.overlap)
        with attention_context(point.plan, self.device):
            trainer.step()
            held = trainer.count_step()
            steps = self._warm(trainer)
            trainer.losses.clear()
            if self.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            for _ in range(steps):
                trainer.recorder.begin()
                trainer.step()
                self.line.beat()
            found = trainer.recorder.finished()
            if self.device == "cuda":
                held["max_allocated"] = float(torch.cuda.max_memory_allocated())
                held["max_reserved"] = float(torch.cuda.max_memory_reserved())
            losses = trainer.step_losses()
            trace = self._trace(trainer) if self.settings.profile else None
        place = {"rank": self.rank, "stage": trainer.stage, **trainer.groups.at}
        weights = sum(flat.count for flat in trainer.flats)
        trainer.close()
        return {
            "place": place,
            "held_bytes": held,
            "steps": [{"shares_s": shares, "collectives": sent} for shares, sent in found],
            "losses": losses,
            "weights": weights,
            "trace": trace,
        }

    def _warm(self, trainer: Any) -> int:
        """Steps before the clock counts; how many to time, which the first process decides."""
        took = []
        begin = time.monotonic()
        done = 0
        while done < self.settings.warmup or time.monotonic() - begin < self.settings.warmup_s:
            first = time.monotonic()
            trainer.step()
            if self.device == "cuda":
                self.torch.cuda.synchronize()
            took.append(time.monotonic() - first)
            trainer.recorder.forget()
            self.line.beat()
            done += 1
            if self.world > 1 and done >= self.settings.warmup:
                break  # ranks do as many steps each: no clock of their own ends them
        each_s = statistics.median(took) if took else 1.0
        many = max(self.settings.steps, int(self.settings.seconds / max(each_s, 1e-6)))
        return int(self.shared(min(many, MOST_STEPS)))

    def _trace(self, trainer: Any) -> str:
        """One step under PyTorch's profiler, on every rank; the file's name, or why there is none."""
        from torch.profiler import ProfilerActivity, profile

        kinds = [ProfilerActivity.CPU]
        kinds += [ProfilerActivity.CUDA] if self.device == "cuda" else []
        folder = Path(self.task.out) / "traces"
        name = f"{self.key}.rank{self.rank}.json.gz"
        with profile(activities=kinds, record_shapes=True) as seen:
            trainer.step()
            if self.device == "cuda":
                self.torch.cuda.synchronize()
        self.line.beat()
        try:
            folder.mkdir(exist_ok=True)
            seen.export_chrome_trace(str(folder / name))
        except (OSError, RuntimeError) as error:
            return f"not written: {error}"
        return name


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
