"""Bytes that a traced step holds on one rank, and at its peak: storages row by row, weights, sums and states.

The trace says when each storage is made and given up. A gradient outlives the step; with several
micro-batches it is there from the first on, and each later one adds to it. Recomputation by layer gives up
what a layer has made when its forward pass ends, and makes it again before its backward pass.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from foretell.catalog.hosts import optimizer_of
from foretell.kernels.memory import HeldBytes, framework_bytes
from foretell.records import dataclass
from foretell.specs.arrays import Array, Ints, Mask
from foretell.specs.result import Leaf
from foretell.trace.graph import (
    FOREVER,
    PHASES,
    TracedGraph,
    TracedModel,
    TracedTensor,
    block_bytes,
    layer_of_rows,
)
from foretell.training.traced_rows import TracedJob, of_library

WORKSPACE_BYTES = 2 * 32.0 * 2**20
"""cuBLAS takes a workspace of 32 MiB for the stream of each of two threads, on Hopper and later."""
SMALL_WORKSPACE_BYTES = 2 * 8.125 * 2**20
"""The same on earlier chips."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """What a rank holds at the peak."""

    tree: Leaf
    """Part by part."""
    held: HeldBytes
    """In all."""


def trained_weights(model: TracedModel) -> tuple[float, int]:
    """Numbers of trained parameters, and how many tensors they are."""
    found = [t for t in model.of_kind("parameter") if t.trained]
    return float(sum(t.elements for t in found)), len(found)


def weight_bytes(model: TracedModel, job: TracedJob) -> float:
    """Bytes of a weight in the form that runs."""
    if job.form == "cast":
        return 2.0
    found = [t for t in model.of_kind("parameter") if t.trained]
    many = sum(t.elements for t in found)
    return sum(t.bytes for t in found) / many if many else 4.0


def parts_of(job: TracedJob, stage: int) -> float:
    """Ranks that share what a stage of ZeRO shares."""
    return float(job.plan.dp) if job.plan.zero >= stage else 1.0


def _live(model: TracedModel, job: TracedJob, graph: TracedGraph, *, later: bool) -> Array:
    """Bytes of storages at each row; `later`: without gradients, which an earlier micro-batch made."""
    parts = parts_of(job, 2)
    short = later or parts > 1.0
    if job.plan.recompute == "full":
        live = recomputation_bytes(graph, model.layers, later=short)[0]
    else:
        live = live_bytes(graph, later=short)
    live = live + temporary_bytes(graph)
    return live + live_gradient_bytes(graph) / parts if short and not later else live


def _kept(model: TracedModel, job: TracedJob, graph: TracedGraph) -> float:
    """Bytes that a micro-batch keeps between its forward and its backward pass."""
    back = np.flatnonzero(graph.phase == BACKWARD)
    if not len(back):
        return 0.0
    if job.plan.recompute == "full":
        live = recomputation_bytes(graph, model.layers, later=True)[0]
    else:
        live = live_bytes(graph, later=True)
    return float(live[back[0]])


def _gathered(model: TracedModel, job: TracedJob, size: Callable[[TracedTensor], float]) -> float:
    """Bytes of weights that ZeRO 3 has whole: outside of blocks, two blocks, and the gradients of one."""
    if parts_of(job, 3) == 1.0:
        return 0.0
    blocks = dict.fromkeys(model.layers, 0.0)
    outside = 0.0
    for tensor in model.of_kind("parameter"):
        own = next((path for path in blocks if tensor.name.startswith(f"{path}.")), None)
        if own is None:
            outside += size(tensor)
        else:
            blocks[own] += size(tensor)
    return outside + 3.0 * max(blocks.values(), default=0.0)


def rank_memory(
    model: TracedModel, job: TracedJob, graph: TracedGraph, name: str = "memory", in_flight: int = 1
) -> RankMemory:
    """What a rank holds at the peak of a step, with so many micro-batches between their passes."""
    narrow = job.form == "cast"
    graph = compiled_graph(graph) if job.compiled else graph

    def size(tensor: TracedTensor) -> float:
        wide = tensor.dtype == "fp32"
        return float(block_bytes(tensor.bytes / 2) if narrow and wide else tensor.bytes)

    weights = sum(map(size, model.of_kind("parameter")))
    learnt = sum(size(t) for t in model.of_kind("parameter") if t.trained)
    optimizer = optimizer_of(job.plan.optimizer)
    own = optimizer.state_bytes * trained_weights(model)[0] if optimizer.state_bytes else learnt
    held = {
        "weights": weights / parts_of(job, 3),
        "buffers": sum(map(size, model.of_kind("buffer"))) + sum(map(size, model.of_kind("input"))),
        "states": optimizer.states * own / parts_of(job, 1),
    }
    gathered = _gathered(model, job, size)
    base = sum(held.values()) + gathered
    gradients = float(graph.storage_bytes[graph.gradient].sum()) / parts_of(job, 2)
    live = _live(model, job, graph, later=False)
    if job.micro_batches > 1:
        later = _live(model, job, graph, later=True)
        live = np.concatenate([live, gradients + later])
    passes = float(live.max()) if len(live) else 0.0
    passes += (in_flight - 1) * _kept(model, job, graph)
    update = 0.0
    if job.update == "foreach" and job.plan.optimizer != "sgd":
        update = learnt
    if job.update == "loop":
        update = 3.0 * max((size(t) for t in model.of_kind("parameter") if t.trained), default=0.0)
    update = gradients + update / parts_of(job, 1)
    workspace = workspace_bytes(graph, job)
    peak = base + workspace + max(passes, update)
    held["gathered weights"] = gathered
    held["activations and gradients"] = max(passes, update)
    held["workspaces"] = workspace
    leaves = tuple(
        Leaf(name=part, value=value, unit="bytes", evidence="fitted")
        for part, value in held.items()
    )
    lost = 0.08 * max(passes, update) + 0.02 * peak
    context = float(framework_bytes(np.array([1.0 if job.plan.gpus > 1 else 0.0]))[0])
    tree = Leaf(name=name, value=peak, unit="bytes", evidence="fitted", children=leaves)
    found = HeldBytes(
        allocated_bytes=peak, reserved_bytes=peak + lost, peak_bytes=peak + lost + context
    )
    return RankMemory(tree=tree, held=found)


def workspace_bytes(graph: TracedGraph, job: TracedJob) -> float:
    """What cuBLAS holds through a step."""
    if not any(op.kind == "gemm" for op in graph.ops):
        return 0.0
    modern = job.system.chip.architecture in ("hopper", "blackwell", "blackwell-ultra", "rubin")
    return WORKSPACE_BYTES if modern else SMALL_WORKSPACE_BYTES


RECOMPUTE, BACKWARD = PHASES.index("recompute"), PHASES.index("backward")
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
    """Bytes of each row while it runs: operands that convolutions reorder, sequences that are gathered."""
    own = np.zeros(len(graph.ops))
    for number, op in enumerate(graph.ops):
        s = op.sizes or {}
        moves = op.kind == "conv" and not s["channels_last"] and s["groups"] == 1.0
        if moves and (s["taps"] > 1.0 or s["in_points"] != s["out_points"]):
            own[number] = op.read_bytes + op.write_bytes
        own[number] += s.get("gathered", 0.0)
    return np.asarray(own[graph.op] if len(graph.op) else np.zeros(1))


def live_bytes(graph: TracedGraph, *, later: bool = False) -> Array:
    """Bytes of storages alive while each row runs; `later`: without gradients that are added or shared."""
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
    """Bytes alive at each row where layers are computed again, and the rows that run twice."""
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
