"""Fused attention over many queries: training's forward and backward, and the prompt of serving.

Load, products, softmax and store add up, as in the performance-and-cost model (arXiv 2507.02456); what of
the softmax hides behind the products is a coefficient. A block of queries meets one tile of keys after the
other; blocks go to the cores in waves, the longest rows of a causal mask last. One coefficient set serves
one library generation, forward or backward (`backward_of`).

With t the core-seconds of a tile (tile_q queries by tile_k keys),
    t      = p_norm(products / (rate * peak), pairs * softmax_flop / vector peak, overlap)
    block  = t * (tiles of keys + prologue)
    blocks = max(longest, waves * mean + tail * longest), waves rounded up by the share `wave`
    time   = launch + blocks * (slower when long, faster when most cores idle) + bytes touched
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from foretell.kernels.families.base import Dims, Engine, Family, p_norm
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array

DIMS = ("batch", "heads", "kv_heads", "q_len", "kv_len", "pairs", "qk_dim", "v_dim", "kv_bytes")
"""Sequences; query and key-value heads; queries and keys of a sequence; pairs that the mask leaves per
sequence and head; sizes of a head's query-key and value vectors; bytes of one element of keys and values."""
WARM_S = 1e-3
"""Seconds of work after which half of the slowing down of long kernels is there: how fast the power
limit answers. Held: kernels of a millisecond are where the tables bend, on every chip."""
SMALLEST_TILE = 16.0
"""Keys that a tile has at least: one step of the matrix units."""
WIDE = 128.0
"""Width of values up to which libraries keep a tile's sums in registers."""
ROUNDING = 1e-6
"""Share of a tile that is no tile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """Coefficients of fused attention; the defaults are a Hopper-class library's."""

    launch_s: float = 11e-6
    """Seconds before any work: launches, and the kernel that writes the cache."""
    rate: float = 0.8
    """Share of the matrix peak that the products of a full tile reach; above 1 where a library runs them
    in a narrower format than the queries come in."""
    softmax_flop: float = 24.0
    """Plain operations of one pair: exponential, maximum, sum, scaling, conversion."""
    overlap: float = 1.5
    """Power of the norm that joins products and softmax: 1 is one after the other, large hides the less."""
    qk_products: float = 1.0
    """Products of the query-key size over each pair: 1 forward, 3 backward."""
    v_products: float = 1.0
    """Products of the value size over each pair: 1 forward, 2 backward."""
    tile_q: float = 128.0
    """Queries of a block."""
    tile_k: float = 128.0
    """Keys of a tile, where SRAM holds two of them."""
    grain: float = 64.0
    """Rows that a block shorter than tile_q is rounded up to."""
    pack: float = 0.0
    """1 where the query heads of one key-value head share a block, else 0."""
    splits: float = 1.0
    """Parts at most that a block's keys are cut into while cores idle."""
    prologue: float = 1.3
    """What a block costs beside its tiles (first loads, last store), in tiles."""
    fixed: float = 1.0
    """Share of the prologue that does not shrink with a short block."""
    tail: float = 0.6
    """Blocks of the longest kind that the cores wait for at the end."""
    wave: float = 0.15
    """How far waves are rounded up to whole ones: 0 not, 1 fully."""
    idle: float = 0.05
    """How much faster a core runs while the others idle, a share of time."""
    warm: float = 0.05
    """How much slower long kernels run under the power limit, a share of time."""
    combine_s: float = 3e-6
    """Seconds to join the parts of split keys."""
    stream: float = 1.0
    """Power of the norm that joins work and traffic: 1 is one after the other, large hides the less."""
    memory: float = 0.8
    """Share of the memory bandwidth."""
    passes: float = 1.0
    """Times that queries, keys, values and outputs cross the memory."""
    touch_flop: float = 20.0
    """Plain operations per byte of them: rotary embedding, cache layout, quantisation."""
    head_step: float = 32.0
    """Sizes of heads that a library has kernels for are whole steps of this; what a head lacks is filled with
    zeros (flash-attention: 32, 64, 96, 128, 192 and 256; cuDNN: 64 and 128, as its kernels' names say)."""
    wide: float = 1.0
    """Share of the rate left where values are wider than 128: sums of a tile no longer fit the registers."""


