"""Seconds of the kernels of a traced step, and what a host takes to start them.

Products and fused attention are those of `families/`. What the graph of a user's module has besides: passes
over memory (with the traffic of each operation of PyTorch), convolutions as implicit products with their
changes of layout, depthwise ones, recurrent layers step by step, gathers and scatters, sorts, scans, pools
and Fourier transforms. Rates are of PyTorch 2.11 with cuDNN 9.19 on one H200 (tools/modules), as
shares of the chip's own figures; none belongs to a module.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from foretell.catalog.files import ROOT, read_table
from foretell.kernels.calls import load_elements
from foretell.kernels.families.base import engine_of
from foretell.kernels.plan_kernels import FamilyOnChip, family_on_chip
from foretell.records import dataclass
from foretell.specs.arrays import Array
from foretell.specs.chip import Chip
from foretell.specs.plan import Plan
from foretell.specs.software import Software
from foretell.trace.graph import TracedOp


@dataclass(frozen=True, slots=True, kw_only=True)
class PassForm:
    """What an operation of PyTorch does beside reading its inputs and writing its results once."""

    kernels: float = 1.0
    """Kernels that it starts."""
    traffic: float = 1.0
    """Bytes that it moves over those of its inputs and results."""
    flop: float = 0.0
    """Plain operations of each number, by their time, where arithmetic takes longer than bytes."""
    row_flop: float = 0.0
    """The same of each row of a norm, or each index of a gather, beside the bytes."""
    narrow_flop: float = 0.0
    """The same as `flop` for numbers of 16 bits, where they take longer."""
    by_channel: float = 0.0
    """Channels from which on all cores are busy, where each channel is summed by one block."""
    last: float = 1.0
    """Its plain operations where channels lie last, over those elsewhere."""


FILE = read_table(ROOT / "kernels" / "traced.toml")
PASSES: Mapping[str, PassForm] = {name: PassForm(**form) for name, form in FILE["passes"].items()}
"""Operations whose kernels are more than one pass over inputs and results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Rates of families that only traced modules have, as shares of the chip's own figures."""

    stream: float
    """Memory bandwidth that passes over memory reach."""
    cache_gain: float
    """How much faster what the last-level cache holds is."""
    in_step: float
    """How much longer kernels take within a step than on data that the cache still has."""
    launch_s: float
    """A kernel with next to nothing to do, behind another."""
    depthwise_flop: float
    """Plain units' peak that depthwise convolutions reach."""
    layout: float
    """Bandwidth at which cuDNN changes the order of channels and pixels."""
    sort: float
    """Bandwidth at which keys are sorted, over eight passes."""
    fft_passes: float
    """Passes over inputs and results of a Fourier transform."""


RATES = Rates(**{k: v for k, v in FILE["rates"].items() if k not in ("source", "status")})


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedKernels:
    """Seconds on a GPU of each distinct operation, and the kernels that it starts."""

    seconds: Array
    """Of each operation."""
    kernels: Array
    """Kernels of each."""
    notes: tuple[str, ...]
    """Where rates come from, and what is not known."""


class _Chip:
    """A chip as the kernels of a step see it."""

    def __init__(self, chip: Chip, plan: Plan, software: Software) -> None:
        self.chip, self.plan, self.software = chip, plan, software
        self.found: dict[tuple[str, str], FamilyOnChip] = {}
        self.bandwidth = float(np.ravel(chip.memory_bandwidth_bytes_per_s)[0])
        self.vector = float(np.ravel(chip.vector_flop_per_s)[0])
        self.cache = float(np.ravel(engine_of(chip, "fp32").l2_bytes)[0])

    def family(self, name: str, dtype: str) -> FamilyOnChip:
        """Coefficients of a family in a format."""
        key = name, dtype
        if key not in self.found:
            self.found[key] = family_on_chip(name, dtype, self.chip, self.plan, self.software)
        return self.found[key]

    def matrix(self, dtype: str) -> str:
        """The format in which products of such numbers run: TF32 where the plan allows it."""
        wide = self.plan.precision == "tf32" and "tf32" in self.chip.matrix_flop_per_s
        if dtype in ("fp32", "complex64", "int"):
            return "tf32" if wide else "fp32"
        return dtype if dtype in ("bf16", "fp16") else "fp32"

    def convolution(self, dtype: str) -> str:
        """The same of convolutions, which PyTorch runs in TF32 where numbers have 32 bits."""
        if dtype in ("bf16", "fp16"):
            return dtype
        return "tf32" if "tf32" in self.chip.matrix_flop_per_s else "fp32"

    def pass_s(self, moved: Array | float, share: float = RATES.stream) -> float:
        """Seconds of a pass that moves so many bytes."""
        cached = min(float(moved), 0.6 * self.cache) * (1.0 - 1.0 / RATES.cache_gain)
        return (float(moved) - cached) / (share * self.bandwidth)


