"""Expert parallelism with parallel folding: the routed experts are on ranks of their own grouping.

The tp x cp x dp ranks of a pipeline stage are grouped anew for the routed experts, as etp x ep x edp
(Liu et al. 2025, "MoE Parallel Folding"; Megatron-Core: etp x ep x edp x pp = world). A rank holds 1/ep of
the experts, cut by width over etp ranks, in edp copies; everything else, shared experts included, stays as
tensor, context and data parallelism have it. Without ep (ep 1) the experts are cut by tp like the rest.

With t = T / tp tokens on a rank (ep with tp needs sequence parallelism, so that no token is there twice), k
experts a token and an inner width h, one micro-batch takes in each direction, per layer,

    dispatch    all-to-all over ep, t k h elements from every rank, a copy for each expert; or (dedup, as
                DeepEP has it) one for each of the N nodes, N (1 - (1 - 1/N)^k) of k where experts are alike,
                and inside the node one for each rank
    gather      over etp, t k h etp elements
    products    E / ep experts of t k etp ep / E rows each, width / etp wide
    scatter     over etp, and all-to-all back over ep, of as much

Nothing is dropped: the busiest rank has what the router's balance leaves it (sharding/expert_loads.py), or
`imbalance` times the mean. With a capacity C every expert has C times the mean, filled up with nothing or
dropped beyond.
"""

from collections.abc import Callable, Sequence

import numpy as np

from foretell.records import dataclass
from foretell.sharding.expert_loads import busiest_rank
from foretell.specs._base import Num, with_fields
from foretell.specs.plan import Plan
from foretell.workload.graph import LayerGraph, Saved
from foretell.workload.ops import Gemm, Op, Pointwise
from foretell.workload.roles import OpRole, Region, SavedRole

PRODUCTS = (OpRole.UP, OpRole.DOWN)
"""Grouped products of the routed experts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertSpread:
    """How the routed experts are spread; numbers or arrays over shapes."""

    tp: Num
    """Tensor-parallel ranks of the rest of the model, which share the tokens."""
    ep: Num
    """Ranks that share the experts; 1: none, and `etp` is without meaning."""
    etp: Num
    """Ranks that share one expert."""
    even: float
    """Rows over the even share where the experts are not spread: the capacity, or one."""
    busiest: Num
    """The same on the busiest rank where they are: the capacity, or the imbalance."""

    def pick(self, spread: Num, whole: Num) -> Num:
        """One number where the experts are spread, another where tp cuts them; exact either way."""
        folded = np.minimum(self.ep - 1.0, 1.0)
        return folded * spread + (1.0 - folded) * whole


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertTraffic:
    """What one part's expert groups exchange per micro-batch and direction, on one rank."""

    layers: float
    """Mixtures in the part: each dispatches and combines once."""
    elements: Num
    """Elements that one rank sends in a dispatch, on the mean of the mixtures."""
    copies: Num
    """Experts of a token."""
    width: Num
    """Elements of a token."""


def spread_of(tp: Num, ep: Num, etp: Num, plan: Plan) -> ExpertSpread:
    """The spread of a plan's choices."""
    dropped = plan.capacity > 0.0
    return ExpertSpread(
        tp=tp,
        ep=ep,
        etp=etp,
        even=plan.capacity if dropped else 1.0,
        busiest=plan.capacity if dropped else plan.imbalance,
    )


def with_loads(spread: ExpertSpread, graph: LayerGraph, plan: Plan, sequences: Num) -> ExpertSpread:
    """The spread of one part: the busiest rank by how its router is balanced; `sequences` of its group."""
    ups = [op for op in graph.ops if op.role is OpRole.UP and op.region is Region.EXPERTS]
    if plan.capacity > 0.0 or plan.routing == "even" or not ups:
        return spread
    up = ups[0]
    assert isinstance(up, Gemm)
    rows = up.m * up.groups / spread.tp
    found = busiest_rank(plan.routing, spread.ep, up.groups, rows, sequences)
    return with_fields(spread, busiest=np.maximum(found, spread.busiest))


def expert_parallel(graph: LayerGraph, spread: ExpertSpread) -> LayerGraph:
    """The layer with its routed experts on one rank; tensor parallelism leaves these alone afterwards."""
    return with_fields(
        graph,
        ops=tuple(_cut(op, spread) if op.region is Region.EXPERTS else op for op in graph.ops),
        saved=tuple(_saved(tensor, spread) for tensor in graph.saved),
    )


def routed_parameters(op: Op) -> Num:
    """Weights of a routed expert's product; 0 for every other operation."""
    routed = op.region is Region.EXPERTS and op.role in PRODUCTS
    return op.parameters if routed else 0.0


def expert_traffic(graph: LayerGraph, spread: ExpertSpread) -> ExpertTraffic:
    """Dispatches of a part, before it is cut."""
    sorts = [op for op in graph.ops if op.role is OpRole.PERMUTE]
    sent = [op.elements for op in sorts if isinstance(op, Pointwise)]
    total = sum(sent, start=0.0) * spread.busiest / spread.tp
    return ExpertTraffic(
        layers=float(len(sent)),
        elements=total / max(len(sent), 1),
        copies=_copies(graph),
        width=_width(graph),
    )


