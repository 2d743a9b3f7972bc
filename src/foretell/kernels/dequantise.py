"""Widening a base that is stored in 4 bits to what its products read: once in each pass of a matrix."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foretell.kernels.op_times import OpTimes
from foretell.kernels.optimizer import MEMORY_SHARE
from foretell.specs._base import Num
from foretell.specs.chip import Chip
from foretell.specs.plan import DTYPE_BYTES, Plan
from foretell.specs.software import Software
from foretell.workload.ops import Gemm, Op

Array = NDArray[np.float64]


def dequantise_bytes(plan: Plan, software: Software) -> float:
    """Bytes that widening one stored weight moves."""
    if plan.weights == "int4":
        return software.dequantise_int4_bytes
    return software.dequantise_nf4_bytes


def widening_bytes(plan: Plan, software: Software) -> float:
    """Bytes that a stored weight takes while it is widened: the wide copy, or what one operation leaves for
    the next one to read."""
    return software.widening_int4_bytes if plan.weights == "int4" else DTYPE_BYTES[plan.weights]


def widened_weights(weights: Array, ops: Sequence[Op], software: Software) -> Array:
    """Stored weights of the largest matrix that is widened at once; `weights` are those of each operation
    that are stored in 4 bits, (operations, shapes)."""
    parts = [_matrices(op, software) for op in ops]
    return np.asarray(np.max([w / n for w, n in zip(weights, parts, strict=True)], axis=0))


def _matrices(op: Op, software: Software) -> Num:
    """Matrices of a product that are widened one after the other: experts that run in turn, halves that are
    linear layers of their own."""
    if not isinstance(op, Gemm):
        return 1.0
    halves = 2.0 if op.gated and software.maps_apart else 1.0
    return halves * (op.groups if software.experts_in_turn else 1.0)


def with_dequantisation(
    times: OpTimes, stored: Array, chip: Chip, plan: Plan, software: Software
) -> OpTimes:
    """Times of operations with the widening of their stored weights, forward and backward alike.

    `stored` has the weights of each operation that are stored in 4 bits; (operations, shapes).
    """
    moved = dequantise_bytes(plan, software) * stored
    once_s = moved / (MEMORY_SHARE * chip.memory_bandwidth_bytes_per_s)
    return replace(times, seconds=times.seconds + np.concatenate([once_s, once_s]))
