"""The device as the measuring code sees it: torch, buffers of random numbers, the clock."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from foretell.lab.calibrate.measure.clock import CPU_PACE, GPU_PACE, SHORT_PACE, DeviceTimer
from foretell.lab.calibrate.measure.file import HostMachine
from foretell.lab.calibrate.measure.power import Meter, meter
from foretell.records import dataclass

ROTATE, MOST_SETS, CPU_SETS, SMALL_CACHE = 4.0, 128, 8, 32e6
"""Buffers take this many caches; sets at most, and on a CPU, where each call takes long; a cache where
its size is unknown."""
WAKE_S = 0.3
"""How long a card that slept is woken."""
BLOCK = 1 << 24
"""Random numbers drawn at once; larger tensors repeat them, which no cache notices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A device with what it takes to measure on it."""

    torch: Any
    """The module."""
    device: str
    """cuda or cpu."""
    host: HostMachine
    """What the plan knows."""
    clock: DeviceTimer
    """Times calls."""
    meter: Meter
    """Watts and clocks."""

    @property
    def devices(self) -> int:
        """Processes of this machine that collectives are measured among: one for each GPU, two on a CPU."""
        return int(self.torch.cuda.device_count()) if self.device == "cuda" else 2

    def dtype(self, name: str) -> Any:
        """torch's dtype of a format."""
        names = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp8": self._fp8()}
        return getattr(self.torch, names.get(name, name))

    def _fp8(self) -> str:
        """MI300 has a form of fp8 of its own."""
        hip = getattr(self.torch.version, "hip", None) and self.device == "cuda"
        name = self.torch.cuda.get_device_properties(0).gcnArchName if hip else ""
        return "float8_e4m3fnuz" if name.startswith("gfx94") else "float8_e4m3fn"

    def random(self, *shape: int, dtype: str, scale: float = 1.0) -> Any:
        """Normal random numbers."""
        count = math.prod(shape)
        form = self.torch.float32 if dtype == "fp8" else self.dtype(dtype)
        block = self.torch.empty(min(count, BLOCK), dtype=form, device=self.device)
        block.normal_(0.0, scale)
        if dtype == "fp8":
            block = block.to(self.dtype("fp8"))
        if count <= BLOCK:
            return block.view(*shape)
        whole = self.torch.empty(count, dtype=block.dtype, device=self.device)
        for start in range(0, count, BLOCK):
            part = whole[start : start + BLOCK]
            part.copy_(block[: part.numel()])
        return whole.view(*shape)

    def integers(self, high: int, *shape: int) -> Any:
        """Uniform random integers below `high`."""
        return self.torch.randint(0, high, shape, device=self.device)

    def sets(self, bytes_one: float) -> int:
        """Sets of buffers that together are several times the cache; one or two where one is large."""
        if self.host.short:
            return 2
        target = ROTATE * (self.host.l2_bytes or SMALL_CACHE)
        most = MOST_SETS if self.device == "cuda" else CPU_SETS
        return min(max(math.ceil(target / max(bytes_one, 1.0)), 2), most)

    def rotate(self, bytes_one: float, make: Callable[[], Callable[[], object]]) -> list[Any]:
        """As many calls, each on buffers of its own, as it takes to leave the cache."""
        return [make() for _ in range(self.sets(bytes_one))]

    def free_bytes(self) -> float:
        """Memory that new points may take, what torch keeps in reserve included."""
        if self.device == "cuda":
            free, _ = self.torch.cuda.mem_get_info()
            kept = self.torch.cuda.memory_reserved() - self.torch.cuda.memory_allocated()
            return float(free + kept)
        return free_host_bytes()


def free_host_bytes() -> float:
    """Memory of the host that is free to take."""
    import os

    info = Path("/proc/meminfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024.0
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return 0.5 * float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return 4e9


def open_bench(device: Literal["auto", "cuda", "cpu"], *, short: bool, world: int) -> Bench:
    """torch on the device asked for, or on the one there is."""
    import torch

    kind: Literal["cuda", "cpu"] = "cpu"
    if device == "cuda" or (device == "auto" and torch.cuda.is_available()):
        kind = "cuda"
        torch.cuda.set_device(_local_rank() if world > 1 else 0)
        # Everything runs on one stream of our own, so that any part of it can be captured as a graph.
        torch.cuda.set_stream(torch.cuda.Stream())
    torch.manual_seed(0)
    watts = meter(torch, kind)
    host = host_of(torch, kind, short, world)
    pace = SHORT_PACE if short else GPU_PACE if kind == "cuda" else CPU_PACE
    clock = DeviceTimer(torch, kind, pace, watts)
    bench = Bench(torch=torch, device=kind, host=host, clock=clock, meter=watts)
    if kind == "cuda":
        _wake(bench)
    return bench


def _wake(bench: Bench) -> None:
    """Products for a moment, so that a card that slept has its clocks up."""
    import time

    x = bench.random(4096, 4096, dtype=bench.host.main)
    begin = time.monotonic()
    while time.monotonic() - begin < WAKE_S:
        bench.torch.mm(x, x)
        bench.clock.sync()


def _local_rank() -> int:
    import os

    return int(os.environ.get("LOCAL_RANK", "0"))


def host_of(torch: Any, kind: Literal["cuda", "cpu"], short: bool, world: int) -> HostMachine:
    """The machine as plans see it."""
    software = f"torch {torch.__version__}"
    if kind == "cpu":
        return HostMachine(
            device="cpu",
            chip=cpu_name(),
            software=software,
            memory_bytes=free_host_bytes(),
            l2_bytes=SMALL_CACHE,
            half="",
            fp8=False,
            world=world,
            short=short,
        )
    facts = torch.cuda.get_device_properties(torch.cuda.current_device())
    hip = getattr(torch.version, "hip", None) is not None
    capability = (facts.major, facts.minor)
    return HostMachine(
        device="cuda",
        chip=str(facts.name),
        software=software,
        memory_bytes=float(facts.total_memory),
        l2_bytes=float(getattr(facts, "L2_cache_size", 0)),
        half="bf16" if hip or capability >= (8, 0) else "fp16",
        fp8=str(getattr(facts, "gcnArchName", "")).startswith(("gfx94", "gfx95", "gfx12"))
        if hip
        else capability >= (8, 9),
        world=world,
        short=short,
    )


def cpu_name() -> str:
    """The processor's name."""
    import platform

    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.lower().startswith(("model name", "hardware")):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def tensor_bytes(tensors: Sequence[Any]) -> float:
    """Bytes that tensors take."""
    return float(sum(t.numel() * t.element_size() for t in tensors if t is not None))
