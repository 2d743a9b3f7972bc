"""Latent attention (MLA): the prompt with unpacked heads, and decode on the latent cache itself.

The prompt is fused attention with its own head sizes (192 and 128 in DeepSeek's), so `mla-prefill` is the
form of `prefill` with coefficients of its own. A decode step absorbs the unpacking into the queries: every
head reads one cache of latents and positions (576 a token), whose first part (512) are the values too.

    time = launch + p_norm(latents / bandwidth, products + widening, power) + blocks + queries and outputs
A lane is one sequence's cache and up to `row` query rows.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from foretell.kernels.families import prefill
from foretell.kernels.families.base import Dims, Engine, Family, cores_alike, p_norm
from foretell.kernels.families.decode import missed_share
from foretell.kernels.families.prefill import whole
from foretell.records import dataclass
from foretell.specs.arrays import Array

DECODE_DIMS = ("batch", "heads", "q_len", "kv_len", "qk_dim", "v_dim", "kv_bytes")
"""Sequences; query heads of the rank; queries of a step; keys of a sequence; size of a cached row (latent
and position); size of the latent; bytes of one element of the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentDecode:
    """Coefficients of decode attention on latents; the defaults are for an unmeasured chip."""

    launch_s: float = 11e-6
    """Seconds before any work."""
    block_s: float = 4.2e-6
    """Seconds of a core for a lane beside its keys."""
    rate: float = 0.7
    """Share of the matrix peak."""
    row: float = 64.0
    """Query rows of a lane: the cache is read once for them."""
    grain: float = 64.0
    """Rows that the products of fewer are rounded up to."""
    step_flop: float = 4.0
    """Plain operations per element of the cache: softmax's share, widening of narrow elements."""
    tile: float = 64.0
    """Keys that a lane's are rounded up to."""
    split_from: float = 256.0
    """Keys beyond which a lane is split while cores idle."""
    split_s: float = 1.5e-6
    """Seconds to join the parts."""
    join_s: float = 3.5e-6
    """Seconds that joining adds with each tenfold more keys than `split_from`."""
    reach: float = 1.5
    """Bandwidth that one core can draw alone, in its even share of the memory's."""
    memory: float = 0.93
    """Share of the memory bandwidth."""
    cached: float = 0.7
    """Share of the last-level cache that a repeated kernel finds its keys in; 0 in a real step."""
    cache_speed: float = 3.0
    """Bandwidth of that cache, in the memory's."""
    spill_s: float = 2e-6
    """Seconds that are lost once the keys come from memory."""
    touch: float = 2.0
    """Times that queries and outputs cross the memory."""
    power: float = 5.0
    """Power of the norm that joins bytes and work: 1 is one after the other, large hides the less."""


def seconds(dims: Dims, c: LatentDecode, engine: Engine) -> Array:
    """Seconds of a decode step's latent attention in one layer, its projections not included."""
    kv, width = dims["kv_len"], dims["qk_dim"] + dims["v_dim"]
    query_rows = dims["heads"] * dims["q_len"]
    lanes = dims["batch"] * whole(query_rows / c.row)
    tiles = whole(kv / c.tile)
    cores = cores_alike(engine)
    waves = lanes / cores
    split = (kv > c.split_from + 0.5) & (waves < 1.0)
    parts = np.where(
        split, np.clip(1.0 / np.maximum(waves, 1e-9), 1.0, np.maximum(tiles, 1.0)), 1.0
    )
    share = np.minimum(np.maximum(waves * parts, 1e-9), 1.0)

    keys = lanes * tiles * c.tile
    padded = whole(query_rows / c.grain) * c.grain
    product_s = 2.0 * dims["batch"] * tiles * c.tile * padded * width
    product_s = product_s / (c.rate * engine.flop_per_s)
    step_s = keys * dims["qk_dim"] * c.step_flop / engine.vector_flop_per_s
    cache_bytes = dims["batch"] * kv * dims["qk_dim"] * dims["kv_bytes"]
    missed = missed_share(cache_bytes, c.cached * engine.l2_bytes)
    read_s = cache_bytes / (engine.bytes_per_s * np.minimum(1.0, c.reach * share))
    read_s = read_s * (missed / c.memory + (1.0 - missed) / c.cache_speed)
    touch_s = c.touch * dims["batch"] * query_rows * width * 2.0 / engine.bytes_per_s
    join_s = c.split_s + c.join_s * np.log10(np.maximum(kv / c.split_from, 1.0))
    total = (
        c.launch_s
        + p_norm(read_s, (product_s + step_s) / share, c.power)
        + c.block_s * waves**2 / (1.0 + waves)
        + touch_s
        + c.spill_s * missed
        + join_s * split
    )
    return np.asarray(np.where(cache_bytes * query_rows > 0.0, total, 0.0))


def prefill_start(architecture: str, software: str, dtype: str) -> prefill.Prefill:
    """Where a fit begins: fused attention's, with a longer launch and, in 16 bits, no pass of its own."""
    found = prefill.start(architecture, software, dtype)
    if dtype == "fp8":
        return replace(found, launch_s=found.launch_s + 5e-6)
    return replace(found, launch_s=found.launch_s + 2e-6, touch_flop=1.0, stream=1.4)


def decode_start(architecture: str, software: str, dtype: str) -> LatentDecode:
    """Where a fit begins, and what holds where nothing was measured: the rows of a matrix instruction."""
    found = LatentDecode(rate=0.5, touch=3.0) if dtype == "fp8" else LatentDecode(rate=0.8)
    if architecture in ("blackwell", "blackwell-ultra", "rubin"):
        return replace(
            found,
            row=128.0,
            grain=16.0,
            block_s=4.5e-6,
            memory=0.8,
            step_flop=0.2,
            join_s=5.5e-6,
            split_s=0.2e-6,
            spill_s=1e-6,
            power=5.0,
        )
    return found


BOUNDS: Mapping[str, tuple[float, float]] = {
    "launch_s": (2e-6, 30e-6),
    "block_s": (0.2e-6, 30e-6),
    "rate": (0.3, 1.0),
    "step_flop": (0.05, 300.0),
    "split_s": (0.05e-6, 15e-6),
    "join_s": (0.05e-6, 15e-6),
    "reach": (0.3, 8.0),
    "memory": (0.4, 0.98),
    "cached": (0.1, 2.0),
    "cache_speed": (0.8, 6.0),
    "spill_s": (0.1e-6, 40e-6),
    "touch": (0.1, 10.0),
    "power": (1.0, 6.0),
}
"""What a fit moves; the rows and splits of a lane belong to the library."""

PREFILL = Family(
    name="mla-prefill",
    dims=prefill.DIMS,
    record=prefill.Prefill,
    bounds=prefill.BOUNDS,
    start=prefill_start,
    discrete=True,
    seconds=prefill.seconds,
)
"""Latent attention over many queries, heads unpacked."""
DECODE = Family(
    name="mla-decode",
    dims=DECODE_DIMS,
    record=LatentDecode,
    bounds=BOUNDS,
    seconds=seconds,
    start=decode_start,
    discrete=True,
)
"""Latent attention of a decode step, absorbed."""
