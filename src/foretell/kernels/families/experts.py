"""Mixture-of-experts layers on one chip: routing, permutation, two grouped products, activation, combination.

    t = launch + routing + mask + expert x local experts
        + (a x rows (2H + 4I) + b x pairs 2 (H + 2I) + c x tokens 2H) / bandwidth
        + sum over both products of min over tiles of p_norm(memory, compute)

with I the inner width of one expert on this rank, pairs = tokens x top_k of all ranks, rows those that this
rank's experts get. What the experts of the most loaded rank get follows from how pairs fall on experts
(`Loads`), so that distinct experts, imbalance and the padding of every expert's rows to whole tiles come
out of the distribution, not out of fitted exponents. A product of N columns over K takes

    compute = ceil(tiles x ceil(N / 128) / cores) x 2 x tile x 128 x (K + fill) / (share x peak / cores)
    memory  = (distinct x N K + (tiles - distinct) x missed + rows in and out) / (share x bandwidth)

with missed what of N K the cache does not keep; memory is never faster than the busy cores alone can draw.
Tiles have 16 to `tile_rows` rows.
"""

import numpy as np

from foretell.kernels.families.base import Dims, Engine, Family, p_norm
from foretell.kernels.families.experts_loads import Loads, loads_of
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array

TILES = np.array([16.0, 32.0, 64.0, 128.0])
"""Rows of the tiles that kernels choose from."""
FULL_TILE = 128.0
"""Rows from which a tile keeps the matrix units as busy as it can; also the columns of a tile."""
ROUTED = 256.0
"""Pairs of a token and an expert from which routing takes more than one small kernel."""
LAUNCHES = 8.0
"""Kernels that a layer's launch is made of: routing, sort, permutation, products, activation, combination."""


