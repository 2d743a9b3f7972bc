"""Seconds and joules of stacked operations: kernels by their surfaces, at the clock of short bursts.

Every family is one call for all operations and shapes. What falls with the clock under a power limit is kept
apart (`clocked_s`, `core_joules`), so that a second pass over whole steps can find the clock they hold.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from foretell.catalog.hosts import usual_host
from foretell.kernels.call_records import CallStack
from foretell.kernels.families.base import DTYPES, Engine, attainable, engine_of
from foretell.kernels.families.choose import FamilyCoefficients, choose, of_kin, spread_of
from foretell.kernels.families.experts import grouped_times
from foretell.kernels.families.gemm import GemmCoefficients
from foretell.kernels.fusion import (
    COMPOSED,
    launch_cost,
)
from foretell.kernels.modules import is_wide
from foretell.kernels.power import (
    BITS,
    OpLoad,
    PowerCoefficients,
    chip_power,
    clock_share,
    core_joules,
    memory_joules,
)
from foretell.kernels.precision import cast_passes, linear_format, plain_format, turned_anew
from foretell.kernels.stack_passes import fuses_experts, memory_passes
from foretell.kernels.wide_products import in_wide
from foretell.records import dataclass
from foretell.specs.arrays import Array, Index, Mask
from foretell.specs.chip import Chip
from foretell.specs.corrections import AS_PREDICTED, Corrections
from foretell.specs.plan import DTYPE_BYTES, WIDE_PRECISIONS, Plan, activation_bytes
from foretell.specs.result import Evidence
from foretell.specs.software import Host, Software

SOFTWARE = ("torch", "trtllm", "sglang", "vllm")
"""Whose kernels stand for training's, the nearest first."""
LIBRARY = ("torch", "trtllm")
"""Whose products are the vendor library's, as training's are; vLLM brings its own in narrow formats."""
ATTENTION = {
    "fa1": "torch-fa1",
    "fa2": "torch-fa2",
    "fa3": "torch-fa3",
    "cudnn": "torch-cudnn",
    "cudnn8": "torch-cudnn",
}
"""Library of a plan's attention -> the software its kernels were measured under."""
ATTENTION_BACKWARD = {**ATTENTION, "cudnn8": "torch-fa2"}
"""The same of its backward pass. cuDNN 8.9 and 9.0 had a new scheme there up to 256 MB of scratch, the
gradient of all scores in 16 bits (one sequence of 2,000 tokens in 32 heads), and FlashAttention-2's else."""
BEST_ATTENTION = {
    "hopper": "cudnn",
    "blackwell": "cudnn",
    "blackwell-ultra": "cudnn",
    "rubin": "cudnn",
}
"""The fastest library of an architecture; fa2 elsewhere."""
ROW_PRODUCTS = 0.73
"""Share of the vendor library's rate that products with a scale a row reach: by CUTLASS, in PyTorch as in
vLLM, whose fp8 table on Blackwell tops out at 0.55 of the peak where the library's has 0.757."""
CAST_LAUNCH_S = 3e-6
"""Launch of a product whose operands are already narrow."""
CORRECTED = {
    "gemm": "gemm",
    "grouped": "experts",
    "prefill": "attention",
    "prefill-backward": "attention",
}
"""Family of kernels -> the correction of its times; the rest are passes over memory."""
SPLASH_CHIPS = ("tpu",)
"""Architectures whose attention is a kernel of large blocks over few wide cores (JAX's splash attention)."""
SPLASH_BLOCK, SPLASH_SOFTMAX = 2048.0, 0.7
"""Queries and keys of its blocks (sa_block_q, sa_block_kv of MaxText), of which a causal mask leaves
out whole ones alone: 1.25 times the pairs at 8,192 tokens, hardly more at 131,072; and plain operations of a
pair over those of a GPU's, by recipes of 8,192 tokens on v6e and v7x (tpu-recipes)."""
SPLASH_LANES = 128.0
"""Sizes of its heads: vectors fill whole rows of the matrix units (NUM_LANES; smaller heads are padded)."""
CALLS = ("residual", "heads", "halves", "repeat", "join")
"""Passes that are calls between modules."""
SCAN_SHARE, VECTOR_SHARE = 0.03, 0.5
"""Shares of the matrix and plain peaks that recurrences in chunked form reach: their Triton kernels multiply
tiles of one chunk, whose loop of one or two steps leaves loads and stores in sight. The first is set by steps
of three hybrid models on five chips (Megatron-Bridge performance summary, Nemotron 3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTimes:
    """Times of stacked operations, forward and then backward; arrays are (2 x operations, shapes)."""

    seconds: Array
    """At the clock of short bursts."""
    clocked_s: Array
    """What of it stretches when the clock falls."""
    core_joules: Array
    """What the cores spend, at that clock."""
    memory_joules: Array
    """What the device memory spends."""
    memory_bound: Mask
    """Where moving bytes takes longer than arithmetic."""
    host_s: Array
    """What the host spends to start the kernels."""
    grounds: Mapping[str, tuple[Evidence, tuple[float, ...]]]
    """Family -> what its coefficients rest on, and the spread of their residuals."""
    notes: tuple[str, ...]
    """Where the coefficients come from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyOnChip:
    """A family of kernels on one chip: its coefficients, and the chip as they see it."""

    chosen: FamilyCoefficients
    """The coefficients."""
    engine: Engine
    """The chip's rates for them."""
    spread: tuple[float, ...]
    """Quantiles of the residuals of the coefficients."""
    note: str
    """Where they come from."""


