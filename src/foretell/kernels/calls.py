"""Operations as calls of kernels: which families, of which sizes, forward and backward.

A linear layer is one product forward and two backward (data and weight gradients); fused attention one kernel
each way; attention that stores its scores products and passes over the square; experts grouped products;
everything else a pass over memory. Calls of one family are stacked on an axis and evaluated at once.
"""

from collections.abc import Callable, Sequence

import numpy as np

from foretell.kernels.call_records import PLAINLY, Call, CallStack, FrameworkForm, table_of
from foretell.kernels.families.gemm import WHOLE_LOAD
from foretell.kernels.fusion import kind_of
from foretell.specs._base import Num, with_fields
from foretell.workload.ops import AttentionCore, Gemm, Op, Pointwise, Work
from foretell.workload.roles import ENDS, OpRole, Region

STEP = 64.0
"""Elements of k that a tile takes in one step: a row of 128 bytes in 16 bits."""
PADDED = Region.HEAD
"""Where frameworks and engines fill up the outputs of products, a vocabulary, to whole loads or more."""


MASK_COST = 2.1
"""Time of fused attention that reads its mask as a tensor, over the same pairs without: cuDNN's kernels on
one H200, 4 x 32 heads of 2048, both passes."""
ENTERING = (OpRole.QKV, OpRole.QUERY, OpRole.KEY_VALUE, OpRole.UP, OpRole.ROUTER, OpRole.SCORES)
"""Products that read what a norm gives."""


def calls_of(op: Op, row: int, *, backward: bool, written: FrameworkForm = PLAINLY) -> list[Call]:
    """The kernels of one operation in one pass."""
    if isinstance(op, Gemm):
        whole = written.joint and op.role is OpRole.QKV
        maps = maps_of(op) if written.apart and not whole else (op,)
        cast = 1.0 / len(maps)
        calls = [c for one in maps for c in _products(one, row, backward, cast, written)]
        return calls + _sums(op, row, backward, written) + _casts(maps, row, backward, written)
    if isinstance(op, AttentionCore):
        calls = _attention(op, row, backward)
        if op.flash and written.repeated:
            moved = Work(activation_elements=_repeated(op, backward))
            calls.append(over_memory(row, moved, "repeat", backward))
        return calls
    work = op.backward() if backward else op.forward()
    family = "scan" if op.family == "scan" else "pointwise"
    peft = written.adapters in ("narrow", "wide")
    if peft and op.role is OpRole.ADAPTER_SUM and isinstance(op, Pointwise):
        return _adapter_sums(op, row, backward, wide=written.adapters == "wide")
    if written.in_turn and isinstance(op, Pointwise) and _of_each(op):
        return _passes_in_turn(op, row, work, backward)
    if written.modules and isinstance(op, Pointwise):
        return _module_passes(op, row, work, written, backward)
    one = over_memory(row, work, _kind(op, written), backward, family)
    calls = [one]
    if isinstance(op, Pointwise) and op.role in (OpRole.EXPERT_BIAS, OpRole.MERGE):
        calls = [with_fields(one, launches=op.launches)]
    if backward and isinstance(op, Pointwise) and kind_of(op) == "act" and op.reads > 1.0:
        # Both factors of a gated part are halves of one product: their gradients are read and joined.
        halves = Work(activation_elements=4.0 * op.elements)
        calls.append(over_memory(row, halves, "halves", backward))
    return calls


def over_memory(row: int, work: Work, kind: str, backward: bool, family: str = "pointwise") -> Call:
    """A pass over memory."""
    return Call(
        family=family, linear=False, row=row, sizes={}, work=work, kind=kind, backward=backward
    )


def _of_each(op: Pointwise) -> bool:
    """Whether a loop over experts makes a pass for each of them."""
    each = (OpRole.PERMUTE, OpRole.UNPERMUTE, OpRole.ACTIVATION, OpRole.EXPERT_BIAS)
    return op.region is Region.EXPERTS and op.role in each


def _passes_in_turn(op: Pointwise, row: int, work: Work, backward: bool) -> list[Call]:
    """A pass of a loop over experts, for each by itself.

    The gradient of the rows that an expert has picked is one of all tokens: zeros, which the sum of its kin
    reads again (8 bytes for each token and expert).
    """
    calls = [over_memory(row, work, kind_of(op), backward)]
    if backward and op.role is OpRole.PERMUTE:
        zeros = Work(activation_elements=4.0 * op.elements / op.copies * op.launches)
        calls.append(over_memory(row, zeros, "zeros", backward=True))
    return [with_fields(call, launches=op.launches) for call in calls]


