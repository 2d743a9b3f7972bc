"""Seconds of the exchanges inside the layers: tensor, context and expert parallelism.

They depend on shapes (training/layer_costs.py) and on where a group's members are, so they are computed
on the distinct combinations of these ("groups") and gathered to the plans. What no plan of a batch has is
not computed.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from foretell.kernels.call_records import table_of
from foretell.network.collectives import (
    Group,
    by_group,
    collective_s,
    outermost,
    place,
    ring_send_s,
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
from foretell.records import Keyed, dataclass
from foretell.sharding.expert import distinct_share
from foretell.sharding.tensor import TensorTraffic
from foretell.specs._base import Num
from foretell.specs.arrays import Array, Index, Mask
from foretell.specs.plan import Plan, structure_of
from foretell.specs.plan_words import ContextMode
from foretell.specs.software import Software
from foretell.specs.system import System
from foretell.training.layer_costs import beside_host
from foretell.training.overlap import Overlap, overlap_of, waited
from foretell.training.part_costs import Parts
from foretell.training.shapes import sum_of
from foretell.training.tensor_exchanges import (
    EndTimes,
    copy_s,
    gathered_share,
    grid_seconds,
    left_copies,
    pieces_shown,
    whole_ends,
)
from foretell.workload.roles import Region

HANDOVER_S = 23e-6
"""From the last product before an exchange to the first after it, beside the exchange itself: it runs on a
stream of its own, and its ranks are not there at once. SimuMax (github.com/MooreThreads/SimuMax,
configs/system/b200_bf16_ceperm.json) fits 22 to 26 us to collectives between kernels of one node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What the layers wait for of one parallelism."""

    forward_s: Array
    """Of each part, forward; (groups, parts)."""
    backward_s: Array
    """Of each part, backward; (groups, parts)."""
    tier: Index
    """Outermost tier that the group touches; (groups,)."""
    behind: tuple[Overlap, Overlap] | None = None
    """Forward and backward, what of them can be hidden; None: the passes wait for all that is sent."""
    alone_s: tuple[Array, Array] | None = None
    """Forward and backward, what a pass without another micro-batch's beside it waits for besides; None:
    nothing is hidden there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanges:
    """All that the layers wait for, by parallelism."""

    by_name: Mapping[str, Exchange]
    """tensor_parallel; where plans have them, context_parallel and expert_parallel."""
    forward_s: Array
    """All of them, forward; (groups, parts)."""
    backward_s: Array
    """All of them, backward; (groups, parts)."""
    send_s: Array
    """Gathering what a stage received in pieces, where tokens are not cut anyway; (groups,)."""


def exchanges_on(
    system: System,
    parts: Parts,
    shape: Index,
    counts: Mapping[str, Array],
    base: Plan,
    software: Software,
) -> Exchanges:
    """Times by group, as of `exchanges_of`; kept of a single group, which plans with other stages share."""
    asked = parts, shape, counts, system, base, software
    if len(shape) > 1:
        return exchanges_of(*asked)
    where = tuple((name, tuple(count[:, 0].tolist())) for name, count in counts.items())
    # Kept arguments stay alive, and so no other objects have their addresses.
    return _known_exchanges(Keyed((id(parts), id(system), where, structure_of(base)), *asked))


@lru_cache(maxsize=256)
def _known_exchanges(asked: Keyed) -> Exchanges:
    return exchanges_of(*asked.values)


def exchanges_of(
    parts: Parts,
    shape: Index,
    counts: Mapping[str, Array],
    system: System,
    base: Plan,
    software: Software,
) -> Exchanges:
    """Times by group: `shape` is the shape of each, `counts` (tiers, groups) its place."""
    if parts.grid:
        (forward, backward), behind = grid_seconds(parts, shape, counts["tp"], system, base)
        tensor = Exchange(
            forward_s=forward, backward_s=backward, tier=outermost(counts["tp"]), behind=behind
        )
        send = np.zeros(len(shape))
    else:
        tensor, send = tensor_seconds(parts, shape, counts["tp"], system, base, software)
    found = {"tensor_parallel": tensor}
    if parts.context:
        found["context_parallel"] = context_seconds(
            parts, shape, counts["cp"], system, base.cp_mode
        )
    if parts.experts:
        found["expert_parallel"] = expert_seconds(parts, shape, counts, system, base)
    return Exchanges(
        by_name=found,
        forward_s=sum_of([e.forward_s for e in found.values()]),
        backward_s=sum_of([e.backward_s for e in found.values()]),
        send_s=send,
    )


