"""1-D tensor parallelism, with and without sequence parallelism.

Matrices are cut by columns, then by rows; attention by heads. Between these regions every rank holds
all tokens, or, with sequence parallelism, its share of them. Entering and leaving a region costs:

    without sp   enter: nothing / all-reduce (backward);   leave: all-reduce / nothing
    with sp      enter: all-gather / reduce-scatter;       leave: reduce-scatter / all-gather

(Korthikanti et al. 2022, section 4.2). With sp the gathered input is not kept: the backward pass
gathers it again, hidden behind the data gradient.
"""

from dataclasses import dataclass, replace

import numpy as np

from foretell.specs._base import Num
from foretell.workload.graph import LayerGraph, Saved


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorTraffic:
    """Messages that one layer's tensor-parallel group exchanges per micro-batch and direction."""

    enters: float
    """Regions entered."""
    leaves: float
    """Regions left."""
    elements: Num
    """Elements of one message: the full activation."""


def tensor_parallel(graph: LayerGraph, tp: Num, sp: Num) -> LayerGraph:
    """The layer on one of `tp` ranks; `sp` is 1 where tokens outside the regions are cut too."""
    token_parts = np.where(np.asarray(sp) > 0, tp, 1.0)
    ops = tuple(
        op if op.split == "none" else op.cut(token_parts if op.split == "tokens" else tp)
        for op in graph.ops
    )
    return replace(graph, ops=ops, saved=tuple(_cut_saved(s, tp, token_parts) for s in graph.saved))


def tensor_traffic(graph: LayerGraph) -> TensorTraffic:
    """How often the layer enters and leaves a region, and the mean size of what is exchanged."""
    leaves = sum(1.0 for edge in graph.edges if edge.leave)
    total: Num = sum((edge.elements for edge in graph.edges), start=0.0)
    return TensorTraffic(
        enters=len(graph.edges) - leaves,
        leaves=leaves,
        elements=total / max(len(graph.edges), 1),
    )


def _cut_saved(saved: Saved, tp: Num, token_parts: Num) -> Saved:
    if saved.split == "none":
        return saved
    parts = token_parts if saved.split == "tokens" else tp
    return replace(saved, elements=saved.elements / parts)
