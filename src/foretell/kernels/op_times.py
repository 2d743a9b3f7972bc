"""Seconds and joules of stacked operations: kernels by their surfaces, at the clock of short bursts.

Every family is one call for all operations and shapes. What falls with the clock under a power limit is kept
apart (`clocked_s`, `core_joules`), so that a second pass over whole steps can find the clock they hold.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from foretell.catalog.hosts import usual_host
from foretell.kernels.call_records import CallStack
from foretell.kernels.families.base import DTYPES, Engine
from foretell.kernels.families.choose import FamilyCoefficients
from foretell.kernels.families.experts import grouped_times
from foretell.kernels.fusion import (
    COMPOSED,
    launch_cost,
)
from foretell.kernels.modules import is_wide
from foretell.kernels.optimizer import MEMORY_SHARE
from foretell.kernels.plan_kernels import call_dtype, family_on_chip, in_wide, library_bound
from foretell.kernels.power import (
    BITS,
    OpLoad,
    PowerCoefficients,
    chip_power,
    clock_share,
    core_joules,
    memory_joules,
)
from foretell.kernels.precision import cast_passes, linear_format, turned_anew
from foretell.kernels.stack_passes import memory_passes
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array, Index, Mask
from foretell.specs.chip import Chip
from foretell.specs.corrections import AS_PREDICTED, Corrections
from foretell.specs.plan import DTYPE_BYTES, Plan, activation_bytes
from foretell.specs.result import Evidence
from foretell.specs.software import Host, Software
from foretell.workload.ops import Gemm, Op

CORRECTED = {
    "gemm": "gemm",
    "grouped": "experts",
    "prefill": "attention",
    "prefill-backward": "attention",
}
"""Family of kernels -> the correction of its times; the rest are passes over memory."""
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


WIDEN_NF4_BYTES = 9.0
"""Traffic of widening a stored weight of nf4: one kernel of bitsandbytes, bound by its look-ups, at a quarter
of the memory's rate for half a byte and a scale read and two bytes written."""
WIDEN_INT4_BYTES, INT4_COPIES_BYTES = 24.0, 12.0
"""The same of int4, by PyTorch's operations where AutoGPTQ's linear layers are trained (shifted to 32 bits,
narrowed, masked, less the zeros, times the scales); half of it is what each leaves for the next."""


def dequantise_bytes(plan: Plan) -> float:
    """Bytes that widening one stored weight moves."""
    return WIDEN_INT4_BYTES if plan.weights == "int4" else WIDEN_NF4_BYTES


def widening_bytes(plan: Plan) -> float:
    """Bytes of a stored weight while it is widened: the wide copy, or what one operation leaves."""
    return INT4_COPIES_BYTES if plan.weights == "int4" else DTYPE_BYTES[plan.weights]


def widened_weights(weights: Array, ops: Sequence[Op], software: Software) -> Array:
    """Stored weights of the largest matrix that is widened at once; `weights` are (operations, shapes)."""
    parts = [_matrices(op, software) for op in ops]
    return np.asarray(np.max([w / n for w, n in zip(weights, parts, strict=True)], axis=0))


def _matrices(op: Op, software: Software) -> Num:
    """Matrices of a product that are widened one after the other: halves that are layers of their own."""
    if not isinstance(op, Gemm):
        return 1.0
    halves = 2.0 if op.gated and software.maps_apart else 1.0
    return halves


def with_dequantisation(times: OpTimes, stored: Array, chip: Chip, plan: Plan) -> OpTimes:
    """Times with the widening of `stored` weights, (operations, shapes), forward and backward alike."""
    moved = dequantise_bytes(plan) * stored
    once_s = moved / (MEMORY_SHARE * chip.memory_bandwidth_bytes_per_s)
    return replace(times, seconds=times.seconds + np.concatenate([once_s, once_s]))