def family_on_chip(
    family: str, dtype: str, chip: Chip, plan: Plan, software: Software
) -> FamilyOnChip:
    """A family of kernels in a format on a chip; numbers of the chip may be arrays."""
    try:
        return _known_family(family, dtype, chip, plan, software)
    except (TypeError, ValueError):  # arrays have no hash, and are not equal as one
        return _family_on_chip(family, dtype, chip, plan, software)


def _family_on_chip(
    family: str, dtype: str, chip: Chip, plan: Plan, software: Software
) -> FamilyOnChip:
    chosen = coefficients(family, dtype, chip, plan, software)
    engine = engine_of(chip, dtype)
    engine = attainable(engine, chip, chosen.kin) if chosen.foreign else engine
    if family == "grouped" and is_wide(plan, software):
        # Autocast has no rule for grouped products: they run as the weights are.
        engine = replace(engine, flop_per_s=engine_of(chip, "fp32").flop_per_s)
    return FamilyOnChip(chosen=chosen, engine=engine, spread=spread_of(chosen), note=chosen.note)


_known_family = lru_cache(maxsize=256)(_family_on_chip)
"""The same; kept, since they depend on no size: every new length of a sequence asks for them."""


def op_times(
    stacks: Sequence[CallStack],
    ops: int,
    chip: Chip,
    plan: Plan,
    software: Software,
    cut: Mask | bool = False,
    corrections: Corrections = AS_PREDICTED,
    started: tuple[Host, str] | None = None,
) -> OpTimes:
    """Times of all operations in both passes; `cut` says where the vocabulary is; (shapes,).

    `corrections` are factors on the times, numbers or (shapes,): a slower kernel draws the same watts.
    `started` is the host and how it starts kernels; none: the usual one, as the software has it.
    """
    width = max(stacks[0].matrix_flop.shape[1], np.size(cut))
    table = np.zeros((6, 2 * ops, width))
    grounds: dict[str, tuple[Evidence, tuple[float, ...]]] = {}
    notes: list[str] = []
    started = started or (usual_host(), software.launch)
    power = chip_power(chip).coefficients
    for stack in [with_recasts(stack, plan, software, chip.architecture) for stack in stacks]:
        dtype = call_dtype(stack, plan)
        found = family_on_chip(stack.family, dtype, chip, plan, software)
        chosen, engine = found.chosen, in_wide(found.engine, stack, chip, dtype)
        grounds[stack.family] = (chosen.evidence, found.spread)
        notes.append(found.note)
        moved = (
            stack.activation_elements * activation_bytes(plan)
            + stack.weight_elements * DTYPE_BYTES[plan.weights]
        )
        factor, kernels = memory_passes(stack, plan, software, chip, np.asarray(cut))
        kernels = kernels * stack.launches
        moved = moved * factor
        stack = with_drawn_rows(stack, plan)
        seconds, arithmetic_s = kernel_seconds(stack, chosen, engine, (moved, kernels))
        if stack.family == "grouped" and not is_wide(plan, software):
            least_s, cast_s = library_bound(stack, dtype, chip, plan, software)
            seconds = np.maximum(seconds, least_s) + cast_s
        some = (stack.matrix_flop + stack.vector_flop + moved) > 0.0
        seconds = np.where(some, seconds, 0.0)
        slower = getattr(corrections, CORRECTED.get(stack.family, "memory_bound"))
        each = np.empty((len(table), len(stack.rows), width))
        bits = BITS[engine.dtype.peak]
        spent = _spent(stack, power, bits, moved, seconds, arithmetic_s)
        for row, value in zip(each[:5], spent, strict=True):
            row[...] = value * slower
        each[5] = some * _host_s(stack, kernels, plan, software, started) / chip.host_speed
        _add_rows(table, stack.rows, each)
    return OpTimes(
        seconds=table[0],
        clocked_s=table[1],
        core_joules=table[2],
        memory_joules=table[3],
        memory_bound=table[4] < 0.5 * table[0],
        host_s=table[5],
        grounds=grounds,
        notes=tuple(dict.fromkeys(notes)),
    )


