"""Widening a base that is stored in 4 bits to what its products read: once in each pass of a matrix."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foretell.kernels.op_times import OpTimes
from foretell.kernels.optimizer import MEMORY_SHARE
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.chip import Chip
from foretell.specs.plan import DTYPE_BYTES, Plan
from foretell.specs.software import Software
from foretell.workload.ops import Gemm, Op

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
