"""Memory-bound kernels, and copies between host and device.

Element-wise, norms, rope, activation, residual, softmax and cross-entropy, embedding, permutation, casts,
optimizer update:

    t = kernels x launch + max(memory, flop / (share x vector peak))
    memory = (bytes - cached x (1 - 1 / gain)) / (share x bandwidth)

where up to `cache_share` of the last-level cache is served `cache_gain` times as fast as memory (cores and
their clock decide how fast a cache is: it gains most beside a narrow memory); bytes fetched by index
(embedding rows) have a share of their own.
"""

import numpy as np

from foretell.kernels.families.base import Dims, Engine, Family
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array

STREAMING = 0.88
"""Most of the memory bandwidth that long vectors reach: 0.85 on one H200, 0.84 on an A100. Tables of tensors
that the last-level cache holds a good part of, read over and over, cannot tell it from memory: up to 0.97."""
COPY_SHARE = 0.85
"""Share of the host link that a copy from or to pinned memory reaches (PCIe: 24 to 28 of 31.5 GB/s)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointwiseCoefficients:
    """Coefficients of memory-bound kernels."""

    launch_s: float = 2e-6
    """Seconds of a kernel with next to nothing to do, replayed from a graph; a host takes 5e-6 and more."""
    memory_share: float = STREAMING
    """Share of the memory bandwidth that long vectors reach."""
    cache_share: float = 0.5
    """Share of the last-level cache that still holds what an earlier kernel wrote."""
    cache_gain: Num = 1.6
    """How much faster than memory that is read and written."""
    gather_share: float = 0.17
    """Share of the memory bandwidth that rows fetched by index reach."""
    vector_share: float = 0.3
    """Share of the vector units' peak that such kernels reach."""


def pointwise_seconds(dims: Dims, c: PointwiseCoefficients, engine: Engine) -> Array:
    """Seconds of kernels that read and write these bytes once.

    dims: bytes_read, bytes_written, flop, kernels (launches: 1 where all is fused, 0 where it is part of
    another kernel). Optional: bytes_gathered (fetched and written by index, beside the others).
    """
    moved = dims["bytes_read"] + dims["bytes_written"]
    gathered = np.asarray(dims.get("bytes_gathered", 0.0))
    cached = np.minimum(moved, c.cache_share * engine.l2_bytes) * (1.0 - 1.0 / c.cache_gain)
    memory = ((moved - cached) / c.memory_share + gathered / c.gather_share) / engine.bytes_per_s
    vector = dims["flop"] / (c.vector_share * engine.vector_flop_per_s)
    return np.asarray(dims["kernels"] * c.launch_s + np.maximum(memory, vector))


FAMILY = Family(
    name="pointwise",
    dims=("bytes_read", "bytes_written", "flop", "kernels"),
    record=PointwiseCoefficients,
    bounds={
        "launch_s": (5e-7, 2e-4),
        "memory_share": (0.1, STREAMING),
        "cache_share": (0.05, 1.5),
        "cache_gain": (1.0, 4.0),
        "gather_share": (0.03, 1.0),
    },
    seconds=pointwise_seconds,
    cached=("cache_gain",),
)
