"""Context parallelism: steps of a ring are kernels of their own, and software decides how keys travel."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foretell
from foretell.catalog.chips import catalogue_chip
from foretell.catalog.models import model
from foretell.kernels.calls import calls_of
from foretell.kernels.families.base import engine_of
from foretell.kernels.plan_kernels import coefficients
from foretell.sharding.context import context_parallel
from foretell.specs.plan import Plan
from foretell.workload.build import build
from foretell.workload.graph import LayerGraph
from foretell.workload.ops import AttentionCore, Pointwise

JOB: dict[str, Any] = {"system": "hgx-h100", "gpus": 64, "global_batch": 64, "seq_len": 32768}


def test_a_ring_has_a_kernel_for_each_block() -> None:
    graph = build(model("llama-3.1-8b"), batch=1.0, seq_len=32768.0, flash=True)
    ring, gathered = (context_parallel(graph.kinds[0], 8.0, mode) for mode in ("ring", "allgather"))
    own, passing = (op for op in ring.ops if isinstance(op, AttentionCore))
    assert own.calls == own.batch == 1.0
    assert passing.calls == passing.batch == 7.0
    # Half of the rows meet a whole block, or all of them half of it: no mask is left.
    assert passing.q_len == pytest.approx(2048.0, rel=1e-3)
    assert passing.pairs == pytest.approx(passing.q_len * passing.kv_len)
    (call,) = calls_of(passing, 0, backward=False)
    assert call.sizes["calls"] == 7.0
    (whole,) = (op for op in gathered.ops if isinstance(op, AttentionCore))
    assert whole.calls == 1.0
    assert own.pairs + passing.batch * passing.pairs == pytest.approx(whole.pairs)


@given(cp=st.sampled_from([1.0, 2.0, 4.0, 16.0]), window=st.sampled_from([0, 300, 4096]))
def test_blocks_of_a_ring_have_all_pairs_and_keys(cp: float, window: int) -> None:
    length = 8192.0
    pairs = length * (length + 1.0) / 2.0
    if window:
        pairs = window * (window + 1.0) / 2.0 + (length - window) * window
    core = AttentionCore(
        name="a.core", batch=3.0, heads=8.0, kv_heads=2.0, q_len=length, kv_len=length,
        pairs=pairs, qk_dim=128.0, v_dim=128.0,
    )  # fmt: skip
    local = context_parallel(LayerGraph(name="a", ops=(core,)), cp, "ring")
    blocks = [op for op in local.ops if isinstance(op, AttentionCore)]
    assert sum(op.batch * op.pairs for op in blocks) == pytest.approx(3.0 * pairs / cp)
    assert sum(op.batch * op.kv_len for op in blocks) == pytest.approx(3.0 * length)
    merged = [op.elements for op in local.ops if isinstance(op, Pointwise)]
    assert all(many == 0.0 for many in merged) if cp == 1.0 else all(many > 0.0 for many in merged)


def spent_s(plan: str) -> float:
    """Attention and passes over memory, where the steps' sums and copies are."""
    found = foretell.estimate("llama-3.1-8b", plan=plan, **JOB)
    assert found.breakdown is not None
    parts = [leaf for leaf in found.breakdown.children if leaf.name in ("compute", "memory_bound")]
    kinds = ("attention", "elementwise")
    return sum(leaf.value for part in parts for leaf in part.children if leaf.name in kinds)


def test_short_blocks_cost_a_ring_more() -> None:
    """The same pairs in more kernels: launches, last waves and sums add up as blocks shorten."""
    ring = [spent_s(f"tp4 cp{cp} mbs1 zero1") for cp in (1, 2, 4, 8, 16)]
    assert ring == sorted(ring)
    gathered = spent_s("tp4 cp16 mbs1 zero1 cp_mode=allgather")
    assert ring[-1] > 1.1 * gathered


BLOCKS = {
    (32, 2048): (0.088, 0.264, 0.063, 0.201),
    (32, 4096): (0.261, 0.786, 0.215, 0.651),
    (32, 8192): (0.895, 2.566, 0.814, 2.379),
    (32, 16384): (3.355, 9.586, 3.577, 9.649),
    (8, 4096): (0.098, 0.278, 0.061, 0.180),
    (8, 8192): (0.303, 0.785, 0.221, 0.618),
    (8, 32768): (3.384, 9.736, 3.524, 9.503),
    (4, 8192): (0.181, 0.477, 0.115, 0.323),
    (4, 32768): (1.784, 4.558, 1.600, 4.602),
}
"""Heads, tokens of a block -> milliseconds of a rank's own block, forward and backward, and of one that
passes (mean of half of the queries and of half of the keys): cuDNN 9.19 on one H200, PyTorch 2.11,
heads of 128."""


