"""The optimizer: bytes of its states, and seconds of its update.

    adam       two states per weight (Kingma and Ba 2015)
    adam8bit   two states of 8 bits and a 32-bit scale per block (Dettmers et al. 2022)
    adafactor  a matrix keeps one number per row and per column in place of a second moment, and no first
               moment; what is no matrix keeps a whole second moment (Shazeer and Stern 2018)
    muon       a matrix keeps its momentum alone, made orthogonal by five Newton-Schulz steps of three
               products each; table, head and vectors are Adam's (Jordan et al. 2024, Liu et al. 2025)
    sgd        the momentum

An update reads and writes every copy and state once, at the bandwidth that streaming kernels reach, beside
its arithmetic. Muon's products run at the rate of any other product, and where ZeRO shares the states each
rank orthogonalises whole matrices of its own.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from foretell.kernels.calls import maps_of
from foretell.kernels.families.base import attainable, engine_of
from foretell.kernels.op_times import coefficients
from foretell.kernels.precision import plain_format
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.chip import Chip
from foretell.specs.plan import DTYPE_BYTES, Plan
from foretell.workload.ops import Gemm, Lookup, Op
from foretell.workload.roles import ENDS

Array = NDArray[np.float64]

MEMORY_SHARE = 0.88
"""Share of the nominal memory bandwidth that streaming kernels reach."""
NARROW_STATE_BYTES = 1.0 + 4.0 / 256.0
"""An 8-bit state with its share of the scale: one fp32 per block of 256 (bitsandbytes since 0.44)."""
STEPS = 5.0
"""Newton-Schulz steps of one update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What one optimizer keeps and does for a weight; `matrix_`: for a weight of a matrix."""

    states: float
    """States of a weight that is in no matrix."""
    matrix_states: float
    """States of a weight in a matrix."""
    edge_states: float = 0.0
    """States of a row and of a column of a matrix."""
    flop: float
    """Plain operations of one weight's update, conversions and addresses included."""
    gradient_reads: float = 0.0
    """Reads of the gradient beyond the first."""
    matrix_gradient_reads: float = 0.0
    """The same of a matrix."""
    matrix_bytes: float = 0.0
    """Bytes of further passes over a weight of a matrix."""

    @property
    def uniform(self) -> bool:
        """Whether matrices are treated like everything else."""
        return self.states == self.matrix_states


RECIPES: Mapping[str, Recipe] = {
    "adam": Recipe(states=2.0, matrix_states=2.0, flop=100.0),
    # Two states are widened by a table and narrowed by a search in it: taken as Adam's work again.
    "adam8bit": Recipe(states=2.0, matrix_states=2.0, flop=200.0),
    # Means over rows and columns, the size of the update, the update: three passes over the gradient.
    "adafactor": Recipe(
        states=1.0,
        matrix_states=0.0,
        edge_states=1.0,
        flop=100.0,
        gradient_reads=1.0,
        matrix_gradient_reads=2.0,
    ),
    # The momentum is rounded to 16 bits (2), measured (2), scaled (4); the result is read again (2).
    "muon": Recipe(states=2.0, matrix_states=1.0, flop=100.0, matrix_bytes=10.0),
    "sgd": Recipe(states=1.0, matrix_states=1.0, flop=30.0),
}
"""By name. On one H200, fused AdamW takes 5.1 ps a weight with 14 bytes and 7.9 ps with 28: 1.5 ps beyond
their traffic, which is what Adam's 100 operations stand for. The others' are not measured."""


def state_width(plan: Plan) -> float:
    """Bytes of one state of one weight."""
    return NARROW_STATE_BYTES if plan.optimizer == "adam8bit" else DTYPE_BYTES[plan.states]


def held_bytes(plan: Plan, *, matrix: bool = True) -> float:
    """Bytes per weight of master copy and states, rows and columns of a factored matrix left out."""
    recipe = RECIPES[plan.optimizer]
    states = (recipe.matrix_states if matrix else recipe.states) * state_width(plan)
    master = 0.0 if plan.master == "none" else DTYPE_BYTES[plan.master]
    return master + states


def state_bytes(
    plan: Plan, parameters: Num, parts: Num = 1.0, matrices: "Matrices | None" = None
) -> Array:
    """Master copy and states of `parameters` weights on one of `parts` ranks that share them.

    Without `matrices` every weight counts as one of a matrix, and rows and columns as nothing.
    """
    recipe, each = RECIPES[plan.optimizer], held_bytes(plan)
    if recipe.uniform or matrices is None:
        return np.asarray(parameters * (each / parts))
    other = held_bytes(plan, matrix=False)
    edge = recipe.edge_states * state_width(plan)
    whole = matrices.weights * each + (parameters - matrices.weights) * other
    return np.asarray((whole + matrices.edges * edge) / parts)