def seconds(dims: Dims, c: Prefill, engine: Engine) -> Array:
    """Seconds of fused attention. Bound: products at peak where rate <= 1; nothing costs nothing."""
    q, kv = dims["q_len"], dims["kv_len"]
    longest = longest_row(q, kv, dims["pairs"])
    mean = dims["pairs"] / np.maximum(q, 1.0)
    group = 1.0 + (dims["heads"] / np.maximum(dims["kv_heads"], 1.0) - 1.0) * c.pack
    tile_q, tile_k = tiles(dims, c, engine)
    rows = np.minimum(tile_q, whole(q * group / c.grain) * c.grain)
    blocks = dims["batch"] * dims["heads"] / group * whole(q * group / np.maximum(rows, 1.0))

    # A block holds rows of several positions: it meets the keys of all of them.
    ahead, behind = mean < longest - 0.01, longest < kv - 0.01
    spread = np.minimum(rows / group, q)
    most = whole(np.minimum(longest + spread * behind, kv) / tile_k)
    average = (mean + 0.5 * spread * ahead + 0.5 * spread * behind) / tile_k
    average = np.minimum(most, np.maximum(average, 1.0))

    qk, v = (whole_head(dims[name], c.head_step) for name in ("qk_dim", "v_dim"))
    product = c.qk_products * qk + c.v_products * v
    pair_s = engine.cores * p_norm(
        2.0 * product / (c.rate * np.where(dims["v_dim"] > WIDE, c.wide, 1.0) * engine.flop_per_s),
        c.softmax_flop / engine.vector_flop_per_s,
        c.overlap,
    )
    tile_s = pair_s * rows * tile_k
    prologue_s = c.prologue * pair_s * tile_k * (c.fixed * tile_q + (1.0 - c.fixed) * rows)
    parts = np.clip(engine.cores / np.maximum(blocks, 1.0), 1.0, np.minimum(c.splits, most))
    parts = np.where(parts > 1.0 / 0.8, parts, 1.0)
    long_s = most / parts * tile_s + prologue_s
    mean_s = average / parts * tile_s + prologue_s
    waves = blocks * parts / engine.cores
    counted = c.wave * whole(waves) + (1.0 - c.wave) * waves
    work_s = np.maximum(long_s, counted * mean_s + c.tail * long_s * (waves > 1.0 + ROUNDING))
    idle = 1.0 - np.minimum(waves * mean_s / np.maximum(work_s, 1e-30), 1.0)
    work_s = work_s * (1.0 - c.idle * idle) * (1.0 + c.warm * work_s / (work_s + WARM_S))
    busy_s = p_norm(work_s, touched_s(dims, c, engine), c.stream)
    total = c.launch_s + busy_s + c.combine_s * (parts > 1.0)
    return np.asarray(np.where(dims["batch"] * dims["heads"] * dims["pairs"] > 0.0, total, 0.0))


def whole_head(size: Array, step: Num) -> Array:
    """The size that a head of another one is computed as: whole steps, above 128 of 64 at least."""
    steps = np.where(size > WIDE, np.maximum(step, 64.0), step)
    return np.asarray(steps * whole(size / steps))


def longest_row(q: Array, kv: Array, pairs: Array) -> Array:
    """Keys of the query that sees most, from the pairs alone.

    Exact for full, causal and causal windowed masks with any past: row i of a window w sees
    min(w, past + i + 1) keys, so with u = w - past > 0 the pairs beyond the past are q u - u (u - 1) / 2.
    """
    past = kv - q
    rest = np.maximum(pairs - q * past, 0.0)
    beyond = q + 0.5 - np.sqrt(np.maximum((q + 0.5) ** 2 - 2.0 * rest, 0.0))
    found = np.where(rest > 0.0, past + beyond, pairs / np.maximum(q, 1.0))
    return np.asarray(np.minimum(found, kv))


