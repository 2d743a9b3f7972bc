"""Which coefficients a kernel runs with, and how sure they are."""

from dataclasses import asdict

import numpy as np
import pytest

from foretell.catalog.chips import catalogue_chip
from foretell.kernels.families.base import engine_of
from foretell.kernels.families.choose import (
    catalogue_surfaces,
    choose,
    family_named,
    of_kin,
    spread_of,
)
from foretell.kernels.families.gemm import GemmCoefficients
from foretell.specs.chip import Surface


def made(
    chip: str,
    architecture: str,
    dtype: str,
    software: str,
    record: GemmCoefficients,
    version: str = "1.0",
) -> Surface:
    """A surface with given coefficients."""
    return Surface(
        family="gemm",
        dtype=dtype,
        chip=chip,
        architecture=architecture,
        software=software,
        version=version,
        coefficients=asdict(record),
        points=1,
        median_ape=0.0,
        p90_ape=0.0,
        left_out_median_ape=0.0,
        left_out_p90_ape=0.0,
        residuals=(-0.1, -0.05, 0.0, 0.05, 0.1),
        source="test",
        date="2026-01-01",
    )


KNOWN = [
    made("h100-sxm", "hopper", "bf16", "trtllm", GemmCoefficients(compute=0.8)),
    made("a100-sxm-80gb", "ampere", "bf16", "trtllm", GemmCoefficients(compute=0.4)),
]


def test_a_chip_of_its_own_is_fitted() -> None:
    found = choose(catalogue_chip("h100-sxm"), "gemm", "bf16", ("trtllm",), KNOWN)
    assert (found.evidence, found.record.compute) == ("fitted", 0.8)
    other = choose(catalogue_chip("h100-sxm"), "gemm", "bf16", ("vllm",), KNOWN)
    assert (other.evidence, other.record.compute) == ("transferred", 0.8)


@pytest.mark.parametrize(("chip", "kin"), [("gb200", "b200-sxm"), ("gb300", "b200-sxm")])
@pytest.mark.parametrize("dtype", ["bf16", "fp8", "nvfp4"])
def test_the_same_library_on_a_chip_of_the_generation(chip: str, kin: str, dtype: str) -> None:
    """GB200's own tables are of vLLM's kernels: training runs those of the library, measured on the B200."""
    found = of_kin(catalogue_chip(chip), "gemm", dtype, ("torch", "trtllm"))
    assert found is not None
    own = choose(catalogue_chip(kin), "gemm", dtype, ("trtllm",))
    assert found.record == own.record
    assert found.evidence == "transferred"


def test_none_of_kin_where_the_chip_has_its_own_or_nothing_is_near() -> None:
    assert of_kin(catalogue_chip("b200-sxm"), "gemm", "bf16", ("trtllm",)) is None
    assert of_kin(catalogue_chip("tpu-v5p"), "gemm", "bf16", ("trtllm",)) is None


def test_the_version_asked_for_else_the_newest() -> None:
    many = [
        made("h100-sxm", "hopper", "bf16", "vllm", GemmCoefficients(compute=c), version)
        for c, version in ((0.5, "0.9.1"), (0.6, "0.22.0"), (0.7, "0.10.0"))
    ]
    chip = catalogue_chip("h100-sxm")
    assert choose(chip, "gemm", "bf16", ("vllm",), many).record.compute == 0.6
    assert choose(chip, "gemm", "bf16", ("vllm",), many, "0.10.0").record.compute == 0.7


def test_what_is_near_is_carried_over() -> None:
    near = choose(catalogue_chip("h200-sxm"), "gemm", "bf16", ("trtllm",), KNOWN)
    assert near.evidence == "transferred"
    assert near.record.compute == 0.8
    between = choose(catalogue_chip("l40s"), "gemm", "bf16", ("trtllm",), KNOWN)
    assert 0.4 < between.record.compute < 0.8
    far = choose(catalogue_chip("mi300x"), "gemm", "bf16", ("trtllm",), KNOWN)
    assert far.record.compute == pytest.approx(np.sqrt(0.8 * 0.4))


def test_a_library_brings_its_own_quantisation() -> None:
    known = [
        made("gb200", "blackwell", "fp8", "vllm", GemmCoefficients(launch_s=5e-6, compute=0.5)),
        made("h200-sxm", "hopper", "fp8", "trtllm", GemmCoefficients(launch_s=12e-6, compute=0.8)),
    ]
    found = choose(catalogue_chip("b200-sxm"), "gemm", "fp8", ("trtllm",), known)
    assert found.record.launch_s == pytest.approx(12e-6)
    assert found.record.compute < 0.6


