"""`foretell validate kernels`: every row is scored or said why not, for chips with and without surfaces."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from foretell.errors import BadInput
from foretell.lab.validate.hardware import score_kernels
from tests.surfaces.command import foretell

GEMM = ["gemm_dtype", "m", "n", "k", "latency_ms"]
ROWS = [["fp8", m, 4096, 4096, 0.02 + m * 2e-5] for m in (1, 16, 256, 4096)]


def table(folder: Path, name: str, head: list[str], rows: list[list[object]]) -> Path:
    path = folder / name
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([head, *rows])
    return path


@pytest.mark.parametrize(
    ("name", "evidence"),
    [
        ("h200_sxm_trtllm_1.3.0rc20_gemm_fp8.csv", "fitted"),
        ("h200_sxm_newengine_0.1_gemm_fp8.csv", "transferred"),
        ("l40s_trtllm_1.3.0rc20_gemm_fp8.csv", "transferred"),
        ("mi300x_vllm_0.9.0_gemm_fp8.csv", "fitted"),
        ("mi250x_vllm_0.9.0_gemm_fp8.csv", "datasheet"),
    ],
)
def test_any_chip_and_software_is_scored(tmp_path: Path, name: str, evidence: str) -> None:
    found = score_kernels(table(tmp_path, name, GEMM, ROWS))
    assert (found.rows, found.scored, found.unsupported) == (4, 4, ())
    assert set(found.groups["by_evidence"]) == {evidence}
    for one in found.predictions:
        assert one.low is not None
        assert one.high is not None
        assert 0.0 < one.low < one.predicted < one.high


def test_rows_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    rows = [*ROWS, ["w9a9", 1, 4096, 4096, 1.0], ["fp8", "x", 1, 1, 1.0]]
    found = score_kernels(table(tmp_path, "h200_sxm_trtllm_1_gemm.csv", GEMM, rows))
    assert (found.rows, found.scored) == (6, 4)
    assert [row for row, _ in found.unsupported] == ["5", "6"]


def test_the_verb_gives_the_shape_of_every_validate_verb(tmp_path: Path) -> None:
    path = table(tmp_path, "l40s_trtllm_1.3.0rc20_gemm_fp8.csv", GEMM, ROWS)
    outcome = foretell("validate", "kernels", str(path), "--json")
    assert (outcome.code, outcome.err) == (0, "")
    told = json.loads(outcome.out)
    assert {
        "rows",
        "scored",
        "unsupported",
        "median_ape",
        "p90_ape",
        "by_source",
        "predictions",
    } <= (told.keys())
    assert told["predictions"][0].keys() == {
        "id", "metric", "predicted", "measured", "low", "high",
    }  # fmt: skip
    assert told["predictions"][0]["measured"] == pytest.approx(0.02002e-3)
    assert foretell("validate", "kernels", str(path)).code == 0


def test_a_chip_of_ones_own_name_overrides(tmp_path: Path) -> None:
    path = table(tmp_path, "mine.csv", GEMM, ROWS)
    with pytest.raises(BadInput, match="chip"):
        score_kernels(path)
    assert score_kernels(path, chip="h200-sxm", software="trtllm").scored == 4
    with pytest.raises(BadInput, match="columns"):
        score_kernels(table(tmp_path, "h200_sxm_trtllm_1_x.csv", ["a"], [["1"]]))


def test_sites_left_out_are_refitted(tmp_path: Path) -> None:
    """Times made by the formula itself are met again from the other sites."""
    random = np.random.default_rng(0)
    rows: list[list[object]] = []
    for n in (512, 1024, 2048, 4096, 8192):
        for k in (512, 2048, 8192):
            for m in (16, 256, 2048, 8192):
                seconds = 3e-6 + 2.0 * m * n * k / (0.7 * 989e12) + 2.0 * n * k / 4e12
                rows.append(["bfloat16", m, n, k, 1e3 * seconds * random.uniform(0.97, 1.03)])
    path = table(tmp_path, "h200_sxm_trtllm_1_gemm.csv", GEMM, rows)
    blind = score_kernels(path, leave_one_out="site")
    assert blind.scored == len(rows)
    assert blind.median_ape is not None
    assert blind.median_ape < 0.12
    assert blind.leave_one_out == "site"


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("h200_sxm_trtllm_1.3.0rc20_gemm_bfloat16", 0.055),
        ("b200_sxm_trtllm_1.3.0rc20_gemm_fp8", 0.045),
        ("b200_sxm_trtllm_1.3.0rc20_gemm_nvfp4", 0.05),
        ("h100_sxm_trtllm_1.3.0rc20_context_attention_hd128", 0.045),
        ("b200_sxm_trtllm_1.3.0rc20_generation_attention_hd128", 0.08),
        ("h200_sxm_trtllm_1.3.0rc20_moe_dsv3_mixtral_qwen3", 0.09),
        ("h200_sxm_trtllm_1.3.0rc20_context_mla", 0.12),
    ],
)
def test_published_tables(data_dir: Path, name: str, most: float) -> None:
    found = score_kernels(data_dir / "kernels" / f"{name}.csv.gz")
    assert found.scored == found.rows
    assert found.median_ape is not None
    assert found.median_ape <= most
    assert found.inside_p90 is not None
    assert 0.8 < found.inside_p90 <= 1.0
