"""Context parallelism: the tokens of a sequence are cut over cp ranks, for every operation.

Only attention needs more than its own tokens. Which queries a rank has is `cp_cut`:

    zigzag      blocks i and 2 cp - 1 - i of 2 cp: under a causal mask every rank has 1/cp of the pairs, the
                same number with every other rank
    contiguous  one run: the last rank sees nearly all keys, 2 - 1/cp times the mean's pairs, and the others
                wait for it, at every step of a ring too
    striped     every cp-th token (Brandon et al. 2023): (s + cp) / (s + 1) of the mean, all but even

Keys and values come in one of three ways (`cp_mode`):

    ring        blocks of keys and values pass from rank to rank, cp - 1 times, behind the attention to the
                block before; gradients of keys and values travel with them in the backward pass and
                return home with one send more (Liu et al. 2023; Megatron-Core's default, "p2p")
    allgather   all keys and values are gathered before attention, gathered again in the backward pass, and
                their gradients reduced and scattered (Llama 3 Team 2024, section 3.3.2)
    ulysses     all-to-all: ranks change from 1/cp of the tokens to 1/cp of the heads, and back
                (Jacobs et al. 2023)

Of grouped heads only the key and value heads travel. A latent travels as it is where it is gathered: every
rank then expands all of it (its up-projection is not cut, and its keys and values are kept whole), the one
work that is not conserved over the ranks. Recurrences exchange heads for tokens in every mode.
"""

from typing import Any

import numpy as np

from foretell.records import dataclass
from foretell.specs._base import Num, with_fields
from foretell.specs.plan_words import ContextCut, ContextMode
from foretell.workload.graph import LayerGraph, Saved
from foretell.workload.masks import first_pairs, reach_of
from foretell.workload.ops import AttentionCore, Gemm, Lookup, Op, Pointwise, Scan
from foretell.workload.roles import OpRole, SavedRole


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextTraffic:
    """What one part's context-parallel group exchanges per micro-batch, on one rank."""

    keys: Num
    """Elements of the keys and values (or latents) of all tokens."""
    queries: Num
    """Elements of the queries, keys and values that one rank has; all-to-all only."""
    results: Num
    """Elements of the results that one rank has; all-to-all only."""
    states: Num
    """Elements that go into recurrences and come out of them."""


def context_parallel(
    graph: LayerGraph, cp: Num, mode: ContextMode, cut: ContextCut = "zigzag"
) -> LayerGraph:
    """The layer on the busiest of `cp` ranks, before tensor parallelism."""
    gathers = mode == "allgather"
    ops: list[Op] = []
    for op in graph.ops:
        whole = gathers and op.role is OpRole.LATENT_UP
        if isinstance(op, AttentionCore) and op.apart:
            ops.append(with_fields(op, batch=op.batch / cp))
        elif mode == "ring" and isinstance(op, AttentionCore):
            ops += [*_blocks(op, cp, cut), *_merges(op, cp)]
        else:
            ops.append(op if whole else _cut(op, cp, mode, cut))
    return with_fields(
        graph,
        ops=tuple(ops),
        saved=tuple(_share(tensor, cp, gathers=gathers) for tensor in graph.saved),
        edges=tuple(with_fields(edge, elements=edge.elements / cp) for edge in graph.edges),
        input_elements=graph.input_elements / cp,
    )


def _share(saved: Saved, cp: Num, *, gathers: bool) -> Saved:
    """One rank's part of a kept tensor; whole is what was built of weights, or of a gathered latent."""
    whole = saved.role is SavedRole.BUILT or (gathers and saved.role is SavedRole.EXPANDED)
    return saved if whole else with_fields(saved, elements=saved.elements / cp)


def _cut(op: Op, cp: Num, mode: ContextMode, cut: ContextCut) -> Op:
    """One rank's part of an operation: its tokens, or of attention its pairs."""
    if op.role is OpRole.BUILD:
        return op
    match op:
        case Gemm():
            return with_fields(op, m=op.m / cp)
        case Pointwise():
            return with_fields(op, elements=op.elements / cp)
        case Lookup() | Scan():
            return with_fields(op, tokens=op.tokens / cp)
        case AttentionCore():
            return _core(op, cp, mode, cut)
    raise TypeError(f"{type(op).__name__} cannot be cut by tokens")


def _core(op: AttentionCore, cp: Num, mode: ContextMode, cut: ContextCut) -> AttentionCore:
    """Gathered: 1/cp of the queries; ulysses: of the heads."""
    counted = None if op.counted is None else op.counted / cp
    if mode == "ulysses" and op.split == "heads":
        return with_fields(op.cut(cp), counted=op.counted)
    pairs = op.pairs / cp * busiest_share(op, cp, cut)
    return with_fields(op, q_len=op.q_len / cp, pairs=pairs, counted=counted)


