"""What memory bounds: norms, activations, softmax, tables, casts, permutations.

bytes_moved is the least: forward reads its inputs and writes its outputs once; backward reads the
outputs' gradient and the inputs and writes the inputs' gradients.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from foretell.lab.calibrate.measure.bench import Bench, tensor_bytes
from foretell.lab.calibrate.measure.clock import TimedWork
from foretell.lab.calibrate.measure.file import FULL, HostMachine, MeasurePoint, Pass, planned
from foretell.records import dataclass

PLANNED = planned("pointwise")

Tensors = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOp:
    """An operation over (rows, width)."""

    inputs: Callable[[Bench, str, int, int], Tensors]
    """Its tensors; those that are not floating point have no gradient."""
    call: Callable[[Any, Tensors], Any]
    """The operation, given torch."""
    backward: bool = True
    """Whether its backward pass is measured."""
    whole_inputs: bool = True
    """Whether it reads all of its inputs; else as much as it writes."""


def _x(bench: Bench, dtype: str, rows: int, width: int) -> Tensors:
    return (bench.random(rows, width, dtype=dtype),)


def _xw(bench: Bench, dtype: str, rows: int, width: int) -> Tensors:
    return (*_x(bench, dtype, rows, width), bench.random(width, dtype=dtype))


def _xwb(bench: Bench, dtype: str, rows: int, width: int) -> Tensors:
    return (*_xw(bench, dtype, rows, width), bench.random(width, dtype=dtype))


def _xx(bench: Bench, dtype: str, rows: int, width: int) -> Tensors:
    return (*_x(bench, dtype, rows, width), *_x(bench, dtype, rows, width))


def _table(bench: Bench, dtype: str, rows: int, width: int) -> Tensors:
    return (bench.random(32768, width, dtype=dtype), bench.integers(32768, rows))


def _shuffle(bench: Bench, dtype: str, rows: int, width: int) -> Tensors:
    order = bench.torch.randperm(rows, device=bench.device)
    return (*_x(bench, dtype, rows, width), order)


def _functional(name: str) -> Callable[[Any, Tensors], Any]:
    return lambda torch, t: getattr(torch.nn.functional, name)(*t)


def _gated(torch: Any, t: Tensors) -> Any:
    return torch.nn.functional.silu(t[0]) * t[1]


OPS: Mapping[str, MeasuredOp] = {
    "rms_norm": MeasuredOp(
        inputs=_xw,
        call=lambda torch, t: torch.nn.functional.rms_norm(t[0], (t[0].shape[-1],), t[1], 1e-5),
    ),
    "layer_norm": MeasuredOp(
        inputs=_xwb,
        call=lambda torch, t: torch.nn.functional.layer_norm(t[0], (t[0].shape[-1],), t[1], t[2]),
    ),
    "add": MeasuredOp(inputs=_xx, call=lambda torch, t: t[0] + t[1], backward=False),
    "swiglu": MeasuredOp(inputs=_xx, call=_gated),
    "gelu": MeasuredOp(inputs=_x, call=_functional("gelu")),
    "softmax": MeasuredOp(inputs=_x, call=lambda torch, t: torch.softmax(t[0], -1)),
    "embedding": MeasuredOp(
        inputs=_table,
        call=lambda torch, t: torch.nn.functional.embedding(t[1], t[0]),
        backward=False,
        whole_inputs=False,
    ),
    "cast_up": MeasuredOp(inputs=_x, call=lambda torch, t: t[0].float(), backward=False),
    "permute": MeasuredOp(inputs=_shuffle, call=lambda torch, t: t[0][t[1]], backward=False),
}
"""Operations by name: those that a fit reads (measured_rows.py)."""


def points(host: HostMachine) -> Iterator[MeasurePoint]:
    """Coarse to fine."""
    form = "short_shapes" if host.short else "cpu_shapes" if host.device == "cpu" else "shapes"
    names = ("rms_norm", "swiglu", "embedding") if host.short else tuple(OPS)
    own = PLANNED["own_shapes"] if form == "shapes" else {}
    for name in names:
        passes: tuple[Pass, ...] = ("forward", "backward") if OPS[name].backward else ("forward",)
        for level, sizes in enumerate(own.get(name, PLANNED[form])):
            for rows, width in sizes:
                for passed in passes:
                    yield MeasurePoint(
                        group="pointwise",
                        family=name,
                        dims={"rows": rows, "width": width},
                        dtype=host.main,
                        passed=passed,
                        launch=host.bare,
                        level=level,
                        memory_bytes=16.0 * rows * width * FULL + 6e8,
                        cost_s=0.1,
                    )


def work(point: MeasurePoint, bench: Bench) -> TimedWork:
    """Buffers and calls of a point."""
    op, (rows, width) = OPS[point.family], (point.dims["rows"], point.dims["width"])
    tensors = op.inputs(bench, point.dtype, rows, width)
    out = op.call(bench.torch, tensors)
    outs = out if isinstance(out, tuple) else (out,)
    written, read = tensor_bytes(outs), tensor_bytes(tensors)
    read = read if op.whole_inputs else written
    one = read + written
    if point.passed == "backward":
        moved = one + read
        calls = bench.rotate(moved, lambda: _backward(op, bench, point.dtype, rows, width))
    else:
        moved = one
        calls = bench.rotate(one, lambda: _forward(op, bench, point.dtype, rows, width))
    return TimedWork(calls=calls, bytes_moved=moved, rotated_bytes=one * len(calls))


def _forward(
    op: MeasuredOp, bench: Bench, dtype: str, rows: int, width: int
) -> Callable[[], object]:
    tensors, torch = op.inputs(bench, dtype, rows, width), bench.torch
    return lambda: op.call(torch, tensors)


def _backward(
    op: MeasuredOp, bench: Bench, dtype: str, rows: int, width: int
) -> Callable[[], object]:
    tensors, torch = op.inputs(bench, dtype, rows, width), bench.torch
    inputs = [t.requires_grad_() for t in tensors if t.is_floating_point()]
    out = op.call(torch, tensors)
    slope = torch.ones_like(out) if out.dim() == 0 else torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, slope, retain_graph=True, allow_unused=True)
