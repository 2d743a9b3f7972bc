"""Seconds of the optimizer's update."""

import numpy as np
from numpy.typing import NDArray

from foretell.specs._base import Num
from foretell.specs.chip import Chip
from foretell.specs.plan import DTYPE_BYTES, Plan

Array = NDArray[np.float64]

MEMORY_SHARE = 0.88
"""Share of the nominal memory bandwidth that streaming kernels reach."""
WEIGHT_FLOP = {"adam": 100.0, "sgd": 30.0}
"""Plain operations of one weight's update, conversions and addresses included, over the units' peak. On one
H200, fused AdamW takes 5.1 ps a weight with 14 bytes and 7.9 ps with 28: 1.5 ps beyond their traffic."""


def update_bytes(plan: Plan) -> float:
    """Bytes that the update of one weight moves: every copy and state is read and written once."""
    states = {"adam": 2.0, "sgd": 1.0}[plan.optimizer]
    master = 0.0 if plan.master == "none" else DTYPE_BYTES[plan.master]
    return (
        DTYPE_BYTES[plan.gradients]
        + 2.0 * master
        + 2.0 * states * DTYPE_BYTES[plan.states]
        + DTYPE_BYTES[plan.weights] * (2.0 if plan.master == "none" else 1.0)
    )


def optimizer_s(parameters: Num, chip: Chip, plan: Plan) -> Array:
    """Update of `parameters` weights on this rank."""
    weight_s = update_bytes(plan) / (MEMORY_SHARE * chip.memory_bandwidth_bytes_per_s)
    weight_s = weight_s + WEIGHT_FLOP[plan.optimizer] / chip.vector_flop_per_s
    return np.asarray(weight_s * np.asarray(parameters, float))
