"""What memory bounds: norms, activations, softmax, loss, rotations, tables, casts, routing, updates.

bytes_moved is the least: forward reads its inputs and writes its outputs once; backward reads the
outputs' gradient and the inputs and writes the inputs' gradients.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from foretell.lab.calibrate.measure.bench import Bench, tensor_bytes
from foretell.lab.calibrate.measure.clock import TimedWork
from foretell.lab.calibrate.measure.point import FULL, HALF, HostMachine, MeasurePoint, Pass
from foretell.records import dataclass

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


def _scores(bench: Bench, dtype: str, rows: int, width: int) -> Tensors:
    return (*_x(bench, dtype, rows, width), bench.integers(width, rows))


def _table(bench: Bench, dtype: str, rows: int, width: int) -> Tensors:
    return (bench.random(32768, width, dtype=dtype), bench.integers(32768, rows))


def _shuffle(bench: Bench, dtype: str, rows: int, width: int) -> Tensors:
    order = bench.torch.randperm(rows, device=bench.device)
    return (*_x(bench, dtype, rows, width), order)


def _rotary(bench: Bench, dtype: str, rows: int, width: int) -> Tensors:
    x = bench.random(rows, max(width // 128, 1), min(width, 128), dtype=dtype)
    table = bench.random(rows, 1, min(width, 128), dtype=dtype)
    return x, table, table.clone()


def _rotate(torch: Any, t: Tensors) -> Any:
    x, cosine, sine = t
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


def _plain_rms(torch: Any, t: Tensors) -> Any:
    x = t[0].float()
    return t[1] * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)).to(t[0].dtype)


def _functional(name: str) -> Callable[[Any, Tensors], Any]:
    return lambda torch, t: getattr(torch.nn.functional, name)(*t)


def _gated(torch: Any, t: Tensors) -> Any:
    return torch.nn.functional.silu(t[0]) * t[1]


def _loss(torch: Any, t: Tensors) -> Any:
    return torch.nn.functional.cross_entropy(t[0].float(), t[1])


def _to_fp8(torch: Any, t: Tensors) -> Any:
    scale = 448.0 / t[0].abs().amax(dim=-1, keepdim=True).float()
    return (t[0] * scale).to(torch.float8_e4m3fn)


def _unpermute(torch: Any, t: Tensors) -> Any:
    return torch.zeros_like(t[0]).index_add_(0, t[1], t[0])


OPS: Mapping[str, MeasuredOp] = {
    "rms_norm": MeasuredOp(
        inputs=_xw,
        call=lambda torch, t: torch.nn.functional.rms_norm(t[0], (t[0].shape[-1],), t[1], 1e-5),
    ),
    "rms_norm_plain": MeasuredOp(inputs=_xw, call=_plain_rms),
    "layer_norm": MeasuredOp(
        inputs=_xwb,
        call=lambda torch, t: torch.nn.functional.layer_norm(t[0], (t[0].shape[-1],), t[1], t[2]),
    ),
    "add": MeasuredOp(inputs=_xx, call=lambda torch, t: t[0] + t[1], backward=False),
    "swiglu": MeasuredOp(inputs=_xx, call=_gated),
    "gelu": MeasuredOp(inputs=_x, call=_functional("gelu")),
    "softmax": MeasuredOp(inputs=_x, call=lambda torch, t: torch.softmax(t[0], -1)),
    "rope": MeasuredOp(inputs=_rotary, call=_rotate),
    "cross_entropy": MeasuredOp(inputs=_scores, call=_loss),
    "embedding": MeasuredOp(
        inputs=_table,
        call=lambda torch, t: torch.nn.functional.embedding(t[1], t[0]),
        whole_inputs=False,
    ),
    "cast_up": MeasuredOp(inputs=_x, call=lambda torch, t: t[0].float(), backward=False),
    "cast_fp8_row": MeasuredOp(inputs=_x, call=_to_fp8, backward=False),
    "transpose": MeasuredOp(inputs=_x, call=lambda torch, t: t[0].t().contiguous(), backward=False),
    "permute": MeasuredOp(inputs=_shuffle, call=lambda torch, t: t[0][t[1]], backward=False),
    "unpermute": MeasuredOp(inputs=_shuffle, call=_unpermute, backward=False),
    "topk": MeasuredOp(
        inputs=_x, call=lambda torch, t: torch.topk(t[0], min(8, t[0].shape[-1])), backward=False
    ),
    "cumsum": MeasuredOp(inputs=_x, call=lambda torch, t: torch.cumsum(t[0], 0), backward=False),
}
"""Operations by name."""
SHAPES: tuple[tuple[tuple[int, int], ...], ...] = (
    ((4096, 4096), (16384, 8192)),
    ((64, 4096), (1024, 4096), (16384, 4096)),
    ((1, 8192), (256, 8192), (4096, 14336), (32768, 1024)),
)
"""(rows, width) by level."""
OWN_SHAPES: Mapping[str, tuple[tuple[tuple[int, int], ...], ...]] = {
    "softmax": (((65536, 2048),), ((4096, 128256), (65536, 512)), ((64, 128256),)),
    "cross_entropy": (((4096, 128256),), ((8192, 50304), (16384, 32000)), ((1024, 128256),)),
    "topk": (((4096, 256),), ((16384, 64), (128, 256)), ((4096, 128256),)),
}
CPU_SHAPES: tuple[tuple[tuple[int, int], ...], ...] = (((512, 768), (2048, 1024)), ((64, 768),))
CPU_OWN = {"cross_entropy": (((256, 32000),),), "topk": (((2048, 64),),)}
UPDATES: tuple[tuple[str, str, int, int, int], ...] = (
    ("fused", "main", 16, 1 << 24, 0),
    ("fused", "fp32", 16, 1 << 24, 0),
    ("foreach", "main", 16, 1 << 24, 0),
    ("for-loop", "main", 16, 1 << 24, 1),
    ("foreach", "fp32", 16, 1 << 24, 1),
    ("fused", "main", 300, 1 << 20, 1),
    ("foreach", "main", 300, 1 << 20, 1),
    ("for-loop", "main", 300, 1 << 20, 2),
    ("fused", "main", 300, 1 << 14, 2),
    ("for-loop", "main", 300, 1 << 14, 2),
)
"""AdamW: (form, dtype, tensors, weights of each, level)."""


def points(host: HostMachine) -> list[MeasurePoint]:
    """Coarse to fine."""
    if host.short:
        shapes: tuple[tuple[tuple[int, int], ...], ...] = (((256, 1024),),)
        few = ("rms_norm", "swiglu", "cross_entropy", "embedding")
        return [*_ops(host, few, shapes, {}), _update(host, "foreach", "fp32", 2, 256, 0)]
    cpu = host.device == "cpu"
    names = tuple(name for name in OPS if host.fp8 or name != "cast_fp8_row")
    found = list(_ops(host, names, CPU_SHAPES if cpu else SHAPES, CPU_OWN if cpu else OWN_SHAPES))
    for form, dtype, tensors, weights, level in UPDATES:
        if cpu and dtype == "main":
            continue
        format_ = host.main if dtype == "main" else dtype
        each = min(weights, 1 << 18) if cpu else weights
        found.append(_update(host, form, format_, tensors, each, level))
    return found


def _ops(
    host: HostMachine,
    names: tuple[str, ...],
    shapes: tuple[tuple[tuple[int, int], ...], ...],
    own: Mapping[str, tuple[tuple[tuple[int, int], ...], ...]],
) -> Iterator[MeasurePoint]:
    for name in names:
        passes: tuple[Pass, ...] = ("forward", "backward") if OPS[name].backward else ("forward",)
        for level, sizes in enumerate(own.get(name, shapes)):
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


def _update(
    host: HostMachine, form: str, dtype: str, tensors: int, each: int, level: int
) -> MeasurePoint:
    item = FULL if dtype == "fp32" else HALF
    return MeasurePoint(
        group="pointwise",
        family="adamw",
        variant=form,
        dims={"tensors": tensors, "weights": tensors * each},
        dtype=dtype,
        passed="update",
        level=level,
        memory_bytes=8.0 * item * tensors * each + 6e8,
        cost_s=0.5,
    )


def work(point: MeasurePoint, bench: Bench) -> TimedWork:
    """Buffers and calls of a point."""
    if point.family == "adamw":
        return _adamw(point, bench)
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


def _adamw(point: MeasurePoint, bench: Bench) -> TimedWork:
    """A whole optimizer step, its host's part included."""
    torch, tensors = bench.torch, point.dims["tensors"]
    each = point.dims["weights"] // tensors
    weights = [bench.random(each, dtype=point.dtype, scale=0.02) for _ in range(tensors)]
    for weight in weights:
        weight.requires_grad_().grad = bench.random(each, dtype=point.dtype, scale=0.01)
    form = {"fused": {"fused": True}, "foreach": {"foreach": True}, "for-loop": {"foreach": False}}
    optimizer = torch.optim.AdamW(weights, lr=1e-4, **form[point.variant])
    moved = 7.0 * tensor_bytes(weights)
    return TimedWork(calls=[optimizer.step], bytes_moved=moved, rotated_bytes=moved)
