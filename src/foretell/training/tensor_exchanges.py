"""Seconds of tensor-parallel exchanges that run behind products: panels on a grid, pieces at a region's ends.

What stays in sight follows from how the pieces come in turn; `training/exchanges.py` asks for these where
plans have them. PyTorch's DTensor adds copies: tokens are the second dim of its activations, and collectives
join ranks along the first. Behind a gather the ranks' parts are laid side by side (chunk and cat), before a
scatter they are laid out so, each a copy of all tokens (torch.distributed, `_functional_collectives.py`).
Asynchronous tensor parallelism (`torch/_inductor/fx_passes/micro_pipeline_tp.py`) cuts a gather that feeds
one product or several, and a scatter of what one product makes. So stay whole:

    enter_scatter   backward, where maps of one input are products of their own: it scatters their sum
    gathers         of products scaled by row or block: between gather and product is the cast
                    (pytorch issue 149990; their scatters are cut)

What comes in pieces lies with its tokens first: for the weights' gradients, which take all tokens of a batch
as rows, it is laid out once more, and the parts of a sum are read once more to add them up. Gathers travel in
8 bits where products are scaled by tensor: what enters a region is cast before it (torchtitan,
`enable_float8_tensorwise_tp`); by row or block they travel in 16.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from foretell.kernels.call_records import table_of
from foretell.kernels.precision import linear_format
from foretell.network.collectives import Group, collective_s, place, slower_by
from foretell.network.library_records import Kind
from foretell.records import dataclass
from foretell.sharding.data import split_counts
from foretell.sharding.expert import has_shared
from foretell.sharding.tensor2d import PanelProduct
from foretell.specs._base import Num
from foretell.specs.arrays import Array, Index
from foretell.specs.chip import Chip
from foretell.specs.plan import DTYPE_BYTES, Plan
from foretell.specs.software import Software
from foretell.specs.system import System
from foretell.training.overlap import Overlap, overlap_of, waited
from foretell.training.part_costs import Parts
from foretell.workload.graph import Edge
from foretell.workload.ops import Gemm, Op
from foretell.workload.roles import ALL_EXPERTS, EdgeRole, Region

GRID_KINDS: tuple[Kind, ...] = (
    "broadcast", "reduce", "all-reduce", "all-gather", "reduce-scatter",
)  # fmt: skip
"""What a grid asks for."""
TILE = 128.0 * 256.0
"""Outputs that one core of a chip has at a time in a product."""
STREAMS = 3.0
"""Pieces of a product that run side by side (Transformer Engine's compute streams)."""
GATHERS, SCATTERS = ("enter_gather", "leave_gather"), ("leave_scatter", "enter_scatter")
"""Exchanges at the ends of a region by their names in EndTimes."""
SCATTER_CORES = 16.0
"""Cores that a reduce-scatter beside a product takes; gathers are copied by engines of their own (Transformer
Engine's defaults, num_sm and use_ce)."""


def grid_seconds(
    parts: Parts, shape: Index, counts: Array, system: System, base: Plan
) -> tuple[tuple[Array, Array], tuple[Overlap, Overlap]]:
    """What passes on a grid wait for, and what can hide it; (groups, parts). A row's ranks are nearest."""
    wide = np.size(parts.shape.tp)
    tp, tp2 = (np.broadcast_to(x, wide)[shape] for x in (parts.shape.tp, parts.shape.tp2))
    near, far = split_counts(counts, tp / np.maximum(tp2, 1.0))
    kind = system.corrections.tensor_parallel
    rows, columns = (
        place(where, system, GRID_KINDS, slower_by(kind, where, system)) for where in (near, far)
    )

    def sized(values: list[Num], element_bytes: float = parts.element_bytes) -> Array:
        return np.asarray(table_of(values, wide).T[shape] * element_bytes)

    shown, panels = panels_shown(parts, shape, rows, columns, DTYPE_BYTES[base.weights])
    norms = sized([t.norms for t in parts.grid], 1.0)
    statistics = sized([t.statistics for t in parts.grid])
    weights = sized([t.norm_weights for t in parts.grid])
    keys, table = (sized([getattr(t, n) for t in parts.grid]) for n in ("keys", "looked_up"))
    gather = collective_s("all-gather", keys, columns)
    forward = norms * collective_s("all-reduce", statistics, rows)
    forward = forward + gather + collective_s("reduce-scatter", table, columns)
    backward = norms * collective_s("all-reduce", statistics + weights, rows)
    backward = backward + gather + collective_s("reduce-scatter", keys, columns)
    backward = backward + collective_s("all-gather", table, columns)
    behind = (
        replace(panels[0], fixed_s=panels[0].fixed_s + forward),
        replace(panels[1], fixed_s=panels[1].fixed_s + backward),
    )
    return (shown[0] + forward, shown[1] + backward), behind


def panels_shown(
    parts: Parts, shape: Index, rows: Group, columns: Group, weight_bytes: float
) -> tuple[tuple[Array, Array], tuple[Overlap, Overlap]]:
    """Of the products' panels, what no product hides, forward and backward, and what could; (groups, parts).

    With s the seconds of one panel's messages and t those of the product, the first panel is waited for, and
    of all n whatever is longer than the product: s + max(n s - t, 0) (lab/reference/iteration.py).
    """
    products = [(i, p) for i, traffic in enumerate(parts.grid) for p in traffic.products]
    wide = np.size(parts.shape.tp)

    def of(values: list[Num]) -> Array:
        return np.asarray(table_of(values, wide).T[shape])

    many = of([p.panels for _, p in products])
    a = of([p.inputs for _, p in products]) * parts.element_bytes / many
    b = of([p.weights for _, p in products]) * weight_bytes / many
    sent_a, sent_b = collective_s("broadcast", a, rows), collective_s("broadcast", b, columns)
    sums = collective_s("reduce", a, rows) + collective_s("reduce", b, columns)
    on = np.zeros((len(products), len(parts.grid)))
    on[np.arange(len(products)), [i for i, _ in products]] = 1.0
    found = []
    for one_s, run_s in zip(
        (sent_a + sent_b, sent_a + sent_b + sums), _product_s(parts, shape, products), strict=True
    ):
        panels = overlap_of(one_s, many * one_s, run_s)
        found.append((waited(panels, run_s) @ on, summed(panels, on)))
    return (found[0][0], found[1][0]), (found[0][1], found[1][1])


def summed(one: Overlap, on: Array) -> Overlap:
    """Exchanges of products or ends together, by part; `on` says which is in which."""
    return Overlap(fixed_s=one.fixed_s @ on, hidden_s=one.hidden_s @ on, slack_s=one.slack_s @ on)


def _product_s(
    parts: Parts, shape: Index, products: list[tuple[int, PanelProduct]]
) -> tuple[Array, Array]:
    """Seconds of the products themselves, forward and backward; (groups, products)."""
    starts = [0, *accumulate(len(ops) for ops in parts.ops)]
    rows = np.array([starts[i] + p.row for i, p in products])
    seconds = parts.times.seconds
    return seconds[rows].T[shape], seconds[rows + starts[-1]].T[shape]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTimes:
    """Seconds of one exchange at the ends of a part's regions, whole; (groups, parts)."""

    enter_gather: Array
    """All-gather where tokens enter a region, forward."""
    leave_scatter: Array
    """Reduce-scatter where they leave it, forward."""
    enter_scatter: Array
    """Reduce-scatter of the gradients that leave through its entry, backward."""
    leave_gather: Array
    """All-gather of those that enter through its end, backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """One end of a tensor-parallel region, and the products that it feeds or is fed by."""

    part: int
    """The part that it is in."""
    leave: bool
    """Whether tokens leave there."""
    rows: tuple[int, ...]
    """Operations among all of the model: by columns behind an entry, by rows before an end."""
    tiles: Num
    """Tiles of their outputs."""
    always: bool
    """Whether it is there too where experts are spread."""


def pieces_shown(
    parts: Parts, shape: Index, times: EndTimes, chip: Chip, *, whole: Sequence[str] = ()
) -> tuple[tuple[Array, Array], tuple[Overlap, Overlap]]:
    """Exchanges at the ends of regions that run in g = tp pieces behind the products, forward and backward,
    and what can hide them; (groups, parts).

    A gather of c seconds feeds a product of t: the first piece is the rank's own, so all of c has g - 1
    pieces of t to hide behind. A scatter follows its product: the last piece has nothing left.

        gather     max(c - t (g - 1) / g, 0)
        scatter    max(c / g, c - t (g - 1) / g)

    Backward the gather runs behind the data gradient and the scatter behind the weights' gradient, half of
    the backward products each. On top of it the products take longer: pieces fill the cores less well, and a
    scatter takes some of them while it runs (Transformer Engine's userbuffers, `--tp-comm-overlap`;
    PyTorch's asynchronous tensor parallelism). `whole` names ends that are not cut though others are.
    """
    ends = region_ends(parts)
    count = sum(len(ops) for ops in parts.ops)
    on = np.zeros((len(ends), len(parts.ops)))
    on[np.arange(len(ends)), [e.part for e in ends]] = 1.0
    where = np.array([e.part for e in ends], dtype=np.intp)
    leave = np.array([e.leave for e in ends])
    wide = np.size(parts.shape.tp)
    g = np.broadcast_to(parts.shape.tp, wide)[shape][:, None]
    folded = np.broadcast_to(parts.shape.ep, wide)[shape][:, None] > 1.0
    there = ~folded | np.array([e.always for e in ends])
    tiles = table_of([e.tiles for e in ends], wide).T[shape]
    cores = np.broadcast_to(np.maximum(chip.cores, 1.0), wide)[shape][:, None]
    slower = _split_loss(tiles / cores, g) * (g > 1.0)
    taken = SCATTER_CORES / np.maximum(cores, SCATTER_CORES)
    kept = [
        np.where(leave, names[1] in whole, names[0] in whole)
        for names in (("enter_gather", "leave_scatter"), ("enter_scatter", "leave_gather"))
    ]
    found = []
    for offset, share, messages, scatters in (
        (0, 1.0, (times.enter_gather, times.leave_scatter), leave),
        (count, 0.5, (times.enter_scatter, times.leave_gather), ~leave),
    ):
        rows = [np.array(e.rows, dtype=np.intp) + offset for e in ends]
        product = np.stack([parts.times.seconds[r].sum(axis=0) for r in rows]).T[shape] * share
        sent = np.where(leave, messages[1][:, where], messages[0][:, where])
        work = product * (g - 1.0) / g
        last = np.where(scatters, sent / g, 0.0)
        ends_s = overlap_of(last, sent - last, work)
        shown = waited(ends_s, work)
        # Weights' gradients are not cut: they are one product behind their scatter.
        cut = (offset == 0) | leave
        lost = product * slower * cut + np.where(scatters, taken * (sent - shown), 0.0)
        # An exchange that pieces would only prolong is left whole.
        left = kept[offset > 0] | (shown + lost >= sent)
        shown = np.where(left, sent, shown + lost)
        ends_s = Overlap(
            fixed_s=there * np.where(left, sent, last),
            hidden_s=there * np.where(left, 0.0, ends_s.hidden_s),
            slack_s=there * np.where(left, 0.0, ends_s.slack_s),
        )
        found.append(((there * shown) @ on, summed(ends_s, on)))
    return (found[0][0], found[1][0]), (found[0][1], found[1][1])


def _split_loss(waves: Array, pieces: Array) -> Array:
    """Time of a product cut into pieces, STREAMS of them side by side, over that of the whole, less one.

    Both take whole waves of tiles: ceil(waves), and pieces / STREAMS rounds of ceil(waves STREAMS / pieces).
    """
    side = np.minimum(STREAMS, pieces)
    whole = np.maximum(np.ceil(waves), 1.0)
    rounds = pieces / side * np.ceil(np.maximum(waves, 1e-9) * side / pieces)
    return np.asarray(np.maximum(rounds / whole - 1.0, 0.0))


def region_ends(parts: Parts) -> tuple[End, ...]:
    """Every end of every part, with its products."""
    starts = [0, *accumulate(len(ops) for ops in parts.ops)]
    found = []
    for i, (edges, ops) in enumerate(zip(parts.edges, parts.ops, strict=True)):
        shared = has_shared(ops)
        found += [_end(edge, i, ops, starts[i], shared) for edge in edges]
    return tuple(found)


def _end(edge: Edge, part: int, ops: tuple[Op, ...], start: int, shared: bool) -> End:
    split = "row" if edge.leave else "col"
    tiles: Num = 0.0
    rows = []
    for row, op in enumerate(ops):
        if _has_pieces(op, edge, split):
            assert isinstance(op, Gemm)
            rows.append(start + row)
            tiles = tiles + op.groups * op.m * op.n / TILE
    return End(
        part=part,
        leave=edge.leave,
        rows=tuple(rows),
        tiles=tiles,
        always=edge.region is not Region.EXPERTS or shared,
    )


def _has_pieces(op: Op, edge: Edge, split: str) -> bool:
    """A product that an end feeds or is fed by; grouped ones of experts are not cut by tokens."""
    plain = isinstance(op, Gemm) and op.family != "grouped-gemm"
    if not plain or op.split != split or edge.role is not EdgeRole.HIDDEN:
        return False
    # Shared experts stand inside the region of the routed ones.
    return op.region is edge.region or (edge.region is Region.EXPERTS and op.region in ALL_EXPERTS)


COPY_SHARE = 0.8
"""Share of the memory bandwidth that copies reach."""
NARROW = 0.5
"""Bytes of a gather in 8 bits over those in 16."""


def copy_s(sizes: Array, parts: Parts, shape: Index, chip: Chip) -> Array:
    """Seconds in which so many bytes are read and written once; none where tokens are whole."""
    wide = np.size(parts.shape.tp)
    bandwidth = np.broadcast_to(chip.memory_bandwidth_bytes_per_s, wide)[shape][:, None]
    cut = np.broadcast_to(parts.shape.tp, wide)[shape][:, None] > 1.0
    return np.asarray(cut * 2.0 * sizes / (COPY_SHARE * bandwidth))


def by_tensor(plan: Plan) -> bool:
    """Whether products are in 8 bits with one scale for a tensor."""
    return plan.precision == "fp8" and plan.scaling == "tensor"


def gathered_share(parts: Parts, plan: Plan, software: Software) -> Array:
    """Bytes gathered over those in 16 bits: of what enters parts, of what leaves them, of a stage's input."""
    many = len(parts.names)
    share = np.ones(2 * many + 1)
    if software.sequence_copies and by_tensor(plan):
        layer = np.arange(many) < parts.kinds
        share[:-1] = np.tile(np.where(layer, NARROW, 1.0), 2)
    return share


def whole_ends(plan: Plan, software: Software) -> tuple[str, ...]:
    """Ends, by their names in EndTimes, whose exchanges no pieces hide though others run so."""
    if not software.sequence_copies:
        return ()
    ends = ("enter_scatter",) if software.maps_apart else ()
    cast_between = linear_format(plan) is not None and not by_tensor(plan)
    return (*ends, *GATHERS) if cast_between else ends


def left_copies(copied: EndTimes, whole: tuple[str, ...]) -> EndTimes:
    """Of all copies, those beside exchanges in pieces: whole ends, what is gathered for weights' gradients,
    and half of a copy for a sum. An entry's gather is laid out once, backward: with its scatter here."""
    enter = 0.0 if "enter_gather" in whole else 1.0
    leave, back = (1.0 if name in whole else 0.5 for name in SCATTERS)
    return EndTimes(
        enter_gather=(1.0 - enter) * copied.enter_gather,
        leave_scatter=leave * copied.leave_scatter,
        enter_scatter=back * copied.enter_scatter + enter * copied.enter_gather,
        leave_gather=copied.leave_gather,
    )
