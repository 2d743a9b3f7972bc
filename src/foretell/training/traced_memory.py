"""Bytes that a traced step holds: the storages of its trace, row by row, beside weights, sums and states.

The trace says when each storage is made and given up. A gradient outlives the step; with several
micro-batches it is there from the first on, and each later one adds to it. Recomputation by layer gives up
what a layer has made when its forward pass ends, and makes it again before its backward pass.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foretell.specs.arrays import Array, Ints, Mask
from foretell.trace.graph import FOREVER, LOSS, PHASES, TracedGraph, layer_of_rows

RECOMPUTE, BACKWARD = PHASES.index("recompute"), PHASES.index("backward")
LIBRARY = ("gemm", "conv", "attention", "rnn", "sort", "scatter", "fft", "solve", "sync", "unknown")
"""Families that a compiler leaves to kernels of their own: it joins what runs between them."""


def of_library(graph: TracedGraph) -> Mask:
    """Whether each row is an operation that a compiler joins with no other."""
    found = np.isin([op.kind for op in graph.ops] or ["view"], LIBRARY)
    return np.asarray(
        found[graph.op] | outside(graph) if len(graph.op) else np.zeros(0, dtype=bool)
    )


def outside(graph: TracedGraph) -> Mask:
    """Whether each row is of a loss outside of the module, which is not compiled with it."""
    return np.asarray((np.array(graph.paths or ("",)) == LOSS)[graph.path])


JOINED = ("pointwise", "copy", "fill")
"""Families whose results a joined kernel keeps to itself."""
MADE_AGAIN = ("pointwise", "copy", "norm")
"""Families whose results a compiler makes again in the backward pass from what is there anyway."""


def compiled_graph(graph: TracedGraph) -> TracedGraph:
    """A graph with the storages that a compiler keeps: what one joined kernel makes and reads again is never
    there, and what is cheap to make again from what is kept anyway is, unless a library's kernel reads it."""
    rows, apart = len(graph.op), of_library(graph)
    if not rows:
        return graph
    ends, last, last_forward = _ends(graph, later=False), graph.born.copy(), graph.born.copy()
    backward = graph.phase == BACKWARD
    kept: set[int] = set()
    for row, reads in enumerate(graph.reads):
        last[list(reads)] = row
        if not backward[row]:
            last_forward[list(reads)] = row
        elif apart[row]:
            kept.update(reads)
    run = np.cumsum(apart)
    kinds = np.array([op.kind for op in graph.ops])[graph.op]
    made, read = np.minimum(graph.born, rows - 1), np.minimum(last, rows - 1)
    inside = (graph.born < rows) & ~apart[made]
    joined = inside & (run[made] == run[read]) & (graph.died != FOREVER) & (last > graph.born)
    joined &= np.isin(kinds[made], JOINED)
    first = int(np.argmax(backward)) if backward.any() else rows
    again = (
        inside & ~joined & (graph.born < first) & (ends > first) & np.isin(kinds[made], MADE_AGAIN)
    )
    died = graph.died.copy()
    for number in set(np.flatnonzero(again).tolist()) - kept:
        row = graph.born[number]
        least = min((ends[n] for n in graph.reads[row] if n != number), default=0)
        if least >= ends[number] and "dropout" not in graph.ops[graph.op[row]].name:
            died[number] = last_forward[number] + 1
    return replace(graph, died=died, storage_bytes=np.where(joined, 0.0, graph.storage_bytes))


def temporary_bytes(graph: TracedGraph) -> Array:
    """Bytes that each row takes while it runs: convolutions put channels last, in a copy of all operands;
    ranks that share a sequence gather it for a product."""
    own = np.zeros(len(graph.ops))
    for number, op in enumerate(graph.ops):
        s = op.sizes or {}
        moves = op.kind == "conv" and not s["channels_last"] and s["groups"] == 1.0
        if moves and (s["taps"] > 1.0 or s["in_points"] != s["out_points"]):
            own[number] = op.read_bytes + op.write_bytes
        own[number] += s.get("gathered", 0.0)
    return np.asarray(own[graph.op] if len(graph.op) else np.zeros(1))


def live_bytes(graph: TracedGraph, *, later: bool = False) -> Array:
    """Bytes of storages alive while each row runs; `later`: without gradients once they are made, as where a
    micro-batch adds them to those of the ones before, or ranks share them."""
    return running(graph.born, _ends(graph, later=later), graph.storage_bytes, len(graph.op))


def live_gradient_bytes(graph: TracedGraph) -> Array:
    """Bytes of the gradients that have been made at each row."""
    own, rows = graph.gradient, len(graph.op)
    made = graph.born[own] + 2
    return running(made, np.full(len(made), rows + 1), graph.storage_bytes[own], rows)


def _ends(graph: TracedGraph, *, later: bool) -> Ints:
    """The row before which each storage is gone."""
    ends = np.where(graph.died == FOREVER, len(graph.op) + 1, graph.died)
    if later:
        ends = np.where(graph.gradient, graph.born + 2, ends)
    return np.asarray(ends)


def running(born: Ints, died: Ints, size: Array, rows: int) -> Array:
    """Sum of what is alive at each row."""
    change = np.zeros(rows + 3)
    np.add.at(change, np.minimum(born, rows), size)
    np.add.at(change, np.minimum(died, rows + 2), -size)
    return np.asarray(np.cumsum(change)[: max(rows, 1)])


def recomputation_bytes(
    graph: TracedGraph, layers: Sequence[str], *, later: bool = False
) -> tuple[Array, Ints]:
    """Bytes alive at each row where every layer is computed again, and the rows that run twice; `later` as of
    `live_bytes`."""
    layer = layer_of_rows(graph, layers)
    forward = graph.phase != BACKWARD
    rows = len(graph.op)
    born, died = graph.born.copy(), _ends(graph, later=later)
    size = graph.storage_bytes
    extra: list[tuple[int, int, float]] = []
    crossing = _read_outside(graph, layer, forward)
    twice = np.zeros(rows, dtype=bool)
    for n in range(len(layers)):
        if (graph.phase[layer == n] == RECOMPUTE).any():  # it does so by itself
            continue
        own = np.flatnonzero((layer == n) & forward)
        back = np.flatnonzero((layer == n) & ~forward)
        if not len(own) or not len(back):
            continue
        end, start = int(own[-1]) + 1, int(back[0])
        twice[own] = True
        kept = (born >= own[0]) & (born < end) & (died > start) & ~crossing
        for number in np.flatnonzero(kept):
            extra.append((start, int(died[number]), float(size[number])))
            died[number] = end
    live = running(born, died, size, rows)
    if extra:
        again = np.array([(a, b) for a, b, _ in extra], dtype=np.int64)
        live = live + running(again[:, 0], again[:, 1], np.array([c for *_, c in extra]), rows)
    return live, np.flatnonzero(twice)


def _read_outside(graph: TracedGraph, layer: Ints, forward: Mask) -> Mask:
    """Storages that another layer's forward pass reads: inputs of layers, which are kept."""
    made = np.full(len(graph.born), -2, dtype=np.int64)
    inside = graph.born < len(layer)
    made[inside] = layer[graph.born[inside]]
    found = np.zeros(len(graph.born), dtype=bool)
    for row in np.flatnonzero(forward):
        for number in graph.reads[row]:
            if made[number] != layer[row]:
                found[number] = True
    return found
