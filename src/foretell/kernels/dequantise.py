"""Widening a base that is stored in 4 bits to what its products read: once in each pass of a matrix."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foretell.kernels.op_times import OpTimes
from foretell.kernels.optimizer import MEMORY_SHARE
from foretell.specs.chip import Chip
from foretell.specs.plan import DTYPE_BYTES, Plan
from foretell.specs.software import Software

Array = NDArray[np.float64]


def dequantise_bytes(plan: Plan, software: Software) -> float:
    """Bytes that widening one stored weight moves."""
    if plan.weights == "int4":
        return software.dequantise_int4_bytes
    return software.dequantise_nf4_bytes


def widening_bytes(plan: Plan, software: Software) -> float:
    """Bytes that a stored weight takes while it is widened: the wide copy, or what operation after operation
    leaves for the next one to read, half of all that they move."""
    return max(DTYPE_BYTES[plan.weights], 0.5 * dequantise_bytes(plan, software))


def with_dequantisation(
    times: OpTimes, stored: Array, chip: Chip, plan: Plan, software: Software
) -> OpTimes:
    """Times of operations with the widening of their stored weights, forward and backward alike.

    `stored` has the weights of each operation that are stored in 4 bits; (operations, shapes).
    """
    moved = dequantise_bytes(plan, software) * stored
    once_s = moved / (MEMORY_SHARE * chip.memory_bandwidth_bytes_per_s)
    return replace(times, seconds=times.seconds + np.concatenate([once_s, once_s]))
