"""2-D tensor parallelism: products on a grid of ranks, in panels (SUMMA, van de Geijn and Watts 1997).

The tp ranks form a grid of m1 x m2, m2 = tp2. Features are cut over the first side, tokens over the second,
inside the layers and between them; a weight is cut over both, so that no rank has a copy of another's:

    x  [b l / m2, i / m1]      w  [i / m2, o / m1]      y  [b l / m2, o / m1]

A product runs over `panels` parts of i. For each the m1 ranks of a row broadcast their part of x and the m2
ranks of a column theirs of w; backward both again, and the gradients are reduced to those who hold them:

    forward    broadcast A (m1) and B (m2)
    backward   broadcast B (m2), reduce A (m1); broadcast A (m1), reduce B (m2)
    A = b (l / m2) i,  B = i (o / m1) elements

Norms sum two numbers a token over m1, their weights' gradients come on top; attention has heads / m1 and
queries / m2 and gathers keys and values over m2. These are the equations of the published 2024 model
(lab/reference/ops.py; tests/sharding/test_tensor2d.py holds the volumes to it), with its norms over e / m1.

Its other grid, 2-D sequence parallelism, cuts only tokens by the second dimension: that is tensor
parallelism beside context parallelism that gathers, and `tp_mode=sequence` is read as these.
"""

import numpy as np

from foretell.records import dataclass
from foretell.sharding.context import context_parallel, context_traffic
from foretell.specs._base import Num, with_fields
from foretell.workload.graph import LayerGraph
from foretell.workload.ops import AttentionCore, Gemm, Lookup, Op, Pointwise

PANEL_WIDTH = 1024.0
"""Inputs of one panel that are aimed at: products as deep as this run near their best, and more panels hide
more of the first one's broadcast."""
STATISTICS = 2.0
"""Numbers of a token that a norm sums: mean and variance, or one in 32 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorGrid:
    """A grid of tensor-parallel ranks; numbers or arrays over shapes."""

    m1: Num
    """Ranks along the first dimension: features, heads, outputs."""
    m2: Num
    """Ranks along the second: tokens, inputs of the weights."""
    panels: float
    """Panels asked for; 0: `panel_count` chooses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelProduct:
    """One product of a part on the grid."""

    row: int
    """Its operation among those of the part."""
    inputs: Num
    """Elements of A: this row's tokens with all inputs."""
    weights: Num
    """Elements of B: all inputs of this column's outputs."""
    panels: Num
    """Panels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridTraffic:
    """What one part exchanges on the grid, per micro-batch and direction."""

    products: tuple[PanelProduct, ...]
    """Its products."""
    norms: Num
    """Norms over the whole width."""
    statistics: Num
    """Elements that one of them sums over m1."""
    norm_weights: Num
    """Elements that its backward pass sums beside these."""
    keys: Num
    """Elements of keys and values that m2 gathers."""
    looked_up: Num
    """Elements of rows of a token table that m2 reduces and scatters."""
    held: Num
    """Elements of other ranks' panels at a time: those at work and those on their way."""


def grid_of(tp: Num, tp2: Num, panels: float) -> TensorGrid:
    """The grid of a plan's words."""
    m2 = np.maximum(tp2, 1.0)
    return TensorGrid(m1=tp / m2, m2=m2, panels=panels)


def panel_count(inputs: Num, grid: TensorGrid) -> Num:
    """Doublings of the longer side (every rank must own whole panels) that leave PANEL_WIDTH inputs each."""
    if grid.panels:
        return grid.panels
    least = np.maximum(grid.m1, grid.m2)
    more = np.floor(np.log2(np.maximum(inputs / (least * PANEL_WIDTH), 1.0)))
    # On one rank nothing is sent, and nothing is cut.
    return np.where(least > 1.0, least * 2.0**more, 1.0) + 0.0


def grid_parallel(graph: LayerGraph, grid: TensorGrid) -> LayerGraph:
    """The layer on one rank of the grid. Its input and edges stay those of the whole grid."""
    rows = context_parallel(graph, grid.m2, "allgather")
    ops = tuple(_cut(op, whole, grid) for op, whole in zip(rows.ops, graph.ops, strict=True))
    saved = tuple(with_fields(s, elements=s.elements / grid.m1, split="none") for s in rows.saved)
    return with_fields(graph, ops=ops, saved=saved)


def _cut(op: Op, whole: Op, grid: TensorGrid) -> Op:
    """One rank's part of an operation whose tokens are cut."""
    match op:
        case Gemm():
            cut = (
                op.cut(grid.m1)
                if op.split in ("col", "heads")
                else with_fields(op, n=op.n / grid.m1)
            )
            panels = panel_count(op.k, grid)
            return with_fields(cut, weight_parts=grid.m2, panels=panels, split="none")
        case AttentionCore():
            return op.cut(grid.m1)
        case Pointwise() if op.split == "width":
            return op.cut(grid.m1)
        case Pointwise():
            return with_fields(op, elements=op.elements / grid.m1, weights=op.weights / grid.m1)
        case Lookup():
            return _table(op, whole, grid)
    raise TypeError(f"{type(op).__name__} has no form on a grid")


def _table(op: Lookup, whole: Op, grid: TensorGrid) -> Lookup:
    """A token table is cut by rows over m2, which look up each other's tokens, and by width over m1."""
    assert isinstance(whole, Lookup)
    if whole.split != "row":
        return with_fields(op, width=op.width / grid.m1)
    return with_fields(whole, rows=op.rows / grid.m2, width=op.width / grid.m1, split="none")


def grid_traffic(
    graph: LayerGraph, local: LayerGraph, grid: TensorGrid, hidden: float
) -> GridTraffic:
    """Messages of a part of width `hidden`, from its whole and from one rank's share."""
    products = tuple(
        PanelProduct(
            row=row,
            inputs=op.groups * op.m * op.k,
            weights=op.groups * op.k * op.n,
            panels=op.panels,
        )
        for row, op in enumerate(local.ops)
        if isinstance(op, Gemm)
    )
    width = [op for op in graph.ops if op.family == "norm" and op.split == "tokens"]
    norms: Num = 0.0
    for op in width:
        assert isinstance(op, Pointwise)
        norms = norms + op.elements / graph.input_elements
    rows = graph.input_elements / hidden / grid.m2
    tables = any(isinstance(op, Lookup) and op.split == "row" for op in graph.ops)
    return GridTraffic(
        products=products,
        norms=norms,
        statistics=STATISTICS * rows,
        norm_weights=2.0 * hidden / grid.m1,
        keys=context_traffic(local, "allgather").keys,
        looked_up=graph.input_elements / grid.m1 if tables else 0.0,
        held=_held(products, grid),
    )


def _held(products: tuple[PanelProduct, ...], grid: TensorGrid) -> Num:
    """Two panels of A where a row has others, and of B where a column has."""
    largest: Num = 0.0
    for p in products:
        lent = p.inputs * np.minimum(grid.m1 - 1.0, 1.0) + p.weights * np.minimum(
            grid.m2 - 1.0, 1.0
        )
        largest = np.maximum(largest, lent / p.panels)
    return 2.0 * largest
