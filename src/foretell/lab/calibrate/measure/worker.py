"""The process that measures: takes points in turn, writes a line for each, tells its supervisor."""

import gc
import json
import os
import platform
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, TextIO

from foretell.lab.calibrate.measure import collectives, file, plan
from foretell.lab.calibrate.measure.bench import Bench, cpu_name, open_bench
from foretell.lab.calibrate.measure.clock import TimedWork
from foretell.lab.calibrate.measure.file import FORMAT, Launch, MeasurePoint
from foretell.records import dataclass


def environment(bench: Bench) -> dict[str, Any]:
    """Chip, driver, libraries and clocks; nothing that tells whose machine it is."""
    return {
        "kind": "environment",
        "format": FORMAT,
        "foretell": _own_version(),
        "chip": bench.host.chip,
        "software": bench.host.software,
        "device": bench.device,
        "world": bench.host.world,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": _host(bench.torch),
        "libraries": _libraries(bench.torch, bench.device),
        "card": _card(bench) if bench.device == "cuda" else {},
        "buffers": "random numbers, rotated over several caches' worth of buffers",
        "dims_of_gemm": "those of the forward product y[m,n] = x[m,k] W[n,k]^T, in every pass",
    }


def _own_version() -> str:
    """Ours, where installed; a copy of the source has none."""
    try:
        return version("foretell")
    except PackageNotFoundError:
        return ""


def _host(torch: Any) -> dict[str, Any]:
    import os

    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _libraries(torch: Any, device: str) -> dict[str, Any]:
    found: dict[str, Any] = {"torch": torch.__version__}
    for name in ("cuda", "hip", "git_version"):
        found[name] = getattr(torch.version, name, None)
    for name in ("numpy", "triton"):
        module = sys.modules.get(name)
        found[name] = getattr(module, "__version__", None) or _installed(name)
    if device == "cuda":
        found["cudnn"] = torch.backends.cudnn.version()
        found["nccl"] = _nccl(torch)
        for name in ("nvidia-cublas-cu12", "nvidia-cublas", "nvidia-cudnn-cu13"):
            found[name] = _installed(name)
    else:
        found["mkl"] = torch.backends.mkl.is_available()
        found["onednn"] = torch.backends.mkldnn.is_available()
        found["isa"] = torch.backends.cpu.get_cpu_capability()
    return {name: value for name, value in found.items() if value is not None}


