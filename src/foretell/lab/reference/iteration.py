"""Iteration time and memory of a batch of plans: layers once each, then gathered.

An op takes max(launch + FLOP/(efficiency peak), bytes/bandwidth) plus its exposed communication; the launch
cost sits on the compute side, so a memory-bound op hides it. A layer is the sum over its fourteen ops. T0 =
(t_f + t_b) mu nl + t_pp; bubble = (pp - 1) T0/mu; t = T0 + bubble + t_dp (plain 1F1B).
"""

from dataclasses import fields

import numpy as np

from foretell.lab.reference.ops import DirectionWork, LayerBatch, ReferenceOp, layer_ops
from foretell.lab.reference.records import (
    WIRED_DOMAIN,
    Floats,
    Ints,
    Kind,
    Quirks,
    Strategy,
    StudyChip,
    StudyModel,
    with_quirks,
)
from foretell.lab.reference.space import ReferencePlans, ReferenceSpace
from foretell.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TierLinks:
    """The two tiers as collectives see them."""

    chip: StudyChip
    """The GPU whose links these are."""
    fast_domain: int
    """GPUs of one fast domain."""
    quirks: Quirks
    """Which published quirks hold; (3) and (6) concern links."""

    @property
    def fast_bytes_per_s(self) -> float:
        """NVLink rate of one GPU after the link efficiency."""
        return self.chip.fast_bytes_per_s * self.chip.link_efficiency

    @property
    def slow_bytes_per_s(self) -> float:
        """InfiniBand rate of one GPU after the link efficiency."""
        return self.chip.slow_bytes_per_s * self.chip.link_efficiency

    @property
    def fast_latency_s(self) -> float:
        """Latency of one hop inside the domain."""
        return self.chip.fast_latency_s

    @property
    def slow_latency_s(self) -> float:
        """Latency of one hop between domains."""
        return self.chip.slow_latency_s


def links_of(chip: StudyChip, fast_domain: int, quirks: Quirks) -> TierLinks:
    """The chip's tiers in domains of so many GPUs."""
    return TierLinks(chip=chip, fast_domain=fast_domain, quirks=quirks)


def collective_s(
    links: TierLinks, kind: Kind, volume_bytes: Floats, group: Ints, in_domain: Ints
) -> Floats:
    """Seconds of a collective; zero for a group of one or no volume.

    t = 1: slow latency (g-1) + cV/slow. nodes = 1: fast latency (g-1) + cV/fast. Mixed: F max(cV/(t
    nics slow), cV/fast) + slow latency (nodes-1) + fast latency (g-nodes): t rings run side by
    side, each with its own NIC. F = 2 for all-reduce, which the published code forgets within one
    tier (quirk 3). Bound: never below cV divided by the faster of the rates used.
    """
    nodes = group // in_domain
    moved = volume_bytes * ((group - 1) / group) if kind in _RING else volume_bytes
    factor = 2.0 if kind == "all_reduce" else 1.0
    single = 1.0 if links.quirks.single_tier_all_reduce else factor
    fast_rate = _fast_rate(links, in_domain)
    slow = links.slow_latency_s * (group - 1) + single * moved / links.slow_bytes_per_s
    fast = links.fast_latency_s * (group - 1) + single * moved / fast_rate
    rings = links.chip.nics_per_gpu * in_domain * links.slow_bytes_per_s
    mixed = (
        factor * np.maximum(moved / rings, moved / fast_rate)
        + links.slow_latency_s * (nodes - 1)
        + links.fast_latency_s * (group - nodes)
    )
    seconds = np.where(in_domain == 1, slow, np.where(nodes == 1, fast, mixed))
    return np.where((group == 1) | (volume_bytes == 0), 0.0, seconds)