WEIGHT_FILL = 0.47
"""Share of a tile's filling that shows in grouped products for the weights' gradients: on one H200 (PyTorch
2.11, torch._grouped_mm, and products of the library on four streams) they reach 0.52 of the rate of deep ones
over 256 rows of an expert and 0.83 over 1,024, six shapes of models alike."""
LOCAL_PASSES = 3.0
"""Most passes over rows that were dispatched: they come sorted and in the experts' format, and go into a
layout by experts, through the activation with its cast, and out; sorting and casting of all pairs is not
among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsCoefficients:
    """Coefficients of a mixture-of-experts layer."""

    launch_s: float = 18e-6
    """Seconds of a layer with next to nothing to do."""
    routing_s: float = 6e-6
    """Seconds that routing many pairs takes beyond that."""
    mask_s: float = 1e-6
    """Seconds of leaving out the experts of other ranks."""
    expert_s: float = 5e-8
    """Seconds for each expert of this rank."""
    memory_share: float = 0.88
    """Share of the memory bandwidth that streaming weights reaches."""
    matrix_share: float = 0.75
    """Share of the matrix peak that a full tile reaches."""
    overlap: float = 2.0
    """Power of the norm that joins memory and compute: 1 adds them, large hides the shorter."""
    tile_power: float = 0.6
    """How the share of the peak falls with a tile's rows below a full one."""
    fill_k: float = 400.0
    """Depth of the product whose time filling, draining and storing a tile takes."""
    core_share: float = 5.0
    """What one core can draw from memory, in equal shares of the bandwidth."""
    cache_share: float = 1.0
    """Share of the last-level cache that keeps an expert's weights between tiles."""
    row_passes: float = 3.0
    """Passes over the rows of this rank: permutation, activation, quantisation."""
    pair_passes: float = 0.2
    """Passes over the pairs of all ranks: kernels that do not skip other ranks' rows."""
    token_passes: float = 2.5
    """Passes over the tokens: reading, combining, writing them."""
    tile_rows: float = 128.0
    """Rows of the largest tile that the software has; not fitted but chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowExperts(ExpertsCoefficients):
    """The same for software whose tiles have at most 64 rows."""

    tile_rows: float = 64.0
    """Rows of the largest tile."""


BOUNDS = {
    "launch_s": (1e-6, 2e-4),
    "routing_s": (1e-8, 6e-5),
    "mask_s": (1e-8, 6e-5),
    "expert_s": (1e-10, 2e-6),
    "memory_share": (0.35, 1.0),
    "matrix_share": (0.15, 1.0),
    "overlap": (1.0, 8.0),
    "tile_power": (0.01, 1.5),
    "fill_k": (1.0, 3000.0),
    "core_share": (0.5, 30.0),
    "cache_share": (0.05, 30.0),
    "row_passes": (0.01, 30.0),
    "pair_passes": (0.001, 10.0),
    "token_passes": (0.01, 30.0),
}
"""Least and most of what a fit may move."""


def experts_seconds(dims: Dims, c: ExpertsCoefficients, engine: Engine) -> Array:
    """Seconds of the layer on the most loaded rank.

    dims: tokens (of all ranks that share the experts), hidden, inter (of a whole expert), experts, top_k,
    ep, tp, skew (exponent of the power law by which experts are liked; 0: all alike). Optional: gated
    (1: two products in, 0: one), pinned (experts of this rank that every token goes to), local (1: tokens
    were dispatched, and this rank passes over its own rows and tokens alone; 0: over those of all ranks).
    """
    tokens, hidden = dims["tokens"], dims["hidden"]
    inner = dims["inter"] / dims["tp"]
    pairs = tokens * dims["top_k"]
    loads = loads_of(dims, TILES)
    wide = (1.0 + np.asarray(dims.get("gated", 1.0))) * inner
    wide, inner, height = np.broadcast_arrays(wide, inner, hidden)
    n = np.stack([wide, height], -1)[..., None]
    k = np.stack([height, inner], -1)[..., None]
    products = _products(n, k, loads, c, engine).sum(-1)
    local = np.asarray(dims.get("local", 0.0)) > 0.0
    seen = np.where(local, loads.rows, pairs)
    passes = np.where(local, np.minimum(c.row_passes, LOCAL_PASSES), c.row_passes)
    own = np.where(local, tokens / dims["ep"], tokens)
    moved = (
        passes * loads.rows * (2.0 * hidden + 4.0 * inner)
        + c.pair_passes * np.where(local, 0.0, pairs) * 2.0 * (hidden + 2.0 * inner)
        + c.token_passes * own * 2.0 * hidden
    )
    fixed = (
        c.launch_s
        + c.routing_s * seen / (seen + ROUTED)
        + c.mask_s * (dims["ep"] > 1.0)
        + c.expert_s * dims["experts"] / dims["ep"]
    )
    seconds = fixed + moved / engine.bytes_per_s + products
    return np.asarray(np.where(tokens > 0.0, seconds, 0.0))


def grouped_times(dims: Dims, c: ExpertsCoefficients, engine: Engine) -> tuple[Array, Array]:
    """Seconds of one grouped product, and what of them the matrix units alone would take.

    `groups` products of m x k by k x n, as training runs them, with the coefficients of the layer; its
    launch is an equal part of the layer's. The second part stretches when the clock falls.

    Optional: drawn (1: the rows m of each group are tokens that a router chose, so that half a tile is empty
    on the mean; 0: weights' gradients, which sum over these), even (1: every group has as many rows).
    """
    groups, m = np.broadcast_arrays(dims["groups"], dims["m"])
    drawn = np.asarray(dims.get("drawn", 0.0), float)
    each = m[..., None] / TILES
    half = np.where((drawn > 0.0) & ~np.asarray(dims.get("even", False), bool), 0.5, 0.0)[..., None]
    tiles = np.where(half > 0.0, np.maximum(each + half, 1.0), np.ceil(each))
    loads = Loads(
        rows=np.asarray(groups * m),
        distinct=np.asarray(groups),
        tiles=np.asarray(groups[..., None] * tiles),
    )
    n = np.asarray(dims["n"])[..., None, None]
    k = np.asarray(dims["k"])[..., None, None]
    fill = np.where(drawn > 0.0, 1.0, WEIGHT_FILL)[..., None, None] if "drawn" in dims else 1.0
    memory, compute = _tiled(n, k, loads, c, engine, fill)
    each = p_norm(memory, compute, c.overlap)
    best = each.argmin(-1)[..., None]
    seconds = c.launch_s / LAUNCHES + np.take_along_axis(each, best, -1)[..., 0, 0]
    matrix = np.take_along_axis(np.broadcast_to(compute, each.shape), best, -1)[..., 0, 0]
    some = loads.rows > 0.0
    return np.where(some, seconds, 0.0), np.where(some, matrix, 0.0)


def _products(n: Array, k: Array, loads: Loads, c: ExpertsCoefficients, engine: Engine) -> Array:
    """Seconds of grouped products; n and k have axes (products, 1) after those of the loads."""
    memory, compute = _tiled(n, k, loads, c, engine)
    return np.asarray(p_norm(memory, compute, c.overlap).min(-1))


def _tiled(
    n: Array, k: Array, loads: Loads, c: ExpertsCoefficients, engine: Engine, fill: Num = 1.0
) -> tuple[Array, Array]:
    """Seconds of memory and matrix units by tile, on the last axis; `fill`: how far half-empty tiles show."""
    bytes_per_s, cores = _last(engine.bytes_per_s), _last(engine.cores)
    form = engine.dtype
    tiles = loads.tiles[..., None, :]
    distinct, rows = loads.distinct[..., None, None], loads.rows[..., None, None]
    waves = np.ceil(tiles * np.ceil(n / FULL_TILE) / cores)
    share = c.matrix_share * np.minimum(TILES / FULL_TILE, 1.0) ** c.tile_power
    # What small tiles and their filling lose is time, not a share of a peak that was limited.
    held = _last(engine.held_back)
    share = np.where(held > 1.0, np.minimum(share * held, c.matrix_share), share)
    fill = fill / held
    # A tile that the software lacks is made too dear to be chosen.
    share = np.where(c.tile_rows >= TILES, share, 1e-9)
    depth = waves * cores * FULL_TILE * (k + fill * c.fill_k)
    compute = depth * (2.0 * TILES / share) / _last(engine.flop_per_s)
    weights = n * k * form.weight_bytes
    cache = _last(engine.l2_bytes)
    # Where a chip lists no cache, its kernels keep a tile's weights in memory of their own.
    missed = np.maximum(weights - c.cache_share * cache, 0.0) * (cache > 0.0)
    again = np.maximum(tiles - distinct, 0.0) * missed
    moved = distinct * weights + again + rows * (k * form.activation_bytes + 2.0 * n)
    memory = (
        np.maximum(moved / c.memory_share, depth * (form.weight_bytes / c.core_share)) / bytes_per_s
    )
    return memory, compute


def _last(value: Num) -> Array:
    """A chip's number with room for the axes of products and tiles."""
    return np.asarray(value)[..., None, None]


FAMILY = Family(
    name="experts",
    dims=("tokens", "hidden", "inter", "experts", "top_k", "ep", "tp", "skew"),
    record=ExpertsCoefficients,
    bounds=BOUNDS,
    seconds=experts_seconds,
)
