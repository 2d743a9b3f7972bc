"""The backward pass of fused attention: the form of the forward pass with coefficients of its own.

Scores are made again, so that a pair costs 3 query-key and 2 value products instead of 1 and 1
(`prefill.backward_of`); what a fit moves beside the forward pass's coefficients is the share of the peak and
the plain work of a pair, since libraries write this pass apart from the other.
"""

from collections.abc import Mapping
from dataclasses import replace

from foretell.kernels.families import prefill
from foretell.kernels.families.base import Family
from foretell.kernels.families.prefill import Prefill, backward_of, library

LIBRARY: Mapping[str, str] = {
    "torch-fa1": "fa1",
    "torch-fa2": "fa2",
    "torch-fa3": "fa3",
    "torch-cudnn": "cudnn",
    "torch-efficient": "fa2",
}
"""Software that was measured -> the library whose tiles it has."""

PORTED: Mapping[str, float] = {"cdna2": 0.72, "cdna3": 0.77, "cdna4": 0.65, "ponte-vecchio": 0.76}
"""Architectures that the library was ported to, and what their backward pass reaches of what it would: 0.25
to 0.3 of the peak in all, recalled from makers' own benchmarks; forward kernels were written first."""


def start(architecture: str, software: str, dtype: str) -> Prefill:
    """What holds where nothing was measured: the forward pass's library, with backward's products."""
    if software in LIBRARY:
        found = backward_of(library(LIBRARY[software], architecture))
        return replace(found, rate=found.rate * PORTED.get(architecture, 1.0))
    return backward_of(prefill.start(architecture, software, dtype))


BOUNDS: Mapping[str, tuple[float, float]] = {
    "rate": (0.1, 1.0),
    "softmax_flop": (4.0, 150.0),
    **{
        name: ends
        for name, ends in prefill.BOUNDS.items()
        if name not in ("touch_flop", "combine_s")
    },
}
"""What a fit moves: nothing is rotated or quantised here, and no keys are split."""

FAMILY = Family(
    name="prefill-backward",
    dims=prefill.DIMS,
    record=Prefill,
    bounds=BOUNDS,
    seconds=prefill.seconds,
    start=start,
    discrete=True,
)
"""Fused attention, backward."""
