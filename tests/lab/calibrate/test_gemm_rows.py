"""Tables of matrix products: how they are read, fitted, judged on sites left out, and carried over."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from foretell.catalog.chips import catalogue_chip
from foretell.kernels.families.base import engine_of
from foretell.kernels.families.choose import catalogue_surfaces
from foretell.kernels.families.gemm import FAMILY, GemmCoefficients
from foretell.lab.calibrate.kernel_files import columns_of
from foretell.lab.calibrate.kernel_rows import rows_of
from foretell.lab.calibrate.surfaces import errors, left_out
from foretell.specs.chip import Surface

TABLE = {
    "gemm_dtype": ["bfloat16", "fp8", "bfloat16", "w9a9", "bfloat16", "bfloat16"],
    "m": ["1", "16", "64", "1", "x", "0"],
    "n": ["32", "64", "32", "1", "1", "1"],
    "k": ["128", "256", "128", "1", "1", "1"],
    "latency_ms": ["0.002", "0.012", "0.003", "1", "1", "1"],
}


def test_rows_are_grouped_by_format_and_bad_ones_left_out() -> None:
    groups = rows_of(TABLE, "h200-sxm", "trtllm", "1")
    assert [(g.dtype, g.ids) for g in groups] == [("bf16", ("1", "3")), ("fp8", ("2",))]
    assert groups[0].site.tolist() == [0, 0]
    np.testing.assert_allclose(groups[0].measured_s, [2e-6, 3e-6])
    assert groups[0].dims["batch"].tolist() == [1.0, 1.0]


def test_either_name_of_the_time_and_more_columns() -> None:
    table = {name: cells[:1] for name, cells in TABLE.items() if name != "latency_ms"}
    more = {"latency": ["0.002"], "power_w": ["300"], "batch": ["4"], "id": ["a"]}
    (group,) = rows_of({**table, **more}, "h200-sxm", "trtllm", "1")
    assert group.ids == ("a",)
    assert group.dims["batch"].tolist() == [4.0]
    assert group.measured_s.tolist() == [2e-6]


@pytest.mark.parametrize(
    ("name", "median", "whole"),
    [
        ("h200_sxm_trtllm_1.3.0rc20_gemm_bfloat16", 0.055, 0.10),
        ("b200_sxm_trtllm_1.3.0rc20_gemm_nvfp4", 0.05, 0.10),
    ],
)
def test_sites_left_out_are_met(data_dir: Path, name: str, median: float, whole: float) -> None:
    path = data_dir / "kernels" / f"{name}.csv.gz"
    if not path.is_file():
        pytest.skip(f"no {path.name} in the data")
    (rows,) = rows_of(columns_of(path)[0], name[:4] + "-sxm", "trtllm", "1.3.0rc20")
    rows = rows.take(np.random.default_rng(0).permutation(len(rows.ids))[:2500])
    engine = engine_of(catalogue_chip(rows.chip), rows.dtype)
    blind = left_out(FAMILY, rows, engine, folds=3)
    n, k = rows.dims["n"], rows.dims["k"]
    large = (n >= 512) & (k >= 512) & (n * k >= 1e6)
    middle, high = errors(blind[large], rows.measured_s[large])
    assert middle <= median
    assert high <= 0.20
    assert errors(blind, rows.measured_s)[0] <= whole


def own() -> list[Surface]:
    return [s for s in catalogue_surfaces() if s.family == "gemm"]


def test_surfaces_of_the_catalogue_lie_within_the_bounds() -> None:
    names = [field.name for field in fields(GemmCoefficients)]
    assert {"bf16", "fp8", "fp8-block", "nvfp4"} <= {s.dtype for s in own()}
    for surface in own():
        assert list(surface.coefficients) == names
        for name, (low, high) in FAMILY.bounds.items():
            assert low * (1 - 1e-3) <= surface.coefficients[name] <= high * (1 + 1e-3)
