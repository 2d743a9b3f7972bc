"""Every op: the conformance checks on generated dims, and what its split says about the ranks."""

import inspect
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.testing.ops import (
    Factory,
    check_batch,
    check_cut,
    check_monotone,
    check_op,
    check_work,
    check_zero,
)
from foretell.workload.ops import AttentionCore, Gemm, Lookup, Pointwise, Scan

FACTORIES: dict[str, tuple[Factory, tuple[str, ...], bool]] = {
    "gemm, whole": (
        lambda m, n, k, groups: Gemm(name="x", m=m, n=n, k=k, groups=groups),
        ("m", "groups"),
        False,
    ),
    "gemm, columns": (
        lambda m, n, k: Gemm(name="x", m=m, n=n, k=k, bias=True, split="col"),
        ("m",),
        False,
    ),
    "gemm, rows": (
        lambda m, n, k: Gemm(name="x", m=m, n=n, k=k, bias=True, split="row"),
        ("m",),
        False,
    ),
    "gemm, groups": (
        lambda m, n, k, groups: Gemm(name="x", m=m, n=n, k=k, groups=groups, split="heads"),
        ("m", "groups"),
        False,
    ),
    "gemm, tokens": (
        lambda m, n, k: Gemm(name="x", m=m, n=n, k=k, split="tokens"),
        ("m",),
        False,
    ),
    "gemm, key heads": (
        lambda m, q, kv, k: Gemm(
            name="x", m=m, n=q + 16.0 * kv, k=k, split="col", n_kv=16.0 * kv, n_kv_min=16.0
        ),
        ("m",),
        True,
    ),
    "attention, fused": (
        lambda batch, heads, q, kv, pairs: AttentionCore(
            name="x",
            batch=batch,
            heads=heads,
            kv_heads=heads,
            q_len=q,
            kv_len=kv,
            pairs=pairs,
            qk_dim=64.0,
            v_dim=48.0,
        ),
        ("batch",),
        False,
    ),
    "attention, separate, few key heads": (
        lambda batch, heads, kv_heads, q, kv: AttentionCore(
            name="x",
            batch=batch,
            heads=heads,
            kv_heads=kv_heads,
            q_len=q,
            kv_len=kv,
            pairs=q * kv,
            qk_dim=64.0,
            v_dim=64.0,
            flash=False,
        ),
        ("batch",),
        False,
    ),
    "attention, one latent": (
        lambda batch, heads, kv: AttentionCore(
            name="x",
            batch=batch,
            heads=heads,
            kv_heads=1.0,
            q_len=1.0,
            kv_len=kv,
            pairs=kv,
            qk_dim=576.0,
            v_dim=512.0,
            kv_rank=576.0,
        ),
        ("batch",),
        False,
    ),
    "attention, whole": (
        lambda batch, kv: AttentionCore(
            name="x",
            batch=batch,
            heads=4.0,
            kv_heads=1.0,
            q_len=8.0,
            kv_len=kv,
            pairs=8.0 * kv,
            qk_dim=64.0,
            v_dim=0.0,
            split="none",
        ),
        ("batch",),
        False,
    ),
    "pointwise, width": (
        lambda elements, weights: Pointwise(
            name="x", elements=elements, weights=weights, cut_weights=True, split="width"
        ),
        ("elements",),
        False,
    ),
    "pointwise, tokens": (
        lambda elements, weights: Pointwise(name="x", elements=elements, weights=weights),
        ("elements",),
        False,
    ),
    "pointwise, whole": (
        lambda elements: Pointwise(name="x", elements=elements, split="none"),
        ("elements",),
        False,
    ),
    "lookup": (
        lambda tokens, rows, width: Lookup(name="x", tokens=tokens, rows=rows, width=width),
        ("tokens",),
        True,
    ),
    "lookup, whole": (
        lambda tokens, rows, width: Lookup(
            name="x", tokens=tokens, rows=rows, width=width, split="none"
        ),
        ("tokens", "width"),
        False,
    ),
    "scan": (
        lambda tokens, heads, matrix, plain, moved: Scan(
            name="x",
            tokens=tokens,
            heads=heads,
            matrix_flop_per_token_head=matrix,
            vector_flop_per_token_head=plain,
            moved_per_token_head=moved,
            weights=3.0 * heads,
        ),
        ("tokens", "heads"),
        False,
    ),
    "scan, shared by groups": (
        lambda tokens, heads, groups, matrix: Scan(
            name="x",
            tokens=tokens,
            heads=heads,
            matrix_flop_per_token_head=matrix,
            vector_flop_per_token_head=1.0,
            moved_per_token_head=1.0,
            groups=groups,
            matrix_flop_per_token_group=matrix,
            moved_per_token_group=2.0,
        ),
        ("tokens",),
        True,
    ),
}
"""Name -> (how to make it, dims whose zero is no work, whether some work is copied to every
rank)."""


@pytest.mark.parametrize("name", FACTORIES)
def test_conformance(name: str) -> None:
    factory, sizes, copies = FACTORIES[name]
    check_op(factory, sizes=sizes, copies=copies)


