"""Matrix products y[m, n] = x[m, k] w[k, n], one or a batch of independent ones in a launch.

    t = launch + quantisation pass + ragged rows + min over splits of (memory (+)p cores + reduction)

memory  what has to cross the device memory once, over its attainable bandwidth;
cores   the best of a few tiles: waves of tiles over the cores, each tile stepping through its share of k
        at the slowest of four rates: the matrix units, the cache that feeds them, the latency of a step,
        and, where rows are no multiple of 16 bytes, the loads of 4 or 2 bytes that a core can issue;
split   k cut over the cores that too few tiles leave idle, at the price of a reduction afterwards;
(+)p    the p-norm: the two overlap, but not perfectly.

The form grew out of a nine-constant roofline with tiles, waves and split-k; what was added is the latency
of a step (a lone tile is slow however wide the chip), the smoothing of tails, the fading clock of long
products, the reduction after (not beside) the memory traffic, and the cost of a row's quantisation.
It is never faster than the peak or the bandwidth: every share is at most one, waves cover all tiles.
"""

from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from foretell.kernels.families.base import Dims, Engine, Family, cores_alike, p_norm
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array

TILES = (
    (16.0, 64.0), (64.0, 64.0), (64.0, 128.0), (128.0, 128.0), (128.0, 256.0), (256.0, 128.0)
)  # fmt: skip
"""Rows and columns of the tiles that libraries choose from; the first is the narrow one."""
MANY_PRODUCTS = 1 << 14
"""Products at once, over shapes and systems, from which on tiles are tried one after the other."""
NARROW = 2.0
"""Bandwidth that narrow tiles draw at most, in a core's part of the memory's: they are written for products
bound by the memory, and only chips with little compute for their bandwidth gain by them."""
LARGEST = 128.0 * 256.0
"""Elements of the largest tile: the share of the matrix units is stated for it."""
SPLITS, CHUNK = 32.0, 256.0
"""Most parts that k is cut into, and the least length of a part."""
WHOLE_LOAD = 8.0
"""Elements of 16 bits in the widest load of an operand."""
LONG_S = 1e-3
"""Seconds at the peak after which a product counts as long for the power limit."""
ROW_PASS = 2048.0
"""Elements of a row that one pass of a quantisation kernel covers (256 threads of 8)."""
PLAIN = 1.01
"""Peak of products over that of the vector units up to which a chip has no matrix units for a format."""
RAGGED_ROWS, RAGGED_COLUMNS = 128.0, 16.0
"""Rows of the tile and columns of the narrowest tile of kernels that suffer from ragged rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmCoefficients:
    """Coefficients of matrix products; shares are of the chip's own figures."""

    launch_s: Num = 2.5e-6
    """Seconds from one launch to the next that no work hides, with the launch of a quantisation pass."""
    memory: Num = 0.82
    """Share of the nominal memory bandwidth that reading reaches."""
    store: Num = 0.70
    """Share of the nominal memory bandwidth that writing the result reaches."""
    compute: Num = 0.80
    """Share of the matrix peak that the largest tile reaches on a core."""
    tile: Num = 0.05
    """How that share falls with smaller tiles: (elements / largest)^tile."""
    prologue: Num = 150.0
    """Filling and draining a tile's pipeline, in elements of k."""
    step_s: Num = 1e-9
    """Least seconds a tile takes for one element of k, however small the tile."""
    cache: Num = 4.0
    """Bandwidth of the last-level cache to the cores, in nominal memory bandwidths."""
    split_s: Num = 3e-6
    """Seconds of the reduction after a split over k."""
    tail: Num = 0.7
    """Share of a last, partly filled wave that other work fills: 0 whole waves, 1 none lost."""
    fade: Num = 0.12
    """How much longer products take that last long enough to be held at the power limit."""
    overlap: Num = 2.5
    """Power p of the p-norm of memory and cores."""
    quantise: Num = 2.0
    """Traffic of the quantisation pass, in reads of 16 bits and writes of the format."""
    row_s: Num = 1e-8
    """Seconds one core spends on each pass over a row in quantising it, besides the traffic."""
    ragged: Num = 1e-3
    """Rows that the last tile lacks, as traffic to one place by all cores, in memory bandwidths."""