def update_bytes(plan: Plan, *, matrix: bool = True, casts_apart: bool = False) -> float:
    """Bytes that the update of one weight moves: every copy and state is read and written once; and what
    passes move that only change dtypes (`casts_apart`)."""
    recipe = RECIPES[plan.optimizer]
    states = recipe.matrix_states if matrix else recipe.states
    reads = recipe.matrix_gradient_reads if matrix else recipe.gradient_reads
    master = 0.0 if plan.master == "none" else DTYPE_BYTES[plan.master]
    return (
        DTYPE_BYTES[plan.gradients]
        + 2.0 * master
        + 2.0 * states * state_width(plan)
        + DTYPE_BYTES[plan.weights] * (2.0 if plan.master == "none" else 1.0)
        + reads * DTYPE_BYTES[plan.gradients]
        + (recipe.matrix_bytes if matrix else 0.0)
        + (_cast_bytes(plan) if casts_apart else 0.0)
    )


def _cast_bytes(plan: Plan) -> float:
    """Bytes of passes that only change dtypes, where the update has none of its own for that.

    Narrow gradients are written wide, and so read by the update; the working weights are rounded from a
    master copy that is read once more. One H200, ten updates of 0.1 to 3.6 billion weights with 18 bytes a
    weight: 12 to 13 % longer than without, which is what 34 for 30 bytes are (docs/accuracy.md).
    """
    if plan.master == "none":
        return 0.0
    wide = DTYPE_BYTES[plan.master]
    widened = 2.0 * wide if DTYPE_BYTES[plan.gradients] < wide else 0.0
    return widened + (wide if plan.weights != plan.master else 0.0)


def optimizer_s(
    parameters: Num,
    chip: Chip,
    plan: Plan,
    matrices: Num | None = None,
    products_s: Num = 0.0,
    *,
    casts_apart: bool = False,
) -> Array:
    """Update of `parameters` weights on this rank, `matrices` of them in matrices (none given: all).

    `products_s` are the matrix products of the update that fall to this rank (`shared_products_s`);
    `casts_apart`: dtypes are changed by passes of their own.
    """
    weight_s = _weight_s(chip, plan, matrix=True, casts_apart=casts_apart)
    whole = np.asarray(parameters, float)
    if RECIPES[plan.optimizer].uniform or matrices is None:
        total = weight_s * whole
    else:
        other_s = _weight_s(chip, plan, matrix=False, casts_apart=casts_apart)
        total = weight_s * matrices + other_s * (whole - matrices)
    return np.asarray(total + products_s if plan.optimizer == "muon" else total)


def _weight_s(chip: Chip, plan: Plan, *, matrix: bool, casts_apart: bool) -> Num:
    """Traffic and arithmetic of one weight."""
    moved = update_bytes(plan, matrix=matrix, casts_apart=casts_apart)
    moved_s = moved / (MEMORY_SHARE * chip.memory_bandwidth_bytes_per_s)
    return moved_s + RECIPES[plan.optimizer].flop / chip.vector_flop_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrices:
    """Of a list of operations or of what stands on a stage: what is in matrices, as the optimizer sees it."""

    weights: Array
    """Weights in matrices."""
    edges: Array
    """Rows and columns of the matrices."""
    counts: Array
    """Matrices."""


def is_matrix(op: Op, optimizer: str) -> bool:
    """Whether an optimizer treats an operation's weights as matrices of their own."""
    if optimizer == "muon":
        # Matrices outside the layers are Adam's.
        return isinstance(op, Gemm) and not op.tied and op.region not in ENDS
    if optimizer == "adafactor":
        return isinstance(op, Lookup) or (isinstance(op, Gemm) and not op.tied)
    return False


def matrices_of(ops: Sequence[Op], width: int, plan: Plan) -> Matrices:
    """Matrices of each operation on one rank; arrays are (operations, width), zero where there are none.

    A matrix that tensor parallelism cuts counts as the piece that is here: factored and made orthogonal
    piece by piece, as the frameworks do it without further messages.
    """
    table = np.zeros((3, len(ops), width))
    for row, op in enumerate(ops):
        if not is_matrix(op, plan.optimizer):
            continue
        groups, rows, columns = _sides(op)
        table[0, row] = groups * rows * columns
        table[1, row] = groups * (rows + columns)
        table[2, row] = groups
    return Matrices(weights=table[0], edges=table[1], counts=table[2])


