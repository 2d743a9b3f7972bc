"""Tensor parallelism of a traced module: maps with weights that are cut by columns, then by rows.

The graph says what reads the result of each map. It is cut by its outputs where all that reads them, up to
the next maps, works on every head or channel by itself and nothing leaves the layer; those next maps are cut
by their inputs, and their results summed over the ranks. Attention and feed-forward parts are found so,
whatever they are called. Tables of words and the map to scores are cut by words, the loss with them.

                 input of columns, forward / backward    result of rows, forward / backward
    without sp   nothing / all-reduce                    all-reduce / nothing
    with sp      all-gather / reduce-scatter             reduce-scatter / all-gather

What is left stays whole on every rank; with sp rows outside of cut regions have their share of the tokens.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Literal

import numpy as np

from foretell.errors import bad_input
from foretell.records import dataclass
from foretell.trace.graph import TracedGraph, TracedModel, TracedOp
from foretell.trace.regions import Flow, LinearMap, MapCuts, left_whole

MOST_WHOLE = 0.5
"""Share of the operations of maps that may stay whole; a plan with more of them is refused."""
BETWEEN_TOKENS = ("attention", "conv", "fft", "rnn", "scan", "sort")
"""Families that a rank with its share of the tokens cannot run by itself: they stay whole."""
Kind = Literal["all-reduce", "all-gather", "reduce-scatter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedExchange:
    """One message among the ranks that share a layer."""

    row: int
    """The row behind which it runs."""
    kind: Kind
    """What is exchanged."""
    bytes: float
    """Bytes of the whole tensor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankShare:
    """A traced step on one of several ranks that share its layers."""

    model: TracedModel
    """The model with the parameters of a rank."""
    graph: TracedGraph
    """Its rows, as many as before, with the sizes of a rank."""
    exchanges: tuple[TracedExchange, ...]
    """Messages of a micro-batch."""
    whole_share: float
    """Share of the maps' operations that every rank does in full."""
    notes: tuple[str, ...]
    """Which maps stay whole, and why."""


