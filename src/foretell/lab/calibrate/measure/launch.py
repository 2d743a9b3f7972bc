"""What it costs to start kernels: on the host, on the device, as a graph, through modules and autograd."""

from collections.abc import Callable
from typing import Any

from foretell.lab.calibrate.measure.bench import Bench
from foretell.lab.calibrate.measure.clock import TimedWork
from foretell.lab.calibrate.measure.file import HostMachine, Launch, MeasurePoint

FORMS: tuple[tuple[str, Launch, tuple[int, ...]], ...] = (
    ("host", "eager", (64,)),
    ("device", "eager", (64,)),
    ("device", "graph", (1, 16, 256, 1024)),
    ("round-trip", "eager", (1,)),
    ("linear-host", "eager", (32,)),
    ("backward-host", "eager", (32,)),
    ("graph-replay-host", "eager", (1, 256)),
)
"""(form, launch, kernels of one call). host: how long the host is busy with a launch; device: how long a
tiny kernel holds the device when others wait behind it; round-trip: launch and wait; linear-host and
backward-host: a linear layer's forward and backward call on the host; graph-replay-host: replay and wait."""
GPU_ONLY = ("graph-replay-host",)


def points(host: HostMachine) -> list[MeasurePoint]:
    """All of one level: they are few and quick."""
    cpu = host.device == "cpu"
    return [
        MeasurePoint(
            group="launch",
            family="launch",
            variant=form,
            dims={"kernels": 4 if host.short else kernels},
            dtype="fp32",
            launch=launch,
            cost_s=0.2,
        )
        for form, launch, counts in FORMS
        if not cpu or (form not in GPU_ONLY and launch == "eager")
        for kernels in (counts[:1] if host.short else counts)
    ]


def work(point: MeasurePoint, bench: Bench) -> TimedWork:
    """Calls of a point; each launches `kernels` kernels."""
    torch, kernels = bench.torch, point.dims["kernels"]
    tiny = torch.zeros(1, device=bench.device)

    def launches() -> None:
        for _ in range(kernels):
            tiny.add_(1.0)

    match point.variant:
        case "device":
            return TimedWork(calls=[launches])
        case "host":
            return TimedWork(calls=[launches], timed_by="host")
        case "round-trip":
            return TimedWork(calls=[_waited(bench, launches)], timed_by="host")
        case "graph-replay-host":
            graph = torch.cuda.CUDAGraph()
            launches()
            bench.clock.sync()
            graph.capture_begin()
            launches()
            graph.capture_end()
            return TimedWork(calls=[_waited(bench, graph.replay)], timed_by="host")
        case _:
            return TimedWork(
                calls=[_linear(bench, kernels, point.variant == "backward-host")], timed_by="host"
            )


def _waited(bench: Bench, call: Callable[[], object]) -> Callable[[], None]:
    def waited() -> None:
        call()
        bench.clock.sync()

    return waited


def _linear(bench: Bench, count: int, backward: bool) -> Callable[[], None]:
    """Linear layers so small that only the host's part shows; backward includes the forward call."""
    torch = bench.torch
    layer = torch.nn.Linear(16, 16, device=bench.device)
    x = bench.random(16, 16, dtype="fp32")

    def run() -> None:
        y: Any = x
        for _ in range(count):
            y = layer(y)
        if backward:
            y.backward(x)
            layer.zero_grad()

    return run
