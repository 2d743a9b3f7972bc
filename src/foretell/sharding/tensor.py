"""1-D tensor parallelism, with and without sequence parallelism.

Matrices are cut by columns, then by rows; attention by heads. Between these regions every rank holds
all tokens, or, with sequence parallelism, its share of them. Entering and leaving a region costs:

    without sp   enter: nothing / all-reduce (backward);   leave: all-reduce / nothing
    with sp      enter: all-gather / reduce-scatter;       leave: reduce-scatter / all-gather

(Korthikanti et al. 2022, section 4.2). With sp the gathered input is not kept: the backward pass
gathers it again, hidden behind the data gradient.
"""

from foretell.records import dataclass
from foretell.specs._base import Num, with_fields
from foretell.workload.graph import LayerGraph, Saved


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorTraffic:
    """Messages that one layer's tensor-parallel group exchanges per micro-batch and direction."""

    enters: float
    """Regions entered."""
    leaves: float
    """Regions left."""
    enter_elements: Num
    """Elements of one activation that enters."""
    leave_elements: Num
    """Elements of one that leaves."""


def tensor_parallel(graph: LayerGraph, tp: Num, sp: Num) -> LayerGraph:
    """The layer on one of `tp` ranks; `sp` is 1 where tokens outside the regions are cut too."""
    parts = token_parts(tp, sp)
    ops = tuple(
        op if op.split == "none" else op.cut(parts if op.split == "tokens" else tp)
        for op in graph.ops
    )
    return with_fields(graph, ops=ops, saved=tuple(_cut_saved(s, tp, parts) for s in graph.saved))


def token_parts(tp: Num, sp: Num) -> Num:
    """Ranks that share the tokens outside the regions: tp with sequence parallelism, else one."""
    return 1.0 + sp * (tp - 1.0)


def tensor_traffic(graph: LayerGraph) -> TensorTraffic:
    """How often the layer enters and leaves a region, and the mean size of what is exchanged there."""
    inward = [edge.elements for edge in graph.edges if not edge.leave]
    outward = [edge.elements for edge in graph.edges if edge.leave]
    return TensorTraffic(
        enters=float(len(inward)),
        leaves=float(len(outward)),
        enter_elements=sum(inward, start=0.0) / max(len(inward), 1),
        leave_elements=sum(outward, start=0.0) / max(len(outward), 1),
    )


def _cut_saved(saved: Saved, tp: Num, tokens: Num) -> Saved:
    if saved.split == "none":
        return saved
    parts = tokens if saved.split == "tokens" else tp
    return with_fields(saved, elements=saved.elements / parts)