@lru_cache(maxsize=8)
def tensor_cut(model: TracedModel, form: str, tp: int, *, sp: bool) -> RankShare:
    """A traced step on one of `tp` ranks; BadInput where most of its maps cannot be cut."""
    graph = model.graphs[form]
    if len(graph.weights) != len(graph.op):
        message = f"{model.id} was traced by an earlier version, without the parameters of each row"
        raise bad_input("plan.tp", tp, message, "1, or a new trace (foretell trace)")
    flow = Flow(model, graph)
    cuts = MapCuts(flow, tp)
    share, notes = left_whole(flow, cuts)
    if cuts.heads_left:
        message = f"does not divide the {cuts.heads_left} heads of {model.id}'s attention"
        raise bad_input("plan.tp", tp, message, f"a divisor of {cuts.heads_left}")
    if share > MOST_WHOLE or not flow.maps:
        message = f"{share:.0%} of the operations of {model.id}'s maps cannot be cut in {tp}"
        message += f" ({'; '.join(notes[:3])})" if notes else " (it has none)"
        raise bad_input("plan.tp", tp, message, "1, pp or dp")
    walk = _Walk(flow, cuts, tp, sp=sp)
    parts = cuts.parameters()
    tensors = tuple(
        replace(t, shape=(max(t.elements // parts.get(n, 1), 1),)) if n in parts else t
        for n, t in enumerate(model.tensors)
    )
    return RankShare(
        model=replace(model, tensors=tensors),
        graph=walk.graph(),
        exchanges=tuple(walk.exchanges),
        whole_share=share,
        notes=notes,
    )


class _Walk:
    """All rows of a step with the sizes of one rank, and the messages between them."""

    def __init__(self, flow: Flow, cuts: MapCuts, tp: int, *, sp: bool) -> None:
        self.flow, self.cuts, self.tp, self.sp = flow, cuts, tp, sp
        graph = flow.graph
        self.share = np.ones(len(graph.storage_bytes))
        self.hot = dict(cuts.inside)
        self.layer_of = {n: int(flow.layer[graph.born[n]]) for n in self.hot}
        self.exchanges: list[TracedExchange] = []
        self.made: dict[tuple[int, str, int], int] = {}
        self.ops: list[TracedOp] = []
        self.op = np.zeros(len(graph.op), dtype=np.int64)
        self.data, self.partial = set[int](), set[int]()
        self.sums: dict[tuple[int, int], tuple[int, float]] = {}
        self.gathered: set[tuple[int, int]] = set()
        self.kind_of = {
            flow.maps[row].weight: (kind, parts, flow.maps[row])
            for kind, rows in (("row", cuts.rows), ("column", cuts.columns))
            for row, parts in rows.items()
        }
        self.into = {  # parameter -> the storage that its map reads
            one.weight: flow.root(graph.reads[one.row][0])
            for one in flow.maps.values()
            if one.row in cuts.columns
        }
        self.widths = {
            (graph.path[one.row], frozenset((one.inputs, one.outputs))): parts
            for _, parts, one in self.kind_of.values()
        }
        for row in range(len(graph.op)):
            self._row(row)
        for row, size in self.sums.values():
            self._send(row, "reduce-scatter" if sp else "all-reduce", size)

    def graph(self) -> TracedGraph:
        """The graph of a rank."""
        graph = self.flow.graph
        return replace(
            graph, ops=tuple(self.ops), op=self.op, storage_bytes=graph.storage_bytes * self.share
        )

    def _send(self, row: int, kind: Kind, size: float) -> None:
        self.exchanges.append(TracedExchange(row=row, kind=kind, bytes=size))

    def _row(self, row: int) -> None:
        """One row: how it is cut, what that makes of its results, and what is sent."""
        flow, graph = self.flow, self.flow.graph
        op, reads = flow.ops[row], graph.reads[row]
        weighs = bool(flow.weights[row]) and op.kind not in ("view", "copy")
        if weighs or self.data.intersection(reads):
            self.data.update(graph.writes[row])
        one = flow.maps.get(row)
        if one is not None and (row in self.cuts.columns or row in self.cuts.rows):
            role, parts = self._forward(row, one, op)
        elif op.kind == "gemm" and flow.backward[row] and self._cut_weight(row) is not None:
            role, parts = self._to_input(row, op)
        else:
            role, parts = self._other(row, op)
        key = int(graph.op[row]), role, parts
        if key not in self.made:
            self.made[key] = len(self.ops)
            self.ops.append(cut_op(op, role, parts, sp=self.sp))
        self.op[row] = self.made[key]
        for number in graph.writes[row]:
            made = flow.ops[graph.born[number]].kind if graph.born[number] < row else ""
            if graph.born[number] == row or made in ("view", "fill"):
                share = self._share(number, role, parts)
                self.share[number] = min(self.share[number], share)

    def _share(self, number: int, role: str, parts: int) -> float:
        """What a rank has of a result."""
        if role in ("column", "inside", "to-row", "to-weight", "to-table"):
            return 1.0 / parts
        if role == "tokens" and number not in self.partial and not self.flow.graph.gradient[number]:
            return 1.0 / parts
        return 1.0

    def _cut_weight(self, row: int) -> int | None:
        found = (w for w in self.flow.weights[row] if w in self.kind_of)
        return next(found, None)

    def _forward(self, row: int, one: LinearMap, op: TracedOp) -> tuple[str, int]:
        """A map that is cut."""
        s = op.sizes or {}
        width = op.write_bytes / max(s["m"] * s["n"] * s["batch"], 1.0)
        if row in self.cuts.columns:
            place = int(self.flow.layer[row]), self.into[one.weight]
            if self.sp and place not in self.gathered:
                self.gathered.add(place)
                self._send(row, "all-gather", s["m"] * s["k"] * s["batch"] * width)
            if row in self.cuts.heads:  # the largest score, the sum and the score of the label
                for _ in range(3):
                    self._send(row, "all-reduce", 4.0 * s["m"])
            return "column", self.cuts.columns[row]
        self._send(row, "reduce-scatter" if self.sp else "all-reduce", op.write_bytes)
        return "row", self.cuts.rows[row]

    def _to_input(self, row: int, op: TracedOp) -> tuple[str, int]:
        """The gradient of the input of a map that is cut."""
        weight = self._cut_weight(row)
        assert weight is not None
        kind, parts, _ = self.kind_of[weight]
        graph = self.flow.graph
        if kind == "column":
            place = int(self.flow.layer[row]), self.into[weight]
            self.sums[place] = row, op.write_bytes
            self.partial.update(graph.writes[row])
            return "to-column", parts
        if self.sp:
            s = op.sizes or {}
            size = op.write_bytes / max(s["n"], 1.0) * s["k"]
            self._send(row, "all-gather", size)
        self._mark(row, parts)
        return "to-row", parts

    def _mark(self, row: int, parts: int) -> None:
        for number in self.flow.graph.writes[row]:
            self.hot[number] = max(parts, self.hot.get(number, 1))
            self.layer_of[number] = int(self.flow.layer[row])

    def _other(self, row: int, op: TracedOp) -> tuple[str, int]:
        """A row without a cut map: inside of a region, on a share of the tokens, or whole."""
        flow, graph = self.flow, self.flow.graph
        layer = int(flow.layer[row])
        gradient = any(graph.gradient[n] for n in graph.writes[row])
        found = [
            self.hot[n]
            for n in graph.reads[row]
            if n in self.hot and (gradient or self.layer_of[n] == layer)
        ]
        if row in self.cuts.tables or op.name == "aten.embedding_dense_backward":
            return self._table(row, op)
        if found and not (op.kind == "gemm" and flow.weights[row]):
            self._mark(row, max(found))
            sizes = op.sizes or {}
            if op.kind == "gemm":
                place = graph.path[row], frozenset((int(sizes["m"]), int(sizes["n"])))
                if place in self.widths:
                    return "to-weight", self.widths[place]
            return "inside", max(found)
        reads = graph.reads[row]
        if reads and self.partial.issuperset(reads):
            self.partial.update(graph.writes[row])
            return "whole", 1
        shared = self.sp and op.kind not in BETWEEN_TOKENS
        if shared and self.data.intersection(graph.writes[row]):
            return "tokens", self.tp
        return "whole", 1

    def _table(self, row: int, op: TracedOp) -> tuple[str, int]:
        """A table of words, and its gradient."""
        if row in self.cuts.tables:
            self._send(row, "reduce-scatter" if self.sp else "all-reduce", op.write_bytes)
            return "table", self.tp
        if not self.cuts.tables:
            return "whole", 1
        self._mark(row, self.tp)
        return "to-table", self.tp


SCALED = ("heads", "kv_heads", "elements", "rows", "columns", "uneven", "indices", "added", "planes",
          "inputs", "outputs", "groups")  # fmt: skip
"""Sizes of kernels that are in proportion to channels, heads or tokens."""
PRODUCTS = {
    "column": "n", "to-row": "n", "row": "k", "to-column": "k", "to-weight": "mn", "inside": "batch",
    "tokens": "m",
}  # fmt: skip
"""Role of a row -> which size of a product is cut; the larger one of two."""


def cut_op(op: TracedOp, role: str, parts: int, *, sp: bool) -> TracedOp:
    """An operation with the sizes of one rank."""
    if role == "whole" or parts == 1 or op.kind in ("view", "sync"):
        return op
    s = dict(op.sizes or {})
    if op.kind != "gemm":
        writes = op.write_bytes if role == "table" else op.write_bytes / parts
        for name in SCALED:
            if name in s and not (role == "tokens" and name in ("heads", "kv_heads")):
                s[name] = max(s[name] / parts, 1.0)
        if op.kind == "attention" and role == "tokens":
            s["batch"] /= parts
        reads = op.read_bytes if role == "to-table" else op.read_bytes / parts
        return replace(op, read_bytes=reads, write_bytes=writes, flops=op.flops / parts, sizes=s)
    cut = PRODUCTS[role]
    if cut == "mn":
        cut = "m" if s["m"] > s["n"] else "n"
    if cut == "batch" and (s["batch"] < parts or s["batch"] % parts):
        cut = max("mnk", key=lambda name: s[name])
    if cut == "m" and s["m"] < parts:
        return op
    before = dict(s)
    s[cut] /= parts
    read, written = _moved(before), _moved(s)
    if sp and role in ("column", "to-row"):  # the gathered input of its whole tokens
        s["gathered"] = op.read_bytes * before["m"] * before["k"] * before["batch"] / read[0]
    return replace(
        op,
        read_bytes=op.read_bytes * written[0] / read[0],
        write_bytes=op.write_bytes * written[1] / read[1],
        flops=op.flops / parts,
        sizes=s,
    )


def _moved(s: Mapping[str, float]) -> tuple[float, float]:
    """Numbers that a product reads and writes."""
    return s["batch"] * s["k"] * (s["m"] + s["n"]), s["batch"] * s["m"] * s["n"]
