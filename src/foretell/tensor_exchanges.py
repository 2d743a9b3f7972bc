"""Seconds of tensor-parallel exchanges that run behind products: panels on a grid, pieces at a region's ends.

Both hide messages behind the products that need them or make them, and what stays in sight follows from how
the pieces come in turn; see the functions. `exchanges.py` asks for these where plans have them.
"""

from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from foretell.cost.calls import ACTIVATION_BYTES
from foretell.network.collectives import Group, collective_s, place
from foretell.network.library_records import Kind
from foretell.parts import Parts, stack
from foretell.sharding.data import split_counts
from foretell.sharding.tensor2d import PanelProduct
from foretell.specs._base import Num
from foretell.specs.plan import DTYPE_BYTES, Plan
from foretell.specs.system import System

Array = NDArray[np.float64]
Index = NDArray[np.intp]

GRID_KINDS: tuple[Kind, ...] = (
    "broadcast", "reduce", "all-reduce", "all-gather", "reduce-scatter",
)  # fmt: skip
"""What a grid asks for."""


def grid_seconds(
    parts: Parts, shape: Index, counts: Array, system: System, base: Plan
) -> tuple[Array, Array]:
    """What the passes wait for on a grid, forward and backward; (groups, parts).

    The ranks of a row (m1) stand nearest to each other. `counts` (tiers, groups) says where all stand.
    """
    wide = np.size(parts.shape.tp)
    tp, tp2 = (np.broadcast_to(x, wide)[shape] for x in (parts.shape.tp, parts.shape.tp2))
    near, far = split_counts(counts, tp / np.maximum(tp2, 1.0))
    rows, columns = place(near, system, GRID_KINDS), place(far, system, GRID_KINDS)

    def sized(values: list[Num], element_bytes: float = ACTIVATION_BYTES) -> Array:
        return np.asarray(stack(values, wide).T[shape] * element_bytes)

    shown = panels_shown(parts, shape, rows, columns, DTYPE_BYTES[base.weights])
    norms = sized([t.norms for t in parts.grid], 1.0)
    statistics = sized([t.statistics for t in parts.grid])
    weights = sized([t.norm_weights for t in parts.grid])
    keys, table = (sized([getattr(t, n) for t in parts.grid]) for n in ("keys", "looked_up"))
    gather = collective_s("all-gather", keys, columns)
    forward = shown[0] + norms * collective_s("all-reduce", statistics, rows)
    forward = forward + gather + collective_s("reduce-scatter", table, columns)
    backward = shown[1] + norms * collective_s("all-reduce", statistics + weights, rows)
    backward = backward + gather + collective_s("reduce-scatter", keys, columns)
    return forward, backward + collective_s("all-gather", table, columns)


def panels_shown(
    parts: Parts, shape: Index, rows: Group, columns: Group, weight_bytes: float
) -> tuple[Array, Array]:
    """Of the products' panels, what no product hides, forward and backward; (groups, parts).

    With s the seconds of one panel's messages and t those of the product, the first panel is waited for, and
    of all n whatever is longer than the product: s + max(n s - t, 0) (reference/layer.py).
    """
    products = [(i, p) for i, traffic in enumerate(parts.grid) for p in traffic.products]
    wide = np.size(parts.shape.tp)

    def of(values: list[Num]) -> Array:
        return np.asarray(stack(values, wide).T[shape])

    many = of([p.panels for _, p in products])
    a = of([p.inputs for _, p in products]) * ACTIVATION_BYTES / many
    b = of([p.weights for _, p in products]) * weight_bytes / many
    sent_a, sent_b = collective_s("broadcast", a, rows), collective_s("broadcast", b, columns)
    sums = collective_s("reduce", a, rows) + collective_s("reduce", b, columns)
    on = np.zeros((len(products), len(parts.grid)))
    on[np.arange(len(products)), [i for i, _ in products]] = 1.0
    found = []
    for one_s, run_s in zip(
        (sent_a + sent_b, sent_a + sent_b + sums), _product_s(parts, shape, products), strict=True
    ):
        found.append((one_s + np.maximum(many * one_s - run_s, 0.0)) @ on)
    return found[0], found[1]


def _product_s(
    parts: Parts, shape: Index, products: list[tuple[int, PanelProduct]]
) -> tuple[Array, Array]:
    """Seconds of the products themselves, forward and backward; (groups, products)."""
    starts = [0, *accumulate(len(ops) for ops in parts.ops)]
    rows = np.array([starts[i] + p.row for i, p in products])
    seconds = parts.times.seconds
    return seconds[rows].T[shape], seconds[rows + starts[-1]].T[shape]
