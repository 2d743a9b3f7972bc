"""Seconds and bytes of one layer and one microbatch: the sum over its fourteen ops.

An op takes max(launch + FLOP/(efficiency peak), bytes/bandwidth) plus its exposed communication;
the launch cost sits on the compute side, so a memory-bound op hides it.
"""

import numpy as np

from foretell.lab.reference.comm import TierLinks, collective_s
from foretell.lab.reference.ops import DirectionWork, LayerBatch, ReferenceOp, layer_ops
from foretell.lab.reference.records import Floats, Quirks, Strategy, StudyChip, StudyModel
from foretell.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """What one layer holds; depends on (b, m1, m2) alone."""

    weight_bytes: Floats
    """Weights of one layer on one GPU."""
    stored_bytes: Floats
    """Activations of one layer and one microbatch kept for the backward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCost:
    """Times of one layer and one microbatch."""

    forward_s: Floats
    """Forward time."""
    backward_s: Floats
    """Backward time."""
    compute_s: Floats
    """Compute part of both directions, launches included."""
    memory_s: Floats
    """What memory time exceeds compute time by, op by op."""
    comm_s: Floats
    """Exposed tensor-parallel communication."""
    flop: Floats
    """FLOP as reported (quirk 13)."""
    hop_bytes: Floats
    """Message between pipeline stages: ln1's stored activations."""


def layer_bytes(
    model: StudyModel, strategy: Strategy, layers: LayerBatch, quirks: Quirks
) -> LayerBytes:
    """Weights and stored activations; t1, t2 and nb of the batch do not matter."""
    ops = layer_ops(model, strategy, layers, 1.0, quirks)
    return LayerBytes(
        weight_bytes=_summed([op.weight_bytes for op in ops], layers),
        stored_bytes=_summed([op.stored_bytes for op in ops], layers),
    )


def layer_cost(
    model: StudyModel,
    strategy: Strategy,
    chip: StudyChip,
    layers: LayerBatch,
    links: TierLinks,
) -> LayerCost:
    """Times of every layer of the batch on one chip."""
    quirks = links.quirks
    ratio = chip.matrix_flop_per_s / chip.vector_flop_per_s
    ops = layer_ops(model, strategy, layers, ratio, quirks)
    seconds: dict[bool, Floats] = {}
    compute, memory, comm, flop = (np.zeros(layers.b.shape) for _ in range(4))
    for is_forward in (True, False):
        total = np.zeros(layers.b.shape)
        for op in ops:
            work = op.forward if is_forward else op.backward
            comp_s, mem_s, comm_s = op_times(op, work, chip, layers, links)
            total += np.maximum(comp_s, mem_s) + comm_s
            compute += comp_s
            memory += np.maximum(mem_s - comp_s, 0.0)
            comm += comm_s
            flop += work.flop
        seconds[is_forward] = total
    if not quirks.scaled_vector_flops:
        flop = flop - _summed([op.scaled_flop for op in ops], layers)
    ln1 = next(op for op in ops if op.name == "ln1")
    return LayerCost(
        forward_s=seconds[True],
        backward_s=seconds[False],
        compute_s=compute,
        memory_s=memory,
        comm_s=comm,
        flop=flop,
        hop_bytes=np.asarray(ln1.stored_bytes, dtype=np.float64),
    )


def _summed(values: list[Floats | float], layers: LayerBatch) -> Floats:
    """Sum over ops; what is the same for all layers broadcasts."""
    total = np.zeros(layers.b.shape)
    for value in values:
        total += value
    return total


def op_times(
    op: ReferenceOp, work: DirectionWork, chip: StudyChip, layers: LayerBatch, links: TierLinks
) -> tuple[Floats, Floats, Floats]:
    """Compute, memory and exposed communication seconds of one op in one direction.

    SUMMA sends nb panels: with s the seconds of one panel's collectives, the first panel is exposed
    and of all nb panels whatever exceeds the op: s + max(nb s - max(compute, memory), 0).
    """
    peak = chip.matrix_flop_per_s if op.matrix else chip.vector_flop_per_s
    comp_s = chip.launch_s + work.flop / (chip.compute_efficiency * peak)
    mem_s = work.moved_bytes / chip.hbm_bytes_per_s
    comm_s = np.zeros(layers.b.shape)
    for comm in work.comms:
        group, in_domain = (layers.m1, layers.t1) if comm.axis == 1 else (layers.m2, layers.t2)
        volume = comm.volume_bytes / layers.nb if op.panels else comm.volume_bytes
        comm_s += collective_s(links, comm.kind, volume, group, in_domain)
    if op.panels:
        comm_s = comm_s + np.maximum(layers.nb * comm_s - np.maximum(comp_s, mem_s), 0.0)
    return comp_s, mem_s, comm_s