def tiles(dims: Dims, c: Prefill, engine: Engine) -> tuple[Array, Array]:
    """Queries and keys of a tile that SRAM holds: queries in half of it, two stages of keys and values."""
    width = engine.dtype.activation_bytes
    room = np.where(np.asarray(engine.sram_bytes) > 0.0, engine.sram_bytes, np.inf)
    row_bytes = np.maximum(dims["qk_dim"] * width, 1.0)
    tile_q = np.minimum(c.tile_q, _power_of_two(room / 2.0 / row_bytes))
    pair_bytes = 2.0 * np.maximum(dims["qk_dim"] + dims["v_dim"], 1.0) * width
    tile_k = np.minimum(c.tile_k, _power_of_two((room - tile_q * row_bytes) / pair_bytes))
    return tile_q, tile_k


def whole(count: Num) -> Array:
    """Rounded up, but for what coefficients lose when they are averaged or printed."""
    return np.asarray(np.ceil(np.asarray(count) - ROUNDING))


def _power_of_two(limit: Num) -> Array:
    return np.asarray(2.0 ** np.floor(np.log2(np.maximum(limit, SMALLEST_TILE)) + ROUNDING))


def touched_s(dims: Dims, c: Prefill, engine: Engine) -> Array:
    """Seconds to read queries, keys and values and to write outputs."""
    width = dims["qk_dim"] + dims["v_dim"]
    query = dims["q_len"] * dims["heads"] * width * 2.0
    cache = dims["kv_len"] * dims["kv_heads"] * width * dims["kv_bytes"]
    per_byte = c.passes / (c.memory * engine.bytes_per_s) + c.touch_flop / engine.vector_flop_per_s
    return np.asarray(dims["batch"] * (query + cache) * per_byte)


BACKWARD_RATE = 0.78
"""Share of the forward pass's matrix rate that the backward pass reaches: its five products meet in the
cores' own memory. On one H200, 0.76 to 0.80 for fa2 and cudnn beyond what their softmax tells."""


def backward_of(c: Prefill) -> Prefill:
    """The backward pass of a forward library, provisional until measured.

    Scores and their gradient are made again: 3 query-key and 2 value products for 1 and 1 (2.5 times), one
    more exponential and the gradient of the softmax, and about 2.5 times the traffic (outputs and their
    gradient read, three gradients written, those of queries gathered in fp32).
    """
    return replace(
        c,
        qk_products=3.0 * c.qk_products,
        v_products=2.0 * c.v_products,
        rate=BACKWARD_RATE * c.rate,
        softmax_flop=1.5 * c.softmax_flop,
        passes=2.5 * c.passes,
        touch_flop=0.0,
        launch_s=2.0 * c.launch_s,
        splits=1.0,
        pack=0.0,
    )


_FA3 = Prefill(
    launch_s=6.5e-6, overlap=1.9, pack=1.0, splits=128.0, fixed=0.0, prologue=2.8, tail=0.15,
    wave=0.5, idle=0.2, warm=0.01, stream=2.0, touch_flop=0.5,
)  # fmt: skip
_FA2 = Prefill(launch_s=6e-6, overlap=1.05, tail=0.3, wave=0.5, touch_flop=0.5)
_CUDNN = replace(_FA2, overlap=1.9, tail=0.1, stream=2.0, head_step=64.0)
_HOPPER = Prefill(overlap=1.65, prologue=1.0, tail=0.65, wave=0.08, idle=0.01, warm=0.15)
_BLACKWELL = Prefill(
    launch_s=13e-6, tile_q=256.0, fixed=0.5, prologue=2.7, overlap=4.0, tail=0.5, wave=0.3,
    idle=0.15, warm=0.1,
)  # fmt: skip
_AMPERE = Prefill(
    tile_q=64.0, grain=16.0, overlap=1.02, prologue=0.5, tail=0.9, wave=0.03, idle=0.01, warm=0.02,
    touch_flop=7.0,
)  # fmt: skip
_GAUDI = replace(_HOPPER, softmax_flop=12.0, touch_flop=5.0)
"""A softmax in 16 bits has twice the lanes of one in 32, and rotation and casts are passes of their own."""

