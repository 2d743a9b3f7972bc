"""Matrix products of linear layers: forward, and the two of the backward pass; batched.

Dims are always those of the forward product y[m,n] = x[m,k] W[n,k]^T. dgrad is dx[m,k] = dy[m,n] W[n,k];
wgrad is dW[n,k] = dy[m,n]^T x[m,k]: the same operations in other layouts.
"""

from collections.abc import Callable, Iterator
from typing import Any

from foretell.lab.calibrate.measure.bench import Bench
from foretell.lab.calibrate.measure.clock import TimedWork
from foretell.lab.calibrate.measure.file import (
    FULL,
    HALF,
    HostMachine,
    MeasurePoint,
    Mode,
    Pass,
    planned,
)

PLANNED = planned("gemm")

Shape = tuple[int, int, int]
PASSES: tuple[Pass, ...] = ("forward", "dgrad", "wgrad")
LEAST_TRAINING_ROWS = 128
"""Backward products are measured from so many rows."""
SUSTAINED_COST_S = 2.6
BYTES = {"bf16": HALF, "fp16": HALF, "fp32": FULL, "fp8": 1.0}


def points(host: HostMachine) -> list[MeasurePoint]:
    """Coarse to fine."""
    if host.short:
        shapes = [(m, n, k) for n, k in PLANNED["short_sites"] for m in PLANNED["short_rows"]]
        return [_point(host, shape, "fp32", passed, 0) for shape in shapes for passed in PASSES]
    found = [*_bursts(host), *_sustained(host)]
    if host.device == "cuda":
        found += _batched(host)
    return found


def _point(
    host: HostMachine, shape: Shape, form: str, passed: Pass, level: int, mode: Mode = "burst"
) -> MeasurePoint:
    """A product; `form` is its dtype and, behind a stroke, how it is scaled."""
    (m, n, k), (dtype, _, variant) = shape, form.partition("/")
    one = (m * k + n * k) * BYTES[dtype] + m * n * max(BYTES[dtype], HALF)
    return MeasurePoint(
        group="gemm",
        family="gemm",
        variant=variant,
        dims={"m": m, "n": n, "k": k},
        dtype=dtype,
        passed=passed,
        mode=mode,
        launch=host.bare,
        level=level,
        memory_bytes=2.0 * one + 6e8,
        cost_s=SUSTAINED_COST_S if mode == "sustained" else 0.15,
    )


def _bursts(host: HostMachine) -> Iterator[MeasurePoint]:
    cpu = host.device == "cpu"
    sites, rows = (PLANNED[f"cpu_{n}" if cpu else n] for n in ("sites", "rows"))
    for site_level, pairs in enumerate(sites):
        for row_level, counts in enumerate(rows):
            for n, k in pairs:
                for m in counts:
                    level = max(site_level, row_level) + (1 if site_level and row_level else 0)
                    yield from _at(host, (m, n, k), level)


def _at(host: HostMachine, shape: Shape, level: int) -> Iterator[MeasurePoint]:
    for passed in PASSES:
        if passed == "forward" or shape[0] >= LEAST_TRAINING_ROWS:
            later = 0 if passed == "forward" or shape[0] == 4096 else 1
            yield _point(host, shape, host.main, passed, level + later)
    if host.fp8:
        yield _point(host, shape, "fp8/tensor", "forward", level + 1)
        if level <= 1:
            yield _point(host, shape, "fp8/row", "forward", 2)
    other = "bf16" if host.device == "cpu" else "fp16"
    if level == 0 and other != host.main:
        yield _point(host, shape, other, "forward", 3)