def stage_hop_s(links: TierLinks, volume_bytes: Floats, stages: Ints, in_domain: Ints) -> Floats:
    """Mean seconds of one hop between neighbouring stages, `in_domain` stages to a fast domain.

    One stage to a domain: a slow hop. Otherwise slow = pp/s - 1 hops of pp - 1 cross domains, which
    the published code charges nothing for (quirk 2), and the rest are fast.
    """
    slow_hop = links.slow_latency_s + volume_bytes / links.slow_bytes_per_s
    pair = np.minimum(in_domain, 2)
    fast_hop = links.fast_latency_s + volume_bytes / _fast_rate(links, pair)
    hops = np.maximum(stages - 1, 1)
    slow_hops = stages // in_domain - 1
    mean = (stages - 1 - slow_hops) / hops * fast_hop
    if not links.quirks.free_slow_p2p:
        mean = mean + slow_hops / hops * slow_hop
    seconds = np.where(in_domain == 1, slow_hop, mean)
    return np.where((stages == 1) | (volume_bytes == 0), 0.0, seconds)


_RING: frozenset[Kind] = frozenset(("all_gather", "reduce_scatter", "all_reduce"))


def _fast_rate(links: TierLinks, in_domain: Ints) -> Floats:
    """NVLink rate of one member among `in_domain` of them; constant as published (quirk 6)."""
    if links.quirks.constant_nvlink or links.fast_domain > WIRED_DOMAIN:
        return np.full(in_domain.shape, links.fast_bytes_per_s)
    wired = np.maximum(in_domain - 1, 1) / max(links.fast_domain - 1, 1)
    return links.fast_bytes_per_s * np.minimum(wired, 1.0)


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
    model: StudyModel, strategy: Strategy, layers: LayerBatch, links: TierLinks
) -> LayerCost:
    """Times of every layer of the batch on one chip."""
    quirks, chip = links.quirks, links.chip
    ratio = chip.matrix_flop_per_s / chip.vector_flop_per_s
    ops = layer_ops(model, strategy, layers, ratio, quirks)
    seconds: dict[bool, Floats] = {}
    compute, memory, comm, flop = (np.zeros(layers.b.shape) for _ in range(4))
    for is_forward in (True, False):
        total = np.zeros(layers.b.shape)
        for op in ops:
            work = op.forward if is_forward else op.backward
            comp_s, mem_s, comm_s = op_times(op, work, layers, links)
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
    op: ReferenceOp, work: DirectionWork, layers: LayerBatch, links: TierLinks
) -> tuple[Floats, Floats, Floats]:
    """Compute, memory and exposed communication seconds of one op in one direction.

    SUMMA sends nb panels: with s the seconds of one panel's collectives, the first panel is exposed
    and of all nb panels whatever exceeds the op: s + max(nb s - max(compute, memory), 0).
    """
    chip = links.chip
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceQuestion:
    """What one search is about, apart from its GPU counts."""

    model: StudyModel
    """The transformer."""
    strategy: Strategy
    """How tensors are split."""
    chip: StudyChip
    """The GPU and its links."""
    fast_domain: int
    """GPUs of one fast domain."""
    global_batch: int
    """Samples of one iteration."""
    quirks: Quirks
    """Which published quirks hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceMemory:
    """Bytes on one GPU."""

    weight_bytes: Floats
    """Weights; gradients are as large."""
    optimizer_bytes: Floats
    """fp32 master copy and two moments, sharded over the replicas (ZeRO-1)."""
    activation_bytes: Floats
    """Stored activations of min(pp, mu) microbatches in flight."""

    @property
    def total_bytes(self) -> Floats:
        """Weights, gradients, optimizer and activations; nothing else is counted."""
        return self.weight_bytes * 2 + self.optimizer_bytes + self.activation_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds of one iteration; the parts add up to `total_s`."""

    total_s: Floats
    """Time of the iteration."""
    compute_s: Floats
    """Compute, launches included."""
    memory_s: Floats
    """What memory time exceeds compute time by."""
    tensor_comm_s: Floats
    """Exposed tensor-parallel communication."""
    data_comm_s: Floats
    """Exposed data-parallel communication."""
    stage_comm_s: Floats
    """Pipeline messages."""
    bubble_s: Floats
    """Pipeline bubble."""
    flop: Floats
    """FLOP of one GPU as reported."""


