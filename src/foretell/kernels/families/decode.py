"""Attention of a decode step: one query a sequence, or the few of speculation, over a long cache.

A lane is what one block reads: the cache of one key-value head of one sequence, with all its query heads
packed into the matrix units' rows. Where a library packs no such group (single heads, or too many), each
query head is a lane of its own on the vector units. Lanes are split over the keys while cores idle.

    time = launch + p_norm(bytes / bandwidth, lanes' own work, power) + split + spill
with the bytes at the memory's rate, or the cache's where a table repeats one kernel on a cache that fits.
"""

from collections.abc import Mapping

import numpy as np

from foretell.kernels.families.base import Dims, Engine, Family, cores_alike, p_norm
from foretell.kernels.families.prefill import ROUNDING, whole
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array

DIMS = ("batch", "heads", "kv_heads", "q_len", "kv_len", "qk_dim", "v_dim", "kv_bytes")
"""Sequences; query and key-value heads; queries of a step; keys of a sequence; sizes of a head's query-key
and value vectors; bytes of one element of the cache."""
SHARP = 4.0
"""Power of the step from a cache that fits to one that does not: a least-recently-used cache that is read
in order keeps nothing once it overflows."""
FEW = 64.0
"""Lanes of the vector units from which the whole spill is paid: with fewer, it hides."""
UNITS_APART = ("gaudi", "trainium", "tpu")
"""How the names of architectures begin whose matrix units read the cache by themselves, as a compiler has
placed it. Their vector units see the scores alone, one for 256 elements of the cache (24 operations each), no
block is launched for a lane, and the cache is read as their products read weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode:
    """Coefficients of decode attention; the defaults are a packed library's on an unmeasured chip."""

    launch_s: float = 8.5e-6
    """Seconds before any work, of packed lanes."""
    plain_launch_s: float = 8.5e-6
    """The same of lanes on the vector units."""
    tile_s: float = 0.5e-6
    """Seconds until the first full tile of keys is in."""
    block_s: float = 2.5e-6
    """Seconds of a core for a packed lane beside its keys."""
    plain_block_s: float = 0.8e-6
    """The same of a lane on the vector units."""
    step_flop: float = 6.0
    """Plain operations per element of the cache, of packed lanes."""
    plain_step_flop: float = 20.0
    """The same of lanes on the vector units."""
    tile: float = 64.0
    """Keys that a lane's are rounded up to."""
    min_group: float = 1.0
    """Fewest query heads of a key-value head that are packed."""
    max_group: float = 1e9
    """Most query heads of a key-value head that are packed."""
    row: float = 8.0
    """Packed queries that cost no more than one."""
    grow: float = 0.3
    """What each further such row adds, a share of the lane's work."""
    split_from: float = 256.0
    """Keys beyond which a lane is split while cores idle."""
    splits: float = 128.0
    """Parts of a lane at most."""
    split_s: float = 2e-6
    """Seconds to join the parts."""
    plain_split: float = 1.5
    """How much slower a split lane runs on the vector units."""
    reach: float = 1.5
    """Bandwidth that one core can draw alone, in its even share of the memory's."""
    memory: float = 0.93
    """Share of the memory bandwidth."""
    cached: float = 0.7
    """Share of the last-level cache that a repeated kernel finds its keys in; 0 in a real step, where
    other layers' weights pass between."""
    cache_speed: float = 3.0
    """Bandwidth of that cache, in the memory's."""
    spill_s: float = 3e-6
    """Seconds that are lost once the keys come from memory."""
    power: float = 4.0
    """Power of the norm that joins bytes and work: 1 is one after the other, large hides the less."""


