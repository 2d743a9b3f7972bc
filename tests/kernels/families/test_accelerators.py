"""Chips of other makers: products, decode attention and experts of their own, and kernel times in print."""

from dataclasses import replace

import numpy as np
import pytest

from foretell.catalog.chips import catalogue_chip
from foretell.kernels.families.base import attainable, engine_of
from foretell.kernels.families.choose import catalogue_surfaces, choose
from foretell.kernels.families.transfer import SAME_UNITS, same_units_first

AITER = [
    ("mi300x", "fp8-block", 128, 7168, 2048, 13.59),
    ("mi300x", "fp8-block", 16384, 4608, 7168, 1496.6),
    ("mi355x", "fp8", 4096, 8192, 8192, 240.0),
    ("mi355x", "fp8", 1, 53248, 16384, 170.1),
    ("mi355x", "bf16", 16384, 7168, 8192, 1263.3),
    ("mi355x", "mxfp4", 12288, 4096, 16384, 351.1),
]
"""Chip, format, m, n, k and microseconds of tuned products (github.com/ROCm/aiter, aiter/configs)."""


def seconds(chip: str, family: str, dtype: str, dims: dict[str, float]) -> float:
    one = catalogue_chip(chip)
    found = choose(one, family, dtype, ("vllm", "trtllm"))
    engine = engine_of(one, dtype)
    engine = attainable(engine, one, found.kin) if found.foreign else engine
    if family == "gemm":  # tables have the product alone, without the cast of its rows
        engine = replace(engine, dtype=replace(engine.dtype, quantised=False))
    arrays = {name: np.array([float(value)]) for name, value in dims.items()}
    return float(found.family.seconds(arrays, found.record, engine)[0])


@pytest.mark.parametrize(("chip", "dtype", "m", "n", "k", "us"), AITER)
def test_products_in_print_are_met(
    chip: str, dtype: str, m: int, n: int, k: int, us: float
) -> None:
    ours = 1e6 * seconds(chip, "gemm", dtype, {"m": m, "n": n, "k": k, "batch": 1})
    assert 0.8 < ours / us < 1.3


def test_chips_without_nvidia_have_one_software_whatever_an_engine_names() -> None:
    for software in (("vllm", "trtllm"), ("sglang",), ()):
        found = choose(catalogue_chip("mi300x"), "gemm", "fp8", software)
        assert (found.evidence, found.surfaces[0].chip) == ("fitted", "mi300x")


def test_what_their_own_tables_lack_comes_from_gpus_with_tables() -> None:
    chip = catalogue_chip("mi300x")
    assert choose(chip, "experts", "fp8-block", ("vllm",)).surfaces[0].chip == "mi300x"
    other = choose(chip, "experts", "bf16", ("vllm",))
    assert other.surfaces
    assert not any(s.architecture in SAME_UNITS for s in other.surfaces)


def test_no_gpu_of_nvidia_takes_from_them() -> None:
    for chip in ("h100-sxm", "l40s", "a100-pcie-80gb", "rubin"):
        for group in same_units_first(catalogue_surfaces(), catalogue_chip(chip)):
            assert not any(s.architecture in SAME_UNITS for s in group)


def test_kin_are_taken_in_proportion_to_their_own_best_rate() -> None:
    """An MI325X has the dies of an MI300X and more watts: 785 for 668 TFLOP/s."""
    chip = catalogue_chip("mi325x")
    found = choose(chip, "gemm", "bf16", ("vllm",))
    assert found.foreign
    assert found.kin == ("mi300x",)
    engine = engine_of(chip, "bf16")
    raised = attainable(engine, chip, found.kin)
    share = float(np.asarray(raised.flop_per_s / engine.flop_per_s))
    assert share == pytest.approx(784.9 / 668.4, rel=1e-3)


def test_kin_that_reach_less_are_taken_down_by_the_same_ratio() -> None:
    """A Gaudi 3 reaches 0.74 of its peak, the Gaudi 2 that products are known of 0.97."""
    chip = catalogue_chip("gaudi3")
    found = choose(chip, "gemm", "fp8", ("vllm",))
    engine = engine_of(chip, "fp8")
    share = attainable(engine, chip, found.kin).flop_per_s / engine.flop_per_s
    assert float(np.asarray(share)) == pytest.approx(1243 / 1678 / (418.7 / 432), rel=1e-3)


@pytest.mark.parametrize("chip", ["gaudi2", "gaudi3", "tpu-v5e", "tpu-v6e", "trainium1"])
def test_matrix_units_that_read_the_cache_are_bound_by_reading(chip: str) -> None:
    """Sequences enough to hide every start: bytes over the bandwidth, within a third."""
    dims = {
        "batch": 128, "heads": 32, "kv_heads": 32, "q_len": 1, "kv_len": 4096,
        "qk_dim": 128, "v_dim": 128, "kv_bytes": 2,
    }  # fmt: skip
    read = 128 * 32 * 4096 * 256 * 2
    least = read / float(np.asarray(catalogue_chip(chip).memory_bandwidth_bytes_per_s))
    assert 1.0 < seconds(chip, "decode", "bf16", dims) / least < 4 / 3