LIBRARIES: Mapping[str, Mapping[str, Prefill]] = {
    "fa1": {
        "": replace(_FA2, rate=0.5),
        "hopper": replace(_FA2, rate=0.23),
        "blackwell": replace(_FA2, rate=0.2),
    },
    "fa2": {
        "": _FA2,
        "ampere": replace(
            _FA2, rate=0.97, overlap=1.85, prologue=0.9, tail=1.3, wave=0.05, stream=1.8
        ),
        "hopper": replace(_FA2, rate=0.55),
        "blackwell": replace(_FA2, rate=0.4),
        "cdna2": replace(_FA2, rate=0.54),
        "cdna3": replace(_FA2, rate=0.44),
        "cdna4": replace(_FA2, rate=0.68),
        "ponte-vecchio": replace(_FA2, rate=0.47),
    },
    "fa3": {"": _FA3, "blackwell": replace(_FA2, rate=0.4)},
    "cudnn": {
        "": _CUDNN,
        "ampere": replace(_CUDNN, overlap=1.2),
        "blackwell": replace(_CUDNN, overlap=2.5, tile_q=256.0),
    },
    "trtllm": {
        "": _HOPPER,
        "ampere": _AMPERE,
        "ada": _AMPERE,
        "blackwell": _BLACKWELL,
        "gaudi": _GAUDI,
    },
}
"""Coefficients by library and architecture ("" holds elsewhere). Those of trtllm, and fa3 on Hopper, are
where fits to tables start; the others are provisional, from published rates. fa2 on Ampere meets those of its
paper (Dao 2023, figure 4: causal, both passes, 88 to 171 TFLOP/s at heads of 64 and 99 to 189 at 128), and
fa1 gains from there to Hopper what fa2 does, 1.57 times the rate. fa2 keeps to the older matrix instructions,
which reach about 0.55 of a Hopper's and 0.4 of a Blackwell's peak, and hides no softmax there (1.8 and 2.2
times the newer libraries' time in training runs); fa3 falls back to it off Hopper. Attention as PyTorch ships
it on AMD's and Intel's GPUs (composable kernels, AOTriton, oneDNN) is a prior: forward 0.45, 0.38, 0.45 and
0.35 of the peak on MI250X, MI300X, MI355X and Max 1550, recalled from makers' own benchmarks."""
KIN: Mapping[str, str] = {"blackwell-ultra": "blackwell", "rubin": "blackwell"}
"""Architectures that kernels of another are written for."""
SERVING: Mapping[str, str] = {"ampere": "fa2", "ada": "fa2", "hopper": "fa3"}
"""Library that serving engines other than trtllm call; trtllm's kernels elsewhere."""


def library(name: str, architecture: str) -> Prefill:
    """Coefficients of a library on an architecture; the defaults where the library is unknown."""
    sets = LIBRARIES.get(name, {})
    return sets.get(KIN.get(architecture, architecture), sets.get("", Prefill()))


def start(architecture: str, software: str, dtype: str) -> Prefill:
    """Where a fit begins, and what holds where nothing was measured: the tiles of the library."""
    name = "trtllm" if software == "trtllm" else SERVING.get(architecture, "trtllm")
    name = software.removeprefix("torch-") if software.startswith("torch-") else name
    found = library(name, architecture)
    if dtype != "fp8":
        return found
    # fa3 turns values over in registers before it can multiply them in 8 bits; trtllm's 8-bit kernels
    # fill and drain longer, and draw less power.
    if name == "fa3":
        return replace(found, rate=0.55, overlap=1.2)
    shallow = max(1.0, 0.8 * found.overlap)
    return replace(found, overlap=shallow, prologue=max(found.prologue, 2.6), warm=0.02)


BOUNDS: Mapping[str, tuple[float, float]] = {
    "launch_s": (2e-6, 40e-6),
    "overlap": (1.0, 8.0),
    "prologue": (0.05, 10.0),
    "tail": (0.02, 1.5),
    "wave": (0.02, 1.0),
    "idle": (0.005, 0.7),
    "warm": (0.005, 0.5),
    "combine_s": (0.5e-6, 15e-6),
    "stream": (1.0, 4.0),
    "touch_flop": (0.2, 100.0),
}
"""What a fit moves; tiles, rate and softmax are held: one head size alone cannot tell them apart."""

FAMILY = Family(
    name="prefill",
    dims=DIMS,
    record=Prefill,
    bounds=BOUNDS,
    seconds=seconds,
    start=start,
    discrete=True,
)
"""Fused attention over many queries."""
