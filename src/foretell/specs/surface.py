"""How well one family of kernels uses a chip: fitted coefficients, and how well they fit."""

from collections.abc import Mapping

from foretell.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """Coefficients of one kernel family, dtype, chip and software generation."""

    family: str
    """The kernel family: gemm, prefill, decode, ..."""
    dtype: str
    """What the products run in: bf16, fp8, fp8-block, nvfp4, ..."""
    chip: str
    """Catalogue id of the chip that was measured."""
    architecture: str
    """Generation of that chip: what is near in it is carried over first."""
    software: str
    """What ran the kernels: trtllm, vllm, torch, ..."""
    version: str
    """Its version."""
    coefficients: Mapping[str, float]
    """The numbers of the family's formula, by name."""
    points: int
    """Measurements fitted."""
    median_ape: float
    """Median absolute relative error over them, a fraction."""
    p90_ape: float
    """Its ninetieth percentile."""
    left_out_median_ape: float
    """The same for sites left out of the fit."""
    left_out_p90_ape: float
    """The same for sites left out of the fit."""
    residuals: tuple[float, ...]
    """5, 25, 50, 75 and 95 % quantiles of ln(measured / predicted) of sites left out."""
    source: str
    """Where the measurements come from."""
    date: str
    """When they were fitted."""