def seconds(dims: Dims, coefficients: Any, engine: Engine) -> Array:
    """Seconds of products of sizes m, n, k, and `batch` (1 where absent) of them in one launch.

    `load` are the elements that one load takes of the operands' rows (8, a whole load, where absent), `cast`
    the share of casting the first operand that is this product's (1 where absent), `recast` the
    traffic of casting the second for it, as `quantise` (0 where absent: it is there in the format).
    """
    c = coefficients
    m, n, k = (np.asarray(dims[name], dtype=np.float64) for name in ("m", "n", "k"))
    batch = np.asarray(dims.get("batch", 1.0), dtype=np.float64)
    form, bandwidth = engine.dtype, engine.bytes_per_s
    cores = cores_alike(engine)
    result_bytes = batch * m * n * max(2.0, form.activation_bytes)
    operand_bytes = batch * k * (n * form.weight_bytes + m * form.activation_bytes)
    memory_s = (operand_bytes / c.memory + result_bytes / c.store) / bandwidth
    load = np.asarray(dims.get("load", WHOLE_LOAD), dtype=np.float64)
    narrow_s = np.where(load < WHOLE_LOAD, engine.load_s / load, 0.0)
    whole_s, parts_s = _cores_s(Products(m, n, k, batch, narrow_s), c, engine, cores)
    total = np.minimum(
        p_norm(memory_s, whole_s, c.overlap), p_norm(memory_s, parts_s, c.overlap) + c.split_s
    )
    missing = np.where(m > RAGGED_ROWS / 2, RAGGED_ROWS * np.ceil(m / RAGGED_ROWS) - m, 0.0)
    crowd = np.minimum(n / RAGGED_COLUMNS, cores)
    ragged_s = c.ragged * missing * k * form.activation_bytes * crowd / bandwidth
    total = c.launch_s + total + ragged_s
    if form.quantised:
        traffic = dims.get("cast", 1.0) * batch * m * k * (2.0 + form.activation_bytes)
        passes = batch * m * (1.0 + np.ceil(k / ROW_PASS))
        weights = dims.get("recast", 0.0) * batch * k * n * (2.0 + form.weight_bytes)
        total = total + weights / (c.memory * bandwidth)
        total = total + c.quantise * traffic / (c.memory * bandwidth) + passes * c.row_s / cores
    return np.asarray(total)


class Products(NamedTuple):
    """Sizes of products, and what narrow loads add."""

    m: Array
    """Rows."""
    n: Array
    """Columns."""
    k: Array
    """Depth."""
    batch: Array
    """Products in one launch."""
    narrow_s: Array
    """Seconds of a core for each element of an operand that loads take in pieces; 0 of whole loads."""


def _cores_s(sizes: Products, c: Any, engine: Engine, cores: Num) -> tuple[Array, Array]:
    """Seconds on the cores with the best tile: k in one piece, and k in parts with their sums' traffic."""
    many = np.broadcast(sizes.m, sizes.n, sizes.k, engine.flop_per_s, engine.bytes_per_s).size
    # Of many products one tile after the other: all tiles at once would not fit the cache.
    some = (TILES,) if many < MANY_PRODUCTS else tuple((tile,) for tile in TILES)
    whole, parts = zip(*(_tiles_s(sizes, tiles, c, engine, cores) for tiles in some), strict=True)
    return reduce(np.minimum, whole), reduce(np.minimum, parts)


