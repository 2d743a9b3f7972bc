"""Mixers and feed-forward parts as layer graphs: form, weights, saved tensors, edges, phases."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention, DeltaNet, Indexer, LatentAttention, Mamba2, Mixer
from foretell.specs.mixers import Replacement as Linear
from foretell.specs.model import Layer
from foretell.testing.ops import check_layer
from foretell.workload.feedforward import dense_graph, experts_graph
from foretell.workload.graph import LayerGraph, Saved, Tokens
from foretell.workload.indexer import indexer_graph
from foretell.workload.layer import layer_graph, mixer_graph
from tests.workload.models import (
    DELTA,
    EXPERTS,
    GELU,
    GQA,
    INDEXER,
    KIMI,
    LATENT,
    MAMBA,
    MHA,
    MQA,
    SWIGLU,
)

HIDDEN = 40

MIXERS: dict[str, Mixer] = {
    "mha": MHA,
    "gqa": GQA,
    "mqa": MQA,
    "window": replace(GQA, window=16, qk_norm="head"),
    "chunks": replace(GQA, window=16, chunked=True),
    "both ways": replace(GQA, causal=False),
    "cross": replace(GQA, cross=True, cross_inputs=24),
    "ranks": replace(GQA, q_rank=18, o_rank=7, o_groups=2, indexer=INDEXER),
    "merged keys": replace(GQA, window=16, compress_ratio=4, indexer=replace(INDEXER, ratio=4)),
    "shared keys": replace(GQA, owns_kv=False, output_gate="head"),
    "latent": LATENT,
    "latent, sparse": replace(LATENT, indexer=INDEXER),
    "latent, no query rank": replace(LATENT, q_rank=None, output_gate="element"),
    "mamba-2": MAMBA,
    "delta": DELTA,
    "kimi delta": KIMI,
    "linear": Linear(),
}
FEEDS: dict[str, Callable[[Tokens], LayerGraph]] = {
    "dense": lambda t: dense_graph(GELU, HIDDEN, t),
    "gated": lambda t: dense_graph(SWIGLU, HIDDEN, t),
    "one map": lambda t: dense_graph(replace(SWIGLU, linear=True), HIDDEN, t),
    "experts": lambda t: experts_graph(EXPERTS, HIDDEN, t),
    "latent experts": lambda t: experts_graph(
        replace(EXPERTS, latent=12, latent_norm=True, shared_width=8, shared_gate=True), HIDDEN, t
    ),
}


def tokens(batch: float = 2.0, length: float = 64.0, **more: Any) -> Tokens:
    return Tokens(batch=batch, q_len=length, kv_len=length, cross_len=length, **more)


def weights(graph: LayerGraph) -> float:
    return float(sum(op.parameters for op in graph.ops))


@pytest.mark.parametrize("name", MIXERS)
def test_mixers_conform(name: str) -> None:
    check_layer(lambda t: mixer_graph(MIXERS[name], HIDDEN, t))


@pytest.mark.parametrize("name", FEEDS)
def test_feed_forward_parts_conform(name: str) -> None:
    check_layer(FEEDS[name])


def test_latent_attention_has_the_published_count() -> None:
    """DeepSeek-V3: h r_q + r_q + r_q H (d_n + d_r) + h (r + d_r) + r + r H (d_n + d_v) + H d_v
    h."""
    mixer = LatentAttention(
        heads=128, q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128
    )
    h = 7168
    expected = (h * 1536 + 1536 + 1536 * 128 * 192) + (h * 576 + 512) + 512 * 128 * 256
    expected += 128 * 128 * h
    assert weights(mixer_graph(mixer, h, tokens())) == expected == 187_107_328


def test_indexer_has_the_published_count() -> None:
    """GLM-5: r_q 32 128 + 128 h + 256 + 32 h."""
    indexer = Indexer(heads=32, head_dim=128, top_k=2048, query_inputs=2048)
    h = 6144
    count = weights(indexer_graph(indexer, h, tokens()))
    assert count == 2048 * 32 * 128 + 128 * h + 256 + 32 * h
    assert indexer_graph(replace(indexer, owns_weights=False), h, tokens()).ops == ()


def test_mamba2_has_the_published_count() -> None:
    """state-spaces/mamba2-2.7b: 64 mixers and norms, a tied table of 50,288 rows, a last norm."""
    mixer = Mamba2(heads=80, head_dim=64, state=128, groups=1, conv_kernel=4)
    layer = Layer(mixers=(mixer,), norms=1)
    count = 64 * weights(layer_graph(layer, 2560, tokens())) + 50_288 * 2560 + 2560
    assert count == 2_702_599_680


def test_gated_delta_has_the_layer_count_of_qwen3_next() -> None:
    mixer = DeltaNet(key_heads=16, value_heads=32, key_dim=128, value_dim=128, conv_kernel=4)
    h, k, v = 2048, 2048, 4096
    expected = h * (2 * k + 2 * v) + h * 64 + (2 * k + v) * 4 + 64 + 128 + v * h
    assert weights(mixer_graph(mixer, h, tokens())) == expected


def test_kimi_delta_has_maps_for_decay_and_gate() -> None:
    h, k, v = HIDDEN, 40, 24
    expected = h * (2 * k + v) + h * 4 + (h * 7 + 7 * 40) + (h * 9 + 9 * v)
    expected += (2 * k + v) * 5 + (4 + 40) + 6 + v * h
    assert weights(mixer_graph(KIMI, HIDDEN, tokens())) == expected


def bytes_saved(saved: tuple[Saved, ...], tp: float = 1.0, sp: bool = False) -> float:
    """Bytes on one rank with 16-bit activations."""
    total = 0.0
    for s in saved:
        parts = {"width": tp, "tokens": tp if sp else 1.0, "none": 1.0}[s.split]
        total += float(s.elements) / parts * (s.bytes_per_element or 2.0)
    return total


@pytest.mark.parametrize(("tp", "sp"), [(1, False), (4, False), (4, True)])
def test_saved_tensors_are_those_of_korthikanti(tp: int, sp: bool) -> None:
    """arXiv 2205.05198, eqs. 2 and 4, for a GPT layer, less what dropout adds.

    sbh (10 + 24/t + 5 a s/(h t)), with sequence parallelism sbh (34/t + 5 a s/(h t)). Of the 10,
    two are masks of dropouts outside the regions; of the 5, three are the mask and output of the
    dropout on the scores.
    """
    s, b, a, h = 64.0, 2.0, 8, 96
    layer = Layer(
        mixers=(Attention(heads=a, kv_heads=a, head_dim=h // a),),
        ffn=Dense(width=4 * h, gated=False, activation="gelu"),
        norm_kind="layer",
    )
    graph = layer_graph(layer, h, tokens(b, s, flash=False))
    outside = 8.0 / tp if sp else 8.0
    expected = s * b * h * (outside + 24.0 / tp) + 2.0 * a * s * s * b / tp
    assert bytes_saved(graph.saved, tp, sp) == expected
    core = tuple(x for x in graph.saved if x.core)
    assert bytes_saved(core, tp) == 2.0 * a * s * s * b / tp


def test_fused_attention_keeps_one_statistic_per_row_instead_of_scores() -> None:
    plain = mixer_graph(MHA, HIDDEN, tokens(flash=False)).saved
    fused = mixer_graph(MHA, HIDDEN, tokens(flash=True)).saved
    rows, square = 2 * MHA.heads * 64.0, 2 * MHA.heads * 64.0**2
    assert bytes_saved(plain) - bytes_saved(fused) == 2.0 * square - 4.0 * rows
    assert not any(s.core for s in fused)


def test_swiglu_keeps_both_halves_and_both_factors() -> None:
    """Gate, up, activated gate and the product: what an unfused gated activation keeps."""
    saved = dense_graph(SWIGLU, HIDDEN, tokens()).saved
    assert bytes_saved(saved) == 2.0 * 128 * 4 * SWIGLU.width


def test_experts_keep_every_routed_copy() -> None:
    """Permuted input and unweighted output per choice, both sides of the gated activation, fp32 scores."""
    saved = experts_graph(EXPERTS, HIDDEN, tokens()).saved
    routed = 128.0 * EXPERTS.top_k
    expected = 2.0 * routed * (2 * HIDDEN + 4 * EXPERTS.width) + 4.0 * 128 * EXPERTS.experts
    assert bytes_saved(saved) == expected


def test_only_owners_keep_keys() -> None:
    def kept(mixer: Attention) -> float:
        return sum(s.elements for s in mixer_graph(mixer, HIDDEN, tokens()).saved if "kv" in s.name)

    assert kept(GQA) == 128 * 2 * 20
    assert kept(replace(GQA, owns_kv=False)) == 0


@pytest.mark.parametrize("name", MIXERS)
def test_regions_open_and_close(name: str) -> None:
    """One reduction at the end of what is cut; nothing where nothing is cut."""
    graph = mixer_graph(MIXERS[name], HIDDEN, tokens())
    leaving = [e for e in graph.edges if e.leave]
    cut = any(op.split in ("col", "row", "heads") for op in graph.ops)
    assert len(leaving) == (1 if cut else 0)
    assert all(e.elements == 128 * HIDDEN for e in leaving)


def test_what_enters_a_latent_region_is_the_low_ranks() -> None:
    def entering(mixer: Mixer) -> float:
        edges = mixer_graph(mixer, HIDDEN, tokens()).edges
        return sum(e.elements for e in edges if not e.leave) / 128

    assert entering(LATENT) == 18 + 22 + 4
    assert entering(replace(LATENT, q_rank=None)) == HIDDEN + 22 + 4
    assert entering(GQA) == HIDDEN
    assert entering(replace(GQA, cross=True, cross_inputs=24)) == HIDDEN + 24


@pytest.mark.parametrize("name", ["mha", "gqa", "window", "chunks", "ranks", "merged keys"])
@given(length=st.integers(1, 50))
def test_decode_steps_sum_to_prefill(name: str, length: int) -> None:
    """Softmax attention does the same products token by token as all at once."""
    mixer = MIXERS[name]
    whole = Tokens(batch=2.0, q_len=float(length), kv_len=float(length), phase="prefill")
    steps = Tokens(batch=2.0, q_len=1.0, kv_len=np.arange(1.0, length + 1.0), phase="decode")
    once = {op.name: op for op in mixer_graph(mixer, HIDDEN, whole).ops}
    for op in mixer_graph(mixer, HIDDEN, steps).ops:
        per_step = np.broadcast_to(np.asarray(op.forward().matrix_flop, float), (length,))
        total = float(once[op.name].forward().matrix_flop)
        assert per_step.sum() == pytest.approx(total, rel=1e-12, abs=0)


@pytest.mark.parametrize("name", ["latent", "mamba-2", "delta", "kimi delta"])
def test_projections_do_the_same_per_token_in_every_phase(name: str) -> None:
    mixer = MIXERS[name]
    once = {op.name: op for op in mixer_graph(mixer, HIDDEN, tokens(phase="prefill")).ops}
    step = Tokens(batch=2.0, q_len=1.0, kv_len=64.0, phase="decode")
    shared = [op for op in mixer_graph(mixer, HIDDEN, step).ops if op.name in once]
    products = [op for op in shared if op.family == "gemm"]
    assert len(products) >= 2
    for op in products:
        assert 64 * op.forward().matrix_flop == once[op.name].forward().matrix_flop


def test_absorbed_decode_reads_one_latent_per_position() -> None:
    step = Tokens(batch=3.0, q_len=1.0, kv_len=1000.0, phase="decode")
    ops = {op.name: op for op in mixer_graph(LATENT, HIDDEN, step).ops}
    core = ops["attention.core"].forward()
    queries = 3 * 5 * (22 + 4 + 22)
    assert core.activation_elements == 3 * 1000 * (22 + 4) + queries
    assert core.matrix_flop == 2 * 3 * 5 * 1000 * (2 * 22 + 4)
    # Cutting it by heads copies the latent: every rank reads all of it.
    half = ops["attention.core"].cut(5.0).forward()
    assert half.activation_elements == 3 * 1000 * (22 + 4) + queries / 5


def test_a_decode_step_of_a_recurrence_moves_its_state_twice() -> None:
    step = Tokens(batch=3.0, q_len=1.0, kv_len=1000.0, phase="decode")
    for mixer, state in ((MAMBA, 6 * 8 * 14), (DELTA, 4 * 10 * 6)):
        scan = next(op for op in mixer_graph(mixer, HIDDEN, step).ops if op.family == "scan")
        moved = float(scan.forward().activation_elements)
        assert 2 * 3 * state < moved < 2 * 3 * state * 1.5
        assert scan.forward().matrix_flop == 0
        longer = replace(step, kv_len=2000.0)
        same = next(op for op in mixer_graph(mixer, HIDDEN, longer).ops if op.family == "scan")
        assert same.forward() == scan.forward()


def test_sparse_attention_does_no_more_pairs_than_it_keeps() -> None:
    sparse = replace(LATENT, indexer=INDEXER)
    long = Tokens(batch=1.0, q_len=64.0, kv_len=64.0)
    ops = {op.name: op for op in mixer_graph(sparse, HIDDEN, long).ops}
    assert ops["attention.core"].pairs == 5 * 6 / 2 + 59 * 5  # type: ignore[attr-defined]
    assert ops["indexer.scores"].pairs == 64 * 65 / 2  # type: ignore[attr-defined]


def test_merged_keys_are_seen_beside_the_window() -> None:
    """DeepSeek-V4: the last w positions, and of one key for every r positions all or top_k."""
    t = Tokens(batch=1.0, q_len=64.0, kv_len=64.0)
    window = 16 * 17 / 2 + 48 * 16
    mixer = replace(GQA, window=16, compress_ratio=8)
    core = next(op for op in mixer_graph(mixer, HIDDEN, t).ops if op.name == "attention.core")
    merged = sum(p // 8 for p in range(1, 65))
    assert core.pairs == window + merged  # type: ignore[attr-defined]
    mixer = replace(mixer, indexer=replace(INDEXER, ratio=8, top_k=3))
    ops = {op.name: op for op in mixer_graph(mixer, HIDDEN, t).ops}
    chosen = sum(min(p // 8, 3) for p in range(1, 65))
    assert ops["attention.core"].pairs == window + chosen  # type: ignore[attr-defined]
    assert ops["indexer.scores"].pairs == merged  # type: ignore[attr-defined]


def test_fused_scans_run_part_of_themselves_again() -> None:
    """Backward over forward: two, and the share that is made anew (states and C B^T; T k, T v, new
    values and states); for the delta rule also the two products of the inverse's gradient."""
    for mixer, plain, again in (
        (MAMBA, 0.0, 6 * 2 * 14 * 8 + 2 * 2 * 8 * 14),
        (DELTA, 4 * 4 * 8 * 8, 4 * (2 * 8 * (10 + 6) + 4 * 10 * 6)),
    ):
        for flash in (False, True):
            graph = mixer_graph(mixer, HIDDEN, tokens(flash=flash))
            scan = next(op for op in graph.ops if op.family == "scan")
            extra = scan.backward().matrix_flop - 2.0 * scan.forward().matrix_flop
            expected = 128 * (plain + (again if flash else 0.0))
            assert extra == pytest.approx(expected, rel=1e-9)


