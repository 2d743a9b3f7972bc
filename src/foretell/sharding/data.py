"""Data parallelism with ZeRO stages 0 to 3 (Rajbhandari et al. 2020).

Every replica computes its micro-batches; gradients are reduced over the replicas. Stage 1 shares the
optimizer's states, stage 2 the gradients too, stage 3 the weights too.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTraffic:
    """How often each collective runs in one step, and on what share of the weights states live."""

    all_reduces: Array
    """All-reduces of the gradients (stage 0)."""
    scatters: Array
    """Reduce-scatters of the gradients (stages 1 to 3)."""
    gathers_forward: Array
    """All-gathers of the weights that meet the forward pass (stages 1 and 2: after the update)."""
    gathers_backward: Array
    """All-gathers of the weights in the backward pass (stage 3)."""
    weight_parts: Array
    """Ranks that a weight is shared by."""
    gradient_parts: Array
    """Ranks that a gradient is shared by."""
    state_parts: Array
    """Ranks that master copy and states are shared by."""


def data_parallel(dp: Array, zero: Array, micro_batches: Array) -> DataTraffic:
    """Stages 0 and 1 reduce once per step; 2 and 3, which keep no full gradients, once per micro-batch."""
    three, two, one = zero >= 3, zero >= 2, zero >= 1
    often = np.where(two, micro_batches, 1.0)
    return DataTraffic(
        all_reduces=np.where(one, 0.0, 1.0),
        scatters=np.where(one, often, 0.0),
        gathers_forward=np.where(three, micro_batches, np.where(one, 1.0, 0.0)),
        gathers_backward=np.where(three, micro_batches, 0.0),
        weight_parts=np.where(three, dp, 1.0),
        gradient_parts=np.where(two, dp, 1.0),
        state_parts=np.where(one, dp, 1.0),
    )