def _sides(op: Op) -> tuple[Num, Num, Num]:
    """Matrices of an operation, and the sides of one."""
    if isinstance(op, Gemm):
        return op.groups, op.k, op.n
    assert isinstance(op, Lookup)
    return 1.0, op.rows, op.width


def products_s(ops: Sequence[Op], width: int, chip: Chip, plan: Plan) -> Array:
    """Newton-Schulz steps of every matrix, at the clock of short bursts; (operations, width).

    A step of an a x b matrix, a <= b, is X X^T, its square, and their sum times X: 4 a^2 b + 2 a^3
    operations (Jordan et al. 2024). Zero for what is no matrix, and for other optimizers than muon.
    """
    seconds = np.zeros((len(ops), width))
    rows = [i for i, op in enumerate(ops) if plan.optimizer == "muon" and is_matrix(op, "muon")]
    if not rows:
        return seconds
    sides = np.empty((3, len(rows), width))
    for place, row in enumerate(rows):
        for target, value in zip(sides, _sides(ops[row]), strict=True):
            target[place] = value
    batch, short, long = sides[0], np.minimum(*sides[1:]), np.maximum(*sides[1:])
    dims = {
        "m": np.stack([short, short, short]),
        "n": np.stack([short, short, long]),
        "k": np.stack([long, short, short]),
        "batch": np.stack([batch] * 3),
    }
    dtype = plain_format(plan)
    chosen = coefficients("gemm", dtype, chip, plan)
    engine = engine_of(chip, dtype)
    engine = attainable(engine, chip, chosen.kin) if chosen.foreign else engine
    seconds[rows] = STEPS * chosen.family.seconds(dims, chosen.record, engine).sum(axis=0)
    return seconds


def shared_products_s(all_s: Num, counts: Num, parts: Num) -> Array:
    """What of the products one of `parts` ranks does that share `counts` whole matrices evenly."""
    many = np.maximum(np.asarray(counts, float), 1.0)
    return np.asarray(all_s * np.ceil(many / parts) / many)


CLIP_FLOP = 60.0
"""Operations of clipping a gradient, as Adam's are counted: on one H200 norm and scaling take 2.4 ps a weight
in 16 bits and 3.6 in 32, 1.0 and 0.8 beyond their traffic."""


def clip_s(parameters: Num, chip: Chip, plan: Plan) -> Array:
    """Clipping gradients by their norm: one pass reads them, another reads and writes them scaled."""
    moved_s = 3.0 * DTYPE_BYTES[plan.gradients] / (MEMORY_SHARE * chip.memory_bandwidth_bytes_per_s)
    return np.asarray(
        (moved_s + CLIP_FLOP / chip.vector_flop_per_s) * np.asarray(parameters, float)
    )


def tensors_of(op: Op, *, apart: bool) -> float:
    """Parameters that an operation's weights are, as PyTorch's optimizers see them."""
    if isinstance(op, Gemm):
        return 0.0 if op.tied else len(maps_of(op) if apart else (op,)) * (2.0 if op.bias else 1.0)
    return float(bool(np.any(op.parameters)))


def accumulate_bytes(plan: Plan, *, fused: bool) -> float:
    """Bytes that adding one weight's gradient to the sum moves, beyond the product's own narrow write.

    fused into the product: the sum is read and written wide in place of a narrow write; else a pass that
    reads the gradient and reads and writes the sum.
    """
    wide, narrow = DTYPE_BYTES[plan.gradients], DTYPE_BYTES[plan.weights]
    return 2.0 * wide - narrow if fused else 2.0 * wide + narrow


def first_sum_s(parameters: Num, chip: Chip, plan: Plan) -> Array:
    """Gradients of a step's first micro-batch into a wider sum: each is read, and written wide."""
    moved = DTYPE_BYTES[plan.weights] + DTYPE_BYTES[plan.gradients]
    whole = moved * np.asarray(parameters, float)
    return np.asarray(whole / (MEMORY_SHARE * chip.memory_bandwidth_bytes_per_s))


def accumulate_s(
    parameters: Num, micro_batches: Num, chip: Chip, plan: Plan, *, fused: bool
) -> Array:
    """Adding up the gradients of all micro-batches of a step on this rank."""
    moved = accumulate_bytes(plan, fused=fused) * np.asarray(parameters, float) * micro_batches
    return np.asarray(moved / (MEMORY_SHARE * chip.memory_bandwidth_bytes_per_s))
