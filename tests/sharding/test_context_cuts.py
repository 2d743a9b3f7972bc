"""How sequences are cut over context-parallel ranks, and of what they are packed: closed forms and counts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foretell
from foretell.sharding.context import busiest_share
from foretell.specs.plan_words import ContextCut
from foretell.workload.graph import LayerGraph
from foretell.workload.masks import within_documents
from foretell.workload.ops import AttentionCore

JOB = {"system": "h100-sxm", "gpus": 64, "global_batch": 16, "seq_len": 65536}


def mask(length: int, window: int | None, document: int = 0) -> np.ndarray:
    """Which query (row) sees which key."""
    row, column = np.arange(length)[:, None], np.arange(length)[None]
    seen = column <= row
    seen &= row - column < (window or length)
    return seen & (row // document == column // document) if document else seen


def core(length: int, pairs: float) -> AttentionCore:
    return AttentionCore(
        name="a.core", batch=1.0, heads=2.0, kv_heads=2.0, q_len=float(length),
        kv_len=float(length), pairs=pairs, qk_dim=64.0, v_dim=64.0,
    )  # fmt: skip


def owner(length: int, cp: int, cut: ContextCut) -> np.ndarray:
    """The rank that has each token."""
    place = np.arange(length)
    if cut == "striped":
        return place % cp
    if cut == "contiguous":
        return place // (length // cp)
    block = place // (length // (2 * cp))
    return np.where(block < cp, block, 2 * cp - 1 - block)


def ring_pairs(seen: np.ndarray, rank: np.ndarray, cp: int) -> int:
    """Pairs that a ring takes in lock-step: at every step as many as the busiest rank has."""
    counts = [[seen[rank == i][:, rank == k].sum() for k in range(cp)] for i in range(cp)]
    return sum(max(counts[i][(i - step) % cp] for i in range(cp)) for step in range(cp))


@settings(max_examples=40, deadline=None)
@given(
    cp=st.sampled_from([2, 3, 4, 8]),
    blocks=st.integers(1, 4),
    cut=st.sampled_from(["zigzag", "contiguous", "striped"]),
)
def test_a_ring_takes_as_long_as_its_busiest_rank_at_every_step(
    cp: int, blocks: int, cut: ContextCut
) -> None:
    length = 2 * cp * blocks
    seen = mask(length, None)
    share = busiest_share(core(length, float(seen.sum())), float(cp), cut)
    events = ring_pairs(seen, owner(length, cp, cut), cp)
    if cut == "zigzag":  # its first step has the tokens themselves besides: half a block's edge
        assert events == pytest.approx(share * seen.sum() / cp, rel=1.0 / (blocks * cp))
    else:
        assert events == pytest.approx(share * seen.sum() / cp)


@settings(max_examples=40, deadline=None)
@given(cp=st.sampled_from([2, 4, 8]), blocks=st.integers(1, 4), window=st.integers(1, 80))
def test_the_last_run_of_a_contiguous_cut_has_the_most_pairs(
    cp: int, blocks: int, window: int
) -> None:
    length = 2 * cp * blocks
    seen = mask(length, min(window, length))
    share = busiest_share(core(length, float(seen.sum())), float(cp), "contiguous")
    runs = [seen[owner(length, cp, "contiguous") == i].sum() for i in range(cp)]
    assert max(runs) == pytest.approx(share * seen.sum() / cp)


@settings(max_examples=40, deadline=None)
@given(length=st.integers(2, 60), document=st.integers(1, 70), window=st.integers(1, 70))
def test_documents_attend_within_themselves(length: int, document: int, window: int) -> None:
    near = min(window, length)
    graph = LayerGraph(name="a", ops=(core(length, float(mask(length, near).sum())),))
    (found,) = within_documents(graph, float(document)).ops
    assert isinstance(found, AttentionCore)
    assert found.pairs == pytest.approx(mask(length, near, min(document, length)).sum())


def test_both_ways_a_document_has_its_square() -> None:
    (found,) = within_documents(LayerGraph(name="a", ops=(core(10, 100.0),)), 4.0).ops
    assert isinstance(found, AttentionCore)
    assert found.pairs == pytest.approx(16.0 + 16.0 + 4.0)


def test_a_contiguous_cut_is_slower_and_documents_are_faster() -> None:
    def step_s(words: str) -> float:
        plan = f"tp4 cp4 zero1 mbs1 recompute=full {words}"
        return foretell.estimate("llama-3.1-8b", plan=plan, **JOB).step_s

    usual = step_s("")
    assert step_s("cp_cut=contiguous") > 1.2 * usual
    assert step_s("cp_cut=striped") == pytest.approx(usual, rel=0.01)
    assert step_s("cp_mode=ulysses cp_cut=contiguous") == step_s("cp_mode=ulysses")
    assert step_s("documents=4096") < 0.8 * usual
    assert step_s("documents=65536") == pytest.approx(usual)


def test_utilisation_counts_documents_alone() -> None:
    plan = "tp4 cp1 zero1 mbs1 recompute=full documents=512"
    packed = foretell.estimate("llama-3.1-8b", plan=plan, **JOB)
    assert packed.mfu < 0.7
    assert "documents of 512 tokens" in " ".join(packed.assumptions)