def _width(graph: LayerGraph) -> Num:
    """Elements of a token that is dispatched: the depth of its experts' first product."""
    ups = [op for op in graph.ops if op.region is Region.EXPERTS and op.role is OpRole.UP]
    return next((op.k for op in ups if isinstance(op, Gemm)), 0.0)


def _copies(graph: LayerGraph) -> Num:
    """Experts of a token: rows of the products over tokens that choose; 1 where there are none."""
    routed = [op for op in graph.ops if op.region is Region.EXPERTS]
    ups = [op for op in routed if isinstance(op, Gemm) and op.role is OpRole.UP]
    choices = [op for op in routed if isinstance(op, Pointwise) and op.role is OpRole.CHOICE]
    if not ups or not choices:
        return 1.0
    return ups[0].m * ups[0].groups * ups[0].groups / choices[0].elements


def distinct_share(places: Num, copies: Num) -> Num:
    """Places that a token goes to, over its copies, where each copy falls on any of them alike."""
    return places * (1.0 - (1.0 - 1.0 / places) ** copies) / copies


def without_region(graph: LayerGraph) -> LayerGraph:
    """The part as spread experts leave it: tokens are gathered over tp for shared experts alone."""
    if has_shared(graph.ops):
        return graph
    edges = tuple(edge for edge in graph.edges if edge.region is not Region.EXPERTS)
    return with_fields(graph, edges=edges)


def has_shared(ops: Sequence[Op]) -> bool:
    """Whether there are shared experts, for which the region of the experts stays."""
    return any(op.region is Region.SHARED_EXPERTS for op in ops)


def _cut(op: Op, s: ExpertSpread) -> Op:
    """One rank's part of an operation of the routed experts; router and choice stay as they are."""
    cut = _CUTS.get(op.role)
    return op if cut is None else cut(op, s)


def _product(op: Op, s: ExpertSpread) -> Op:
    """groups / ep; the rows of ep x etp ranks' tokens; etp in the place of tp cuts the width."""
    assert isinstance(op, Gemm)
    local = op.cut(s.pick(s.etp, s.tp))
    rows = s.pick(op.m * s.busiest * s.etp * s.ep / s.tp, op.m * s.even)
    return with_fields(local, m=rows, groups=op.groups / s.ep, split="none")


def _activation(op: Op, s: ExpertSpread) -> Op:
    """t k etp rows of width / etp: as many as tp leaves."""
    assert isinstance(op, Pointwise)
    return with_fields(op, elements=op.elements / s.tp * s.pick(s.busiest, s.even), split="none")


def _sort(op: Op, s: ExpertSpread) -> Op:
    """Own tokens by rank, then what has come by expert; all tokens once where tp cuts the experts."""
    assert isinstance(op, Pointwise)
    twice = op.elements / s.tp * (1.0 + s.busiest * s.etp)
    return with_fields(op, elements=s.pick(twice, op.elements * s.even), split="none")


def _rows(op: Op, s: ExpertSpread) -> Op:
    """What has come, where the experts are spread, else all of it."""
    assert isinstance(op, Pointwise)
    share = s.pick(s.busiest * s.etp / s.tp, s.even)
    return with_fields(op, elements=op.elements * share, launches=op.launches / s.ep, split="none")


def _latent(op: Op, s: ExpertSpread) -> Op:
    """Own tokens where the experts are spread, else all of them."""
    parts = s.pick(s.tp, 1.0)
    if isinstance(op, Gemm):
        return with_fields(op, m=op.m / parts)
    assert isinstance(op, Pointwise)
    return with_fields(op, elements=op.elements / parts)


_CUTS: dict[OpRole, Callable[[Op, ExpertSpread], Op]] = {
    **dict.fromkeys(PRODUCTS, _product),
    OpRole.PERMUTE: _sort,
    OpRole.UNPERMUTE: _sort,
    OpRole.EXPERT_LATENT: _latent,
    OpRole.ACTIVATION: _activation,
    OpRole.CLAMP: _activation,
    OpRole.EXPERT_BIAS: _rows,
}


def _saved(tensor: Saved, s: ExpertSpread) -> Saved:
    """Rows of the experts' inputs and results; both sides of their activation; the latent."""
    if tensor.region is not Region.EXPERTS:
        return tensor
    match tensor.role:
        case SavedRole.EXPERT_INPUT | SavedRole.RESULT:
            share = s.pick(s.busiest * s.etp / s.tp, s.even)
        case SavedRole.UP | SavedRole.ACTIVATED | SavedRole.GATE:
            share = s.pick(s.busiest, s.even) / s.tp
        case SavedRole.LATENT:
            share = 1.0 / s.pick(s.tp, 1.0)
        case _:
            return tensor
    return with_fields(tensor, elements=tensor.elements * share, split="none")
