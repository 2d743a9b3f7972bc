"""Tables of attention: how they are read, and how well the forms meet them on sites left out."""

from pathlib import Path

import numpy as np
import pytest

from foretell.catalog.chips import catalogue_chip
from foretell.kernels.families.base import engine_of
from foretell.kernels.families.choose import family_named
from foretell.lab.calibrate.kernel_files import read_kernels
from foretell.lab.calibrate.kernel_fit import KINDS, fit_attention, physical, surfaces_of
from foretell.lab.calibrate.kernel_rows import causal_pairs, rows_of
from foretell.lab.calibrate.surfaces import KernelRows, errors, left_out

CONTEXT = {
    "attn_dtype": ["bfloat16", "bfloat16", "fp8", "bfloat16", "int4", "bfloat16"],
    "kv_cache_dtype": ["bfloat16", "fp8", "fp8", "bfloat16", "fp8", "bfloat16"],
    "batch_size": ["1", "2", "4", "1", "1", "x"],
    "isl": ["16", "16", "16", "4", "1", "1"],
    "step": ["0", "0", "0", "6", "0", "0"],
    "num_heads": ["8", "8", "8", "4", "1", "1"],
    "num_key_value_heads": ["1", "1", "1", "0", "1", "1"],
    "latency_ms": ["0.01", "0.02", "0.03", "0.04", "1", "1"],
}


def test_prompts_are_grouped_by_what_the_products_run_in() -> None:
    groups = rows_of(CONTEXT, "h200-sxm", "trtllm", "1")
    assert [(g.family, g.dtype, g.ids) for g in groups] == [
        ("prefill", "bf16", ("1", "4")),
        ("prefill", "fp8", ("2", "3")),
    ]
    half, narrow = groups
    assert half.dims["kv_len"].tolist() == [16.0, 10.0]
    assert half.dims["pairs"].tolist() == [136.0, 7.0 + 8.0 + 9.0 + 10.0]
    assert half.dims["kv_heads"].tolist() == [1.0, 4.0]
    assert half.dims["qk_dim"].tolist() == [128.0, 128.0]
    assert sorted(half.site.tolist()) == [0, 1]
    assert narrow.dims["kv_bytes"].tolist() == [1.0, 1.0]
    np.testing.assert_allclose(narrow.measured_s, [2e-5, 3e-5])


def test_decode_steps_hold_isl_and_step_keys_within_the_window() -> None:
    table = {name: cells[:2] for name, cells in CONTEXT.items() if name != "latency_ms"}
    more = {
        "isl": ["1", "1"], "step": ["7", "4095"], "window_size": ["0", "128"],
        "head_dim": ["64", "64"], "beam_width": ["1", "1"], "latency": ["0.01", "0.02"],
        "id": ["a", "b"],
    }  # fmt: skip
    groups = rows_of({**table, **more}, "h200-sxm", "vllm", "1")
    assert [(g.family, g.ids) for g in groups] == [("decode", ("a",)), ("decode", ("b",))]
    assert [g.dims["kv_len"].tolist() for g in groups] == [[8.0], [128.0]]
    assert groups[0].dims["v_dim"].tolist() == [64.0]
    assert not rows_of({**table, **more, "beam_width": ["2", "2"]}, "h200-sxm", "vllm", "1")


@pytest.mark.parametrize(
    ("step", "family", "widths"),
    [("0", "mla-prefill", (192.0, 128.0)), ("5", "mla-decode", (576.0, 512.0))],
)
def test_latent_tables_have_the_sizes_of_their_model(step, family, widths) -> None:
    table = {
        "mla_dtype": ["bfloat16"], "kv_cache_dtype": ["fp8"], "num_heads": ["16"],
        "batch_size": ["2"], "isl": ["1"], "tp_size": ["8"], "step": [step], "latency": ["0.5"],
    }  # fmt: skip
    (group,) = rows_of(table, "h200-sxm", "trtllm", "1")
    assert (group.family, group.dtype) == (family, "fp8")
    assert (group.dims["qk_dim"][0], group.dims["v_dim"][0]) == widths
    assert group.dims["heads"].tolist() == [16.0]


def test_windows_leave_fewer_pairs() -> None:
    q, kv, window = (np.asarray(x) for x in ([4.0, 4.0, 4.0], [4.0, 10.0, 10.0], [4.0, 3.0, 8.0]))
    assert causal_pairs(q, kv, window).tolist() == [10.0, 12.0, 7.0 + 8.0 + 8.0 + 8.0]


def _rows(data_dir: Path, name: str, dtype: str, sites: int) -> KernelRows:
    """Some sites of one table."""
    groups = read_kernels(data_dir / "kernels" / f"{name}.csv.gz").groups
    rows = next(group for group in groups if group.dtype == dtype)
    every = max(1, (int(rows.site.max()) + 1) // sites)
    return rows.take(rows.site % every == 0)


@pytest.mark.parametrize(
    ("name", "dtype", "median"),
    [
        ("h200_sxm_trtllm_1.3.0rc20_context_attention_hd128", "bf16", 0.045),
        ("b200_sxm_trtllm_1.3.0rc20_context_attention_hd128", "fp8", 0.045),
        ("a100_sxm_trtllm_1.0.0_context_attention_hd128", "bf16", 0.045),
        ("h200_sxm_vllm_0.22.0_generation_attention_hd128_power", "bf16", 0.08),
        ("b200_sxm_trtllm_1.3.0rc20_generation_attention_hd128", "fp8", 0.08),
        ("b200_sxm_trtllm_1.3.0rc20_context_mla", "bf16", 0.12),
        ("h200_sxm_trtllm_1.3.0rc20_generation_mla", "fp8", 0.12),
    ],
)
def test_sites_left_out_are_met(data_dir: Path, name: str, dtype: str, median: float) -> None:
    rows = _rows(data_dir, name, dtype, 12)
    engine = engine_of(catalogue_chip(rows.chip), dtype)
    family = family_named(rows.family)
    blind = left_out(family, rows, engine, fitter=lambda few: fit_attention(few, engine), folds=2)
    middle, tail = errors(blind, rows.measured_s)
    assert middle < median
    assert tail < 0.2


def test_a_cache_read_faster_than_memory_is_not_fitted(data_dir: Path) -> None:
    rows = _rows(data_dir, "a100_sxm_trtllm_1.0.0_generation_attention_hd128", "bf16", 40)
    engine = engine_of(catalogue_chip(rows.chip), "bf16")
    kept = rows.take(physical(rows, engine))
    assert 0 < len(kept.ids) < len(rows.ids)
    np.testing.assert_array_equal(kept.dims["heads"], kept.dims["kv_heads"])


def test_a_table_becomes_surfaces(data_dir: Path) -> None:
    path = data_dir / "kernels" / "h200_sxm_trtllm_1.3.0rc20_context_mla.csv.gz"
    half, narrow = surfaces_of(path, KINDS["attention"][1], "2026-01-01")
    assert (half.family, half.dtype, narrow.dtype) == ("mla-prefill", "bf16", "fp8")
    assert half.source.endswith("h200_sxm/mla/trtllm/1.3.0rc20")
    assert half.points == 880
    rows = read_kernels(path).groups[0]
    assert (
        half.coefficients["tile_q"]
        == family_named(rows.family).begin("hopper", "trtllm", "bf16").tile_q
    )
    assert half.median_ape <= half.left_out_median_ape + 0.01
