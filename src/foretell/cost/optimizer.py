"""Seconds of the optimizer's update."""

import numpy as np
from numpy.typing import NDArray

from foretell.specs._base import Num
from foretell.specs.chip import Chip
from foretell.specs.plan import DTYPE_BYTES, Plan

Array = NDArray[np.float64]

MEMORY_SHARE = 0.8
"""Share of the nominal memory bandwidth that a fused update reaches."""


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
    moved = update_bytes(plan) * np.asarray(parameters, float)
    return np.asarray(moved / (MEMORY_SHARE * chip.memory_bandwidth_bytes_per_s))
