"""Messages of a traced step: among ranks that share layers, and of data parallelism."""

from collections.abc import Sequence

import numpy as np

from foretell.network.collectives import Group, collective_s, place
from foretell.network.placement import tier_counts
from foretell.network.placement import units as filled_units
from foretell.sharding.traced_tensor import TracedExchange
from foretell.specs.arrays import Array
from foretell.trace.graph import TracedModel
from foretell.training.traced_memory import (
    trained_weights,
    weight_bytes,
)
from foretell.training.traced_rows import TracedJob


def rank_counts(job: TracedJob, size: int, stride: int) -> Array:
    """How the members of a group are on the tiers of the network, so many ranks apart."""
    filled = filled_units(job.system.network, job.plan.gpus)
    return tier_counts(np.array([float(size)]), np.array([float(stride)]), filled, job.plan.gpus)


def _group(job: TracedJob, size: int, stride: int) -> Group:
    """The same as a group of ranks that exchange."""
    return place(rank_counts(job, size, stride), job.system)


def exchange_seconds(job: TracedJob, exchanges: Sequence[TracedExchange]) -> Array:
    """Seconds of each message among ranks that share layers, which are next to one another."""
    if not exchanges:
        return np.zeros(0)
    group = _group(job, job.plan.tp, 1)
    known: dict[tuple[str, float], float] = {}
    for one in exchanges:
        if (one.kind, one.bytes) not in known:
            taken = collective_s(one.kind, np.array([one.bytes]), group)
            known[one.kind, one.bytes] = float(np.ravel(taken)[0])
    return np.array([known[one.kind, one.bytes] for one in exchanges])


def exposed_seconds(model: TracedModel, job: TracedJob, back_s: float) -> float:
    """Exposed seconds of data parallelism in a step."""
    dp = job.plan.dp
    if dp == 1:
        return 0.0
    elements, _ = trained_weights(model)
    size = elements * weight_bytes(model, job)
    group = _group(job, dp, job.plan.tp)

    def taken(kind: str) -> float:
        return float(np.ravel(collective_s(kind, np.array([size]), group))[0])  # type: ignore[arg-type]

    if job.plan.zero == 3:
        sent, hidden = taken("reduce-scatter") + 2.0 * taken("all-gather"), 1.5 * back_s
        return max(sent - 0.9 * hidden, 0.1 * sent) * job.micro_batches
    sent = taken("all-reduce") if not job.plan.zero else taken("reduce-scatter")
    exposed = max(sent - 0.9 * back_s, 0.05 * sent)
    return exposed + (taken("all-gather") if job.plan.zero else 0.0)
