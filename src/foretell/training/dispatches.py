"""Seconds of the exchanges of spread experts: dispatch and combination over ep, gathers over etp."""

from collections.abc import Mapping

import numpy as np

from foretell.kernels.call_records import table_of
from foretell.network.collectives import (
    Group,
    by_group,
    collective_s,
    outermost,
    place,
    slower_by,
)
from foretell.network.dispatch import (
    DispatchLoad,
    dispatch_kernels,
    pass_seconds,
    posted_by_host,
)
from foretell.network.library_catalog import fabric_of
from foretell.network.library_records import Kind
from foretell.sharding.expert import distinct_share
from foretell.specs.arrays import Array, Index
from foretell.specs.plan import Plan
from foretell.specs.system import System
from foretell.training.layer_costs import beside_host
from foretell.training.overlap import Exchange, overlap_of, waited
from foretell.training.part_costs import Parts, activation_bytes_of
from foretell.workload.roles import Region


def expert_seconds(
    parts: Parts, shape: Index, counts: Mapping[str, Array], system: System, base: Plan
) -> Exchange:
    """Dispatch and combination over ep, gathering and scattering over etp: as much in both directions."""
    layers = np.array([t.layers for t in parts.experts])
    sent = activation_bytes_of([t.elements for t in parts.experts], parts, shape)
    etp = np.asarray(parts.shape.etp)[shape][:, None]
    if base.dispatch != "alltoall":
        copies = table_of([t.copies for t in parts.experts], np.size(parts.shape.tp)).T[shape]
        width = table_of([t.width for t in parts.experts], np.size(parts.shape.tp)).T[shape]
        row_bytes = width * parts.element_bytes if base.dispatch == "deepep" else None
        seconds = _dedup_s(sent, copies, counts["ep"], system, row_bytes)
    else:
        group = _dispatching(counts["ep"], system)
        seconds = 2.0 * collective_s("all-to-all", sent, group)
    if (etp > 1.0).any():
        slower = slower_by(system.corrections.expert_parallel, counts["etp"], system)
        inside = place(counts["etp"], system, ("all-gather", "reduce-scatter"), slower)
        kinds: tuple[Kind, ...] = ("all-gather", "reduce-scatter")
        for kind in kinds:
            seconds = seconds + collective_s(kind, sent * etp, inside)
    each_s = np.asarray(layers * seconds)
    tier = np.maximum(outermost(counts["ep"]), outermost(counts["etp"]))
    blocked = base.dispatch == "deepep" and not fabric_of(system.id).gpu_initiated
    if base.ep_overlap == "on" and not blocked:
        # The other micro-batch's, beside this pass: as much in both directions, so that it is whose.
        passes = (parts.forward, parts.backward)
        work = tuple(beside_host(p.seconds, p.host_s)[shape] for p in passes)
    elif base.ep_overlap == "shared":
        work = shared_seconds(parts, shape)
    else:
        # Where a proxy posts, the host stands in every dispatch until all numbers of tokens have come.
        return Exchange(forward_s=each_s, backward_s=each_s, tier=tier)
    behind = overlap_of(0.0, each_s, work[0]), overlap_of(0.0, each_s, work[1])
    return Exchange(
        forward_s=waited(behind[0], work[0]),
        backward_s=waited(behind[1], work[1]),
        tier=tier,
        behind=behind,
        alone_s=(np.minimum(each_s, work[0]), np.minimum(each_s, work[1]))
        if base.ep_overlap == "on"
        else None,
    )


def shared_seconds(parts: Parts, shape: Index) -> tuple[Array, Array]:
    """Seconds of the shared experts of each part, forward and backward; (groups, parts)."""
    flat = [(i, op) for i, ops in enumerate(parts.ops) for op in ops]
    on = np.zeros((len(flat), len(parts.ops)))
    for row, (part, op) in enumerate(flat):
        on[row, part] = op.region is Region.SHARED_EXPERTS
    seconds = parts.times.seconds
    return (seconds[: len(flat)].T @ on)[shape], (seconds[len(flat) :].T @ on)[shape]


def _dispatching(counts: Array, system: System) -> Group:
    """Ranks that experts are spread over, placed for dispatches."""
    slower = slower_by(system.corrections.expert_parallel, counts, system)
    return place(counts, system, ("all-to-all",), slower)


def _dedup_s(
    sent: Array, copies: Array, counts: Array, system: System, row_bytes: Array | None
) -> Array:
    """A dispatch and its combine, in which a token goes once to each node, and inside it once to each rank.

    Copies between nodes and those inside follow each other in pieces at the library's rates, and the slower
    of both shows; or DeepEP's kernels do it with rows of so many bytes, on twenty of a chip's cores
    (network/dispatch.py).
    """
    ranks = np.prod(counts, axis=0)[:, None]
    if row_bytes is not None:
        return _kernel_s(sent / copies, row_bytes, copies, (ranks, system))
    near = counts.copy()
    near[1:] = 1.0
    nodes = ranks / counts[0][:, None]
    far_s = collective_s(
        "all-to-all",
        sent * distinct_share(nodes, copies),
        _dispatching(counts, system),
    )
    near_s = collective_s(
        "all-to-all",
        sent * distinct_share(ranks, copies),
        _dispatching(near, system),
    )
    return np.asarray(2.0 * np.maximum(far_s * (nodes > 1.0), near_s))


def _kernel_s(sent: Array, row_bytes: Array, copies: Array, where: tuple[Array, System]) -> Array:
    """The same by DeepEP's kernels for throughput; `sent` are the bytes of all tokens, once each."""
    ranks, system = where
    tiers = system.network.tiers
    load = DispatchLoad(
        tokens=sent / np.maximum(row_bytes, 1.0),
        hidden=row_bytes,
        row_bytes=1.0,
        top_k=copies,
        experts=ranks,
        ranks=ranks,
        domain=np.minimum(float(tiers[0].size), ranks),
        near_bytes_per_s=by_group(tiers[0].bandwidth_bytes_per_s, 2),
        far_bytes_per_s=by_group(tiers[-1].bandwidth_bytes_per_s, 2),
    )
    kernels = dispatch_kernels()["deepep"]
    if not fabric_of(system.id).gpu_initiated:
        kernels = posted_by_host(kernels)
    both = [pass_seconds(kernels, one, load) for one in (kernels.dispatch, kernels.combine)]
    domains = np.maximum(ranks / load.domain, 1.0)
    agreed = (kernels.dispatch.notify_s + kernels.combine.notify_s) * np.log2(domains)
    return np.asarray((both[0] + both[1] + agreed * (sent > 0.0)) * (ranks > 1.0))
