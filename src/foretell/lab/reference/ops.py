"""The fourteen ops of one layer: FLOP, bytes, stored activations, weights and collectives of each.

Two bytes per element, one per dropout-mask element. Every function returns one `ReferenceOp`, whose fields
broadcast over the batch of layers. Names are those of the equations: b samples, l tokens, e width,
h heads; m1 and m2 the tensor-parallel dimensions.
"""

from typing import Literal

import numpy as np

from foretell.lab.reference.records import Floats, Ints, Kind, Quirks, Strategy, StudyModel
from foretell.records import dataclass

ELEMENT_BYTES = 2.0
"""Bytes of one activation, weight or gradient."""
MASK_BYTES = 1.0
"""Bytes of one dropout-mask element."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBatch:
    """Distinct layers: what one layer's time depends on, one entry each."""

    b: Ints
    """Samples of one microbatch."""
    m1: Ints
    """First tensor-parallel dimension."""
    m2: Ints
    """Second tensor-parallel dimension; 1 in 1d."""
    t1: Ints
    """Members of an m1 group in one fast domain."""
    t2: Ints
    """Members of an m2 group in one fast domain."""
    nb: Ints
    """SUMMA panels; 1 elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comm:
    """One collective of an op over one of the two tensor-parallel groups."""

    kind: Kind
    """Which collective."""
    axis: Literal[1, 2]
    """The group: 1 is m1 with t1 in a domain, 2 is m2 with t2."""
    volume_bytes: Floats
    """Full buffer: gathered, or not yet reduced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectionWork:
    """One direction of one op."""

    flop: Floats
    """Operations, at the rate of the op's unit."""
    moved_bytes: Floats
    """Bytes to and from HBM."""
    comms: tuple[Comm, ...] = ()
    """Collectives, one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceOp:
    """One op of the layer, forward and backward."""

    name: str
    """Name within the layer."""
    matrix: bool
    """Whether it runs at the matrix peak; the vector peak otherwise."""
    forward: DirectionWork
    """Forward pass."""
    backward: DirectionWork
    """Backward pass."""
    stored_bytes: Floats | float = 0.0
    """Activations kept for the backward pass."""
    weight_bytes: Floats | float = 0.0
    """Weights held by one GPU."""
    panels: bool = False
    """Whether communication is cut into panels and overlapped (SUMMA)."""
    scaled_flop: Floats | float = 0.0
    """What scaling by matrix/vector peak adds to the FLOP of the vector work, both directions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSizes:
    """Local sizes of a batch of layers, floored in int64 and then float64."""

    rows: Floats
    """Token rows of an m2 shard, b floor(l/m2)."""
    sharded_rows: Floats
    """Token rows of an m1 m2 shard, b floor(l/(m1 m2))."""
    samples: Floats
    """b."""
    query_len: Floats
    """Query tokens of one sample on one GPU, floor(l/m2)."""
    m1: Floats
    """m1 as a float."""
    m2: Floats
    """m2 as a float."""
    nb: Floats
    """SUMMA panels as a float."""
    embed: float
    """e."""
    embed_shard: Floats
    """e/m1."""
    wide: float
    """f = 4e."""
    wide_shard: Floats
    """f/m1."""
    norm_width: Floats
    """Width of SUMMA's LayerNorm: floor(l/m1) as published (quirk 1), e/m1 corrected."""


