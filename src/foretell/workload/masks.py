"""What an attention mask leaves: (query, key) pairs, keys that must be read, and both within documents."""

import numpy as np

from foretell.specs._base import Num, with_fields
from foretell.workload.graph import LayerGraph, Tokens
from foretell.workload.ops import AttentionCore, Op


def visible_pairs(tokens: Tokens, *, causal: bool, window: Num | None, chunked: bool) -> Num:
    """(query, key) pairs that the mask leaves, per sequence and head.

    The q_len queries are the last of kv_len positions. With a window of w keys:

    - causal, sliding: the query at position p (from 1) sees min(p, w) keys;
    - causal, chunked: it sees those of its own aligned chunk of w up to itself;
    - both ways, sliding: floor(w/2) keys before it, itself, and w - 1 - floor(w/2) after it, as far
      as they exist (a model that sees 64 on either side has w = 129);
    - both ways, chunked: all keys of its own chunk.

    Each count is a prefix sum F taken between the first and the last query: F(kv) - F(kv - q).
    """
    q, kv = np.asarray(tokens.q_len, float), np.asarray(tokens.kv_len, float)
    if window is None:
        return _ramp(kv, kv) - _ramp(kv - q, kv) if causal else q * kv
    w = np.asarray(window, dtype=float)
    if chunked:
        return _chunks(kv, kv, w, causal) - _chunks(kv - q, kv, w, causal)
    if causal:
        return _ramp(kv, w) - _ramp(kv - q, w)
    before: Num = np.floor(w / 2.0)
    after: Num = w - 1.0 - before
    # min(i, b) keys lie before position i (from 0): the ramp shifted by one.
    left = (_ramp(kv, before + 1.0) - kv) - (_ramp(kv - q, before + 1.0) - (kv - q))
    right = _ramp(q, after + 1.0) - q
    pairs: Num = q + left + right
    return pairs


def merged_pairs(tokens: Tokens, ratio: int, limit: int | None) -> Num:
    """Pairs with keys that stand for `ratio` positions each, of which a query keeps `limit`.

    The query at position p (from 1) sees the floor(p / ratio) whole runs up to itself: with L the
    limit, G(x) = sum over p = 1..x of min(floor(p / r), L) = r m (m - 1) / 2 + m (y - m r + 1) + (x
    - y) L, where y = min(x, r (L + 1) - 1) and m = floor(y / r).
    """
    q, kv = np.asarray(tokens.q_len, float), np.asarray(tokens.kv_len, float)
    return _steps(kv, ratio, limit) - _steps(kv - q, ratio, limit)


def merged_keys(tokens: Tokens, ratio: int, limit: int | None) -> Num:
    """Distinct merged keys that are read: all whole runs, or at most `limit` for each query."""
    q, kv = np.asarray(tokens.q_len, float), np.asarray(tokens.kv_len, float)
    runs: Num = np.floor_divide(kv, ratio)
    return runs if limit is None else np.minimum(runs, limit * q)


def keys_read(tokens: Tokens, *, causal: bool, window: Num | None, chunked: bool) -> Num:
    """Distinct keys per sequence that some query sees: from the reach of the first query to the
    end.

    Sliding: q + w - 1 (both ways: q + floor(w/2)); chunked: from the start of the first query's
    chunk.
    """
    q, kv = np.asarray(tokens.q_len, float), np.asarray(tokens.kv_len, float)
    if window is None:
        return kv
    w = np.asarray(window, dtype=float)
    keys: Num = kv - np.floor_divide(kv - q, w) * w
    if not chunked:
        keys = np.minimum(kv, q + (w - 1.0 if causal else np.floor(w / 2.0)))
    return keys


def reach_of(q_len: Num, kv_len: Num, pairs: Num) -> Num:
    """Keys that a query sees at most under a causal mask with so many pairs: s w - w (w - 1) / 2 solved for
    w, s for all keys before it; 0 where the mask is none of the kind."""
    s, many = np.asarray(q_len, float), np.asarray(pairs, float)
    square = (2.0 * s + 1.0) ** 2 - 8.0 * many
    reach = (2.0 * s + 1.0 - np.sqrt(np.maximum(square, 0.0))) / 2.0
    # A mask over keys in runs, or merged ones, reads as a sliding window with as many pairs.
    return np.where((square > 0.0) & (np.asarray(kv_len) <= s), reach, 0.0)


def first_pairs(queries: Num, reach: Num) -> Num:
    """Pairs of the first so many queries of a sequence, each of which sees `reach` keys at most."""
    return _ramp(queries, reach)


def _ramp(x: Num, limit: Num) -> Num:
    """Sum over p = 1..x of min(p, limit)."""
    y = np.minimum(x, limit)
    return y * (y + 1.0) / 2.0 + (x - y) * limit


def _steps(x: Num, ratio: int, limit: int | None) -> Num:
    """Sum over p = 1..x of min(floor(p / ratio), limit)."""
    y = x if limit is None else np.minimum(x, ratio * (limit + 1.0) - 1.0)
    m = np.floor_divide(y, ratio)
    total: Num = ratio * m * (m - 1.0) / 2.0 + m * (y - m * ratio + 1.0)
    return total if limit is None else total + (x - y) * limit


def _chunks(x: Num, kv: Num, w: Num, causal: bool) -> Num:
    """Keys that the first x of kv positions see, in aligned chunks of w."""
    if causal:
        whole = np.floor_divide(x, w)
        rest = x - whole * w
        return whole * w * (w + 1.0) / 2.0 + rest * (rest + 1.0) / 2.0
    whole = np.floor_divide(kv, w) * w
    inside = np.minimum(x, whole)
    return inside * w + (x - inside) * (kv - whole)


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