NOT_BESIDE_SUMS = ("enter_gather", "leave_scatter", "leave_gather")
"""Ends whose exchanges are waited for where a framework adds gradients of weights inside their products: it
starts the scatter of the other gradient, and then these products beside it
(LinearWithGradAccumulationAndAsyncCommunication of Megatron-LM and Transformer Engine)."""


def in_pieces(base: Plan, software: Software, architecture: str) -> bool:
    """Whether gathers and scatters run in pieces behind the products: asked for, or the framework's way."""
    own = software.in_pieces(architecture)
    return (own and base.tp_overlap == "auto") or base.tp_overlap == "on"


def tensor_launch_s(parts: Parts, shape: Index, collective_s: Num) -> Array:
    """Host's time to start the tensor-parallel exchanges of each part in one pass; (shapes, parts)."""
    many = np.array([t.enters + t.leaves for t in parts.traffic])
    cut = np.asarray(parts.shape.tp)[shape][:, None] > 1.0
    # With sequence parallelism activations are gathered and scattered, else one of the two is all-reduced.
    each = np.where(np.asarray(parts.shape.sp)[shape][:, None] > 0, 1.0, 0.5)
    return np.asarray(collective_s * many * each * cut)


def tensor_seconds(
    parts: Parts,
    shape: Index,
    counts: Array,
    system: System,
    base: Plan,
    software: Software,
) -> tuple[Exchange, Array]:
    """Exchanges at the edges of tensor-parallel regions with their copies; gathers of a stage's input."""
    sp = np.asarray(parts.shape.sp)[shape][:, None] > 0
    enter, enters, leave, leaves = _edges(parts, shape)
    # What no group needs is not prepared: with sequence parallelism nothing is all-reduced.
    kinds: tuple[Kind, ...] = ("all-gather",)
    kinds += ("reduce-scatter",) if sp.any() else ()
    kinds += () if sp.all() else ("all-reduce",)
    slower = slower_by(system.corrections.tensor_parallel, counts, system)
    group = place(counts, system, kinds, slower)
    # What is sent of a kind is asked for at once: of parts that enter and leave, and a stage's input.
    many = enter.shape[1]
    received = (parts.send_bytes * parts.shape.tp)[shape][:, None]
    sizes = np.concatenate([enter, leave, received], axis=1)
    narrow = sizes * gathered_share(parts, base, software)

    def seconds(kind: Kind) -> Array:
        sent = narrow if kind == "all-gather" else sizes
        return collective_s(kind, sent, group) if kind in kinds else np.zeros_like(sizes)

    gather_s, reduce_s = seconds("all-gather"), seconds("all-reduce")
    times = _end_times(gather_s, seconds("reduce-scatter"), many)
    copied = behind = None
    if software.sequence_copies:
        gathers_s = copy_s(narrow, parts, shape, system.chip)
        copied = _end_times(gathers_s, copy_s(sizes, parts, shape, system.chip), many)
    pieces = in_pieces(base, software, system.chip.architecture)
    if pieces or software.sums_fused:
        whole = whole_ends(base, software) if pieces else NOT_BESIDE_SUMS
        (gathered, scattered), behind = pieces_shown(parts, shape, times, system.chip, whole=whole)
        copied = None if copied is None else left_copies(copied, whole)
    else:
        gathered = enters * times.enter_gather + leaves * times.leave_scatter
        scattered = enters * times.enter_scatter + leaves * times.leave_gather
    pieces_s = gathered, scattered
    if copied is not None:
        gathered = gathered + enters * copied.enter_gather + leaves * copied.leave_scatter
        scattered = scattered + enters * copied.enter_scatter + leaves * copied.leave_gather
    handed = HANDOVER_S * (np.prod(counts, axis=0) > 1.0)[:, None]
    edges = handed * (enters + leaves)
    whole_s = leaves * (reduce_s[:, many:-1] + handed), enters * (reduce_s[:, :many] + handed)
    forward_s = np.where(sp, gathered + edges, whole_s[0])
    backward_s = np.where(sp, scattered + edges, whole_s[1])
    if behind is not None:
        behind = (
            cut_overlap(behind[0], sp, pieces_s[0], forward_s),
            cut_overlap(behind[1], sp, pieces_s[1], backward_s),
        )
    exchange = Exchange(
        forward_s=forward_s, backward_s=backward_s, tier=outermost(counts), behind=behind
    )
    return exchange, np.where(sp[:, 0], 0.0, gather_s[:, -1])


def cut_overlap(one: Overlap, cut: Mask, shown_s: Array, all_s: Array) -> Overlap:
    """What can be hidden where tokens are cut; what comes on top of the pieces (`shown_s`) cannot."""
    return Overlap(
        fixed_s=np.where(cut, one.fixed_s + all_s - shown_s, all_s),
        hidden_s=np.where(cut, one.hidden_s, 0.0),
        slack_s=np.where(cut, one.slack_s, 0.0),
    )


