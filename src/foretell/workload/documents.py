"""Sequences packed of documents: attention stays within each."""

import numpy as np

from foretell.specs._base import with_fields
from foretell.workload.graph import LayerGraph
from foretell.workload.masks import first_pairs, reach_of
from foretell.workload.ops import AttentionCore, Op


def within_documents(graph: LayerGraph, tokens: float) -> LayerGraph:
    """The layer over sequences of documents of so many tokens each; the last one may be cut short.

    A causal mask leaves each document the pairs of a sequence of its own, with the same window; attention
    both ways has its square, which is what the usual convention counts. Attention to other sequences is as it
    was, and so is attention that stores its scores: it computes the square and masks it.
    """
    return with_fields(graph, ops=tuple(_inside(op, tokens) for op in graph.ops))


def _inside(op: Op, tokens: float) -> Op:
    if not isinstance(op, AttentionCore) or op.apart:
        return op
    length, seen = np.asarray(op.q_len, float), np.asarray(op.pairs, float)
    each = np.minimum(tokens, length)
    whole = np.floor(length / each)
    rest = length - whole * each
    reach = reach_of(op.q_len, op.kv_len, op.pairs)
    causal = whole * first_pairs(each, reach) + first_pairs(rest, reach)
    square = whole * each * each + rest * rest
    pairs = np.where(reach > 0.0, causal, np.where(seen >= length * length, square, seen))
    usual = length * np.asarray(op.kv_len) if op.counted is None else np.asarray(op.counted)
    own = np.asarray(op.kv_len) <= length
    return with_fields(
        op,
        pairs=np.where(own, np.minimum(pairs, seen), seen),
        counted=np.where(own, np.minimum(square, usual), usual),
    )