def test_cross_attention_makes_no_keys_in_decode() -> None:
    mixer = replace(GQA, cross=True)
    step = Tokens(batch=2.0, q_len=1.0, kv_len=5.0, cross_len=30.0, phase="decode")
    kv = next(op for op in mixer_graph(mixer, HIDDEN, step).ops if op.name == "cross.kv")
    assert kv.parameters == HIDDEN * 2 * 20
    work = kv.forward()
    assert not any((work.matrix_flop, work.activation_elements, work.weight_elements))


@given(
    experts=st.integers(1, 64),
    top_k=st.integers(1, 8),
    width=st.integers(1, 64),
    count=st.integers(1, 512),
)
def test_experts_do_the_work_of_top_k_dense_parts(
    experts: int, top_k: int, width: int, count: int
) -> None:
    ffn = Experts(experts=experts, top_k=top_k, width=width)
    t = Tokens(batch=1.0, q_len=float(count), kv_len=float(count))
    routed = [op for op in experts_graph(ffn, HIDDEN, t).ops if op.family == "grouped-gemm"]
    dense = [op for op in dense_graph(Dense(width=width), HIDDEN, t).ops if op.family == "gemm"]
    for pair in zip(routed, dense, strict=True):
        mine, one = (float(op.forward().matrix_flop) for op in pair)
        assert mine == pytest.approx(top_k * one, rel=1e-12)
        assert pair[0].parameters == experts * pair[1].parameters
