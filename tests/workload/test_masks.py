"""Pairs and keys of masks, against masks written out."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foretell.workload.graph import Tokens
from foretell.workload.masks import keys_read, merged_keys, merged_pairs, visible_pairs

LENGTHS = st.integers(1, 70)


def written_out(q: int, kv: int, *, causal: bool, window: int | None, chunked: bool) -> np.ndarray:
    """True where a query sees a key, one cell at a time."""
    mask = np.zeros((q, kv), dtype=bool)
    for row in range(q):
        at = kv - q + row
        for key in range(kv):
            seen = key <= at or not causal
            if window is not None and chunked:
                seen = seen and key // window == at // window
            elif window is not None and causal:
                seen = seen and at - key < window
            elif window is not None:
                before = window // 2
                seen = seen and -(window - 1 - before) <= at - key <= before
            mask[row, key] = seen
    return mask


def tokens(q: object, kv: object) -> Tokens:
    return Tokens(batch=1.0, q_len=q, kv_len=kv)  # type: ignore[arg-type]


@given(
    new=LENGTHS,
    before=st.integers(0, 40),
    window=st.none() | st.integers(1, 80),
    causal=st.booleans(),
    chunked=st.booleans(),
)
def test_pairs_and_keys_are_those_of_the_mask(
    new: int, before: int, window: int | None, causal: bool, chunked: bool
) -> None:
    mask = written_out(new, new + before, causal=causal, window=window, chunked=chunked)
    at = tokens(float(new), float(new + before))
    assert visible_pairs(at, causal=causal, window=window, chunked=chunked) == mask.sum()
    read = keys_read(at, causal=causal, window=window, chunked=chunked)
    assert read == mask.any(axis=0).sum()


@given(
    new=LENGTHS,
    before=st.integers(0, 40),
    ratio=st.integers(1, 9),
    limit=st.none() | st.integers(1, 30),
)
def test_merged_pairs_are_whole_runs_up_to_the_query(
    new: int, before: int, ratio: int, limit: int | None
) -> None:
    at = tokens(float(new), float(new + before))
    each = [(p // ratio) for p in range(before + 1, before + new + 1)]
    kept = [e if limit is None else min(e, limit) for e in each]
    assert merged_pairs(at, ratio, limit) == sum(kept)
    assert merged_keys(at, ratio, None) == (new + before) // ratio
    if new == 1:
        assert merged_keys(at, ratio, limit) == kept[0]


@given(length=LENGTHS, window=st.none() | st.integers(1, 80), chunked=st.booleans())
def test_decode_steps_sum_to_prefill(length: int, window: int | None, chunked: bool) -> None:
    """Token by token or all at once: the same pairs."""
    steps = np.arange(1.0, length + 1.0)
    each = visible_pairs(tokens(1.0, steps), causal=True, window=window, chunked=chunked)
    whole = visible_pairs(
        tokens(float(length), float(length)), causal=True, window=window, chunked=chunked
    )
    assert np.sum(each) == whole


@given(st.lists(st.tuples(LENGTHS, st.integers(0, 40)), min_size=1, max_size=5), st.integers(1, 80))
def test_arrays_give_what_numbers_give(sizes: list[tuple[int, int]], window: int) -> None:
    q = np.array([float(a) for a, _ in sizes])
    kv = q + np.array([float(b) for _, b in sizes])
    for causal in (True, False):
        for chunked in (True, False):
            many = visible_pairs(tokens(q, kv), causal=causal, window=window, chunked=chunked)
            for i, value in enumerate(np.asarray(many)):
                one = tokens(float(q[i]), float(kv[i]))
                assert value == visible_pairs(one, causal=causal, window=window, chunked=chunked)


@given(length=LENGTHS, extra=st.integers(0, 40))
def test_a_window_as_long_as_the_sequence_is_no_window(length: int, extra: int) -> None:
    at = tokens(float(length), float(length))
    none = visible_pairs(at, causal=True, window=None, chunked=False)
    assert none == length * (length + 1) / 2
    for chunked in (True, False):
        assert none == visible_pairs(at, causal=True, window=length + extra, chunked=chunked)
    twice = 2 * (length + extra) + 1
    assert visible_pairs(at, causal=False, window=twice, chunked=False) == length**2