def _end_times(gather_s: Array, scatter_s: Array, many: int) -> EndTimes:
    """Seconds at both ends of `many` parts, out of those of what enters, leaves and is received."""
    return EndTimes(
        enter_gather=gather_s[:, :many],
        leave_scatter=scatter_s[:, many:-1],
        enter_scatter=scatter_s[:, :many],
        leave_gather=gather_s[:, many:-1],
    )


def _edges(parts: Parts, shape: Index) -> tuple[Array, Array, Array, Array]:
    """Bytes and number of what enters and leaves regions; (groups, parts)."""
    whole = _edges_of(parts.traffic, parts, shape)
    if not parts.spread_traffic:
        return whole
    spread = _edges_of(parts.spread_traffic, parts, shape)
    folded = np.asarray(parts.shape.ep)[shape][:, None] > 1.0
    enter, enters, leave, leaves = (
        np.where(folded, a, b) for a, b in zip(spread, whole, strict=True)
    )
    return enter, enters, leave, leaves


def _edges_of(
    traffic: tuple[TensorTraffic, ...], parts: Parts, shape: Index
) -> tuple[Array, Array, Array, Array]:
    enter = _by_group([t.enter_elements for t in traffic], parts, shape)
    leave = _by_group([t.leave_elements for t in traffic], parts, shape)
    enters = np.array([t.enters for t in traffic])
    return enter, enters, leave, np.array([t.leaves for t in traffic])


def _by_group(elements: Sequence[Num], parts: Parts, shape: Index) -> Array:
    """Bytes of activations; (groups, parts)."""
    return np.asarray(table_of(elements, np.size(parts.shape.tp)).T[shape] * parts.element_bytes)


def context_seconds(
    parts: Parts, shape: Index, counts: Array, system: System, mode: ContextMode
) -> Exchange:
    """Keys and values of other tokens, by ring, gathering or all-to-all; recurrences by all-to-all."""
    traffic = parts.context
    keys = _by_group([t.keys for t in traffic], parts, shape)
    states = _by_group([t.states for t in traffic], parts, shape)
    queries = _by_group([t.queries for t in traffic], parts, shape)
    results = _by_group([t.results for t in traffic], parts, shape)
    kinds: dict[ContextMode, tuple[Kind, ...]] = {
        "ring": ("all-to-all",),
        "allgather": ("all-gather", "reduce-scatter", "all-to-all"),
        "ulysses": ("all-to-all",),
    }
    slower = slower_by(system.corrections.context_parallel, counts, system)
    group = place(counts, system, kinds[mode], slower)
    exchanged = collective_s("all-to-all", states, group)
    behind = None
    if mode == "ring":

        def step_s(size: Array) -> Array:
            return ring_send_s(size, counts, system) * by_group(slower, size.ndim)

        (forward, backward), behind = _ring(parts, shape, keys, step_s, exchanged)
    elif mode == "allgather":
        forward = collective_s("all-gather", keys, group)
        backward = forward + collective_s("reduce-scatter", keys, group)
    else:
        forward = collective_s("all-to-all", queries, group)
        forward = forward + collective_s("all-to-all", results, group)
        backward = forward
    if behind is None:
        forward, backward = forward + exchanged, backward + exchanged
    return Exchange(forward_s=forward, backward_s=backward, tier=outermost(counts), behind=behind)


def _ring(
    parts: Parts, shape: Index, keys: Array, step_s: Callable[[Array], Array], besides_s: Array
) -> tuple[tuple[Array, Array], tuple[Overlap, Overlap]]:
    """What of the cp - 1 steps is longer than the attention to a block, one send home, and `besides`."""
    cp = np.asarray(parts.shape.cp)[shape][:, None]
    block = keys / cp
    work = [(cp - 1.0) * seconds[shape] / cp for seconds in parts.attention_s]
    home_s = besides_s + step_s(block) * (cp > 1.0)
    behind = (
        overlap_of(besides_s, (cp - 1.0) * step_s(block), work[0]),
        overlap_of(home_s, (cp - 1.0) * step_s(2.0 * block), work[1]),
    )
    return (waited(behind[0], work[0]), waited(behind[1], work[1])), behind


def expert_seconds(
    parts: Parts, shape: Index, counts: Mapping[str, Array], system: System, base: Plan
) -> Exchange:
    """Dispatch and combination over ep, gathering and scattering over etp: as much in both directions."""
    layers = np.array([t.layers for t in parts.experts])
    sent = _by_group([t.elements for t in parts.experts], parts, shape)
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
