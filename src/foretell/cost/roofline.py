"""Seconds of operations on a chip: launch + max(arithmetic, memory), at stated shares of the peaks.

First version behind the interface that measured surfaces will fill: all ops of a graph are stacked on
one axis and evaluated together, for any number of plans.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretell.specs._base import Num
from foretell.specs.chip import Chip
from foretell.specs.plan import DTYPE_BYTES, Plan
from foretell.workload.ops import Op, Work

Array = NDArray[np.float64]

LAUNCH_S = 3e-6
"""Time of one kernel beyond its work: the intercept of H100 and H200 bf16 GEMM tables, 2.9-3.0 us."""
MATRIX_SHARE = 0.67
"""Share of the dense peak that large products hold in training: an H200 sustains 645-685 of 989 TFLOP/s
under its power limit, in every layout; short bursts reach more (H100 794.5, A100 271.2 of 312)."""
SUSTAINED_SHARE = 0.83
"""Sustained over the best measured matrix rate: 0.67 of 0.80 of the peak on H100 and H200. It limits chips
whose best measured rate is far below their peak (MI300X: 668 of 1,307 TFLOP/s)."""
ATTENTION_SHARE = 0.45
"""Share of the dense 16-bit peak that fused attention reaches, forward and backward together: forward
tables give 0.49-0.59 on A100, H100, H200 and B200, and the backward pass is slower."""
VECTOR_SHARE = 0.5
"""Share of the plain peak that element-wise code reaches: its operations are not all multiply-adds."""
MEMORY_SHARE = 0.8
"""Share of the nominal memory bandwidth that streaming kernels reach (H200 copy: 4.3 of 4.8 TB/s)."""

ACTIVATION_BYTES = 2.0
"""Activations are kept, moved and sent in 16 bits in every precision recipe modelled so far."""

LOW_PRECISION = {"fp8": "fp8", "mxfp8": "fp8", "nvfp4": "fp4"}
"""Matrix dtype of the linear layers for each low-precision recipe; the rest stays in 16 bits."""
KEPT_HIGH = ("head.", "moe.router", "embedding.")
"""Products that low-precision recipes leave in 16 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpSeconds:
    """Times of stacked ops; arrays are (ops, plans)."""

    launch_s: Array
    """Launch, where there is anything to do."""
    arithmetic_s: Array
    """Arithmetic."""
    memory_s: Array
    """Movement of the elements."""

    @property
    def total_s(self) -> Array:
        """Launch and the larger of the two: an op is bound by one of them."""
        return self.launch_s + np.maximum(self.arithmetic_s, self.memory_s)

    @property
    def memory_bound(self) -> NDArray[np.bool_]:
        """Where the movement is the longer."""
        return self.memory_s > self.arithmetic_s


def half_dtype(plan: Plan) -> str:
    """The 16-bit dtype of a plan's matrix products."""
    return "fp16" if plan.precision == "fp16" else "bf16"


def required_dtypes(plan: Plan) -> tuple[str, ...]:
    """Matrix dtypes that the chip must have for this plan."""
    low = LOW_PRECISION.get(plan.precision)
    return (half_dtype(plan), low) if low else (half_dtype(plan),)


def op_dtype(op: Op, plan: Plan) -> str:
    """The dtype in which an op's matrix work runs."""
    low = LOW_PRECISION.get(plan.precision)
    linear = op.family in ("gemm", "grouped-gemm") and not op.name.startswith(KEPT_HIGH)
    return low if low and linear else half_dtype(plan)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRates:
    """What stacked ops can reach on a chip; arrays are (ops, 1)."""

    matrix_flop_per_s: Array
    """Rate of the matrix products, in the op's dtype."""
    fused: NDArray[np.bool_]
    """Whether products and plain operations run side by side (attention)."""


def op_rates(ops: Sequence[Op], chip: Chip, plan: Plan) -> OpRates:
    """Rates of ops: the peak of their dtype times the share that their family reaches."""
    fused = np.array([op.family == "attention" for op in ops])[:, None]
    peaks = np.array([chip.matrix_flop_per_s[op_dtype(op, plan)] for op in ops])[:, None]
    measured = np.asarray(chip.measured_matmul_flop_per_s, float)
    half = chip.matrix_flop_per_s[half_dtype(plan)]
    limit = np.where(measured > 0.0, SUSTAINED_SHARE * measured / half, MATRIX_SHARE)
    share = np.where(fused, ATTENTION_SHARE, np.minimum(MATRIX_SHARE, limit))
    return OpRates(matrix_flop_per_s=share * peaks, fused=fused)


def op_seconds(rates: OpRates, work: Work, chip: Chip, plan: Plan) -> OpSeconds:
    """Times of all ops, given their stacked work in one pass (forward or backward).

    launch + max(arithmetic, memory), with arithmetic = matrix / (share peak(dtype)) + vector / (share
    vector peak) and memory = bytes / (share bandwidth). Ops without work take no time. Attention's
    softmax runs beside its products.
    """
    products = work.matrix_flop / rates.matrix_flop_per_s
    plain = work.vector_flop / (VECTOR_SHARE * chip.vector_flop_per_s)
    arithmetic = np.where(rates.fused, np.maximum(products, plain), products + plain)
    bytes_moved = (
        work.activation_elements * ACTIVATION_BYTES
        + work.weight_elements * DTYPE_BYTES[plan.weights]
    )
    busy = (work.matrix_flop + work.vector_flop + work.activation_elements) > 0
    bandwidth = MEMORY_SHARE * chip.memory_bandwidth_bytes_per_s
    return OpSeconds(
        launch_s=np.asarray(busy * LAUNCH_S),
        arithmetic_s=np.asarray(busy * arithmetic, float),
        memory_s=np.asarray(busy * bytes_moved / bandwidth),
    )


def stack_works(works: Sequence[Work], width: int) -> Work:
    """Work of several ops as one record of (ops, plans) arrays."""
    table = np.empty((4, len(works), width))
    for row, work in enumerate(works):
        table[0, row] = work.matrix_flop
        table[1, row] = work.vector_flop
        table[2, row] = work.activation_elements
        table[3, row] = work.weight_elements
    return Work(
        matrix_flop=table[0],
        vector_flop=table[1],
        activation_elements=table[2],
        weight_elements=table[3],
    )


def stack(values: Sequence[Num], width: int) -> Array:
    """Numbers and arrays over plans as one (values, plans) array."""
    rows = np.empty((len(values), width))
    for row, value in zip(rows, values, strict=True):
        row[...] = value
    return rows


def optimizer_s(parameters: Num, chip: Chip, plan: Plan) -> Array:
    """Update of `parameters` weights on this rank: every copy and state is read and written once."""
    states = {"adam": 2.0, "sgd": 1.0}[plan.optimizer]
    master = 0.0 if plan.master == "none" else DTYPE_BYTES[plan.master]
    moved = (
        DTYPE_BYTES[plan.gradients]
        + 2.0 * master
        + 2.0 * states * DTYPE_BYTES[plan.states]
        + DTYPE_BYTES[plan.weights]
    )
    return np.asarray(
        moved * parameters / (MEMORY_SHARE * chip.memory_bandwidth_bytes_per_s), float
    )
