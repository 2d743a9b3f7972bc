"""Pipeline parallelism of a traced module: its rows dealt to stages between repeated layers.

Layers are in the order in which they first run, and are dealt to stages of equal operations. What runs
before the first layer belongs to the first stage, what runs after the last to the last; backward rows
likewise. A stage receives what earlier ones made and it reads, and sends what later ones read.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foretell.errors import bad_input
from foretell.records import dataclass
from foretell.trace.graph import FOREVER, PHASES, TracedGraph, TracedModel, layer_of_rows

Ints = NDArray[np.int64]
BACKWARD = PHASES.index("backward")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedStage:
    """What one stage runs of a step."""

    model: TracedModel
    """The model with the parameters of the stage."""
    graph: TracedGraph
    """Its rows."""
    rows: Ints
    """These rows as places in the whole graph."""
    sent_bytes: float
    """What it sends to the next stage in a forward pass of one micro-batch."""


def pipeline_stages(model: TracedModel, graph: TracedGraph, pp: int) -> tuple[TracedStage, ...]:
    """The stages of a traced step; BadInput where it has fewer layers."""
    if pp == 1:
        rows = np.arange(len(graph.op))
        return (TracedStage(model=model, graph=graph, rows=rows, sent_bytes=0.0),)
    layer = layer_of_rows(graph, model.layers)
    many = len(np.unique(layer[layer >= 0]))
    if many < pp:
        message = f"{model.id} has {many} repeated layers to cut between"
        raise bad_input("plan.pp", pp, message, f"1 to {max(many, 1)}")
    if len(graph.weights) != len(graph.op):
        message = f"{model.id} was traced by an earlier version, without the parameters of each row"
        raise bad_input("plan.pp", pp, message, "1, or a new trace (foretell trace)")
    stage = _stage_of_rows(graph, layer, _stage_of_layers(graph, layer, pp))
    sent = _sent_bytes(graph, stage, pp)
    return tuple(_part(model, graph, stage, n, sent[n]) for n in range(pp))


def _stage_of_layers(graph: TracedGraph, layer: Ints, pp: int) -> Ints:
    """The stage of each layer, by the middle of its forward operations in the order of layers."""
    flops = np.array([op.flops for op in graph.ops])[graph.op]
    forward = (graph.phase == 0) & (layer >= 0)
    order = list(dict.fromkeys(layer[forward].tolist()))
    weight = np.array([max(float(flops[forward & (layer == n)].sum()), 1.0) for n in order])
    middle = (np.cumsum(weight) - 0.5 * weight) / weight.sum()
    found = np.minimum((middle * pp).astype(np.int64), pp - 1)
    least = np.arange(len(order)) - (len(order) - pp)  # every stage has a layer
    found = np.clip(found, np.maximum(least, 0), np.minimum(np.arange(len(order)), pp - 1))
    stages = np.zeros(int(layer.max()) + 1, dtype=np.int64)
    stages[order] = found
    return stages


def _stage_of_rows(graph: TracedGraph, layer: Ints, stages: Ints) -> Ints:
    """The stage of each row: a layer's, or that of the layers around it."""
    backward = graph.phase != 0
    inside = layer >= 0
    found = np.where(inside, stages[np.maximum(layer, 0)], -1)
    first = (
        int(np.argmax(graph.phase == BACKWARD)) if (graph.phase == BACKWARD).any() else len(layer)
    )
    now = 0
    for row in range(first):
        if found[row] < 0:
            found[row] = now
        now = max(now, int(found[row]))
    now = int(stages.max())
    for row in range(first, len(layer)):
        if found[row] < 0:
            found[row] = now
        elif backward[row]:
            now = int(found[row])
    return found


def _sent_bytes(graph: TracedGraph, stage: Ints, pp: int) -> list[float]:
    """Bytes that cross each boundary forward: what depends on parameters, read behind it."""
    data: set[int] = set()
    last = np.zeros(len(graph.storage_bytes), dtype=np.int64)
    for row, reads in enumerate(graph.reads):
        if graph.phase[row] == BACKWARD:
            continue
        if graph.weights[row] or data.intersection(reads):
            data.update(graph.writes[row])
        for number in reads:
            last[number] = max(last[number], stage[row])
    sent = [0.0] * pp
    for number in data:
        born = graph.born[number]
        if born < len(stage) and graph.phase[born] != BACKWARD:
            for n in range(int(stage[born]), int(last[number])):
                sent[n] += float(graph.storage_bytes[number])
    return sent


def _part(
    model: TracedModel, graph: TracedGraph, stage: Ints, own: int, sent_bytes: float
) -> TracedStage:
    """One stage: its rows, its parameters, and the storages that they read and write."""
    rows = np.flatnonzero(stage == own)
    used, ever = _used(graph, stage == own), _used(graph, stage >= 0)
    tensors = tuple(
        tensor
        for n, tensor in enumerate(model.tensors)
        if tensor.kind != "parameter" or n in used or (n not in ever and own == 0)
    )
    count = np.searchsorted(rows, np.arange(len(stage) + 1))
    first, last = dict[int, int](), dict[int, int]()
    for place, row in enumerate(rows):
        for number in (*graph.reads[row], *graph.writes[row]):
            first.setdefault(number, place)
            last[number] = place
    numbers = sorted(first)
    elsewhere = _elsewhere(graph, stage, own)
    shared = {model.tensors[n].bytes for n in used & _used(graph, stage != own)}
    born, died, gradient = [], [], graph.gradient.copy()
    for number in numbers:
        start, end = graph.born[number], graph.died[number]
        born.append(first[number])
        tied = number in elsewhere and graph.storage_bytes[number] in shared
        if tied and own == stage[min(start, len(stage) - 1)] and graph.phase[start] == BACKWARD:
            gradient[number] = True  # of a parameter that another stage has too, added there
            end = FOREVER
        if end == FOREVER:
            died.append(FOREVER)
        elif number in elsewhere or start >= len(stage):
            died.append(last[number] + 1)
        else:
            died.append(max(int(count[min(end, len(stage))]), last[number] + 1))
    places = {number: n for n, number in enumerate(numbers)}
    found = replace(
        graph,
        op=graph.op[rows],
        path=graph.path[rows],
        phase=graph.phase[rows],
        reads=_renumbered(graph.reads, rows, places),
        writes=_renumbered(graph.writes, rows, places),
        weights=(),
        storage_bytes=graph.storage_bytes[numbers],
        born=np.array(born, dtype=np.int64),
        died=np.array(died, dtype=np.int64),
        gradient=gradient[numbers],
    )
    return TracedStage(
        model=replace(model, tensors=tensors), graph=found, rows=rows, sent_bytes=sent_bytes
    )


def _used(graph: TracedGraph, rows: NDArray[np.bool_]) -> set[int]:
    """Parameters that some rows read."""
    return {weight for row in np.flatnonzero(rows) for weight in graph.weights[row]}


def _elsewhere(graph: TracedGraph, stage: Ints, own: int) -> set[int]:
    """Storages that rows of other stages read or write."""
    others = np.flatnonzero(stage != own)
    return {n for row in others for n in (*graph.reads[row], *graph.writes[row])}


def _renumbered(
    rows_of: Sequence[tuple[int, ...]], rows: Ints, places: dict[int, int]
) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(places[n] for n in rows_of[row]) for row in rows)