def traced_kernels(
    ops: Sequence[TracedOp], chip: Chip, plan: Plan, software: Software
) -> TracedKernels:
    """Seconds and kernels of distinct operations on a chip."""
    place = _Chip(chip, plan, software)
    seconds, kernels = np.zeros(len(ops)), np.zeros(len(ops))
    notes: list[str] = []
    for n, op in enumerate(ops):
        alone_s, kernels[n] = _seconds(op, place)
        seconds[n] = RATES.in_step * alone_s
        if op.kind == "unknown":
            notes.append(f"nothing is known of the kernels of {op.name}: charged by its bytes")
    notes += [found.note for found in place.found.values()]
    return TracedKernels(seconds=seconds, kernels=kernels, notes=tuple(dict.fromkeys(notes)))


def _seconds(op: TracedOp, place: _Chip) -> tuple[float, float]:
    """Seconds of one operation, and its kernels."""
    if op.kind in ("view", "sync"):
        copies = 1.0 if op.kind == "sync" else 0.0
        return copies * RATES.launch_s, copies
    by_kind = _KINDS.get(op.kind)
    if by_kind is not None:
        return by_kind(op, place)
    return _over_memory(op, place)


def _over_memory(op: TracedOp, place: _Chip) -> tuple[float, float]:
    """Norms, sums, copies and everything element by element."""
    one = PASSES.get(op.name.partition(".")[2], PassForm())
    sizes = op.sizes or {}
    narrow = op.dtype in ("bf16", "fp16")
    moved = (op.read_bytes + op.write_bytes) * one.traffic
    if op.kind == "fill":
        moved = op.write_bytes
    seconds = place.pass_s(moved)
    largest = op.write_bytes if op.kind == "pool" else max(op.read_bytes, op.write_bytes)
    many = sizes.get("elements", largest / (2.0 if narrow else 4.0))
    flop = (one.narrow_flop or one.flop) if narrow else one.flop
    if sizes.get("channels_last"):
        flop *= one.last
    elif one.by_channel:
        flop *= max(1.0, one.by_channel / max(sizes.get("channels", one.by_channel), 1.0))
    seconds = max(seconds, flop * many / place.vector)
    seconds += one.row_flop * sizes.get("rows", 0.0) / place.vector
    if "columns" in sizes:
        share = min(COLUMN_SHARE * (sizes["columns"] / 100.0) ** 0.45, RATES.stream)
        seconds = max(seconds, op.read_bytes / (share * place.bandwidth) + 4e-6)
    if "uneven" in sizes:
        each = (
            TURNED_FLOP if sizes["turned"]
            else PERMUTED_FLOP if sizes.get("permuted") and op.kind == "copy" else UNEVEN_FLOP
        )  # fmt: skip
        seconds = max(seconds, each * sizes["uneven"] / place.vector)
    return one.kernels * RATES.launch_s + seconds, one.kernels


COLUMN_SHARE = 0.10
"""Share of the bandwidth at which the rows of 100 columns are summed; wider ones go faster."""
UNEVEN_FLOP, PERMUTED_FLOP, TURNED_FLOP = 150.0, 380.0, 450.0
"""Plain operations of a number, by their time, where operands lie otherwise than the result (broadcast or cut
out), where a copy puts dimensions into another order, and where rows become columns."""


def _gemm(op: TracedOp, place: _Chip) -> tuple[float, float]:
    sizes = op.sizes or {}
    dtype = place.matrix(op.dtype)
    found = place.family("gemm", dtype)
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    dims = {name: np.array([sizes[name]]) for name in ("m", "n", "k", "batch")}
    known = sizes.get("load") or load_elements(n, k)
    dims["load"] = np.array([float(np.ravel(known)[0]) if dtype in ("bf16", "fp16") else 8.0])
    if min(m, n, k) <= 0:
        return 0.0, 0.0
    if dtype == "fp32":
        peak = float(np.ravel(found.engine.flop_per_s)[0])
        wide_s = tiled_s(m, n, k, WIDE_SHARE * peak * k / (k + SHORT_SUM), sizes["batch"])
        return max(wide_s, place.pass_s(op.read_bytes + op.write_bytes)) + RATES.launch_s, 1.0
    seconds = found.chosen.family.seconds(dims, found.chosen.record, found.engine)
    slower = TURNED_TF32 if dtype == "tf32" and k > max(m, n) else 1.0
    return slower * float(np.ravel(seconds)[0]), 1.0


