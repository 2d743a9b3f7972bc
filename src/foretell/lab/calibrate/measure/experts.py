"""Layers of experts as training runs them, and linear layers in fp8 with the casts that come with them.

routed_layer: router, choice, sorting by expert, both grouped products around the gate, and the weighted
sum back, for one rank that holds every expert. scaled_linear: y = x W^T where x and W come in 16 bits and
are cast to fp8 on the way, in the backward pass with the transposes that fp8 products want.
"""

from collections.abc import Callable
from typing import Any

from foretell.lab.calibrate.measure.bench import Bench
from foretell.lab.calibrate.measure.clock import TimedWork
from foretell.lab.calibrate.measure.layers import compile_call
from foretell.lab.calibrate.measure.point import HALF, HostMachine, Launch, MeasurePoint, Pass

Layer = tuple[int, int, int, int, int, int]
"""(level, hidden, width of an expert, experts held, experts a token takes, tokens)."""
SIZES = ("hidden", "ffn", "experts", "chosen", "tokens")
LAYERS: tuple[Layer, ...] = (
    (0, 4096, 14336, 8, 2, 4096),
    (0, 2048, 768, 128, 8, 8192),
    (1, 7168, 2048, 32, 8, 4096),
    (1, 2048, 768, 16, 8, 4096),
    (2, 2048, 1408, 64, 6, 8192),
    (2, 7168, 2048, 32, 8, 1024),
    (3, 2048, 768, 128, 8, 32768),
)
"""Mixtral, Qwen3-30B-A3B whole and an eighth, DeepSeek-V3 an eighth, DeepSeek-V2-Lite."""
LINEARS: tuple[tuple[int, int, int, int], ...] = (
    (0, 8192, 28672, 4096),
    (0, 8192, 4096, 4096),
    (1, 8192, 4096, 14336),
    (2, 16384, 57344, 8192),
    (2, 2048, 7168, 2048),
)
"""(level, m, n, k)."""
CPU_LAYERS: tuple[Layer, ...] = ((0, 256, 512, 8, 2, 256), (1, 512, 256, 16, 4, 512))
SHORT_LAYERS: tuple[Layer, ...] = ((0, 32, 64, 4, 2, 16),)
CUDA_LAUNCHES: tuple[Launch, ...] = ("eager", "graph", "compiled")
CPU_LAUNCHES: tuple[Launch, ...] = ("eager",)
BOTH: tuple[Pass, ...] = ("forward", "forward+backward")
SCALINGS = ("tensor", "row")
SUSTAINED_S, COMPILE_S = 1.4, 12.0


def points(host: HostMachine) -> list[MeasurePoint]:
    """Coarse to fine."""
    cuda = host.device == "cuda"
    layers = LAYERS if cuda else SHORT_LAYERS if host.short else CPU_LAYERS
    launches = CUDA_LAUNCHES if cuda else CPU_LAUNCHES
    found = [
        _layer(host, case, launch, one) for case in layers for launch in launches for one in BOTH
    ]
    if host.fp8:
        found += [
            _linear(host, case, scaling, launch, one)
            for case in LINEARS
            for scaling in SCALINGS
            for launch in CUDA_LAUNCHES
            for one in BOTH
        ]
    return found


def _later(level: int, launch: Launch) -> int:
    """Compiling takes long: it comes behind its fellows."""
    return level + (1 if launch == "compiled" else 0)


def _layer(host: HostMachine, case: Layer, launch: Launch, passed: Pass) -> MeasurePoint:
    level, hidden, ffn, experts, chosen, tokens = case
    weights, rows = 3.0 * experts * hidden * ffn, float(tokens * chosen)
    return MeasurePoint(
        group="experts",
        family="routed_layer",
        variant="gated",
        dims=dict(zip(SIZES, case[1:], strict=True)),
        dtype=host.main,
        passed=passed,
        mode="sustained",
        launch=launch,
        level=_later(level, launch),
        memory_bytes=host.item_bytes * (3.0 * weights + rows * (8.0 * hidden + 8.0 * ffn)) + 1e9,
        cost_s=SUSTAINED_S + (COMPILE_S if launch == "compiled" and passed == "forward" else 0.8),
    )


def _linear(
    host: HostMachine, case: tuple[int, int, int, int], scaling: str, launch: Launch, passed: Pass
) -> MeasurePoint:
    level, m, n, k = case
    return MeasurePoint(
        group="experts",
        family="scaled_linear",
        variant=scaling,
        dims={"m": m, "n": n, "k": k},
        dtype="fp8",
        passed=passed,
        mode="sustained",
        launch=launch,
        level=_later(level, launch) + (scaling == "row"),
        memory_bytes=6.0 * HALF * (m * k + n * k + m * n) + 1e9,
        cost_s=SUSTAINED_S + (COMPILE_S if launch == "compiled" and passed == "forward" else 0.8),
    )


def work(point: MeasurePoint, bench: Bench) -> TimedWork:
    """Buffers and calls of a point."""
    return _routed(point, bench) if point.family == "routed_layer" else _scaled(point, bench)


def _call(point: MeasurePoint, bench: Bench, forward: Callable[..., Any], inputs: list[Any]) -> Any:
    """The forward pass, or it and the gradients of every input."""
    torch = bench.torch
    run = compile_call(torch, forward) if point.launch == "compiled" else forward
    if point.passed == "forward":
        return lambda: run(*inputs)
    slope = torch.randn_like(run(*inputs))
    return lambda: torch.autograd.grad(run(*inputs), inputs, slope)


def _routed(point: MeasurePoint, bench: Bench) -> TimedWork:
    from foretell.lab.calibrate.measure.modules import routed_layer

    hidden, ffn, experts, chosen, tokens = (point.dims[name] for name in SIZES)
    shapes = (
        (tokens, hidden),
        (experts, hidden),
        (experts, hidden, 2 * ffn),
        (experts, ffn, hidden),
    )
    scales = (1.0, 0.02, 0.02, 0.02)
    inputs = [
        bench.random(*shape, dtype=point.dtype, scale=scale).requires_grad_()
        for shape, scale in zip(shapes, scales, strict=True)
    ]

    def forward(x: Any, router: Any, up: Any, down: Any) -> Any:
        return routed_layer(x, router, up, down, chosen)

    both = point.passed != "forward"
    rows, item = float(tokens * chosen), inputs[0].element_size()
    bytes_moved = item * (3.0 * experts * hidden * ffn + 4.0 * rows * (hidden + ffn))
    return TimedWork(
        calls=[_call(point, bench, forward, inputs)],
        flop=6.0 * rows * hidden * ffn * (3.0 if both else 1.0),
        bytes_moved=bytes_moved * (3.0 if both else 1.0),
        rotated_bytes=bytes_moved,
        facts={"routing": "random", "tokens": tokens},
    )


def _scaled(point: MeasurePoint, bench: Bench) -> TimedWork:
    from foretell.lab.calibrate.measure.modules import scaled_linear

    m, n, k = (point.dims[name] for name in ("m", "n", "k"))
    inputs = [bench.random(*shape, dtype="bf16").requires_grad_() for shape in ((m, k), (n, k))]
    both = point.passed != "forward"
    rows = point.variant == "row"
    one = HALF * (m * k + n * k + m * n)
    return TimedWork(
        calls=[_call(point, bench, lambda x, weight: scaled_linear(x, weight, rows), inputs)],
        flop=2.0 * m * n * k * (3.0 if both else 1.0),
        bytes_moved=one * (3.0 if both else 1.0),
        rotated_bytes=one,
    )