def memory_of(
    question: ReferenceQuestion, plans: ReferencePlans | ReferenceSpace
) -> ReferenceMemory:
    """Memory of plans or bases: wts = Wt nl, optimizer 6 wts/dp (/(dp m2) in seqp), acts nl min(pp, mu)."""
    first, owner = distinct(plans.b, plans.m1, plans.m2)
    b, m1, m2 = plans.b[first], plans.m1[first], plans.m2[first]
    one = np.ones_like(b)
    shapes = LayerBatch(b=b, m1=m1, m2=m2, t1=one, t2=one, nb=one)
    held = layer_bytes(question.model, question.strategy, shapes, question.quirks)
    layers = question.model.layers // plans.pp
    in_flight = np.minimum(plans.pp, _microbatches(question, plans))
    weights = held.weight_bytes[owner] * layers
    replicas = plans.dp * plans.m2 if question.strategy == "2d-seqp" else plans.dp
    return ReferenceMemory(
        weight_bytes=weights,
        optimizer_bytes=6 * weights / replicas,
        activation_bytes=held.stored_bytes[owner] * layers * in_flight,
    )


def times_of(question: ReferenceQuestion, plans: ReferencePlans, memory: ReferenceMemory) -> Times:
    """Times of every plan; each distinct layer (b, m1, m2, t1, t2, nb) is evaluated once."""
    model, quirks = question.model, question.quirks
    chip = with_quirks(question.chip, quirks)
    links = links_of(chip, question.fast_domain, quirks)
    first, owner = distinct(plans.b, plans.m1, plans.m2, plans.t1, plans.t2, plans.nb)
    columns = {field.name: getattr(plans, field.name)[first] for field in fields(LayerBatch)}
    cost = layer_cost(model, question.strategy, LayerBatch(**columns), links)
    layers = model.layers // plans.pp
    microbatches = _microbatches(question, plans)
    weight_bytes = memory.weight_bytes / layers
    data_s = _data_comm_s(question, plans, links, cost, owner, weight_bytes)
    hop_s = stage_hop_s(links, cost.hop_bytes[owner], plans.pp, plans.nv_pp)
    stage_s = 2 * microbatches * hop_s
    runs = microbatches * layers
    busy_s = (cost.forward_s + cost.backward_s)[owner] * runs + stage_s
    bubble_s = (plans.pp - 1) * busy_s / microbatches
    return Times(
        total_s=busy_s + bubble_s + data_s,
        compute_s=runs * cost.compute_s[owner],
        memory_s=runs * cost.memory_s[owner],
        tensor_comm_s=runs * cost.comm_s[owner],
        data_comm_s=data_s,
        stage_comm_s=stage_s,
        bubble_s=bubble_s,
        flop=runs * cost.flop[owner],
    )


def _data_comm_s(
    question: ReferenceQuestion,
    plans: ReferencePlans,
    links: TierLinks,
    cost: LayerCost,
    owner: Ints,
    weight_bytes: Floats,
) -> Floats:
    """First all-gather and last reduce-scatter exposed; the others overlap one layer of one
    microbatch.

    The group is dp, or dp m2 in seqp, whose weights are replicated over m2.
    """
    group, in_domain = plans.dp, plans.nv_dp
    if question.strategy == "2d-seqp":
        group, in_domain = group * plans.m2, in_domain * plans.t2
    one_s = collective_s(links, "all_gather", weight_bytes, group, in_domain)
    others = question.model.layers // plans.pp - 1
    gathers_s = one_s + others * np.maximum(one_s - cost.forward_s[owner], 0.0)
    scatters_s = one_s + others * np.maximum(one_s - cost.backward_s[owner], 0.0)
    return gathers_s + scatters_s


def _microbatches(question: ReferenceQuestion, plans: ReferencePlans | ReferenceSpace) -> Ints:
    """mu = floor(G/(dp b))."""
    return question.global_batch // (plans.dp * plans.b)


def distinct(*columns: Ints) -> tuple[Ints, Ints]:
    """First index of each distinct row of the columns, and which distinct row each row is."""
    key = np.zeros(columns[0].shape, dtype=np.int64)
    span = 1
    for column in columns:
        width = int(column.max(initial=0)) + 1
        span *= width
        if span >= 1 << 62:  # packed anew from what is distinct so far, so that it cannot overflow
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
            span = (int(key.max(initial=0)) + 1) * width
        key = key * width + column
    _, first, owner = np.unique(key, return_index=True, return_inverse=True)
    return first.astype(np.int64), owner.astype(np.int64)