def _spent(
    stack: CallStack,
    power: PowerCoefficients,
    bits: float,
    moved: Array,
    seconds: Array,
    arithmetic_s: Array,
) -> tuple[Array, ...]:
    """A stack's seconds, clocked seconds, joules of cores and of memory, and arithmetic's seconds."""
    load = OpLoad(
        seconds=seconds,
        clock_share=clock_share(arithmetic_s, seconds),
        matrix_flop=stack.matrix_flop,
        bits=bits,
        vector_flop=stack.vector_flop,
        memory_bytes=moved,
    )
    return (
        seconds,
        seconds * load.clock_share,
        core_joules(load, power),
        memory_joules(load, power),
        np.minimum(arithmetic_s, seconds),
    )


def _add_rows(table: Array, rows: Index, values: Array) -> None:
    """Add values to rows of a table, where an operation has several kernels; (quantities, rows, shapes)."""
    if values.shape[-1] == 1:
        np.add.at(table.swapaxes(0, 1), rows, values.swapaxes(0, 1))
        return
    for column, row in enumerate(rows.tolist()):
        table[:, row] += values[:, column]


def mean_times(times: OpTimes, other: OpTimes, share: float) -> OpTimes:
    """Times in the mean of layers of which a share runs as `other` has it."""
    names = ("seconds", "clocked_s", "core_joules", "memory_joules", "host_s")
    mixed = {
        name: (1.0 - share) * getattr(times, name) + share * getattr(other, name) for name in names
    }
    return replace(times, **mixed, notes=tuple(dict.fromkeys((*times.notes, *other.notes))))


