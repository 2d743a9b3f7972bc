"""Coefficients carried over to chips without measurements: near kin weigh most, by hand."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from foretell.catalog.chips import catalogue_chip
from foretell.kernels.families import pointwise
from foretell.kernels.families.gemm import FAMILY, GemmCoefficients
from foretell.kernels.families.transfer import NEAR, OTHER_SOFTWARE, transfer_coefficients
from foretell.specs.chip import Surface
from tests.builders import make_chip

HOPPER = make_chip(architecture="hopper")


def surface(architecture: str, software: str, launch_s: float, dtype: str = "fp8") -> Surface:
    return Surface(
        family="gemm", dtype=dtype, chip=architecture, architecture=architecture, software=software,
        version="1", coefficients=asdict(GemmCoefficients()) | {"launch_s": launch_s}, points=1,
        median_ape=0.0, p90_ape=0.0, left_out_median_ape=0.0, left_out_p90_ape=0.0, residuals=(0.0,) * 5,
        source="a test", date="",
    )  # fmt: skip


def launch_s(*surfaces: Surface, software: str = "vllm", dtype: str = "bf16") -> float:
    found = transfer_coefficients(FAMILY, surfaces, HOPPER, dtype, (software,))
    assert found is not None
    return float(found[0].launch_s)


def test_a_generation_away_weighs_less_by_e_for_each_part() -> None:
    near, far = surface("hopper", "vllm", 1e-6), surface("blackwell", "vllm", 3e-6)
    share = 1.0 / (1.0 + np.exp(-1.0 / NEAR))
    want = np.exp(share * np.log(1e-6) + (1.0 - share) * np.log(3e-6))
    assert launch_s(near, far) == pytest.approx(want, rel=1e-12)
    # As far away each: as much of each, whatever the distance.
    assert launch_s(far, surface("ampere", "vllm", 2e-6)) == pytest.approx(np.sqrt(6) * 1e-6)


def test_other_software_weighs_less() -> None:
    own, other = surface("hopper", "vllm", 1e-6), surface("hopper", "trtllm", 3e-6)
    share = 1.0 / (1.0 + OTHER_SOFTWARE)
    want = np.exp(share * np.log(1e-6) + (1.0 - share) * np.log(3e-6))
    assert launch_s(own, other) == pytest.approx(want, rel=1e-12)
    assert launch_s(own, other, software="sglang") == pytest.approx(
        want, rel=1e-12
    )  # vLLM's kernels


def test_what_a_library_sets_comes_from_it_where_activations_are_quantised() -> None:
    """And from all others where it was never measured."""
    far, other = surface("blackwell", "vllm", 1e-6), surface("hopper", "trtllm", 3e-6)
    assert launch_s(far, other, dtype="fp8") == pytest.approx(1e-6, rel=1e-12)
    assert 1e-6 < launch_s(far, other, dtype="bf16") < 3e-6
    again = surface("hopper", "torch", 3e-6)
    assert launch_s(other, again, dtype="fp8") == pytest.approx(3e-6, rel=1e-12)


def test_surfaces_that_hardly_weigh_are_not_named() -> None:
    """Below a twentieth of the heaviest."""
    near, far = surface("hopper", "vllm", 1e-6), surface("volta", "vllm", 3e-6)
    beside = surface("hopper", "trtllm", 2e-6)
    found = transfer_coefficients(FAMILY, (far, near, beside), HOPPER, "bf16", ("vllm",))
    assert found is not None
    assert found[1] == (near, beside)
    # 0.8 generations away a surface weighs 0.07 of the nearest, whoever measured both.
    kin = (surface("rubin", "trtllm", 1e-6), surface("blackwell-ultra", "trtllm", 3e-6))
    found = transfer_coefficients(FAMILY, kin, make_chip(architecture="rubin"), "bf16", ("vllm",))
    assert found is not None
    assert found[1] == kin
    assert transfer_coefficients(FAMILY, (), HOPPER, "bf16", ("vllm",)) is None


def test_a_cache_gains_most_beside_a_narrow_memory() -> None:
    """Cores and clock decide how fast a cache is; no gain leaves its bounds."""
    table = asdict(pointwise.PointwiseCoefficients()) | {"cache_gain": 1.6}
    known = replace(
        surface("hopper", "torch", 1e-6), family="pointwise", chip="h100-sxm", coefficients=table
    )

    def gain(share: float) -> float:
        chip = catalogue_chip("h100-sxm")
        chip = replace(chip, memory_bandwidth_bytes_per_s=share * chip.memory_bandwidth_bytes_per_s)
        found = transfer_coefficients(pointwise.FAMILY, (known,), chip, "bf16", ("torch",))
        assert found is not None
        return float(found[0].cache_gain)

    assert gain(1.0) == pytest.approx(1.6)
    assert gain(0.5) == pytest.approx(3.2)
    assert gain(0.1) == pointwise.FAMILY.bounds["cache_gain"][1]
