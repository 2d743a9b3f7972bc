"""Products and attention in 32 bits."""

import numpy as np
import pytest

from foretell.catalog.chips import catalogue_chip
from foretell.catalog.software import software
from foretell.kernels.calls import call_stacks
from foretell.kernels.families.base import engine_of
from foretell.kernels.op_times import op_times
from foretell.kernels.plan_kernels import OVER_FLASH, TIMES, TURNED, in_wide
from foretell.specs.plan import parse_plan
from foretell.workload.ops import AttentionCore, Gemm

PRODUCT = Gemm(name="ffn.up", family="gemm", m=4096.0, n=8192.0, k=2048.0)
ATTENTION = AttentionCore(
    name="attention.core", batch=16.0, heads=12.0, kv_heads=12.0, q_len=1024.0, kv_len=1024.0,
    pairs=1024.0 * 1025.0 / 2.0, qk_dim=64.0, v_dim=64.0, flash=True,
)  # fmt: skip


def times(op: Gemm | AttentionCore, chip: str, precision: str) -> tuple[float, float]:
    """Seconds of one operation, forward and backward."""
    plan = parse_plan(f"precision={precision} no-fused")
    found = op_times(
        call_stacks([op], 1), 1, catalogue_chip(chip), plan, software("pytorch-eager")
    ).seconds
    return float(found[0, 0]), float(found[1, 0])


def test_backward_products_of_tf32_are_slower_on_hopper_alone() -> None:
    forward, backward = times(PRODUCT, "h200-sxm", "tf32")
    assert backward / forward == pytest.approx(2.0 / TURNED["hopper"], rel=0.1)
    for chip, precision in (("a100-sxm-80gb", "tf32"), ("h200-sxm", "bf16"), ("h200-sxm", "fp32")):
        forward, backward = times(PRODUCT, chip, precision)
        assert backward / forward == pytest.approx(2.0, rel=0.1), (chip, precision)


def test_attention_is_the_same_with_and_without_tf32_and_meets_a_trace() -> None:
    plain = times(ATTENTION, "h200-sxm", "fp32")
    assert times(ATTENTION, "h200-sxm", "tf32") == plain
    # Twelve layers of gpt-124m on one H200, PyTorch 2.11: 10.467 and 24.859 ms.
    assert 12e3 * plain[0] == pytest.approx(10.467, rel=0.05)
    assert 12e3 * plain[1] == pytest.approx(24.859, rel=0.05)


def test_a_chip_without_tf32_and_16_bits_are_left_as_they_are() -> None:
    stacks = call_stacks([PRODUCT, ATTENTION], 1)
    for name, dtype in (("v100-sxm-32gb", "fp32"), ("h200-sxm", "bf16"), ("xeon-8480", "fp32")):
        chip = catalogue_chip(name)
        for stack in stacks:
            engine = engine_of(chip, dtype)
            assert in_wide(engine, stack, chip, dtype) is engine


def test_never_above_the_peak() -> None:
    chip = catalogue_chip("h200-sxm")
    peak = chip.matrix_flop_per_s["tf32"]
    for stack in call_stacks([PRODUCT, ATTENTION], 1):
        rate = np.max(in_wide(engine_of(chip, "tf32"), stack, chip, "tf32").flop_per_s)
        assert rate <= (
            peak * max(OVER_FLASH.values()) / TIMES if "prefill" in stack.family else peak
        )
