"""Recipes of low precision."""

import numpy as np
import pytest

from foretell.catalog.chips import catalogue_chip
from foretell.catalog.software import software
from foretell.kernels.families.base import DTYPES
from foretell.kernels.families.choose import choose
from foretell.kernels.plan_kernels import SOFTWARE
from foretell.kernels.precision import (
    CAST_PASSES,
    cast_passes,
    copy_bytes,
    is_narrow,
    kept_width,
    linear_format,
    plain_format,
)
from foretell.specs.plan import activation_bytes, batch_of, parse_plan
from foretell.training.step import evaluate_rows
from foretell.training.tables import tables_of
from foretell.workload.build import build
from tests.builders import GENERIC, make_chip, make_model, make_scenario


@pytest.mark.parametrize(("text", "name", "hopper", "blackwell"), [
    ("precision=bf16", None, 0.0, 0.0), ("precision=fp16", None, 0.0, 0.0),
    ("precision=fp8", "fp8", 2.0, 1.0), ("precision=fp8 scaling=row", "fp8", 2.0, 2.0),
    ("precision=fp8 scaling=block", "fp8-block", 2.0, 2.0),
    ("precision=fp8 weights=fp8", "fp8", 1.0, 0.0),
    ("precision=mxfp8", "mxfp8", 2.0625, 2.0625), ("precision=nvfp4", "nvfp4", 1.125, 1.125),
])  # fmt: skip
def test_formats_and_copies(text: str, name: str | None, hopper: float, blackwell: float) -> None:
    plan = parse_plan(text)
    assert linear_format(plan) == name
    assert copy_bytes(plan, GENERIC, "hopper") == hopper
    assert copy_bytes(plan, GENERIC, "blackwell") == blackwell


@pytest.mark.parametrize(("text", "format"), [
    ("", "bf16"), ("precision=fp16", "fp16"), ("precision=fp8", "bf16"), ("precision=tf32", "tf32"),
    ("precision=fp32", "fp32"),
])  # fmt: skip
def test_what_products_run_in_that_no_recipe_narrows(text: str, format: str) -> None:
    plan = parse_plan(text)
    wide = format in ("fp32", "tf32")
    assert plain_format(plan) == format
    assert activation_bytes(plan) == (4.0 if wide else 2.0)
    # Wide weights are their own master copy.
    assert (plan.weights, plan.master) == (("fp32", "none") if wide else (plan.weights, "fp32"))


def test_training_in_32_bits_keeps_moves_and_sends_twice_as_much() -> None:
    peaks = dict.fromkeys(("bf16", "tf32", "fp32"), 989.4e12)
    # On Ampere TF32 has one rate in every order of the operands (kernels/plan_kernels.py).
    chip = make_chip(matrix_flop_per_s=peaks, architecture="ampere")
    scenario = make_scenario("dense", gpus=8, batch=16, chip=chip)
    found = {}
    for name in ("bf16", "tf32", "fp32"):
        plan = parse_plan(f"tp4 pp2 zero1 mbs1 precision={name} weights=fp32", 8)
        plans = batch_of([plan])
        tables = tables_of(scenario, plans)
        found[name] = tables.parts, evaluate_rows(scenario, plans, tables)
    (half, narrow), (wide, full) = found["bf16"], found["fp32"]
    assert wide.send_bytes == pytest.approx(2.0 * half.send_bytes)
    assert wide.kept_input == pytest.approx(2.0 * half.kept_input)
    # What is kept in 32 bits anyway, sums of rows and the loss, stays as it is.
    more = wide.kept_whole / np.maximum(half.kept_whole, 1.0)
    assert 1.95 < more[0, 0] < 2.0
    assert 1.0 < more[0, -1] < 1.5
    # At the same rate of the units passes over memory take twice as long, the update as long.
    assert full.step_s[0] > narrow.step_s[0]
    assert full.seconds.optimizer == pytest.approx(narrow.seconds.optimizer, rel=0.4)
    assert found["tf32"][1].step_s == pytest.approx(full.step_s, rel=1e-6)


def test_casts() -> None:
    assert cast_passes(parse_plan("precision=fp8"), GENERIC) == CAST_PASSES
    assert cast_passes(parse_plan("precision=mxfp8"), GENERIC) == CAST_PASSES
    # NVFP4 has a scale for the tensor too: 16 bits are read twice.
    assert cast_passes(parse_plan("precision=nvfp4"), GENERIC) == 2.0
    row = cast_passes(parse_plan("precision=fp8 scaling=row"), GENERIC)
    assert row * (2.0 + DTYPES["fp8"].activation_bytes) == 6.0


def test_what_is_kept_narrow() -> None:
    graph = build(make_model("dense"), batch=1.0, seq_len=64.0)
    saved = {s.name: s for s in graph.kinds[0].saved}
    fp8, half = parse_plan("precision=fp8"), parse_plan("")
    plain = parse_plan("no-fused")
    assert all(
        kept_width(s, plain, GENERIC) == (s.bytes_per_element or 2.0) for s in saved.values()
    )
    # A fused gated activation keeps both inputs and the product; the other factor is computed again.
    assert kept_width(saved["ffn.gate"], half, GENERIC) == 0.0
    assert kept_width(saved["ffn.act"], half, GENERIC) == 2.0
    assert kept_width(saved["region.in"], fp8, GENERIC) == 1.0
    assert kept_width(saved["ffn.act"], fp8, GENERIC) == 1.0
    assert kept_width(saved["ffn.up"], fp8, GENERIC) == 2.0
    assert kept_width(saved["norm.in"], fp8, GENERIC) == 2.0
    assert kept_width(saved["attention.lse"], fp8, GENERIC) == 4.0
    # Fused attention reads its own output again, in 16 bits.
    assert kept_width(saved["attention.out"], fp8, GENERIC) == 3.0
    assert kept_width(saved["region.in"], fp8, software("torchtitan")) == 2.0


def test_what_stays_wide() -> None:
    graph = build(make_model("moe"), batch=1.0, seq_len=64.0)
    ops = [op for part in (*graph.kinds, graph.head) for op in part.ops]
    wide = {op.name for op in ops if op.family in ("gemm", "grouped-gemm") and not is_narrow(op)}
    assert wide == {"moe.router", "head.scores"}


def test_block_scaled_products_have_coefficients() -> None:
    """On a Hopper chip the surface of block-scaled products is one of fp8, never of 16 bits."""
    chosen = choose(catalogue_chip("h100-sxm"), "gemm", "fp8-block", SOFTWARE)
    assert {surface.dtype for surface in chosen.surfaces} <= {"fp8", "fp8-block"}
    assert chosen.surfaces