def _tiles_s(
    sizes: Products, shapes: tuple[tuple[float, float], ...], c: Any, engine: Engine, cores: Num
) -> tuple[Array, Array]:
    """The same with the best of some tiles, given as rows and columns."""
    m, n, k, batch, narrow_s = sizes
    form, bandwidth = engine.dtype, engine.bytes_per_s
    ideal_s = 2.0 * batch * m * n * k / engine.flop_per_s
    rank = np.ndim(ideal_s / (c.compute * cores))
    rows, columns = np.array(shapes).T.reshape((2, len(shapes)) + (1,) * rank)
    area = rows * columns
    tiles = batch * np.ceil(m / rows) * np.ceil(n / columns)
    slower = (1.0 + c.fade * ideal_s / (ideal_s + LONG_S)) / (c.compute * engine.flop_per_s / cores)
    # Without matrix units a product of few rows has no rows of a tile to fill: each is a dot product.
    plain = engine.flop_per_s <= PLAIN * np.asarray(engine.vector_flop_per_s)
    filled = area
    if np.any(plain):
        filled = np.where(plain, np.minimum(np.maximum(m, 1.0), rows) * columns, area)
    matrix_s = 2.0 * filled * (LARGEST / area) ** c.tile * slower
    high, wide = np.minimum(m, rows), np.minimum(n, columns)
    feed = high * form.activation_bytes + wide * form.weight_bytes
    drawn = np.where(rows < TILES[1][0], np.minimum(c.cache, NARROW), c.cache)
    each_s = np.maximum(np.maximum(matrix_s, feed * cores / (drawn * bandwidth)), c.step_s)
    if np.any(narrow_s):
        each_s = np.maximum(each_s, (high + wide) * narrow_s)
    ends_s = matrix_s * c.prologue
    most = np.minimum(np.maximum(k / CHUNK, 1.0), SPLITS)
    load = tiles / cores

    def best(parts: Array | float, sums: Array | float) -> Array:
        full = load * parts
        waves = np.ceil(full)
        waves = waves - c.tail * (waves - full) * (full > 1.0)
        share, joined = k / parts, sums * parts
        # In one array: over many systems, new ones take longer than the arithmetic.
        found = np.empty(np.broadcast(each_s, share, ends_s, waves, joined).shape)
        np.multiply(each_s, share, out=found)
        found += ends_s
        found *= waves
        found += joined
        return np.asarray(found.min(axis=0))

    sum_s = 4.0 * batch * m * n / (c.memory * bandwidth)
    some = np.maximum(load, 1e-9)  # a product without rows or columns has no tiles
    once = np.minimum(np.maximum(np.floor(1.0 / some), 1.0), most)
    twice = np.minimum(np.maximum(np.floor(2.0 / some), 1.0), most)
    return best(1.0, 0.0), np.minimum(best(once, sum_s), best(twice, sum_s))


def start(architecture: str, software: str, dtype: str) -> GemmCoefficients:
    """Where a fit begins; block formats from ragged rows, which end in a lesser minimum from none."""
    del architecture, software
    return GemmCoefficients(ragged=0.3) if dtype == "fp8-block" else GemmCoefficients()


FAMILY = Family(
    name="gemm",
    dims=("m", "n", "k", "batch"),
    record=GemmCoefficients,
    bounds={
        "launch_s": (5e-7, 3e-5),
        "memory": (0.3, 1.0),
        "store": (0.2, 1.0),
        "compute": (0.2, 1.0),
        "tile": (1e-3, 1.0),
        "prologue": (1.0, 2000.0),
        "step_s": (1e-11, 1e-8),
        "cache": (1.0, 30.0),
        "split_s": (5e-7, 6e-5),
        "tail": (0.01, 1.0),
        "fade": (1e-3, 1.5),
        "overlap": (1.2, 8.0),
        "quantise": (0.05, 6.0),
        "row_s": (1e-9, 5e-6),
        "ragged": (1e-4, 3.0),
    },
    seconds=seconds,
    clocked=("launch_s", "step_s", "split_s"),
    cached=("cache",),
    start=start,
    library=("launch_s", "quantise", "row_s", "ragged"),
)
"""Matrix products."""