def sizes_of(model: StudyModel, layers: LayerBatch, quirks: Quirks) -> LocalSizes:
    """Local sizes; floors come before the multiplication by b, as published (quirk 5)."""
    query_len = _share(model.seq_len, layers.m2, quirks)
    samples = layers.b.astype(np.float64)
    embed_shard = (model.embed // layers.m1).astype(np.float64)
    wide = 4 * model.embed
    return LocalSizes(
        rows=samples * query_len,
        sharded_rows=samples * _share(model.seq_len, layers.m1 * layers.m2, quirks),
        samples=samples,
        query_len=query_len,
        m1=layers.m1.astype(np.float64),
        m2=layers.m2.astype(np.float64),
        nb=layers.nb.astype(np.float64),
        embed=float(model.embed),
        embed_shard=embed_shard,
        wide=float(wide),
        wide_shard=(wide // layers.m1).astype(np.float64),
        norm_width=_share(model.seq_len, layers.m1, quirks)
        if quirks.layernorm_2d_width
        else embed_shard,
    )


def _share(total: int, parts: Ints, quirks: Quirks) -> Floats:
    """total/parts, floored as published."""
    if quirks.dropped_tokens:
        return (total // parts).astype(np.float64)
    return total / parts.astype(np.float64)


def _vector_op(
    name: str,
    *ways: DirectionWork,
    stored_bytes: Floats | float = 0.0,
    weight_bytes: Floats | float = 0.0,
) -> ReferenceOp:
    """An op at the vector peak, forward and backward."""
    return ReferenceOp(
        name=name,
        matrix=False,
        forward=ways[0],
        backward=ways[-1],
        stored_bytes=stored_bytes,
        weight_bytes=weight_bytes,
    )


def bias(name: str, rows: Floats, width: Floats | float) -> ReferenceOp:
    """rF FLOP and (rF + F) w bytes in either direction."""
    work = DirectionWork(flop=rows * width, moved_bytes=(rows * width + width) * ELEMENT_BYTES)
    return _vector_op(name, work, weight_bytes=width * ELEMENT_BYTES)


def gelu(name: str, n: Floats) -> ReferenceOp:
    """8n and 13n FLOP, 2n and 3n elements moved, n stored."""
    forward = DirectionWork(flop=8 * n, moved_bytes=2 * n * ELEMENT_BYTES)
    backward = DirectionWork(flop=13 * n, moved_bytes=3 * n * ELEMENT_BYTES)
    return _vector_op(name, forward, backward, stored_bytes=n * ELEMENT_BYTES)


def dropout(name: str, n: Floats) -> ReferenceOp:
    """n FLOP, 2n elements and n mask bytes either way; the mask is stored."""
    work = DirectionWork(flop=n, moved_bytes=2 * n * ELEMENT_BYTES + n * MASK_BYTES)
    return _vector_op(name, work, stored_bytes=n * MASK_BYTES)


def layer_norm(name: str, strategy: Strategy, s: LocalSizes) -> ReferenceOp:
    """9n and 8n + 4r(x-1) FLOP on r rows of x; (2n + 2r + 2x) w and (5n + 2x) w bytes; n stored.

    1d and seqp: token-sharded rows of the full e; all-gather (forward) and reduce-scatter
    (backward) of the m2 shard's rows over m1. 2d: rows of an m2 shard, x wide; all-reduce of
    statistics over m1.
    """
    if strategy == "2d":
        r, x = s.rows, s.norm_width
        both = 2 * s.rows * ELEMENT_BYTES
        sums = 2 * s.embed_shard * ELEMENT_BYTES
        forward_comm = Comm(kind="all_reduce", axis=1, volume_bytes=both)
        backward_comm = Comm(kind="all_reduce", axis=1, volume_bytes=sums + both)
    else:
        r, x = s.sharded_rows, np.full(s.rows.shape, s.embed)
        volume = s.rows * s.embed * ELEMENT_BYTES
        forward_comm = Comm(kind="all_gather", axis=1, volume_bytes=volume)
        backward_comm = Comm(kind="reduce_scatter", axis=1, volume_bytes=volume)
    n = r * x
    forward = DirectionWork(
        flop=9 * n, moved_bytes=(2 * n + 2 * r + 2 * x) * ELEMENT_BYTES, comms=(forward_comm,)
    )
    backward = DirectionWork(
        flop=8 * n + 4 * r * (x - 1),
        moved_bytes=(5 * n + 2 * x) * ELEMENT_BYTES,
        comms=(backward_comm,),
    )
    stored, weights = n * ELEMENT_BYTES, 2 * x * ELEMENT_BYTES
    return _vector_op(name, forward, backward, stored_bytes=stored, weight_bytes=weights)


def column_linear(name: str, wide: float, s: LocalSizes, quirks: Quirks) -> ReferenceOp:
    """X[r, e] W[e, fo/m1] of 1d and seqp: reduce-scatter of the input gradient over m1.

    The input is stored gathered, as published (quirk 7); corrected, its m1 shard is stored and
    the backward pass gathers it again.
    """
    volume = s.rows * s.embed * ELEMENT_BYTES
    comms: tuple[Comm, ...] = (Comm(kind="reduce_scatter", axis=1, volume_bytes=volume),)
    stored = volume
    if not quirks.gathered_inputs_stored:
        comms = (Comm(kind="all_gather", axis=1, volume_bytes=volume), *comms)
        stored = volume / s.m1
    outer = np.floor(wide / s.m1)
    return _linear(name, s.rows, ei=s.embed, fo=outer, stored_bytes=stored, backward=comms)


def row_linear(name: str, wide: float, s: LocalSizes) -> ReferenceOp:
    """X[r, ei/m1] W[ei/m1, e] of 1d and seqp: reduce-scatter of the output over m1."""
    inner = np.floor(wide / s.m1)
    volume = s.rows * s.embed * ELEMENT_BYTES
    comms = (Comm(kind="reduce_scatter", axis=1, volume_bytes=volume),)
    stored = s.rows * inner * ELEMENT_BYTES
    return _linear(name, s.rows, ei=inner, fo=s.embed, stored_bytes=stored, forward=comms)


def _linear(
    name: str,
    r: Floats,
    *,
    ei: Floats | float,
    fo: Floats | float,
    stored_bytes: Floats,
    forward: tuple[Comm, ...] = (),
    backward: tuple[Comm, ...] = (),
) -> ReferenceOp:
    """r fo(2ei - 1) FLOP forward, r ei(2fo - 1) + ei fo(2r - 1) backward; all matrices moved."""
    moved = (r * ei + r * fo + ei * fo) * ELEMENT_BYTES
    return ReferenceOp(
        name=name,
        matrix=True,
        forward=DirectionWork(flop=r * fo * (2 * ei - 1), moved_bytes=moved, comms=forward),
        backward=DirectionWork(
            flop=r * ei * (2 * fo - 1) + ei * fo * (2 * r - 1),
            moved_bytes=2 * moved,
            comms=backward,
        ),
        stored_bytes=stored_bytes,
        weight_bytes=ei * fo * ELEMENT_BYTES,
    )


def summa_linear(name: str, ei: float, fo: float, s: LocalSizes) -> ReferenceOp:
    """Y[b l/m2, fo/m1] = X[b l/m2, ei/m1] W[ei/m2, fo/m1] in nb panels, output moved nb times.

    Forward: broadcast A = X over m1 and B = W over m2. Backward: both again, and a reduce of each.
    """
    fo_shard = np.floor(fo / s.m1)
    a = s.rows * ei * ELEMENT_BYTES
    b = ei * fo_shard * ELEMENT_BYTES
    moved = a + b + s.nb * (s.rows * fo_shard * ELEMENT_BYTES)
    bcast_a = Comm(kind="broadcast", axis=1, volume_bytes=a)
    bcast_b = Comm(kind="broadcast", axis=2, volume_bytes=b)
    reduce_a = Comm(kind="reduce", axis=1, volume_bytes=a)
    reduce_b = Comm(kind="reduce", axis=2, volume_bytes=b)
    return ReferenceOp(
        name=name,
        matrix=True,
        forward=DirectionWork(
            flop=2 * s.rows * fo_shard * ei, moved_bytes=moved, comms=(bcast_a, bcast_b)
        ),
        backward=DirectionWork(
            flop=s.rows * ei * (2 * fo_shard - 1) + ei * fo_shard * (2 * s.rows - 1),
            moved_bytes=2 * moved,
            comms=(bcast_b, reduce_a, bcast_a, reduce_b),
        ),
        stored_bytes=s.rows * np.floor(ei / s.m1) * ELEMENT_BYTES,
        weight_bytes=np.floor(ei / s.m2) * fo_shard * ELEMENT_BYTES,
        panels=True,
    )


def flash_attention(model: StudyModel, s: LocalSizes, ratio: float, quirks: Quirks) -> ReferenceOp:
    """Fused attention over h/m1 heads, floor(l/m2) queries and l keys, recomputed in the backward
    pass.

    With S scores, r rows, Q and KV elements, rho = matrix/vector peak: forward QK + PV + vec, QK =
    S(2q-1), PV = Q(2k-1), vec = rho(2S + r(k-1) + S); backward [Q(2k-1) + KV(2l_q-1)] + [S(2q-1) +
    KV(2l_q-1)] + rho(3S + r(k-1) + S) + QK + vec. As published k = l keys and no mask (quirk 8);
    corrected, a causal query sees (l+1)/2 keys and a key as large a share of the queries. K and V
    are gathered over m2 in both directions, their gradients reduce-scattered.
    """
    masked = model.causal and not quirks.unmasked_attention
    head_rows = s.samples * np.floor(model.heads / s.m1)
    width = float(model.embed // model.heads)
    keys = (model.seq_len + 1) / 2 if masked else float(model.seq_len)
    queries = s.query_len * (keys / model.seq_len)
    r = head_rows * s.query_len
    scores = r * keys
    q = r * width
    kv = head_rows * model.seq_len * width
    qk = scores * (2 * width - 1)
    soft = 2 * scores + r * (keys - 1) + scores
    soft_back = 3 * scores + r * (keys - 1) + scores
    forward = qk + q * (2 * keys - 1) + ratio * soft
    d_values = q * (2 * keys - 1) + kv * (2 * queries - 1)
    d_scores = scores * (2 * width - 1) + kv * (2 * queries - 1)
    stored = (4 * q + 2 * r) * ELEMENT_BYTES
    gather = Comm(kind="all_gather", axis=2, volume_bytes=2 * kv * ELEMENT_BYTES)
    scatter = Comm(kind="reduce_scatter", axis=2, volume_bytes=2 * kv * ELEMENT_BYTES)
    return ReferenceOp(
        name="flash",
        matrix=True,
        forward=DirectionWork(
            flop=forward, moved_bytes=(2 * q + 2 * kv + r) * ELEMENT_BYTES, comms=(gather,)
        ),
        backward=DirectionWork(
            flop=d_values + d_scores + ratio * soft_back + qk + ratio * soft,
            moved_bytes=(2 * kv + 2 * q) * ELEMENT_BYTES + stored,
            comms=(gather, scatter),
        ),
        stored_bytes=stored,
        scaled_flop=(ratio - 1) * (2 * soft + soft_back),
    )


def layer_ops(
    model: StudyModel, strategy: Strategy, layers: LayerBatch, ratio: float, quirks: Quirks
) -> list[ReferenceOp]:
    """The fourteen ops of one layer, feed-forward first; `ratio` is matrix over vector peak."""
    s = sizes_of(model, layers, quirks)

    def linear(name: str, ei: float, fo: float, *, column: bool) -> ReferenceOp:
        if strategy == "2d":
            return summa_linear(name, ei, fo, s)
        return column_linear(name, fo, s, quirks) if column else row_linear(name, ei, s)

    hidden = s.rows * s.wide_shard
    residual = s.rows * s.embed_shard if strategy == "2d" else s.sharded_rows * s.embed
    bias2, bias_v = _residual_biases(strategy, s, quirks)
    return [
        linear("fc1", s.embed, s.wide, column=True),
        bias("bias1", s.rows, s.wide_shard),
        gelu("gelu", hidden),
        dropout("dropout1", hidden),
        linear("fc2", s.wide, s.embed, column=False),
        bias2,
        dropout("dropout2", residual),
        layer_norm("ln1", strategy, s),
        linear("qkv", s.embed, 3 * s.embed, column=True),
        flash_attention(model, s, ratio, quirks),
        linear("vproj", s.embed, s.embed, column=False),
        bias_v,
        dropout("dropout_v", residual),
        layer_norm("ln2", strategy, s),
    ]


def _residual_biases(
    strategy: Strategy, s: LocalSizes, quirks: Quirks
) -> tuple[ReferenceOp, ReferenceOp]:
    """Biases of fc2 and vproj, charged on other rows and widths in each strategy."""
    if strategy == "1d":
        rows = s.rows if quirks.full_bias_1d else s.sharded_rows
        return bias("bias2", rows, s.embed), bias("bias_v", rows, s.embed)
    shard = bias("bias_v", s.rows, s.embed_shard)
    if strategy == "2d":
        return bias("bias2", s.rows, s.embed_shard), shard
    return bias("bias2", s.sharded_rows, s.embed), shard
