"""Seconds of the exchanges inside the layers: tensor, context and expert parallelism.

They depend on shapes (training/layer_costs.py) and on where a group's members are, so they are computed
on the distinct combinations of these ("groups") and gathered to the plans. What no plan of a batch has is
not computed.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np

from foretell.network.collectives import (
    by_group,
    collective_s,
    outermost,
    place,
    ring_send_s,
    slower_by,
)
from foretell.network.library_records import Kind
from foretell.records import Keyed, dataclass
from foretell.sharding.tensor import TensorTraffic
from foretell.specs._base import Num
from foretell.specs.arrays import Array, Index, Mask
from foretell.specs.plan import Plan, structure_of
from foretell.specs.plan_words import ContextMode
from foretell.specs.software import Software
from foretell.specs.system import System
from foretell.training.dispatches import expert_seconds
from foretell.training.overlap import Exchange, Overlap, overlap_of, waited
from foretell.training.part_costs import Parts, activation_bytes_of
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

HANDOVER_S = 23e-6
"""From the last product before an exchange to the first after it, beside the exchange itself: it runs on a
stream of its own, and its ranks are not there at once. SimuMax (github.com/MooreThreads/SimuMax,
configs/system/b200_bf16_ceperm.json) fits 22 to 26 us to collectives between kernels of one node."""


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
    enter = activation_bytes_of([t.enter_elements for t in traffic], parts, shape)
    leave = activation_bytes_of([t.leave_elements for t in traffic], parts, shape)
    enters = np.array([t.enters for t in traffic])
    return enter, enters, leave, np.array([t.leaves for t in traffic])


def context_seconds(
    parts: Parts, shape: Index, counts: Array, system: System, mode: ContextMode
) -> Exchange:
    """Keys and values of other tokens, by ring, gathering or all-to-all; recurrences by all-to-all."""
    traffic = parts.context
    keys = activation_bytes_of([t.keys for t in traffic], parts, shape)
    states = activation_bytes_of([t.states for t in traffic], parts, shape)
    queries = activation_bytes_of([t.queries for t in traffic], parts, shape)
    results = activation_bytes_of([t.results for t in traffic], parts, shape)
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