def _host_s(
    stack: CallStack, kernels: Array, plan: Plan, software: Software, started: tuple[Host, str]
) -> Array:
    """Host time of each call; (calls, 1)."""
    host = launch_cost(*started, fused=plan.fused)
    if software.modules and not plan.fused:
        shares = np.array([COMPOSED[back] for _, back in stack.kinds])[:, None]
        return np.asarray(kernels * shares * (host.operation_s + host.kernel_s))
    back = np.array([backward for _, backward in stack.kinds], float)[:, None]
    slower = np.where(back > 0.0, host.backward, 1.0)
    # What is no module of its own is a plain call: its launches, and nothing besides.
    module = np.array([kind not in CALLS for kind, _ in stack.kinds], float)[:, None]
    found = (host.operation_s * module + host.kernel_s * kernels) * slower
    if stack.family == "grouped" and software.routed_operations > 0.0:
        # Transformer Engine's GroupedLinear starts a product for each expert, and in narrow formats a cast.
        each = 2.0 if linear_format(plan) else 1.0
        found = found + (each * stack.sizes["groups"] - 1.0) * host.kernel_s * slower
    if stack.family in ("prefill", "prefill-backward"):
        # Steps of a ring are operations one after another, each with a send; backward, gradients travel too.
        calls = stack.sizes["calls"]
        found = calls * found + (calls - 1.0) * (1.0 + back) * started[0].collective_s
    return np.asarray(found)


def required_dtypes(plan: Plan) -> tuple[str, ...]:
    """Matrix peaks that the chip must have for this plan."""
    low = linear_format(plan)
    return (plain_format(plan), DTYPES[low].peak) if low else (plain_format(plan),)


def call_dtype(stack: CallStack, plan: Plan) -> str:
    """The format in which a stack's products run."""
    return (linear_format(plan) if stack.linear else None) or plain_format(plan)


def coefficients(
    family: str, dtype: str, chip: Chip, plan: Plan, software: Software | None = None
) -> FamilyCoefficients:
    """The surface of a family, without its own view of the power limit: the second pass has that."""
    if family in ("prefill", "prefill-backward"):
        name = BEST_ATTENTION.get(chip.architecture, "fa2")
        name = name if plan.attention == "auto" else plan.attention
        name = (
            "fa2" if dtype in WIDE_PRECISIONS else name
        )  # what kernels/wide_products.py compares with
        libraries = ATTENTION if family == "prefill" else ATTENTION_BACKWARD
        found = choose(chip, family, dtype, (libraries[name],))
        record = replace(found.record, warm=0.0, touch_flop=0.0)
        if chip.architecture.startswith(SPLASH_CHIPS):
            record = replace(
                record,
                tile_q=SPLASH_BLOCK,
                tile_k=SPLASH_BLOCK,
                head_step=SPLASH_LANES,
                prologue=record.prologue * record.tile_q / SPLASH_BLOCK,
                softmax_flop=SPLASH_SOFTMAX * record.softmax_flop,
            )
        return replace(found, record=record)
    if family == "grouped":
        return library_products(chip, "experts", dtype)
    if family == "gemm":
        found = library_products(chip, "gemm", dtype)
        record = replace(found.record, fade=0.0)
        if software is not None and DTYPES[dtype].quantised:
            record = fused_cast(record, plan, software)
        return replace(found, record=record)
    return choose(chip, "pointwise", "bf16", SOFTWARE)


def library_bound(
    stack: CallStack, dtype: str, chip: Chip, plan: Plan, software: Software
) -> tuple[Array, Array]:
    """What the vendor library's plain products of grouped ones' sizes take side by side, which grouped
    kernels do not beat, and what casting their operands to a narrow format takes besides.

    Tables of grouped products end at the depths of models' layers. Products for the weights' gradients are as
    deep as an expert has rows.
    """
    chosen = coefficients("gemm", dtype, chip, plan, software)
    engine = engine_of(chip, dtype)
    engine = attainable(engine, chip, chosen.kin) if chosen.foreign else engine
    plain = {"m": stack.sizes["m"], "n": stack.sizes["n"], "k": stack.sizes["k"]}
    plain |= {"batch": stack.sizes["groups"]}
    record: Any = chosen.record
    least_s = chosen.family.seconds(plain | {"cast": np.zeros(1)}, record, engine)
    if not engine.dtype.quantised:
        return least_s, np.zeros(1)
    moved = stack.sizes["cast"] * plain["batch"] * plain["m"] * plain["k"]
    moved = moved * (2.0 + engine.dtype.activation_bytes) * record.quantise
    moved = 0.5 * moved if fuses_experts(plan, software) else moved
    return least_s, np.asarray(moved / (record.memory * engine.bytes_per_s))


