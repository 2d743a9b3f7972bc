"""Bytes that one rank holds at the peak of a traced step: weights, states, gradients, what passes keep."""

from collections.abc import Callable

import numpy as np

from foretell.catalog.optimizers import optimizer_of
from foretell.kernels.memory import HeldBytes, framework_bytes
from foretell.records import dataclass
from foretell.specs.arrays import Array
from foretell.specs.result import Leaf
from foretell.trace.graph import TracedGraph, TracedModel, TracedTensor, block_bytes
from foretell.training.traced_memory import (
    BACKWARD,
    compiled_graph,
    live_bytes,
    live_gradient_bytes,
    recomputation_bytes,
    temporary_bytes,
)
from foretell.training.traced_rows import TracedJob

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
    """Bytes of storages at each row; `later`: without gradients that are there from the first micro-batch on.
    Ranks that share gradients keep their parts of those that are made."""
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
    """Bytes of weights that are whole while they run where ZeRO 3 shares them: what is outside of the
    repeated blocks, one block and the next, and the gradients of one."""
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