def _sustained(host: HostMachine) -> Iterator[MeasurePoint]:
    shapes = PLANNED["cpu_sustained" if host.device == "cpu" else "sustained"]
    for level, some in enumerate(shapes):
        for shape in some:
            for passed in PASSES:
                yield _point(host, shape, host.main, passed, level, "sustained")
            if host.fp8 and level == 0:
                yield _point(host, shape, "fp8/tensor", "forward", 1, "sustained")
    if host.device == "cuda":
        for rank, shape in enumerate(PLANNED["light_sustained"]):
            yield _point(host, shape, host.main, "forward", 1 + rank // 2, "sustained")


def _batched(host: HostMachine) -> Iterator[MeasurePoint]:
    for batch, m, n, k in PLANNED["batched"]:
        yield MeasurePoint(
            group="gemm",
            family="batched_gemm",
            dims={"batch": batch, "m": m, "n": n, "k": k},
            dtype=host.main,
            launch="graph",
            level=1,
            memory_bytes=4.0 * batch * (m * k + n * k + m * n) + 6e8,
        )


def work(point: MeasurePoint, bench: Bench) -> TimedWork:
    """Buffers and calls of a point."""
    if point.family == "batched_gemm":
        return _batched_work(point, bench)
    m, n, k = (point.dims[name] for name in ("m", "n", "k"))
    width = BYTES[point.dtype]
    one = (m * k + n * k) * width + m * n * max(width, HALF)
    if point.dtype == "fp8":
        calls = bench.rotate(one, lambda: _scaled(point, bench))
    else:
        calls = bench.rotate(one, lambda: _plain(point, bench))
    return TimedWork(
        calls=calls,
        flop=2.0 * m * n * k,
        bytes_moved=one,
        rotated_bytes=one * len(calls),
    )


def _plain(point: MeasurePoint, bench: Bench) -> Callable[[], object]:
    """One of the three products, its operands laid out as training has them."""
    m, n, k, dtype = *(point.dims[name] for name in ("m", "n", "k")), point.dtype
    sizes = {"forward": (m, n), "dgrad": (m, k), "wgrad": (n, k)}
    out = bench.torch.empty(*sizes[point.passed], dtype=bench.dtype(dtype), device=bench.device)
    if point.passed == "forward":
        left, right = bench.random(m, k, dtype=dtype), bench.random(n, k, dtype=dtype).t()
    elif point.passed == "dgrad":
        left, right = bench.random(m, n, dtype=dtype), bench.random(n, k, dtype=dtype)
    else:
        left, right = bench.random(m, n, dtype=dtype).t(), bench.random(m, k, dtype=dtype)
    product = bench.torch.mm
    return lambda: product(left, right, out=out)


def _scaled(point: MeasurePoint, bench: Bench) -> Callable[[], object]:
    """fp8 with one scale for each tensor, or for each row and column; operands already in fp8."""
    m, n, k = (point.dims[name] for name in ("m", "n", "k"))
    x, weight = bench.random(m, k, dtype="fp8"), bench.random(n, k, dtype="fp8").t()
    rows = point.variant == "row"
    ones = bench.torch.ones
    scale_x = ones((m, 1) if rows else (), device=bench.device)
    scale_w = ones((1, n) if rows else (), device=bench.device)
    product: Any = bench.torch._scaled_mm
    form = bench.torch.bfloat16
    return lambda: product(
        x, weight, scale_a=scale_x, scale_b=scale_w, out_dtype=form, use_fast_accum=True
    )


def _batched_work(point: MeasurePoint, bench: Bench) -> TimedWork:
    batch, m, n, k = (point.dims[name] for name in ("batch", "m", "n", "k"))
    one = batch * (m * k + n * k + m * n) * BYTES[point.dtype]

    def make() -> Callable[[], object]:
        left = bench.random(batch, m, k, dtype=point.dtype)
        right = bench.random(batch, n, k, dtype=point.dtype).transpose(1, 2)
        return lambda: bench.torch.bmm(left, right)

    calls = bench.rotate(one, make)
    return TimedWork(
        calls=calls,
        flop=2.0 * batch * m * n * k,
        bytes_moved=one,
        rotated_bytes=one * len(calls),
    )