def tiled_s(m: float, n: float, k: float, rate: float, batch: float = 1.0) -> float:
    """Seconds of a product at a rate, by waves of tiles over the cores; long sums are split over them."""
    best = float(np.inf)
    for rows, columns, slower in TILES:
        tiles = float(np.ceil(m / rows) * np.ceil(n / columns)) * batch
        waves = float(np.ceil(tiles / CORES))
        if tiles < CORES and k >= SPLIT_SUM:
            waves = max(tiles / CORES, 1.0 / float(max(k // SPLIT_SUM, 1.0)))
        best = min(best, slower * waves * CORES * rows * columns * 2.0 * k / rate)
    return best


TILES = ((128, 128, 1.0), (256, 128, 0.95), (128, 256, 0.95), (128, 64, 1.2), (64, 128, 1.2), (64, 64, 1.5),
         (128, 32, 1.7), (32, 128, 1.7))  # fmt: skip
"""Rows and columns of the tiles that libraries cut products into, and how much longer an operation of a small
tile takes."""
CORES, SPLIT_SUM = 132.0, 512.0
"""Cores that the tiles are dealt to, and terms of a sum from which on several cores share it."""
WIDE_SHARE, SHORT_SUM = 0.80, 45.0
"""Products in 32 bits: share of the peak, and terms of a sum that take as long as one's start."""
TURNED_TF32 = 1.7
"""Products over many rows in TF32, whose operands lie across what the matrix units read, over others."""


def _attention(op: TracedOp, place: _Chip) -> tuple[float, float]:
    sizes = dict(op.sizes or {})
    backward = bool(sizes.get("backward"))
    half = op.dtype in ("bf16", "fp16")
    family = "prefill-backward" if backward else "prefill"
    found = place.family(family, op.dtype if half else "bf16")
    dims = {
        name: np.array([float(sizes[name])])
        for name in ("batch", "heads", "kv_heads", "q_len", "kv_len", "pairs", "qk_dim", "v_dim")
    }
    dims |= {"calls": np.array([1.0]), "kv_bytes": np.array([2.0])}
    seconds = float(
        np.ravel(found.chosen.family.seconds(dims, found.chosen.record, found.engine))[0]
    )
    if half and not sizes.get("efficient") and place.chip.architecture in CUDNN_CHIPS:
        wide = min(1.0, 0.4 + 0.6 * sizes["qk_dim"] / 128.0)
        rate = (
            wide * (CUDNN_BACK if backward else CUDNN) * float(np.ravel(found.engine.flop_per_s)[0])
        )
        seconds = min(seconds, op.flops / rate + CUDNN_S)
    if not half:
        peak = float(np.ravel(engine_of(place.chip, "fp32").flop_per_s)[0])
        share = EFFICIENT_WIDE * (1.25 if sizes["qk_dim"] > 64.0 else 1.0)
        whole = np.ceil(sizes["q_len"] / 64.0) * np.ceil(sizes["kv_len"] / 64.0) * 4096.0
        seen = sizes["pairs"] / (sizes["q_len"] * sizes["kv_len"])
        work = op.flops / max(sizes["pairs"], 1.0) * whole * seen
        seconds = work / (share * peak) + 4e-6
    elif sizes.get("efficient"):
        seconds *= EFFICIENT_SLOWER
    if sizes.get("masked"):
        bias = 4.0 * sizes["batch"] * sizes["heads"] * sizes["q_len"] * sizes["kv_len"]
        seconds += place.pass_s(0.5 * bias)
    return seconds, 3.0 if backward else 1.0


CUDNN_CHIPS = ("hopper", "blackwell", "blackwell-ultra")
"""Chips on which PyTorch takes cuDNN's attention in 16 bits (sdp_utils.cpp, from 2.9 on)."""
CUDNN, CUDNN_BACK, CUDNN_S = 0.54, 0.50, 8e-6
"""Share of the peak that it reaches with heads of 128, forward and backward, and the seconds of its start."""
EFFICIENT_WIDE = 0.48
"""Share of the peak in 32 bits that memory-efficient attention reaches, over whole tiles of 64."""
EFFICIENT_SLOWER = 1.5
"""Memory-efficient attention in 16 bits over flash attention."""


def _convolution(op: TracedOp, place: _Chip) -> tuple[float, float]:
    s = op.sizes or {}
    backward = "to_input" in s
    made = (s["to_input"] + s["to_weights"]) if backward else 1.0
    points = s["in_points"] if s["transposed"] else s["out_points"]
    flop = 2.0 * s["batch"] * points * s["inputs"] * s["outputs"] / s["groups"] * s["taps"]
    width = 2.0 if op.dtype in ("bf16", "fp16") else 4.0
    rows = s["batch"] * s["in_points"] * s["inputs"] * width
    results = s["batch"] * s["out_points"] * s["outputs"] * width
    bias_s = place.pass_s(results) if backward and s.get("to_bias") else 0.0
    if s.get("bias"):
        numbers = s["batch"] * s["out_points"] * s["outputs"]
        bias_s = max(place.pass_s(2.0 * results), UNEVEN_FLOP * numbers / place.vector)
    copied_s = TURNED_FLOP * s.get("copied", 0.0) / place.vector
    if s["groups"] > 1 and s["groups"] >= s["inputs"]:
        slower = 1.7 if backward else 1.0
        if s["dimensions"] == 1:  # a kernel for pictures, whose rows are one pixel high
            flop = max(flop, LINE_FLOP * s["batch"] * s["out_points"] * s["outputs"])
        seconds = made * slower * flop / (RATES.depthwise_flop * place.vector)
        least = made * place.pass_s(rows + results)
        return max(seconds, least) + made * RATES.launch_s + bias_s + copied_s, made
    dtype = place.convolution(op.dtype)
    peak = CONVOLUTION_SHARE[dtype] * float(np.ravel(engine_of(place.chip, dtype).flop_per_s)[0])
    inputs, outputs = s["inputs"] / s["groups"], s["outputs"] / s["groups"]
    least = place.pass_s(rows + results)
    products = []
    if not backward or s["to_input"]:
        sums = (outputs, inputs) if backward != bool(s["transposed"]) else (inputs, outputs)
        wide = 8.0 * np.ceil(sums[0] / 8.0) * s["taps"]
        products.append(tiled_s(s["batch"] * points, sums[1], wide, peak, s["groups"]))
    if backward and s["to_weights"]:
        products.append(flop / (WEIGHTS_SHARE * peak))
    if s["inputs"] < FEW_CHANNELS or (backward and s["outputs"] < FEW_CHANNELS):
        products = [max(one, flop / (FEW_SHARE * peak)) for one in products]
    total = sum(max(one, least) + CONVOLUTION_S for one in products)
    total *= VOLUMES_BACK if backward and s["dimensions"] == 3.0 else 1.0
    even = (
        s["taps"] == 1.0 and s["in_points"] == s["out_points"] and not s["in_points"] * width % 16
    )
    if not s.get("channels_last") and s["in_points"] > 1 and not even:
        used = rows * (
            s["out_points"] / s["in_points"] if s["taps"] == 1.0 and not backward else 1.0
        )
        weights = made * s["inputs"] * s["outputs"] / s["groups"] * s["taps"] * width
        moved = (used + results) * (1.5 if backward and made > 1 else 1.0) + weights
        total += 2.0 * moved / (RATES.layout * place.bandwidth)
    return total + bias_s + copied_s, 2.0 * made + 1.0


CONVOLUTION_SHARE: Mapping[str, float] = {"bf16": 0.86, "fp16": 0.86, "tf32": 0.75, "fp32": 0.6}
"""Share of the peak that whole waves of tiles of an implicit product reach."""
LINE_FLOP = 30.0
"""Operations of a result of a depthwise convolution over a line, by their time, where it has fewer."""
WEIGHTS_SHARE = 0.45
"""The same of the product that makes weights' gradients, over the others."""
VOLUMES_BACK = 1.5
"""Gradients of convolutions over volumes, over those of pictures."""
CONVOLUTION_S = 8e-6
"""Starting the kernels of one product."""
FEW_CHANNELS, FEW_SHARE = 5.0, 0.04
"""Inputs with so few channels, as pictures have, leave the matrix units at such a share."""


def _recurrent(op: TracedOp, place: _Chip) -> tuple[float, float]:
    s = op.sizes or {}
    steps = recurrent_steps(op)
    dtype = place.convolution(op.dtype)
    peak = float(np.ravel(engine_of(place.chip, dtype).flop_per_s)[0])
    weights = s["gates"] * s["width"] ** 2 * (2.0 if op.dtype == "bf16" else 4.0)
    again = weights / (3.0 * place.bandwidth)
    step_s = RECURRENT_BACK_S if s.get("backward") else RECURRENT_S
    return op.flops / (0.35 * peak) + steps * (step_s + again), 2.0 * steps


def recurrent_steps(op: TracedOp) -> float:
    """Steps of a recurrent layer, one after the other, over its layers and directions."""
    s = op.sizes or {}
    return s["steps"] * s["layers"] * s["directions"] if op.kind == "rnn" else 0.0


RECURRENT_S, RECURRENT_BACK_S = 6.5e-6, 14e-6
"""Seconds of one step of one recurrent layer beside its products, forward and backward."""


def _gather(op: TracedOp, place: _Chip) -> tuple[float, float]:
    indices = op.sizes.get("indices", 0.0) if op.sizes else 0.0
    name = op.name.partition(".")[2]
    flop = ELEMENT_FLOP if name == "gather" else INDEX_FLOP
    seconds = max(place.pass_s(2.0 * op.write_bytes), flop * indices / place.vector)
    return RATES.launch_s + seconds, 1.0


INDEX_FLOP, ELEMENT_FLOP = 4e4, 5e3
"""Plain operations of each row that is fetched by index, and of each number, by their time: rows of 8 and of
256 numbers take the same 0.6 ns."""
ADDED_FLOP = {"sorted": 340.0, "embedding": 950.0, "atomic": 450.0}
"""The same of each number that is added by index: behind a sort of the indices, for a table's gradient, or
one by one."""


def _scatter(op: TracedOp, place: _Chip) -> tuple[float, float]:
    """Sums by index: the target is filled or copied first where it is no operand in place."""
    name = op.name.partition(".")[2]
    way = "embedding" if "embedding" in name else "sorted" if "index_put" in name else "atomic"
    added = op.sizes.get("added", 0.0) if op.sizes else 0.0
    kernels = 2.0 if way == "atomic" else 9.0
    fixed_s = 2.0 * RATES.launch_s if way == "atomic" else 25e-6
    seconds = place.pass_s(op.write_bytes) + ADDED_FLOP[way] * added / place.vector
    return fixed_s + seconds, kernels


def _sort(op: TracedOp, place: _Chip) -> tuple[float, float]:
    moved = op.read_bytes + op.write_bytes
    return 14e-6 + moved / (RATES.sort * place.bandwidth), 4.0


def _scan(op: TracedOp, place: _Chip) -> tuple[float, float]:
    return 20e-6 + place.pass_s(2.0 * op.write_bytes, 0.3), 2.0


def _fourier(op: TracedOp, place: _Chip) -> tuple[float, float]:
    moved = RATES.fft_passes * (op.read_bytes + op.write_bytes)
    return 2.0 * RATES.launch_s + place.pass_s(moved), 2.0


def _pool(op: TracedOp, place: _Chip) -> tuple[float, float]:
    """Pooling and resampling; bilinear kernels have a thread for each place that walks all channels."""
    name = op.name.partition(".")[2]
    if ("bilinear" in name or "bicubic" in name) and "backward" not in name:
        planes = op.sizes.get("planes", 1.0) if op.sizes else 1.0
        return 4e-7 * planes, 1.0
    return _over_memory(op, place)


def _solve(op: TracedOp, place: _Chip) -> tuple[float, float]:
    return 100e-6 + place.pass_s(50.0 * (op.read_bytes + op.write_bytes)), 10.0


_KINDS = {
    "gemm": _gemm,
    "attention": _attention,
    "conv": _convolution,
    "rnn": _recurrent,
    "gather": _gather,
    "scatter": _scatter,
    "sort": _sort,
    "scan": _scan,
    "fft": _fourier,
    "pool": _pool,
    "solve": _solve,
}
"""Families with a formula of their own; all others are passes over memory."""