def seconds(dims: Dims, c: Decode, engine: Engine) -> Array:
    """Seconds of a decode step's attention in one layer. Bound: bytes at peak where nothing is cached."""
    group = dims["heads"] / np.maximum(dims["kv_heads"], 1.0)
    packed = (group > c.min_group - ROUNDING) & (group < c.max_group * (1.0 + ROUNDING))
    lanes = dims["batch"] * np.where(packed, dims["kv_heads"], dims["heads"] * dims["q_len"])
    kv, width = dims["kv_len"], dims["qk_dim"] + dims["v_dim"]
    tiles = whole(kv / c.tile)
    cores = cores_alike(engine)
    waves = lanes / cores
    split = (kv > c.split_from + 0.5) & (waves < 1.0)
    most = np.maximum(np.minimum(c.splits, tiles), 1.0)
    parts = np.where(split, np.clip(1.0 / np.maximum(waves, 1e-9), 1.0, most), 1.0)

    rows = np.where(packed, 1.0 + c.grow * (whole(group * dims["q_len"] / c.row) - 1.0), 1.0)
    plain_step = c.plain_step_flop * np.where(split, c.plain_split, 1.0)
    step = np.where(packed, c.step_flop, plain_step)
    element_s = step / engine.vector_flop_per_s * cores
    keys_s = np.maximum(waves * parts, 1.0) * tiles / parts * c.tile * width * element_s
    # Below one wave blocks run beside each other; above, one after the other on each core.
    block_s = np.where(packed, c.block_s, c.plain_block_s) * waves**2 / (1.0 + waves)
    work_s = rows * (keys_s + block_s)

    cache_bytes = dims["batch"] * dims["kv_heads"] * kv * width * dims["kv_bytes"]
    missed = missed_share(cache_bytes, c.cached * engine.l2_bytes)
    rate = engine.bytes_per_s * np.minimum(1.0, c.reach * np.maximum(waves * parts, 1e-9))
    read_s = cache_bytes / rate * (missed / c.memory + (1.0 - missed) / c.cache_speed)
    start_s = np.where(packed, c.launch_s, c.plain_launch_s)
    start_s = start_s + c.tile_s * np.minimum(kv / c.tile, 1.0)
    spill_s = c.spill_s * missed * np.where(packed, 1.0, np.minimum(lanes / FEW, 1.0))
    total = start_s + p_norm(read_s, work_s, c.power) + spill_s + c.split_s * split
    return np.asarray(np.where(cache_bytes * dims["q_len"] > 0.0, total, 0.0))


def missed_share(size_bytes: Array, room_bytes: Num) -> Array:
    """Share of bytes that a cache of this room does not hold: n^4 / (n^4 + room^4)."""
    ratio = (np.asarray(room_bytes) / np.maximum(size_bytes, 1.0)) ** SHARP
    return np.asarray(1.0 / (1.0 + ratio))


def start(architecture: str, software: str, dtype: str) -> Decode:
    """Where a fit begins, and what holds where nothing was measured: which groups a library packs.

    trtllm packs up to 32 query heads, and up to Hopper at least 2; others pack any and split sooner.
    """
    if architecture.startswith(UNITS_APART):
        return Decode(
            split_from=128.0, block_s=0.1e-6, step_flop=0.1, grow=1.0, row=1.0, memory=0.85
        )
    if software != "trtllm":
        return Decode(split_from=128.0, splits=32.0, block_s=3.3e-6, step_flop=12.0, grow=0.1)
    if architecture in ("blackwell", "blackwell-ultra", "rubin"):
        return Decode(
            max_group=32.0, launch_s=11e-6, tile_s=0.05e-6, block_s=1.5e-6, step_flop=1.0,
            grow=0.6, split_s=1.2e-6, reach=8.0, spill_s=5e-6, power=6.0,
        )  # fmt: skip
    if dtype == "fp8":
        return Decode(
            min_group=2.0, max_group=32.0, launch_s=5.4e-6, block_s=0.9e-6, step_flop=13.0,
            grow=0.8, split_s=3e-6, spill_s=6e-6,
        )  # fmt: skip
    return Decode(
        min_group=2.0, max_group=32.0, tile_s=1.6e-6, block_s=4e-6, step_flop=18.0, grow=0.2,
        split_s=4.8e-6, spill_s=10e-6,
    )  # fmt: skip


BOUNDS: Mapping[str, tuple[float, float]] = {
    "launch_s": (2e-6, 20e-6),
    "plain_launch_s": (2e-6, 20e-6),
    "tile_s": (0.05e-6, 5e-6),
    "block_s": (0.2e-6, 10e-6),
    "plain_block_s": (0.2e-6, 10e-6),
    "step_flop": (0.1, 100.0),
    "plain_step_flop": (1.0, 100.0),
    "grow": (0.02, 1.5),
    "split_s": (0.1e-6, 15e-6),
    "plain_split": (1.0, 4.0),
    "reach": (0.5, 8.0),
    "memory": (0.5, 0.98),
    "cached": (0.1, 2.0),
    "cache_speed": (0.8, 6.0),
    "spill_s": (0.1e-6, 40e-6),
    "power": (1.0, 6.0),
}
"""What a fit moves; which groups are packed and how lanes are split belong to the library."""

FAMILY = Family(
    name="decode",
    dims=DIMS,
    record=Decode,
    bounds=BOUNDS,
    seconds=seconds,
    start=start,
    discrete=True,
)
"""Attention of a decode step."""
