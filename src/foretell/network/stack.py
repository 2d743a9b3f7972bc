"""Collectives on a stack of tiers without a fitted library: each tier's topology under its best algorithms.

A group has n_i members on tier i (of the level below). A gather of S runs over every tier on what the
levels below leave of it, S / (n_1 ... n_(i-1)); chunks follow each other, so that the slowest tier sets the
pace and the latencies add up. On each tier two algorithms of those at home there
compete: the one with the least latency and the one with the least time per byte; a candidate is one choice
for each tier, and the fastest is taken. All-reduce scatters on the way out, reduces on the outermost tier
that the group touches, and gathers back.

Every candidate is affine in the bytes, so groups are priced once and asked for any size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from foretell.network.algorithms import able
from foretell.network.algorithms.base import Collective
from foretell.network.placement import over_systems
from foretell.network.topologies import of_tier
from foretell.network.topologies.base import Cost, choose_cost
from foretell.network.topologies.rail_clos import forwards, off_rail
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array, Index
from foretell.specs.system import Network, Tier


def hierarchical_cost(
    collective: Collective,
    members: Sequence[Num],
    gathers: Sequence[Cost],
    top_all_reduce: Cost | None = None,
    *,
    overlapped: bool = False,
) -> Cost:
    """The whole from the tiers' all-gathers (a reduce-scatter costs the same).

    `top_all_reduce` replaces the two passes over the outermost tier by an algorithm of its own (a
    tree, or reduction in the network). `overlapped` is the limit of many chunks that pipeline.
    """
    both = collective == "all-reduce"
    below: Num = 1.0
    costs: list[Cost] = []
    for i, (count, gather) in enumerate(zip(members, gathers, strict=True)):
        tier = gather.times(2.0) if both else gather
        if both and top_all_reduce is not None and i == len(gathers) - 1:
            tier = top_all_reduce
        costs.append(tier.times(1.0, 1.0 / below))
        below = below * count
    latency = np.sum(np.broadcast_arrays(*(c.latency_s for c in costs)), 0)
    loads = np.broadcast_arrays(*(c.s_per_byte for c in costs))
    return Cost(
        latency_s=latency,
        s_per_byte=np.asarray(np.max(loads, 0) if overlapped else np.sum(loads, 0)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TierOption:
    """One algorithm on one tier, which may differ from group to group."""

    cost: Cost
    """Its cost; (groups,)."""
    names: NDArray[np.str_]
    """Its name; (groups,), empty where the group has but one member there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCandidates:
    """Ways of doing one kind of collective; arrays are (candidates, groups)."""

    latency_s: Array
    """Seconds of an empty message."""
    s_per_byte: Array
    """Seconds of each further byte of the full buffer."""
    names: NDArray[np.str_]
    """Algorithms from the innermost tier out; stated of a single group only, else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierStack:
    """Groups placed on a stack of tiers, ready to be asked for the time of any message."""

    members: Array
    """Members of each group."""
    kinds: Mapping[Collective, CollectiveCandidates]
    """Candidates by kind of collective."""
    slower: Num = 1.0
    """Factor on the time of every message; a number, or (groups,)."""


def stack_of(
    counts: Array, network: Network, kinds: Sequence[Collective], algorithm: str = ""
) -> TierStack:
    """Groups whose members are placed as `counts` (tiers, groups) says; by one algorithm only if named."""
    whole = np.maximum(np.rint(np.asarray(counts, float)), 1.0)
    return TierStack(
        members=np.prod(whole, axis=0),
        kinds={kind: _candidates(kind, whole, network.tiers, algorithm) for kind in kinds},
    )


def stack_s(kind: Collective, size_bytes: Num, stack: TierStack) -> Array:
    """Seconds of one collective; sizes are (..., groups). A group of one, or nothing, is free."""
    found, size = stack.kinds[kind], np.asarray(size_bytes, float)
    tall = size[..., None, :] if size.ndim else size
    times = (found.latency_s + tall * found.s_per_byte).min(axis=-2)
    return np.asarray(times * ((size > 0.0) & (stack.members > 1.0)))


def _candidates(
    kind: Collective, counts: Array, tiers: Sequence[Tier], algorithm: str
) -> CollectiveCandidates:
    gathers: Collective = "all-gather" if kind == "all-reduce" else kind
    options = [_options(gathers, t, c, algorithm) for t, c in zip(tiers, counts, strict=True)]
    tops = options
    if kind == "all-reduce":
        tops = [_options(kind, t, c, algorithm) for t, c in zip(tiers, counts, strict=True)]
    if kind == "all-to-all":
        options = tops = _on_rails(options, counts, tiers)
    costs, names = [], []
    for pick in product((0, 1), repeat=len(tiers)):
        chosen = [option[i] for option, i in zip(options, pick, strict=True)]
        heads = [option[i] for option, i in zip(tops, pick, strict=True)]
        costs.append(_together(kind, counts, chosen, heads, tiers))
        names.append(_joined(counts, heads if kind == "all-reduce" else chosen))
    shape = (len(costs), counts.shape[1])
    return CollectiveCandidates(
        latency_s=np.stack([np.broadcast_to(c.latency_s, shape[1:]) for c in costs]),
        s_per_byte=np.stack([np.broadcast_to(c.s_per_byte, shape[1:]) for c in costs]),
        names=np.stack(names),
    )


def _options(
    kind: Collective, tier: Tier, count: Array, algorithm: str
) -> tuple[TierOption, TierOption]:
    """The algorithm of least latency and that of least time per byte, on distinct counts, gathered."""
    distinct, inverse = np.unique(count, return_inverse=True)
    if over_systems(tier):  # every group is on a system of its own
        distinct, inverse = count, np.arange(len(count))
    topology = of_tier(tier, distinct)
    known = able(kind, topology)
    known = tuple(a for a in known if a.name == algorithm) or known
    shape = (len(known), len(distinct))
    latency, load = np.empty(shape), np.empty(shape)
    for i, choice in enumerate(known):
        cost = choice.cost(kind, topology)
        latency[i], load[i] = cost.latency_s, cost.s_per_byte
    load = load / (tier.efficiency * _share(kind, tier))
    latency, load = np.where(distinct > 1, latency, 0.0), np.where(distinct > 1, load, 0.0)
    finite = np.isfinite(latency)
    # Of equals in one the better in the other.
    quick = np.where(finite, latency + 1e-6 * load, np.inf).argmin(axis=0)
    fast = np.where(finite, load + 1e-9 * latency, np.inf).argmin(axis=0)
    rows = np.arange(len(distinct))
    labels = np.array([a.name for a in known])

    def option(index: Index) -> TierOption:
        cost = Cost(latency_s=latency[index, rows][inverse], s_per_byte=load[index, rows][inverse])
        return TierOption(cost=cost, names=np.where(distinct > 1, labels[index], "")[inverse])

    return option(quick), option(fast)


def _on_rails(
    options: list[tuple[TierOption, TierOption]], counts: Array, tiers: Sequence[Tier]
) -> list[tuple[TierOption, TierOption]]:
    """The options of an all-to-all where a tier's messages leave their rails (`Tier.pxn`)."""
    below = np.cumprod(counts, axis=0) / counts
    found = []
    for pair, tier, count, rails in zip(options, tiers, counts, below, strict=True):
        apart = off_rail(tier, count, rails)
        quick, fast = (replace(o, cost=o.cost.times(1.0, apart)) for o in pair)
        found.append((quick, fast))
    return found