@pytest.mark.parametrize("name", FACTORIES)
@given(data=st.data())
def test_conformance_on_generated_dims(name: str, data: st.DataObject) -> None:
    """The same where hypothesis chooses: large, fractional and equal dims, any number of ranks."""
    factory, sizes, copies = FACTORIES[name]
    names = tuple(inspect.signature(factory).parameters)
    size = st.one_of(
        st.integers(1, 10**6).map(float), st.floats(1.0, 1e6), st.sampled_from([1.0, 2.0**40])
    )
    case = st.fixed_dictionaries(dict.fromkeys(names, size))
    draws = data.draw(st.lists(case, min_size=2, max_size=4))
    dims, parts = draws[0], data.draw(st.sampled_from([1.0, 2.0, 3.0, 5.0, 8.0, 72.0]))
    op = factory(**dims)
    check_work(op)
    check_cut(op, parts, copies=copies)
    check_monotone(factory, dims, data.draw(st.sampled_from(names)), data.draw(st.floats(1.0, 8.0)))
    check_zero(factory, dims, data.draw(st.sampled_from(sizes)))
    check_batch(factory, draws)


def test_gemm_is_two_m_n_k() -> None:
    op = Gemm(name="x", m=3.0, n=5.0, k=7.0, groups=2.0)
    assert op.forward().matrix_flop == 2 * 2 * 3 * 5 * 7
    assert op.backward().matrix_flop == 2 * op.forward().matrix_flop
    assert op.forward().activation_elements == 2 * 3 * (5 + 7)
    assert op.forward().weight_elements == op.parameters == 2 * 5 * 7


def test_tied_weights_are_read_but_not_counted() -> None:
    op = Gemm(name="x", m=3.0, n=5.0, k=7.0, tied=True)
    assert op.parameters == 0
    assert op.forward().weight_elements == 35


def test_experts_without_tokens_are_not_read() -> None:
    """Two rows over eight experts touch two of them, at balanced load."""
    op = Gemm(name="x", m=2.0 / 8.0, n=5.0, k=7.0, groups=8.0)
    assert op.forward().weight_elements == 2 * 35
    assert op.parameters == 8 * 35


@given(
    kv_heads=st.integers(1, 8),
    per_kv=st.integers(1, 8),
    log_parts=st.integers(0, 6),
)
def test_key_heads_are_shared_out_then_copied(kv_heads: int, per_kv: int, log_parts: int) -> None:
    """Whole key heads on a rank while there are enough of them, one on every rank after that."""
    parts, wide = float(2**log_parts), 16.0
    q_width = kv_heads * per_kv * wide
    kv_width = 2.0 * kv_heads * wide
    op = Gemm(
        name="qkv",
        m=4.0,
        n=q_width + kv_width,
        k=9.0,
        split="col",
        n_kv=kv_width,
        n_kv_min=2.0 * wide,
    )
    expected = q_width / parts + max(kv_width / parts, 2.0 * wide)
    assert op.cut(parts).n == pytest.approx(expected, rel=1e-15)
    core = AttentionCore(
        name="core",
        batch=1.0,
        heads=float(kv_heads * per_kv),
        kv_heads=float(kv_heads),
        q_len=4.0,
        kv_len=4.0,
        pairs=10.0,
        qk_dim=wide,
        v_dim=wide,
    )
    assert core.cut(parts).kv_heads == max(kv_heads / parts, 1.0)


def test_what_is_never_cut_stays_the_same_record() -> None:
    gemm = Gemm(name="x", m=3.0, n=5.0, k=7.0)
    pointwise = Pointwise(name="x", elements=8.0, weights=2.0, split="none")
    lookup = Lookup(name="x", tokens=3.0, rows=5.0, width=7.0, split="none")
    core = FACTORIES["attention, whole"][0](batch=2.0, kv=5.0)
    for op in (gemm, pointwise, lookup, core):
        assert op.cut(4.0) is op


def test_fused_attention_runs_its_scores_again() -> None:
    """Five products backward when fused, four otherwise; the whole square is stored otherwise."""
    fused = FACTORIES["attention, separate, few key heads"][0](
        batch=1.0, heads=2.0, kv_heads=1.0, q=8.0, kv=8.0
    )
    fused = replace(fused, flash=True)
    separate = replace(fused, flash=False)
    assert fused.backward().matrix_flop == 2.5 * fused.forward().matrix_flop
    assert separate.backward().matrix_flop == 2.0 * separate.forward().matrix_flop
    extra = separate.forward().activation_elements - fused.forward().activation_elements
    assert extra == 4.0 * separate.scores


def test_arrays_broadcast_against_each_other() -> None:
    op = Gemm(name="x", m=np.array([1.0, 2.0])[:, None], n=np.array([3.0, 4.0, 5.0]), k=2.0)
    assert np.shape(op.forward().matrix_flop) == (2, 3)
    assert np.shape(replace(op, split="row").cut(np.array([1.0, 2.0, 4.0])).k) == (3,)
