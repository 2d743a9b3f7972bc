"""Iteration time and memory of a batch of plans: layers once each, then gathered.

T0 = (t_f + t_b) mu nl + t_pp; bubble = (pp - 1) T0/mu; t = T0 + bubble + t_dp (plain 1F1B).
"""

from dataclasses import fields

import numpy as np

from foretell.lab.reference.layer import (
    LayerCost,
    TierLinks,
    collective_s,
    layer_bytes,
    layer_cost,
    links_of,
    stage_hop_s,
)
from foretell.lab.reference.ops import LayerBatch
from foretell.lab.reference.records import (
    Floats,
    Ints,
    Quirks,
    Strategy,
    StudyChip,
    StudyModel,
    with_quirks,
)
from foretell.lab.reference.space import ReferencePlans, ReferenceSpace
from foretell.records import dataclass


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
