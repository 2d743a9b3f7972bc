"""The record of a traced training step, and its file (`.foretell.json`).

A step is a list of rows in the order in which they ran: forward, loss, backward. A row is one call of an
operation, with the tensors' storages that it reads and writes; what many rows have in common (name, sizes,
format) is one `TracedOp` that they share, so that 80 equal layers are 80 times the same few operations. A
storage has its bytes and the rows between which it lives: the sum of those alive is the memory of the step.
The file needs no PyTorch to be read; docs/trace.md describes it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.errors import bad_input
from foretell.records import dataclass

FORMAT, VERSION = "foretell-trace", 1
"""What the file says it is."""
PHASES = ("forward", "recompute", "backward")
"""Parts of a step, by their codes in `TracedGraph.phase`."""
LOSS = "(loss)"
"""Path of what runs outside of the module: a loss of the user's own, which `torch.compile(module)` leaves."""
FOREVER = -1
"""Row at which a storage ends that outlives the step: a gradient, or a buffer that was written."""
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedOp:
    """One operation with its sizes; many rows may share it."""

    name: str
    """PyTorch's name of it, as in aten.addmm."""
    kind: str
    """Family of kernels: gemm, conv, attention, rnn, pointwise, reduce, norm, copy, fill, gather, scatter,
    sort, scan, fft, view (no kernel), sync (the host waits), unknown."""
    dtype: str
    """Format of the numbers that it computes with: fp32, bf16, fp16, fp64, int."""
    read_bytes: float
    """Bytes of its inputs, each storage read once."""
    write_bytes: float
    """Bytes of its results."""
    flops: float = 0.0
    """Operations of its matrix products."""
    sizes: Mapping[str, float] | None = None
    """Sizes of its kernel by name: m, n, k, batch of products; those of a convolution or of attention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedGraph:
    """The rows of one step, and its storages; arrays are over rows or over storages."""

    ops: tuple[TracedOp, ...]
    """Distinct operations."""
    paths: tuple[str, ...]
    """Paths of the modules that rows belong to."""
    op: Ints
    """Of each row: its operation."""
    path: Ints
    """Of each row: its module."""
    phase: Ints
    """Of each row: forward, recompute or backward, as a place in PHASES."""
    reads: tuple[tuple[int, ...], ...]
    """Of each row: storages that it reads, parameters and inputs left out."""
    writes: tuple[tuple[int, ...], ...]
    """Of each row: storages that it writes."""
    storage_bytes: NDArray[np.float64]
    """Of each storage: its bytes, as the allocator rounds them."""
    born: Ints
    """Of each storage: the row that made it."""
    died: Ints
    """Of each storage: the first row that ran when it was gone; FOREVER where it outlives the step."""
    gradient: NDArray[np.bool_]
    """Of each storage: whether it is a parameter's gradient."""
    weights: tuple[tuple[int, ...], ...] = ()
    """Of each row: parameters that it reads, as places in `TracedModel.tensors`; older files lack it."""
    notes: tuple[str, ...] = ()
    """What was assumed while it was traced."""

    def summary(self) -> dict[str, float]:
        """Operations, matrix operations and the largest sum of live storages."""
        flops = np.array([op.flops for op in self.ops] or [0.0])
        change = np.zeros(len(self.op) + 2)
        np.add.at(change, np.minimum(self.born, len(self.op)), self.storage_bytes)
        gone = self.died != FOREVER
        np.add.at(change, self.died[gone], -self.storage_bytes[gone])
        return {
            "operations": len(self.op),
            "distinct": len(self.ops),
            "flops": float(flops[self.op].sum()) if len(self.op) else 0.0,
            "live_bytes": float(np.cumsum(change).max()),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedTensor:
    """A parameter, buffer or input."""

    name: str
    """Its path in the module, or the argument's name."""
    shape: tuple[int, ...]
    """Its sizes."""
    dtype: str
    """Format of its numbers: fp32, bf16, fp16, int64, bool and the like."""
    trained: bool = False
    """Whether it has a gradient."""
    kind: str = "parameter"
    """parameter, buffer or input."""

    @property
    def elements(self) -> int:
        """How many numbers it has."""
        return int(np.prod(self.shape, dtype=np.int64)) if self.shape else 1

    @property
    def bytes(self) -> float:
        """Its bytes, as PyTorch's allocator rounds them."""
        return block_bytes(self.elements * WIDTHS[self.dtype])


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedModel:
    """A module with its inputs and loss, traced in the forms in which it can be trained."""

    id: str
    """Its name."""
    tensors: tuple[TracedTensor, ...]
    """Parameters, each once, buffers and inputs."""
    batch: int
    """First dimension of the inputs: the sequences, images or rows of one micro-batch."""
    tokens: int
    """Second dimension of the inputs where they are indices, else 1: tokens of a sequence."""
    layers: tuple[str, ...]
    """Paths of the repeated blocks, in order: what recomputation by layer and pipelines cut between."""
    graphs: Mapping[str, TracedGraph]
    """Form -> its rows. `as-is` is the module as it was given; `autocast` with torch.autocast in bf16 around
    forward and loss; `cast` with all its floating-point numbers in bf16; `inference` these forward alone."""
    compiled: bool = False
    """Whether the module asked for torch.compile."""
    source: str = ""
    """Where the module came from."""

    def __hash__(self) -> int:
        """Its own: to compare all rows would cost more than what is kept of them."""
        return id(self)

    def summary(self) -> dict[str, Any]:
        """What was traced, in numbers."""
        parameters = self.of_kind("parameter")
        return {
            "model": self.id,
            "parameters": sum(t.elements for t in parameters),
            "trained_parameters": sum(t.elements for t in parameters if t.trained),
            "inputs": {t.name: f"{t.dtype}{list(t.shape)}" for t in self.of_kind("input")},
            "batch": self.batch,
            "layers": len(self.layers),
            "compiled": self.compiled,
            "forms": {name: graph.summary() for name, graph in self.graphs.items()},
        }

    def of_kind(self, kind: str) -> tuple[TracedTensor, ...]:
        """Its parameters, buffers or inputs."""
        return tuple(t for t in self.tensors if t.kind == kind)

    def save(self, path: str | Path) -> Path:
        """Write it to a file, which every verb takes as a model."""
        file = Path(path)
        table = {"format": FORMAT, "version": VERSION, **_plain(self)}
        file.write_text(json.dumps(table, separators=(",", ":")) + "\n", encoding="utf-8")
        return file


WIDTHS = {
    "fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint8": 1, "bool": 1, "complex64": 8, "complex128": 16,
}  # fmt: skip
"""Bytes of one number of each format."""
BLOCK = 512
"""PyTorch's allocator rounds each tensor up to a multiple of so many bytes (kMinBlockSize)."""


def block_bytes(size: float) -> float:
    """Bytes that a tensor takes of the allocator."""
    return float(-(-int(size) // BLOCK) * BLOCK)


def _plain(value: Any) -> Any:
    """Records, mappings and arrays as JSON has them."""
    if isinstance(value, (TracedModel, TracedGraph, TracedTensor, TracedOp)):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return value.astype(np.int64).tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value


def is_traced_file(given: object) -> bool:
    """Whether a text or path names a file of a traced model, by its content."""
    if isinstance(given, TracedModel):
        return True
    if not isinstance(given, (str, Path)) or not str(given).endswith(".json"):
        return False
    file = Path(given)
    if not file.is_file():
        return False
    with file.open(encoding="utf-8", errors="replace") as lines:
        return f'"{FORMAT}"' in lines.read(200)


def load_traced(given: "str | Path | TracedModel") -> TracedModel:
    """A traced model from its file; what was read before is not read again."""
    if isinstance(given, TracedModel):
        return given
    file = Path(given)
    return _loaded(str(file), file.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _loaded(path: str, _: int) -> TracedModel:
    try:
        table = json.loads(Path(path).read_text(encoding="utf-8"))
        if table.get("version") != VERSION:
            raise ValueError(
                f"version {table.get('version')} of the format; this one reads {VERSION}"
            )
        return traced_of(table)
    except (KeyError, TypeError, ValueError) as error:
        message = f"no traced model: {error}; write it again with foretell trace"
        raise bad_input("model", path, message) from None


def traced_of(table: Mapping[str, Any]) -> TracedModel:
    """A traced model from the table of its file."""
    tensors = [TracedTensor(**{**t, "shape": tuple(t["shape"])}) for t in table["tensors"]]
    return TracedModel(
        id=table["id"],
        tensors=tuple(tensors),
        batch=table["batch"],
        tokens=table["tokens"],
        layers=tuple(table["layers"]),
        graphs={name: _graph(one) for name, one in table["graphs"].items()},
        compiled=table["compiled"],
        source=table["source"],
    )


def _graph(table: Mapping[str, Any]) -> TracedGraph:
    def ints(name: str) -> Ints:
        return np.array(table[name], dtype=np.int64)

    return TracedGraph(
        ops=tuple(TracedOp(**one) for one in table["ops"]),
        paths=tuple(table["paths"]),
        op=ints("op"),
        path=ints("path"),
        phase=ints("phase"),
        reads=_rows(table["reads"]),
        writes=_rows(table["writes"]),
        storage_bytes=np.array(table["storage_bytes"], dtype=np.float64),
        born=ints("born"),
        died=ints("died"),
        gradient=np.array(table["gradient"], dtype=bool),
        weights=_rows(table.get("weights", ())),
        notes=tuple(table["notes"]),
    )


def layer_of_rows(graph: TracedGraph, layers: Sequence[str]) -> Ints:
    """The layer of each row, as a place in `layers`; -1 outside of them."""
    places = {path: n for n, path in enumerate(layers)}

    def place(path: str) -> int:
        while path:
            if path in places:
                return places[path]
            path = path.rpartition(".")[0]
        return -1

    by_path = np.array([place(path) for path in graph.paths] or [-1], dtype=np.int64)
    return by_path[graph.path] if len(graph.op) else np.zeros(0, dtype=np.int64)


def _rows(rows: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for row in rows)