def kept_high(op: Op) -> bool:
    """Whether low-precision recipes leave a product in 16 bits: head, table and router."""
    return op.region in (*ENDS, Region.FROZEN) or op.role is OpRole.ROUTER


def _products(
    op: Gemm, row: int, backward: bool, cast: float, written: FrameworkForm = PLAINLY
) -> list[Call]:
    """x w forward; g w^T and x^T g backward, at equal work; panels of k as products of their own.

    `cast` is the share of casting x that falls to this product: several maps of one input share it.

    """
    linear = not kept_high(op) and op.role is not OpRole.ADAPTER
    work = op.forward()
    grouped = op.family == "grouped-gemm" and not written.in_turn
    padded = written.padded
    inner = op.k / op.panels
    in_turn = written.in_turn and op.family == "grouped-gemm"
    many = {"groups" if grouped else "batch": op.panels if in_turn else op.groups * op.panels}
    if not grouped:
        many["load"] = WHOLE_LOAD if padded and op.region is PADDED else load_elements(op.n, inner)

    def call(m: Num, n: Num, k: Num, cast: float, held: float = 1.0) -> Call:
        sizes = {"m": m, "n": n, "k": k, **many, "cast": cast, "held": held}
        if grouped:  # rows of an expert are m, but k of the weights' gradients
            sizes["drawn"] = held
        family = "grouped" if grouped else "gemm"
        return Call(
            family=family,
            linear=linear,
            row=row,
            sizes=sizes,
            work=work,
            backward=backward,
            launches=op.groups if in_turn else 1.0,
        )

    if not backward:
        return [call(op.m, op.n, inner, cast)]
    return [call(op.m, inner, op.n, 1.0), call(inner, op.n, op.m, cast, held=0.0)]


def maps_of(op: Gemm) -> tuple[Gemm, ...]:
    """Queries, keys and values, or both halves of a gated part, as products of their own; else itself."""
    if joined_maps(op) == 1.0:
        return (op,)
    if op.role is not OpRole.QKV:
        return (with_fields(op, n=0.5 * op.n),) * 2
    if not np.any(op.n_kv):
        return (op,)  # keys and values are another layer's
    pair = with_fields(op, n=0.5 * op.n_kv, n_kv=0.0)
    return with_fields(op, n=op.n - op.n_kv, n_kv=0.0), pair, pair


def halves_of(op: Gemm) -> tuple[Gemm, ...]:
    """Both halves of a gated part as products of their own, queries, keys and values as one."""
    return (op,) if op.role is OpRole.QKV else maps_of(op)


def joined_maps(op: Gemm) -> float:
    """Maps of one input that some frameworks run apart: queries, keys and values, or gate and up."""
    if op.role is OpRole.QKV:
        return 3.0
    two = op.role is OpRole.UP and op.gated and op.region is Region.FEED_FORWARD
    return 2.0 if two else 1.0


def _module_passes(
    op: Pointwise, row: int, work: Work, written: FrameworkForm, backward: bool
) -> list[Call]:
    """Passes of a module of transformers, each of several that an operation stands for by itself."""
    many = op.repeats
    one = Work(
        vector_flop=work.vector_flop / many,
        activation_elements=work.activation_elements / many,
        weight_elements=work.weight_elements / many,
    )
    calls = [over_memory(row, one, _kind(op, written), backward) for _ in range(round(many))]
    if op.family == "loss" and written.capped:
        moved = Work(activation_elements=(7.0 if backward else 6.0) * op.elements)
        calls.append(over_memory(row, moved, "cap", backward))
    return calls


def _kind(op: Op, written: FrameworkForm) -> str:
    """The kind of a pass over memory, as a framework writes it."""
    kind = kind_of(op)
    if kind == "norm" and written.modules and written.rms:
        return "rms-frozen" if written.adapters else "rms"
    if kind == "act" and written.modules and written.composed:
        return "composed"
    return "dropped" if kind == "residual" and written.modules and written.dropout else kind


def _casts(maps: Sequence[Gemm], row: int, backward: bool, written: FrameworkForm) -> list[Call]:
    """Casts between 32 and 16 bits, 6 bytes each: of weights and inputs, backward of their gradients."""
    first = maps[0]
    if not written.casts_weights or first.family == "grouped-gemm" or first.role is OpRole.ADAPTER:
        return []
    sizes = [op.k * op.n * op.groups for op in maps]
    sizes += [op.n * op.groups for op in maps if op.bias]
    # What comes from a norm is in 32 bits, and so is a composed activation; other inputs are in 16.
    wide = (*ENTERING, OpRole.DOWN) if written.composed else ENTERING
    if written.casts_inputs and first.role in wide:
        sizes += [op.m * op.k * op.groups for op in maps]
    return [over_memory(row, Work(activation_elements=3.0 * n), "cast", backward) for n in sizes]


