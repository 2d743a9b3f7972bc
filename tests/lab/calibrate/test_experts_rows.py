"""Reading tables of mixture-of-experts layers and of memory-bound kernels, and how well they are met."""

import csv
import gzip
from dataclasses import replace

import numpy as np
import pytest

from foretell.catalog.chips import catalogue_chip
from foretell.kernels.families import experts, pointwise
from foretell.kernels.families.base import engine_of
from foretell.lab.calibrate import kernel_rows
from foretell.lab.calibrate.surfaces import errors, fit

HEAD = ("kernel_source", "moe_dtype", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts",
        "moe_tp_size", "moe_ep_size", "distribution", "latency")  # fmt: skip


def table(*rows):
    return {name: [row[i] for row in rows] for i, name in enumerate(HEAD)}


def row(
    source="a", dtype="bfloat16", tokens="16", experts_="128", ep="2", spread="balanced", ms="1"
):
    return (source, dtype, tokens, "2048", "768", "8", experts_, "1", ep, spread, ms)


def read(path):
    with gzip.open(path, "rt") as file:
        head, *body = list(csv.reader(file))
    return {name: [row[i] for row in body] for i, name in enumerate(head)}


def test_columns_become_dims():
    (rows,) = kernel_rows.rows_of(table(row(spread="power_law_1.2", ms="2.5")), "c", "vllm", "1")
    assert (rows.family, rows.dtype, rows.chip, rows.software) == ("experts", "bf16", "c", "vllm")
    found = {name: value.tolist() for name, value in rows.dims.items()}
    assert (found["tokens"], found["ep"], found["skew"]) == ([16.0], [2.0], [1.2])
    assert rows.measured_s.tolist() == pytest.approx([2.5e-3])


def test_what_cannot_be_read_or_is_not_known_is_left_out():
    rows = kernel_rows.rows_of(
        table(row(), row(dtype="int3"), row(ms=""), row(spread="zipf"), row(tokens="many")),
        "c",
        "s",
        "1",
    )
    assert [group.ids for group in rows] == [("1",)]


def test_kernels_and_formats_are_kept_apart():
    rows = kernel_rows.rows_of(
        table(
            row("moe_torch_flow_cutlass", "nvfp4"),
            row("moe_torch_flow_min_latency", "nvfp4"),
            row("vllm_fp8moe_flashinfer_cutlass_flashinferexperts", "fp8_block"),
        ),
        "c", "trtllm", "1",
    )  # fmt: skip
    assert {(g.dtype, g.software) for g in rows} == {
        ("nvfp4", "trtllm"), ("nvfp4", "trtllm-gen"), ("fp8-block", "trtllm-cutlass"),
    }  # fmt: skip


def test_tied_groups_pin_half_of_the_experts():
    (rows,) = kernel_rows.rows_of(table(row("moe_torch_flow_min_latency", "nvfp4")), "c", "t", "1")
    assert rows.dims["pinned"] == 4.0
    assert (rows.dims["experts"], rows.dims["ep"]) == (64.0, 1.0)


def test_a_single_shape_has_its_layouts_as_sites():
    one = kernel_rows.rows_of(table(row(ep="1"), row(ep="2")), "c", "s", "1")[0]
    assert len(set(one.site.tolist())) == 2
    two = kernel_rows.rows_of(table(row(ep="1"), row(ep="2"), row(experts_="64")), "c", "s", "1")[0]
    assert two.site[0] == two.site[1] != two.site[2]


@pytest.mark.parametrize(
    ("name", "chip", "dtype", "most"),
    [
        ("h100_sxm_trtllm_1.3.0rc20_moe", "h100-sxm", "fp8", 0.07),
        ("h200_sxm_vllm_0.24.0_moe", "h200-sxm", "bf16", 0.075),
    ],
)
def test_a_shape_left_out_is_met(data_dir, name, chip, dtype, most):
    path = data_dir / "kernels" / f"{name}.csv.gz"
    groups = kernel_rows.rows_of(read(path), chip, "s", "v")
    rows = next(g for g in groups if g.dtype == dtype and g.software == "s")
    engine = engine_of(catalogue_chip(chip), dtype)
    apart = rows.site == rows.site.max()
    known = rows.take(~apart)
    few = known.take(np.arange(0, len(known.ids), max(len(known.ids) // 400, 1)))
    record = fit(experts.FAMILY, few, engine)
    inside = errors(experts.FAMILY.seconds(known.dims, record, engine), known.measured_s)[0]
    assert inside < most
    other = rows.take(apart)
    outside = errors(experts.FAMILY.seconds(other.dims, record, engine), other.measured_s)[0]
    assert outside < 2.0 * most


@pytest.mark.parametrize(("name", "chip"), [("a100", "a100-sxm-80gb"), ("h100", "h100-sxm")])
def test_plain_kernels_of_a_layer_are_met(data_dir, name, chip):
    path = data_dir / "kernels" / f"vidur_{name}_linear_ops_median.csv.gz"
    rows = next(
        g for g in kernel_rows.rows_of(read(path), chip, "vidur", "") if g.software == "torch"
    )
    engine = engine_of(catalogue_chip(chip), "bf16")
    few = rows.take(np.arange(0, len(rows.ids), 10))
    # The table's tensors are read over and over from a cache, of which the form is free to make the most;
    # what memory gives to long vectors is bounded elsewhere.
    free = replace(pointwise.FAMILY, bounds={**pointwise.FAMILY.bounds, "memory_share": (0.1, 1.0)})
    found = free.seconds(rows.dims, fit(free, few, engine), engine)
    assert errors(found, rows.measured_s)[0] < 0.05
    assert fit(pointwise.FAMILY, few, engine).memory_share <= pointwise.STREAMING


def test_devices_of_the_other_table_are_told_by_its_rows(data_dir):
    path = data_dir / "kernels" / "llmcompass_measured_ops.csv.gz"
    groups = kernel_rows.rows_of(read(path), "", "llmcompass", "")
    assert {g.chip for g in groups} == {"a100-sxm-80gb", "mi210"}
    # 32768 x 4096 elements of layer norm on an A100: 76 % of its bandwidth.
    mine = next(g for g in groups if g.chip == "a100-sxm-80gb")
    rate = (mine.dims["bytes_read"] + mine.dims["bytes_written"]) / mine.measured_s
    assert rate.max() / 2039e9 == pytest.approx(0.757, abs=0.01)


def test_a_table_of_no_row_that_is_kept_has_no_rows() -> None:
    """An empty list of switches is none of numbers."""
    dims = {name: np.zeros(0) for name in ("experts", "top_k", "skew", "ep")}
    assert len(kernel_rows._as_routed(dims, [], np.zeros(0, str))["pinned"]) == 0