def library_products(chip: Chip, family: str, dtype: str) -> FamilyCoefficients:
    """Products of the vendor's library: the chip's own tables of it, those of its generation, any."""
    names = (dtype, "fp8") if dtype == "mxfp8" else (dtype,)
    for name in names:
        found = of_kin(chip, family, name, LIBRARY)
        if found is not None:
            return found
    return choose(chip, family, dtype, SOFTWARE)


def fused_cast(record: GemmCoefficients, plan: Plan, software: Software) -> GemmCoefficients:
    """Products in a narrow format as training runs them: casts fused into what comes before.

    Serving's tables launch the cast by itself and scale row by row; training casts a tensor in one pass
    that reads 16 bits and writes the format twice, as it is and transposed (4 bytes a value in fp8).
    """
    by_row = plan.precision == "fp8" and plan.scaling == "row"
    return replace(
        record,
        compute=record.compute * (ROW_PRODUCTS if by_row else 1.0),
        launch_s=np.minimum(record.launch_s, CAST_LAUNCH_S),
        quantise=cast_passes(plan, software),
        row_s=0.0,
        ragged=0.0,
    )


def with_recasts(stack: CallStack, plan: Plan, software: Software, architecture: str) -> CallStack:
    """Products whose weights are cast for every use, where the framework does so, or turned for it."""
    if stack.family != "gemm" or not stack.linear:
        return stack
    held = stack.sizes["held"]
    if software.casts_anew:
        return replace(stack, sizes={**stack.sizes, "recast": cast_passes(plan, software) * held})
    if not turned_anew(plan, architecture):
        return stack
    # Read and written in the format, over a read of 16 bits and a write of the format.
    width = DTYPES[call_dtype(stack, plan)].weight_bytes
    backward = np.array([back for _, back in stack.kinds], float)[:, None]
    turned = 2.0 * width / (2.0 + width)
    return replace(stack, sizes={**stack.sizes, "recast": turned * backward * held})


def with_drawn_rows(stack: CallStack, plan: Plan) -> CallStack:
    """Grouped products whose rows are as many for every expert, where tokens are dropped or all is even."""
    if stack.family != "grouped" or not (plan.capacity > 0.0 or plan.routing == "even"):
        return stack
    return replace(stack, sizes={**stack.sizes, "even": np.ones(1)})


def kernel_seconds(
    stack: CallStack, chosen: FamilyCoefficients, engine: Engine, passed: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Seconds of each call, and what its arithmetic alone would take; `passed` are bytes and kernels."""
    record: Any = chosen.record
    products_s = stack.matrix_flop / engine.flop_per_s
    plain_s = stack.vector_flop / (VECTOR_SHARE * engine.vector_flop_per_s)
    if stack.family == "grouped":
        return grouped_times(stack.sizes, record, engine)
    if stack.family == "gemm":
        seconds = stack.launches * chosen.family.seconds(stack.sizes, record, engine)
        return seconds, products_s / record.compute
    if stack.family in ("prefill", "prefill-backward"):
        cached = np.asarray(engine.dtype.activation_bytes)
        calls = stack.sizes["calls"]
        sizes = {**stack.sizes, "kv_bytes": cached, "batch": stack.sizes["batch"] / calls}
        found = chosen.family.seconds(sizes, record, engine)
        return calls * found, calls * np.maximum(found - record.launch_s, 0.0)
    half = 0.5 * passed[0]
    dims = {
        "bytes_read": half,
        "bytes_written": half,
        "flop": stack.vector_flop,
        "kernels": passed[1],
    }
    found = chosen.family.seconds(dims, record, engine)
    if stack.family == "scan":
        # Kernels that move states and kernels that multiply follow each other.
        clocked_s = products_s / SCAN_SHARE + plain_s
        return found + clocked_s, clocked_s
    return found, plain_s