def _adapter_sums(op: Pointwise, row: int, backward: bool, *, wide: bool) -> list[Call]:
    """Passes of one adapter of PEFT beside its products: over its outputs, or over its inputs.

    Outputs (reads > 0): times the scale, added to the map's result, rounded; backward the gradient widened,
    times the scale. Inputs: cast to 32 bits, under autocast back to 16; backward the gradient the same way,
    and the sum. Elements of 16 bits, and how many kernels these are.
    """
    outputs = op.reads > 0.0
    moved = {
        (True, True): ((4.0, 5.0, 3.0, 1.0), (3.0, 4.0, 2.0)),
        (True, False): ((2.0, 3.0), (2.0,)),
        (False, True): ((3.0, 1.0), (3.0, 3.0, 3.0)),
        (False, False): ((3.0, 3.0), (3.0, 3.0, 3.0)),
    }[outputs, wide][backward]
    return [
        over_memory(row, Work(activation_elements=n * op.elements), "cast", backward) for n in moved
    ]


def _sums(op: Gemm, row: int, backward: bool, written: FrameworkForm = PLAINLY) -> list[Call]:
    """Passes over memory beside the products, backward."""
    calls: list[Call] = []
    apart = 1.0 if written.joint and op.role is OpRole.QKV else joined_maps(op)
    if backward and apart > 1.0:
        # Each of several maps of one input has a gradient for it: these are read, and their sum written.
        joined = Work(activation_elements=(apart + 1.0) * op.m * op.k)
        calls.append(over_memory(row, joined, "join", backward))
    if backward and op.role is OpRole.QKV and not (written.modules and apart > 1.0):
        # Slices of one product: the gradients of queries, keys and values are read and joined.
        calls.append(
            over_memory(row, Work(activation_elements=2.0 * op.m * op.n), "heads", backward)
        )
    if backward and op.bias:
        # The gradient of a bias is a sum over the rows of the outputs' gradient.
        summed = Work(activation_elements=op.groups * op.m * op.n)
        calls.append(over_memory(row, summed, "bias", backward))
    return calls


def load_elements(*rows: Num) -> Num:
    """Elements of 16 bits that one load takes of rows so long: 8, 2 or 1.

    A row must begin at a multiple of the load, so its length has to be one. Rows of 8 bytes are read by the
    kernels for 4: on one H200, products whose n or k was a multiple of 4 ran as fast as of 2, and their m
    made no difference in any pass.
    """
    if all(type(row) is float for row in rows):
        loads = (load for load in (WHOLE_LOAD, 2.0) if all(row % load == 0.0 for row in rows))
        return next(loads, 1.0)
    whole = pairs = np.True_
    for row in rows:
        whole = whole & (np.mod(row, WHOLE_LOAD) == 0.0)
        pairs = pairs & (np.mod(row, 2.0) == 0.0)
    return np.where(whole, WHOLE_LOAD, np.where(pairs, 2.0, 1.0))


def _attention(op: AttentionCore, row: int, backward: bool) -> list[Call]:
    work = op.backward() if backward else op.forward()
    if op.flash:
        sizes = {
            "batch": op.batch * (1.0 + (MASK_COST - 1.0) * op.masked),
            "heads": op.heads,
            "kv_heads": op.kv_heads,
            "q_len": op.q_len,
            "kv_len": op.kv_len,
            "pairs": op.pairs,
            "qk_dim": op.qk_dim,
            "v_dim": op.v_dim,
            "calls": op.calls,
        }
        family = "prefill-backward" if backward else "prefill"
        return [
            Call(family=family, linear=False, row=row, sizes=sizes, work=work, backward=backward)
        ]
    return _stored_scores(op, row, work, backward)


def _repeated(op: AttentionCore, backward: bool) -> Num:
    """Elements of keys and values that heads share, written out for every head: read, and written; backward
    the gradients that heads have of their own are written too, read and added up."""
    shared = op.batch * op.kv_heads * op.kv_len * (op.qk_dim + op.v_dim)
    every = shared * op.heads / op.kv_heads
    moved = 2.0 * every if backward else every + shared
    return np.where(np.asarray(op.heads) > op.kv_heads, moved, 0.0)