def _installed(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _nccl(torch: Any) -> str | None:
    try:
        return ".".join(str(part) for part in torch.cuda.nccl.version())
    except (AttributeError, RuntimeError, TypeError):
        return None


def _card(bench: Bench) -> dict[str, Any]:
    facts = bench.torch.cuda.get_device_properties(bench.torch.cuda.current_device())
    told: dict[str, Any] = {
        "memory_bytes": facts.total_memory,
        "cores": facts.multi_processor_count,
        "l2_bytes": getattr(facts, "L2_cache_size", None),
        "sram_bytes_per_core": getattr(facts, "shared_memory_per_multiprocessor", None),
        "capability": f"{facts.major}.{facts.minor}",
        "architecture": getattr(facts, "gcnArchName", None),
    }
    if bench.meter.source is not None:
        told |= bench.meter.source.facts()
        told["idle"] = bench.meter.now()
    return {name: value for name, value in told.items() if value is not None}


SICK, AGAIN = 75, 76
"""Exit codes of a worker whose device no longer answers, and of one that is fine but must be replaced."""
GUARD_S, GUARD_TIMES = 45.0, 5.0
"""A point may take this long, or this many times what it is likely to take, before it counts as hung."""
SETTLE_S = 0.3
"""Pause between a long run and a burst, so that the burst finds a card at rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTask:
    """What a worker is given."""

    out: str
    """The file."""
    seconds: float
    """When to stop, from now."""
    only: tuple[str, ...] = ()
    """Groups, or none for all."""
    device: Literal["auto", "cuda", "cpu"] = "auto"
    """Where."""
    short: bool = False
    """Whether a handful of small points will do."""
    memory_share: float = 0.85
    """Share of the free memory that one point may take."""
    retry_failed: bool = False
    """Whether points that failed are tried again."""
    spent_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds that groups had before."""

    def to_json(self) -> str:
        """As one argument."""
        return json.dumps(asdict(self))

    @staticmethod
    def of_json(text: str) -> "WorkerTask":
        """Back from `to_json`."""
        told = json.loads(text)
        return WorkerTask(**{**told, "only": tuple(told["only"])})


Tell = Callable[[Mapping[str, Any]], None]


def main(text: str) -> int:
    """Measure; standard output is the line to the supervisor, and what libraries print goes to stderr."""
    line = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    threading.Thread(target=_end_with_supervisor, daemon=True).start()
    task = WorkerTask.of_json(text)
    tell = _teller(line)
    try:
        return _run(task, tell)
    except (ImportError, RuntimeError, OSError, AssertionError) as error:
        tell({"what": "error", "why": f"{type(error).__name__}: {error}"})
        return SICK


def _teller(line: TextIO) -> Tell:
    def tell(message: Mapping[str, Any]) -> None:
        line.write(json.dumps(message) + "\n")
        line.flush()

    return tell


def _end_with_supervisor() -> None:
    """Standard input ends when the supervisor does, however it ends; compilers' helpers go too."""
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


def _run(task: WorkerTask, tell: Tell) -> int:
    begin = time.monotonic()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    bench = open_bench(task.device, short=task.short, world=ranks)
    world = collectives.BenchWorld(bench) if ranks > 1 else None
    first = world is None or world.rank == 0
    path = Path(task.out) if first else None
    everything = plan.points(bench.host, task.only)
    queue = plan.Queue(_todo(everything, task, bench, path), task.spent_s)
    told = {"chip": bench.host.chip, "software": bench.host.software, "todo": len(queue)}
    tell({"what": "hello", "devices": bench.devices, **told})
    by_key = {point.key: point for point in everything}
    eager = file.uncaptured_sorts(path) if path is not None else set()
    skipped = 0
    while True:
        point = queue.next(task.seconds - (time.monotonic() - begin))
        if world is not None:
            key = world.agree(point.key if point is not None else None)
            point = by_key[key] if key is not None else None
        if point is None:
            break
        if point.memory_bytes > task.memory_share * bench.free_bytes() and world is None:
            skipped += 1
            continue
        launch = "eager" if file.sort_of(point.identity()) in eager else point.launch
        took_s, healthy = _one(Aim(point=point, launch=launch, world=world, path=path), bench, tell)
        queue.took(point, took_s)
        if not healthy or bench.clock.spoiled:
            return AGAIN if healthy else SICK
    tell({"what": "end", "skipped": skipped, "left": len(queue)})
    if world is not None:
        world.dist.destroy_process_group()
    return 0


def _todo(
    everything: list[MeasurePoint], task: WorkerTask, bench: Bench, path: Path | None
) -> list[MeasurePoint]:
    """What the file lacks; its environment is written first. Other processes than the first have none."""
    if path is None:
        return []
    host = bench.host
    done = file.finished_keys(path, host.chip, host.software, task.retry_failed)
    deadly = set() if task.retry_failed else file.fatal(path)
    todo = [
        point
        for point in everything
        if point.key not in done and file.sort_of(point.identity()) not in deadly
    ]
    if todo or not path.exists():
        file.append(path, environment(bench))
    return todo


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """A point about to be measured."""

    point: MeasurePoint
    """The point."""
    launch: Launch
    """How to launch it: one by one where a graph of its sort failed before."""
    world: collectives.BenchWorld | None
    """The other processes, or None where there are none."""
    path: Path | None
    """Where its line goes; None where another process writes it."""


def _one(aim: Aim, bench: Bench, tell: Tell) -> tuple[float, bool]:
    """Measure a point and write its line; seconds taken, and whether the device still answers."""
    point = aim.point
    guard_s = max(GUARD_S, GUARD_TIMES * point.cost_s)
    told = {"group": point.group, **point.identity()}
    tell({"what": "start", "point": told, "text": str(point), "guard_s": guard_s})
    where = {"chip": bench.host.chip, "software": bench.host.software}
    begin = time.monotonic()
    healthy = True
    try:
        found = measure_aim(aim, bench)
        line = file.done_line(point, where, found)
    except Exception as error:  # noqa: BLE001 - whatever a backend throws: it is told, and we go on
        line = file.failed_line(told, where, f"{type(error).__name__}: {error}")
        healthy = _answers(bench)
        gc.collect()
    took_s = time.monotonic() - begin
    if aim.path is not None:
        file.append(aim.path, {**line, "took_s": round(took_s, 3), "at": _now()})
    tell(
        {
            "what": "done",
            "group": point.group,
            "took_s": took_s,
            "status": line["status"],
            "seconds": line.get("seconds"),
        }
    )
    _tidy(point, bench)
    return took_s, healthy


def measure_aim(aim: Aim, bench: Bench) -> dict[str, Any]:
    """What the line of a point tells beside the point."""
    point = aim.point
    if point.group == "collectives":
        assert aim.world is not None
        return collectives.measure(point, bench, aim.world)
    torch = bench.torch
    if bench.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    work: TimedWork = plan.GROUPS[point.group].work(point, bench)
    found = bench.clock.measure(work, point.mode, aim.launch)
    seconds = found["seconds"]
    if not seconds > 0.0:
        raise ValueError("no time passed")
    if bench.device == "cuda":
        found["peak_memory_bytes"] = torch.cuda.max_memory_allocated()
    sizes = {"flop": work.flop, "bytes": work.bytes_moved, "rotated_bytes": work.rotated_bytes}
    return {**found, **sizes, "timed_by": work.timed_by, **work.facts}


def _tidy(point: MeasurePoint, bench: Bench) -> None:
    """Free what the point held, and let a card that ran hot come to rest."""
    if bench.device == "cuda":
        kept = bench.torch.cuda.memory_reserved() - bench.torch.cuda.memory_allocated()
        if kept > 0.25 * bench.host.memory_bytes:
            bench.torch.cuda.empty_cache()
        if point.mode == "sustained":
            time.sleep(SETTLE_S)


def _answers(bench: Bench) -> bool:
    """Whether the device still works after a failure."""
    try:
        bench.clock.sync()
        bench.random(16, dtype="fp32").sum().item()
    except RuntimeError:
        return False
    return True


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
