"""A dispatch mode that writes down every operation of a step, and how long each storage lives."""

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from foretell.trace.graph import FOREVER, LOSS, TracedGraph, TracedOp, block_bytes
from foretell.trace.kinds import (
    KINDS,
    NO_KERNEL,
    PRODUCTS,
    SKIPPED,
    attention_flops,
    attention_sizes,
    convolution_flops,
    convolution_sizes,
)
from foretell.trace.values import DATA_SHAPED, ROUTING, Values

FORWARD, RECOMPUTE, BACKWARD = range(3)
NAMES = {
    torch.float64: "fp64", torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16",
    torch.float8_e4m3fn: "fp8", torch.float8_e5m2: "fp8", torch.int64: "int64",
    torch.int32: "int32", torch.int16: "int16", torch.int8: "int8", torch.uint8: "uint8",
    torch.bool: "bool", torch.complex64: "complex64", torch.complex128: "complex128",
}  # fmt: skip
"""Formats of PyTorch by the names of the file."""
Tensors = Sequence[torch.Tensor]


class StepRecorder(TorchDispatchMode):
    """Writes down rows and storages while it is on."""

    def __init__(self, values: Values, static: dict[int, int]) -> None:
        super().__init__()
        self.values = values
        self.static = static
        self.stack: list[str] = [LOSS]
        self.ops: dict[tuple[Any, ...], int] = {}
        self.records: list[TracedOp] = []
        self.paths: dict[str, int] = {}
        self.rows: list[
            tuple[int, int, int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]
        ] = []
        self.sizes: list[float] = []
        self.born: list[int] = []
        self.died: list[int] = []
        self.alive: dict[int, int] = {}
        self.watchers: dict[int, Any] = {}
        self.seen: list[tuple[int, str]] = []
        self.paused = False

    # Storages

    def storage(self, tensor: torch.Tensor) -> int | None:
        """The number of a tensor's storage; None for parameters, buffers and inputs."""
        place = tensor.untyped_storage()
        key = place._cdata
        if key in self.static:
            return None
        found = self.alive.get(key)
        if found is None:
            found = len(self.sizes)
            self.sizes.append(block_bytes(place.nbytes()))
            self.born.append(len(self.rows))
            self.died.append(FOREVER)
            self.alive[key] = found
            self.watchers[key] = weakref.ref(place, partial(self._gone, key, found))
        return found

    def _gone(self, key: int, number: int, _: Any) -> None:
        self.died[number] = len(self.rows)
        if self.alive.get(key) == number:
            del self.alive[key]
            self.watchers.pop(key, None)

    # Rows

    def place(self) -> tuple[int, str]:
        """The phase of what runs now, and the module that it belongs to."""
        node = torch._C._current_autograd_node()
        if node is None:
            return FORWARD, self.stack[-1]
        if torch.is_grad_enabled():
            return RECOMPUTE, self.stack[-1]
        return BACKWARD, self._path_of(node._sequence_nr())

    def _path_of(self, number: int) -> str:
        """The module whose forward pass made a node of the graph."""
        low, high = 0, len(self.seen)
        while low < high:
            middle = (low + high) // 2
            if self.seen[middle][0] <= number:
                low = middle + 1
            else:
                high = middle
        return self.seen[min(low, len(self.seen) - 1)][1] if self.seen else ""

    def row(self, record: tuple[Any, ...], inputs: Tensors, outputs: Tensors) -> None:
        """Write down one call of an operation."""
        if record not in self.ops:
            self.ops[record] = len(self.records)
            name, kind, dtype, reads, writes, flops, sizes = record
            self.records.append(
                TracedOp(
                    name=name,
                    kind=kind,
                    dtype=dtype,
                    read_bytes=reads,
                    write_bytes=writes,
                    flops=flops,
                    sizes=dict(sizes) or None,
                )
            )
        phase, path = self.place()
        read = {self.storage(one) for one in inputs}
        weights = {self.static.get(one.untyped_storage()._cdata, -1) for one in inputs}
        written = {self.storage(one) for one in outputs}
        self.rows.append(
            (
                self.ops[record],
                self.paths.setdefault(path, len(self.paths)),
                phase,
                tuple(sorted(n for n in read if n is not None)),
                tuple(sorted(n for n in written if n is not None)),
                tuple(sorted(n for n in weights if n >= 0)),
            )
        )
        if phase != BACKWARD:
            self.seen.append((torch.autograd._get_sequence_nr(), path))

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Operations that are part of a larger one, which is written down by hand."""
        before, self.paused = self.paused, True
        try:
            yield
        finally:
            self.paused = before

    def kernel(
        self,
        name: str,
        kind: str,
        inputs: Sequence[torch.Tensor | None],
        shapes: Sequence[tuple[Sequence[int], torch.dtype]],
        *,
        flops: float = 0.0,
        sizes: dict[str, float] | None = None,
    ) -> list[torch.Tensor]:
        """Results of a kernel that PyTorch has on a GPU alone, and its row."""
        given = [one for one in inputs if one is not None]
        with self.pause():
            made = [torch.empty(tuple(shape), dtype=dtype) for shape, dtype in shapes]
        record = self.record(name, kind, given, made, flops, tuple(sorted((sizes or {}).items())))
        self.row(record, given, made)
        return made

    def record(
        self,
        name: str,
        kind: str,
        inputs: Tensors,
        outputs: Tensors,
        flops: float = 0.0,
        sizes: tuple[tuple[str, float], ...] = (),
    ) -> tuple[Any, ...]:
        """What rows of the same operation at the same sizes have in common."""
        reads = {one.untyped_storage()._cdata: 0.0 for one in inputs}
        for one in inputs:
            key = one.untyped_storage()._cdata
            reads[key] = max(reads[key], touched(one))
        dtype = next((NAMES.get(t.dtype, "fp32") for t in inputs if t.is_floating_point()), None)
        if dtype is None:
            dtype = next((NAMES.get(t.dtype, "int64") for t in outputs), "int64")
        writes = sum(touched(one) for one in outputs)
        return name, kind, dtype, float(sum(reads.values())), float(writes), float(flops), sizes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation on fake tensors, and write it down."""
        kwargs = kwargs or {}
        name = func._schema.name.split("::")[-1]
        if name == "_local_scalar_dense":
            self._simple("aten._local_scalar_dense", "sync", args)
            return self.values.scalar(args[0])
        if name in ("equal", "allclose"):
            self._simple(f"aten.{name}", "sync", args)
            return self.values.compute(func, args, kwargs) is True
        if func.namespace == "prim" or name in SKIPPED:
            return func(*args, **kwargs)
        real = (
            self.values.compute(func, args, kwargs) if self._by_values(name, args, kwargs) else None
        )
        result = self._result(func, name, args, kwargs, real)
        if real is not None:
            self._keep(result, real)
        elif func._schema.is_mutable and self.values.known:
            for one in tree_flatten(args)[0][:1]:
                if isinstance(one, torch.Tensor):
                    self.values.forget(one)
        if real is None and name in ROUTING:
            self.values.routed(name, args, result)
        if not self.paused:
            self._write(func, name, args, kwargs, result)
        return result

    def _by_values(self, name: str, args: Any, kwargs: Any) -> bool:
        """Whether an operation may be computed on known numbers: all its tensors have some, or it makes small
        ones of none."""
        flat = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, torch.Tensor)]
        if flat:
            known = self.values.known
            return all(one in known or type(one) is torch.Tensor for one in flat)
        dtype = kwargs.get("dtype")
        sizes = args[0] if args and isinstance(args[0], (list, tuple)) else ()
        small = prod(sizes) <= 4096 if sizes else name not in ("empty", "empty_strided")
        whole = (
            dtype is not None and not dtype.is_floating_point and name in ("zeros", "ones", "full")
        )
        if name in ("arange", "scalar_tensor", "linspace"):
            return True
        return whole or (small and name in ("zeros", "ones", "full", "eye"))

    def _result(self, func: Any, name: str, args: Any, kwargs: Any, real: Any) -> Any:
        """What an operation gives: a fake tensor, as large as the known numbers make it."""
        masks = name == "index" and any(
            one is not None and one.dtype in (torch.bool, torch.uint8) for one in args[1]
        )
        if name in DATA_SHAPED and (name != "index" or masks):
            with self.pause():
                if real is not None:
                    return tree_map(
                        lambda t: self._fake(t) if isinstance(t, torch.Tensor) else t, real
                    )
                return self._shaped(name, args, kwargs)
        return func(*args, **kwargs)

    def _fake(self, real: torch.Tensor) -> torch.Tensor:
        return torch.empty(real.shape, dtype=real.dtype)

    def _shaped(self, name: str, args: Any, kwargs: Any) -> Any:
        """A result whose entries depend on numbers, where these are not known: half of them are expected."""
        self.values.guessed += 1
        given = args[0]
        if name == "nonzero":
            return torch.empty((max(given.numel() // 2, 1), given.dim()), dtype=torch.int64)
        if name == "index":
            return self._picked(given, args[1])
        if name == "masked_select":
            return torch.empty(max(given.numel() // 2, 1), dtype=given.dtype)
        if name == "histc":
            many = kwargs.get("bins", args[1] if len(args) > 1 else 100)
            return torch.empty(int(many), dtype=given.dtype)
        if name == "bincount":
            many = kwargs.get("minlength", args[2] if len(args) > 2 else 0)
            return torch.empty(int(many) or 100, dtype=torch.int64)
        if name == "repeat_interleave":
            return torch.empty(kwargs.get("output_size") or given.numel(), dtype=torch.int64)
        first = torch.empty(max(given.numel() // 2, 1), dtype=given.dtype)
        return (
            first,
            torch.empty_like(given, dtype=torch.int64),
            torch.empty(0, dtype=torch.int64),
        )

    def _picked(self, given: torch.Tensor, indices: Sequence[Any]) -> torch.Tensor:
        """x[mask], by the numbers of the mask where they are known."""
        spread: list[torch.Tensor | None] = []
        for one in indices:
            if one is None or one.dtype not in (torch.bool, torch.uint8):
                spread.append(one)
                continue
            known = self.values.numbers(one)
            many = max(one.numel() // 2, 1) if known is None else sum(map(bool, known))
            spread += [torch.empty(many, dtype=torch.int64) for _ in range(one.dim())]
        return torch.ops.aten.index(given, spread)  # type: ignore[no-any-return]

    def _keep(self, result: Any, real: Any) -> None:
        for fake, number in zip(tree_flatten(result)[0], tree_flatten(real)[0], strict=False):
            if isinstance(fake, torch.Tensor) and isinstance(number, torch.Tensor):
                self.values.keep(fake, number)

    def _simple(self, name: str, kind: str, args: Any) -> None:
        inputs = [one for one in tree_flatten(args)[0] if isinstance(one, torch.Tensor)]
        if not self.paused:
            self.row((name, kind, "int64", 8.0, 0.0, 0.0, ()), inputs, ())

    def _write(self, func: Any, name: str, args: Any, kwargs: Any, result: Any) -> None:
        """The row of an operation that has run."""
        inputs = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]
        outputs = [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor)]
        if not outputs and not func._schema.is_mutable:
            return
        places = {one.untyped_storage()._cdata for one in inputs}
        aliases = outputs and all(one.untyped_storage()._cdata in places for one in outputs)
        if name in NO_KERNEL or (aliases and not func._schema.is_mutable):
            record: tuple[Any, ...] = (f"aten.{name}", "view", "int64", 0.0, 0.0, 0.0, ())
            self.row(record, inputs if aliases else (), outputs)
            return
        kind, flops, sizes = classify(name, args, kwargs, outputs)
        own = func.namespace in ("aten", "_c10d_functional")
        if not own or (kind == "pointwise" and not _is_pass(func, name)):
            kind = "unknown"
        full = f"{func.namespace}.{name}"
        record = self.record(full, kind, inputs, outputs, flops, tuple(sorted(sizes.items())))
        self.row(record, inputs, outputs)

    def graph(self, gradients: set[int], notes: Sequence[str]) -> TracedGraph:
        """What was written down, as a record; `gradients` are keys of the storages of gradients."""
        kept = {self.alive[key] for key in gradients if key in self.alive}
        columns = list(zip(*self.rows, strict=True)) if self.rows else [()] * 6
        return TracedGraph(
            ops=tuple(self.records),
            paths=tuple(self.paths),
            op=np.array(columns[0], dtype=np.int64),
            path=np.array(columns[1], dtype=np.int64),
            phase=np.array(columns[2], dtype=np.int64),
            reads=tuple(columns[3]),
            writes=tuple(columns[4]),
            weights=tuple(columns[5]),
            storage_bytes=np.array(self.sizes, dtype=np.float64),
            born=np.array(self.born, dtype=np.int64),
            died=np.array(self.died, dtype=np.int64),
            gradient=np.array([n in kept for n in range(len(self.sizes))], dtype=bool),
            notes=tuple(notes),
        )


def _is_pass(func: Any, name: str) -> bool:
    """Whether an operation works element by element, in place or not."""
    plain = name.removesuffix("_")
    if name in KINDS or plain in KINDS or torch.Tag.pointwise in func.tags:
        return True
    other = getattr(getattr(torch.ops.aten, plain, None), func._overloadname, None)
    return other is not None and torch.Tag.pointwise in other.tags


def aligned(operands: Sequence[torch.Tensor]) -> float:
    """Numbers that a product may load at once: a power of two, up to eight, that divides the rows of both
    operands as they lie."""
    rows = [max(one.shape[-1] if one.stride(-1) == 1 else one.shape[-2], 1) for one in operands]
    return float(min(8, *(row & -row for row in rows)))


def touched(tensor: torch.Tensor) -> float:
    """Bytes of the distinct numbers of a tensor: what is expanded is read once."""
    many = prod(n for n, step in zip(tensor.shape, tensor.stride(), strict=True) if step or n == 0)
    return float(many * tensor.element_size())


def classify(
    name: str, args: Any, kwargs: Any, outputs: Tensors
) -> tuple[str, float, dict[str, float]]:
    """The family of an operation, its products' operations, and the sizes of its kernel."""
    if name in PRODUCTS:
        sizes = PRODUCTS[name](*args, **kwargs)
        pair = args[1:3] if "add" in name else args[:2]
        return "gemm", 2.0 * prod(sizes.values()), {**sizes, "load": aligned(pair)}
    if name == "convolution":
        sizes = convolution_sizes(
            args[0].shape, args[1].shape, outputs[0].shape, groups=args[8], transposed=args[6]
        )
        sizes |= {
            "channels_last": float(_channels_last(args[0])),
            "bias": float(args[2] is not None),
        }
        sizes["copied"] = _copied(args[0])
        return "conv", convolution_flops(sizes), sizes
    if name == "convolution_backward":
        sizes = convolution_sizes(
            args[1].shape,
            args[2].shape,
            args[0].shape,
            groups=args[9],
            transposed=args[7],
            masks=args[10],
        )
        sizes["channels_last"] = float(_channels_last(args[1]))
        sizes["copied"] = _copied(args[0]) + _copied(args[1])
        made = sizes["to_input"] + sizes["to_weights"]
        return "conv", made * convolution_flops(sizes), sizes
    if name.startswith("_scaled_dot_product_"):
        return _attention_call(name, args, kwargs)
    extra = _shape_of_pass(name, args, outputs)
    kind = KINDS.get(name, "pointwise")
    tensors = [one for one in tree_flatten(args)[0] if isinstance(one, torch.Tensor)]
    if kind == "gather" and len(tensors) > 1:
        index = min(tensors[:2], key=lambda one: one.is_floating_point())
        extra["indices"] = float(index.numel())
    if kind == "scatter" and tensors:
        added = tensors[0] if name == "embedding_dense_backward" else tensors[-1]
        extra["added"] = float(added.numel())
    if kind == "pool" and tensors and tensors[0].dim() > 1:
        extra["planes"] = float(prod(tensors[0].shape[:2]))
    return KINDS.get(name, KINDS.get(name.rstrip("_"), "pointwise")), 0.0, extra


def _shape_of_pass(name: str, args: Any, outputs: Tensors) -> dict[str, float]:
    """What of the shapes of a pass over memory its time depends on: rows of a norm, columns of a sum, whether
    all operands lie as the result does."""
    first = next((one for one in args if isinstance(one, torch.Tensor)), None)
    if first is None or not outputs:
        return {}
    kind = KINDS.get(name, "pointwise")
    if kind == "norm":
        channels = first.shape[1] if first.dim() > 1 else 1
        rows = first.numel() // max(first.shape[-1], 1)
        last = {"channels_last": 1.0} if _channels_last(first) else {}
        return {"elements": first.numel(), "channels": channels, "rows": rows, **last}
    if kind == "reduce":
        whole = outputs[0].numel()
        last = first.dim() and outputs[0].dim() and outputs[0].shape[-1] == first.shape[-1] > 1
        return {"columns": float(whole)} if last and whole < first.numel() else {}
    if kind in ("pointwise", "copy") and name != "cat" and not name.endswith("t_backward"):
        operands = [one for one in args if isinstance(one, torch.Tensor) and one.dim()]
        shape, steps = outputs[0].shape, outputs[0].stride()
        even = all(one.shape == shape and one.stride() == steps for one in operands)
        turned = any(one.stride(-1) > 1 and one.shape[-1] > 1 for one in operands)
        apart = any(_permuted(one) for one in operands)
        found = {
            "uneven": float(outputs[0].numel()),
            "turned": float(turned),
            "permuted": float(apart),
        }
        return {} if even else found
    return {}


def _permuted(tensor: torch.Tensor) -> bool:
    """Whether a tensor's dimensions lie in another order than they are named in."""
    steps = [step for n, step in zip(tensor.shape, tensor.stride(), strict=True) if n > 1 and step]
    return steps != sorted(steps, reverse=True)


def _channels_last(tensor: torch.Tensor) -> bool:
    if tensor.dim() not in (4, 5) or tensor.is_contiguous():
        return False
    last = torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d
    return tensor.is_contiguous(memory_format=last)


def _copied(tensor: torch.Tensor) -> float:
    """Numbers of a convolution's operand that PyTorch copies first, since they lie otherwise."""
    return 0.0 if tensor.is_contiguous() or _channels_last(tensor) else float(tensor.numel())


def _attention_call(name: str, args: Any, kwargs: Any) -> tuple[str, float, dict[str, float]]:
    backward = name.endswith("backward")
    first = 1 if backward else 0
    query, key, value = args[first : first + 3]
    efficient = "efficient" in name
    bias = args[first + 3] if efficient else None
    named = kwargs.get("is_causal")
    flags = [one for one in args[first + 3 :] if isinstance(one, bool)]
    causal = named if named is not None else (flags[-1] if efficient and flags else any(flags[:1]))
    if efficient and not backward and named is None:
        causal = args[6] if len(args) > 6 else False
    sizes = attention_sizes(
        query.shape, key.shape, value.shape, causal=bool(causal), masked=bias is not None
    )
    sizes["efficient"] = float(efficient)
    return "attention", attention_flops(sizes, backward=backward), {**sizes, "backward": backward}