def _blocks(op: AttentionCore, cp: Num, cut: ContextCut) -> list[AttentionCore]:
    """Attention of a ring: a kernel for a rank's own block, and cp - 1 for those that pass.

    On a zigzag, one of two blocks of a rank meets one of the two that pass, or both meet one: without a
    mask, so that these kernels have fewer rows, all of them full. Elsewhere, and where scores are stored, all
    blocks count alike.
    """
    counted = None if op.counted is None else op.counted / cp**2
    block = with_fields(op, q_len=op.q_len / cp, kv_len=op.kv_len / cp, counted=counted)
    pairs = op.pairs / cp * busiest_share(op, cp, cut)
    if cut != "zigzag" or not op.flash:
        return [with_fields(block, batch=op.batch * cp, pairs=pairs / cp, calls=cp)]
    reach = reach_of(op.q_len, op.kv_len, op.pairs)
    own = np.where(reach > 0.0, first_pairs(block.q_len, reach), pairs / cp)
    others = np.maximum(cp - 1.0, 1.0)
    passing = (pairs - own) / others
    rows = np.minimum(passing / np.maximum(block.kv_len, 1.0), block.q_len)
    return [
        with_fields(block, pairs=own),
        with_fields(block, batch=op.batch * (cp - 1.0), q_len=rows, pairs=passing, calls=others),
    ]


def busiest_share(op: AttentionCore, cp: Num, cut: ContextCut) -> Num:
    """Pairs of the busiest rank over the mean's; in a ring of ranks that wait for each other at every step,
    of the sum over its steps of the busiest's.

    Of a causal mask, whole or with a sliding window, the last run of tokens has the most pairs.
    """
    if cut == "zigzag":
        return 1.0
    length, reach = np.asarray(op.q_len, float), reach_of(op.q_len, op.kv_len, op.pairs)
    if cut == "striped":
        whole = reach >= length
        return np.where(whole, (length + cp) / (length + 1.0), 1.0)
    last = first_pairs(length, reach) - first_pairs(length - length / cp, reach)
    return np.where(reach > 0.0, last * cp / np.maximum(op.pairs, 1e-12), 1.0)


def _merges(op: AttentionCore, cp: Num) -> list[Pointwise]:
    """What a ring's steps do between its kernels, as Transformer Engine's have it (context_parallel.py).

    Forward, results of a step are scaled and added to the sum (three moves, of three quarters of the rows in
    the mean), and the half that a kernel takes of queries or of keys and values is copied; backward,
    gradients are added to their sums, keys' and values' after they were joined, and of queries, results and
    their gradients the half is copied. Each is a kernel or two.
    """
    steps = cp * np.sign(np.maximum(cp - 1.0, 0.0))
    rows = op.batch * op.heads * op.q_len * op.v_dim / cp
    keys = op.batch * op.kv_heads * op.kv_len * (op.kv_rank or (op.qk_dim + op.v_dim)) / cp
    common: dict[str, Any] = {
        "split": "width" if op.split == "heads" else "none",
        "region": op.region,
        "role": OpRole.MERGE,
    }
    name = f"{op.name.removesuffix('.core')}.merge"
    results = Pointwise(
        name=name, elements=rows * steps, reads=1.75, writes=1.0, flop=3.0, back_moves=3.75,
        back_flop=1.0, launches=3.0 * steps, **common,
    )  # fmt: skip
    gradients = Pointwise(
        name=f"{name}.keys", elements=keys * steps, reads=0.25, writes=0.5, flop=0.0, back_moves=4.25,
        back_flop=1.0, launches=2.0 * steps, **common,
    )  # fmt: skip
    return [results, gradients]


def context_traffic(local: LayerGraph, mode: ContextMode) -> ContextTraffic:
    """What a part that context and tensor parallelism have cut must exchange."""
    keys: Num = 0.0
    queries: Num = 0.0
    results: Num = 0.0
    states: Num = 0.0
    latent: Num = 0.0
    for op in local.ops:
        if isinstance(op, Gemm) and op.role is OpRole.LATENT_DOWN:
            latent = op.n
        if isinstance(op, Gemm) and op.role is OpRole.LATENT_UP and mode == "allgather":
            # The latents of all tokens, in the place of the core's keys and values.
            keys = keys + op.m * latent
        if isinstance(op, AttentionCore) and not op.apart:
            seen = op.batch * op.kv_heads * op.kv_len * (op.kv_rank or (op.qk_dim + op.v_dim))
            asked = op.batch * op.heads * op.q_len
            expanded = mode == "allgather" and bool(np.any(latent)) and not op.kv_rank
            keys = keys + (0.0 if expanded and op.v_dim else seen)
            queries = queries + asked * op.qk_dim + seen
            results = results + asked * op.v_dim
        if isinstance(op, Scan):
            moved = op.heads * op.moved_per_token_head + op.groups * op.moved_per_token_group
            states = states + op.tokens * moved
    return ContextTraffic(keys=keys, queries=queries, results=results, states=states)
