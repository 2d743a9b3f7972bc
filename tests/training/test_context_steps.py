"""Context parallelism: steps of a ring are kernels of their own, and software decides how keys travel."""

from typing import Any

import pytest

import foretell
from foretell.catalog.chips import catalogue_chip
from foretell.catalog.models import model
from foretell.kernels.calls import calls_of
from foretell.kernels.op_times import coefficients
from foretell.sharding.context import context_parallel
from foretell.specs.plan import Plan
from foretell.workload.build import build
from foretell.workload.ops import AttentionCore

JOB: dict[str, Any] = {"system": "hgx-h100", "gpus": 64, "global_batch": 64, "seq_len": 32768}


def test_a_ring_has_a_kernel_for_each_block() -> None:
    graph = build(model("llama-3.1-8b"), batch=1.0, seq_len=32768.0, flash=True)
    ring, gathered = (context_parallel(graph.kinds[0], 8.0, mode) for mode in ("ring", "allgather"))
    (core,) = (op for op in ring.ops if isinstance(op, AttentionCore))
    assert core.calls == 8.0
    assert core.batch == 8.0
    (call,) = calls_of(core, 0, backward=False)
    assert call.sizes["calls"] == 8.0
    (whole,) = (op for op in gathered.ops if isinstance(op, AttentionCore))
    assert whole.calls == 1.0
    assert core.batch * core.pairs == pytest.approx(whole.pairs)


def attention_s(plan: str) -> float:
    found = foretell.estimate("llama-3.1-8b", plan=plan, **JOB)
    assert found.breakdown is not None
    (compute,) = (leaf for leaf in found.breakdown.children if leaf.name == "compute")
    return next(leaf.value for leaf in compute.children if leaf.name == "attention")


def test_short_blocks_cost_a_ring_more() -> None:
    """The same pairs in more kernels: launches and last waves add up, more so the shorter the blocks."""
    ring = [attention_s(f"tp4 cp{cp} mbs1 zero1") for cp in (1, 2, 4, 8, 16)]
    assert ring == sorted(ring)
    gathered = attention_s("tp4 cp16 mbs1 zero1 cp_mode=allgather")
    assert ring[-1] > 1.05 * gathered


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