def _stored_scores(op: AttentionCore, row: int, work: Work, backward: bool) -> list[Call]:
    """Products over the whole square and, between them, passes over the scores.

    A tile steps through k by STEP elements: heads of 80 take as many steps as heads of 128. The columns of a
    product as wide as a head are filled up by its tiles (families/gemm.py).
    """
    heads = op.batch * op.heads
    forms = [(op.q_len, op.kv_len, op.qk_dim), (op.q_len, op.v_dim, op.kv_len)]
    if backward:
        forms = [
            (op.q_len, op.kv_len, op.v_dim),
            (op.kv_len, op.v_dim, op.q_len),
            (op.q_len, op.qk_dim, op.kv_len),
            (op.kv_len, op.qk_dim, op.q_len),
        ]
    calls = []
    for m, n, k in forms:
        flop = 2.0 * heads * m * n * k
        load = load_elements(op.kv_len, op.qk_dim, op.v_dim)
        steps = STEP * np.ceil(np.asarray(k, dtype=np.float64) / STEP)
        sizes = {"m": m, "n": n, "k": steps, "batch": heads, "load": load, "cast": 1.0, "held": 0.0}
        each = Work(matrix_flop=flop, activation_elements=heads * (m * k + k * n + m * n))
        calls.append(
            Call(family="gemm", linear=False, row=row, sizes=sizes, work=each, backward=backward)
        )
    # The products have read and written the scores once each; softmax and mask pass over them besides.
    moved = (4.0 if backward else 3.0) * op.scores
    softmax = Work(vector_flop=work.vector_flop, activation_elements=moved)
    calls.append(over_memory(row, softmax, "softmax", backward))
    return calls


def backward_calls(
    op: Op, row: int, products: int, *, written: FrameworkForm = PLAINLY
) -> list[Call]:
    """The kernels of the backward pass: of a matrix's two gradients the first `products`; 0: none."""
    if products == 0:
        return []
    if written.adapters and products == 1:
        return _frozen_calls(op, row, written)
    calls = calls_of(op, row, backward=True, written=written if products == 2 else PLAINLY)
    return calls[:1] if products == 1 and isinstance(op, Gemm) else calls


def _frozen_calls(op: Op, row: int, written: FrameworkForm) -> list[Call]:
    """The kernels of the backward pass of modules with frozen weights: of every map its data gradient."""
    calls = calls_of(op, row, backward=True, written=written)
    if not isinstance(op, Gemm):
        return calls
    products = [call for call in calls if call.family != "pointwise"]
    return products[::2] + [call for call in calls if call.kind == "join"]


def both_gradients(op: Op) -> int:
    """What trained operations run backward."""
    return 2


def call_stacks(
    ops: Sequence[Op],
    width: int,
    products: Callable[[Op], int] = both_gradients,
    *,
    written: FrameworkForm = PLAINLY,
    narrow: bool = True,
) -> tuple[CallStack, ...]:
    """All calls, forward (rows from 0) and backward (from len(ops)); `narrow`: linear maps are apart."""
    many = len(ops)
    calls = [
        c for i, op in enumerate(ops) for c in calls_of(op, i, backward=False, written=written)
    ]
    for i, op in enumerate(ops):
        calls += backward_calls(op, i + many, products(op), written=written)
    by_kind: dict[tuple[str, bool], list[Call]] = {}
    for call in calls:
        by_kind.setdefault((call.family, call.linear and narrow), []).append(call)
    return tuple(_stack(by_kind[kind], kind[1], width) for kind in sorted(by_kind))


def _stack(calls: Sequence[Call], linear: bool, width: int) -> CallStack:
    first, work = calls[0], [c.work for c in calls]
    columns: dict[str, list[Num]] = {n: [c.sizes[n] for c in calls] for n in first.sizes}
    columns |= {f" {name}": [getattr(w, name) for w in work] for name in WORK}
    columns[" launches"] = [c.launches for c in calls]
    # All of it as one array: each by itself costs as much again.
    table = table_of([value for column in columns.values() for value in column], width)
    found = dict(zip(columns, table.reshape(len(columns), len(calls), width), strict=True))
    return CallStack(
        family=first.family,
        linear=linear,
        rows=np.array([c.row for c in calls], dtype=np.intp),
        kinds=tuple((c.kind, c.backward) for c in calls),
        sizes={name: found[name] for name in first.sizes},
        launches=found[" launches"],
        **{name: found[f" {name}"] for name in WORK},
    )


WORK = ("matrix_flop", "vector_flop", "activation_elements", "weight_elements")
"""What the work of a call is counted in."""