def block_ms(heads: int, rows: float, keys: int, pairs: float, backward: bool) -> float:
    chip, plan = catalogue_chip("h200-sxm"), Plan(attention="cudnn")
    core = AttentionCore(
        name="a.core", batch=1.0, heads=float(heads), kv_heads=float(heads), q_len=rows,
        kv_len=float(keys), pairs=pairs, qk_dim=128.0, v_dim=128.0,
    )  # fmt: skip
    (call,) = calls_of(core, 0, backward=backward)
    found, engine = coefficients(call.family, "bf16", chip, plan), engine_of(chip, "bf16")
    sizes = {name: np.asarray(value, float) for name, value in call.sizes.items()}
    sizes["kv_bytes"] = np.asarray(2.0)
    return 1e3 * float(np.ravel(found.family.seconds(sizes, found.record, engine))[0])


def test_blocks_of_a_ring_take_what_an_h200_takes() -> None:
    own, passing = [], []
    for (heads, tokens), measured in BLOCKS.items():
        causal, square = tokens * (tokens + 1) / 2.0, tokens**2 / 2.0
        for backward in (False, True):
            found = block_ms(heads, float(tokens), tokens, causal, backward)
            own.append(found / measured[int(backward)])
            found = block_ms(heads, tokens / 2.0, tokens, square, backward)
            passing.append(found / measured[2 + int(backward)])
    assert np.median(np.abs(np.array(own) - 1.0)) < 0.05
    assert np.abs(np.array(own) - 1.0).max() < 0.20
    assert np.median(np.abs(np.array(passing) - 1.0)) < 0.10
    assert np.abs(np.array(passing) - 1.0).max() < 0.30


@pytest.mark.parametrize(
    ("framework", "mode"),
    [("deepspeed", "ulysses"), ("torchtitan", "allgather"), ("megatron-core", "ring")],
)
def test_software_decides_how_keys_travel(framework: str, mode: str) -> None:
    words = f"cp4 zero3 mbs1 framework={framework}"
    assert foretell.estimate("llama-3.1-8b", plan=words, **JOB).plan.cp_mode == mode
    told = foretell.estimate("llama-3.1-8b", plan=f"{words} cp_mode=ring", **JOB)
    assert told.plan.cp_mode == "ring"


def test_a_model_of_patches_has_its_own_length() -> None:
    found = foretell.estimate("vit-era5", system="h200-sxm", gpus=512, plan="tp8 cp2 zero3 mbs1")
    assert found.seq_len == 64800
    assert any("patches" in text for text in found.assumptions)
    assert foretell.estimate("bert-large", system="h200-sxm", gpus=8).seq_len == 512


def test_causal_counting_halves_attention_alone() -> None:
    long = foretell.estimate(
        "llama-3.1-8b", plan="tp4 cp8 zero3 mbs1 recompute=full", **{**JOB, "seq_len": 131072}
    )
    assert long.mfu_causal < 0.65 * long.mfu
    both_ways = foretell.estimate(
        "vit-era5", system="h200-sxm", gpus=512, plan="tp8 cp2 zero3 mbs1"
    )
    assert both_ways.mfu_causal == pytest.approx(both_ways.mfu)


def test_wide_heads_slow_the_backward_pass() -> None:
    chip = catalogue_chip("h200-sxm")
    for library in ("cudnn", "fa2"):
        found = coefficients("prefill-backward", "bf16", chip, Plan(attention=library))
        assert found.record.wide < 1.0


@given(
    cp=st.integers(1, 12),
    attention_s=st.floats(1e-5, 1e-2),
    send_s=st.floats(1e-6, 1e-2),
)
def test_a_ring_shows_what_its_sends_take_beyond_the_attention(
    cp: int, attention_s: float, send_s: float
) -> None:
    """Ranks in events: a block is attended to when it is there and the one before is done, and is sent on as
    soon as it is there and the link is free."""
    there = [[0.0] * cp]
    for _ in range(cp - 1):
        before = there[-1]
        sent = [max(before[r], there[-2][r] + send_s if len(there) > 1 else 0.0) for r in range(cp)]
        there.append([sent[(r - 1) % cp] + send_s for r in range(cp)])
    done = [0.0] * cp
    for arrived in there:
        done = [max(end, at) + attention_s for end, at in zip(done, arrived, strict=True)]
    # training/exchanges.py, _ring: attention in the compute, the rest shows.
    shown = (cp - 1) * max(send_s - attention_s, 0.0)
    assert max(done) == pytest.approx(cp * attention_s + shown, rel=1e-9)