def _share(kind: Collective, tier: Tier) -> Num:
    """What a kind makes of the tier's rate: libraries write some kinds with more care than others."""
    match kind:
        case "all-gather":
            return tier.gather_share
        case "reduce-scatter":
            return tier.scatter_share
        case "all-to-all":
            return tier.exchange_share
        case _:
            return 1.0


def _together(
    kind: Collective,
    counts: Array,
    chosen: list[TierOption],
    heads: list[TierOption],
    tiers: Sequence[Tier],
) -> Cost:
    """The tiers of one candidate as one cost."""
    if kind == "all-reduce":
        return _all_reduce(counts, chosen, heads)
    costs = [option.cost for option in chosen]
    if kind in ("all-gather", "reduce-scatter"):
        return hierarchical_cost(kind, list(counts), costs, overlapped=True)
    latency = np.sum([np.broadcast_to(c.latency_s, counts.shape[1:]) for c in costs], axis=0)
    shares = np.ones_like(counts)
    if kind == "all-to-all":
        # Blocks of pairs that first meet on a tier: those inside one unit of it.
        shares = np.cumprod(counts, axis=0) / np.prod(counts, axis=0)
        for i, tier in enumerate(tiers):
            if forwards(tier):
                # Inside a node all of them go to their rail first.
                shares[:i] = np.where(counts[i] > 1.0, 1.0, shares[:i])
    loads = [
        np.broadcast_to(c.s_per_byte, counts.shape[1:]) * s
        for c, s in zip(costs, shares, strict=True)
    ]
    return Cost(latency_s=latency, s_per_byte=np.max(loads, axis=0))


def _all_reduce(counts: Array, chosen: list[TierOption], heads: list[TierOption]) -> Cost:
    """Scatters outward, an all-reduce on the outermost tier that the group touches, gathers back."""
    beyond = np.cumprod(counts[::-1], axis=0)[::-1] / counts
    below = np.cumprod(counts, axis=0) / counts
    latency, load = np.zeros(counts.shape[1]), np.zeros(counts.shape[1])
    for i, (gather, head) in enumerate(zip(chosen, heads, strict=True)):
        cost = choose_cost(beyond[i] <= 1.0, head.cost, gather.cost.times(2.0))
        latency = latency + cost.latency_s
        load = np.maximum(load, cost.s_per_byte / below[i])
    return Cost(latency_s=latency, s_per_byte=load)


def _joined(counts: Array, options: list[TierOption]) -> NDArray[np.str_]:
    """Algorithms of the tiers that one group touches, from the innermost out; of a batch none is stated."""
    if counts.shape[1] != 1:
        return np.full(counts.shape[1], "")
    return np.array([" + ".join(o.names[0] for o in options if o.names[0]) or "none"])