def test_without_any_surface_the_defaults_hold_and_the_interval_is_widest() -> None:
    found = choose(catalogue_chip("h100-sxm"), "gemm", "bf16", (), [])
    assert (found.evidence, found.record) == ("datasheet", GemmCoefficients())
    fitted = choose(catalogue_chip("h100-sxm"), "gemm", "bf16", (), KNOWN)
    assert spread_of(found)[-1] > spread_of(fitted)[-1]


@pytest.mark.parametrize(
    "chip", ["h100-sxm", "l40s", "mi300x", "tpu-v5p", "b300-sxm", "v100-sxm-32gb"]
)
@pytest.mark.parametrize("dtype", ["bf16", "fp8", "nvfp4", "int8", "int4", "mxfp4"])
def test_no_chip_and_format_is_left_without_coefficients(chip: str, dtype: str) -> None:
    for family in (
        "gemm",
        "prefill",
        "decode",
        "mla-prefill",
        "mla-decode",
        "experts",
        "pointwise",
    ):
        found = choose(catalogue_chip(chip), family, dtype, ("vllm",))
        assert isinstance(found.record, family_named(family).record)
        assert list(spread_of(found)) == sorted(spread_of(found))


def test_every_surface_of_the_catalogue_is_whole() -> None:
    surfaces = catalogue_surfaces()
    assert len(surfaces) > 60
    for surface in surfaces:
        record = family_named(surface.family).record
        assert surface.coefficients.keys() == record.__dataclass_fields__.keys()
        assert list(surface.residuals) == sorted(surface.residuals)
        assert surface.points > 0
        assert surface.source
        assert surface.date


@pytest.mark.parametrize(
    ("chip", "rows", "columns", "inner", "share", "within"),
    [
        # XLA's products on a v5e, less 0.1 ms of dispatch (JAX documentation, Pallas).
        ("tpu-v5e", 8192, 8192, 8192, 0.939, 0.03),
        ("tpu-v5e", 4096, 4096, 4096, 0.966, 0.04),
        # Google's microbenchmarks of a v7x, one of its two devices: as half the work of a chip.
        ("tpu-v7x", 32768, 16384, 16384, 0.824, 0.02),
        ("tpu-v7x", 8192, 4096, 4096, 0.774, 0.03),
        ("tpu-v6e", 4096, 8192, 8192, 0.858, 0.04),
    ],
)
def test_products_of_tpus(
    chip: str, rows: int, columns: int, inner: int, share: float, within: float
) -> None:
    """Shares of the peak as published for XLA's products."""
    named = catalogue_chip(chip)
    found = choose(named, "gemm", "bf16", ("torch", "trtllm"))
    dims = {"m": np.array([rows]), "n": np.array([columns]), "k": np.array([inner])}
    took = found.family.seconds(dims, found.record, engine_of(named, "bf16"))[0]
    assert 2.0 * rows * columns * inner / took / 1e12 == pytest.approx(
        share * named.matrix_flop_per_s["bf16"] / 1e12, rel=within
    )


def test_systolic_arrays_tell_nothing_of_gpus() -> None:
    """Nor the other way round, in any format; kernels that only GPUs have measured are carried over still."""
    for chip in ("tpu-v4", "tpu-v5p"):
        for dtype in ("bf16", "fp8"):
            kin = choose(catalogue_chip(chip), "gemm", dtype, ("trtllm",)).surfaces
            assert {s.chip for s in kin} == {"tpu-v5e"}
    for chip in ("mi300x", "trainium2", "h20-sxm"):
        kin = choose(catalogue_chip(chip), "gemm", "bf16", ("trtllm",)).surfaces
        assert kin
        assert not [s for s in kin if s.architecture.startswith("tpu")]
    assert choose(catalogue_chip("tpu-v5p"), "pointwise", "bf16").surfaces


def test_cycles_are_those_of_the_chip_that_has_no_table():
    """A slower clock lengthens launches and steps; a cache is bytes a cycle of all cores."""
    known = [s for s in catalogue_surfaces() if s.chip == "h100-sxm"]
    chip, measured = catalogue_chip("a100-sxm-80gb"), catalogue_chip("h100-sxm")
    found = choose(chip, "gemm", "bf16", ("trtllm",), known).record
    own = choose(measured, "gemm", "bf16", ("trtllm",), known).record
    faster = chip.clock_hz / measured.clock_hz
    assert found.launch_s == pytest.approx(own.launch_s / faster)
    assert found.step_s == pytest.approx(own.step_s / faster)
    bandwidth = chip.memory_bandwidth_bytes_per_s / measured.memory_bandwidth_bytes_per_s
    cores = chip.cores / measured.cores
    assert found.cache * bandwidth == pytest.approx(own.cache * faster * cores)
    assert found.compute == own.compute
