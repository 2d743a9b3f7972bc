"""The optimizer: bytes of its states, and seconds of its update (catalog/optimizers.toml).

An update reads and writes every copy and state once, at the bandwidth that streaming kernels reach, beside
its arithmetic. Muon's products run at the rate of any other product, and where ZeRO shares the states each
rank orthogonalises whole matrices of its own.
"""

from collections.abc import Sequence

import numpy as np

from foretell.catalog.hosts import optimizer_of
from foretell.kernels.calls import maps_of
from foretell.kernels.families.base import attainable, engine_of
from foretell.kernels.plan_kernels import coefficients
from foretell.kernels.precision import plain_format
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.chip import Chip
from foretell.specs.plan import DTYPE_BYTES, Plan
from foretell.workload.ops import Gemm, Lookup, Op
from foretell.workload.roles import ENDS

MEMORY_SHARE = 0.88
"""Share of the nominal memory bandwidth that streaming kernels reach."""
STEPS = 5.0
"""Newton-Schulz steps of one update."""


BLOCK = 1024.0
"""Side of the blocks of which Kronecker factors are kept."""
BLOCK_PRODUCTS = 4.0
"""Products of a block in one update: two factors summed, two roots applied."""


def state_width(plan: Plan) -> float:
    """Bytes of one state of one weight."""
    return optimizer_of(plan.optimizer).state_bytes or DTYPE_BYTES[plan.states]


def held_bytes(plan: Plan, *, matrix: bool = True) -> float:
    """Bytes per weight of master copy and states, rows and columns of a factored matrix left out."""
    recipe = optimizer_of(plan.optimizer)
    states = (recipe.matrix_states if matrix else recipe.states) * state_width(plan)
    master = 0.0 if plan.master == "none" else DTYPE_BYTES[plan.master]
    return master + states


def state_bytes(
    plan: Plan, parameters: Num, parts: Num = 1.0, matrices: "Matrices | None" = None
) -> Array:
    """Master copy and states of `parameters` weights on one of `parts` ranks that share them.

    Without `matrices` every weight counts as one of a matrix, and rows and columns as nothing.
    """
    recipe, each = optimizer_of(plan.optimizer), held_bytes(plan)
    if recipe.uniform or matrices is None:
        return np.asarray(parameters * (each / parts))
    other = held_bytes(plan, matrix=False)
    edge = recipe.edge_states * state_width(plan)
    whole = matrices.weights * each + (parameters - matrices.weights) * other
    return np.asarray((whole + matrices.edges * edge) / parts)


def update_bytes(plan: Plan, *, matrix: bool = True, casts: float = 0.0) -> float:
    """Bytes that the update of one weight moves; `casts`: passes that only change dtypes."""
    recipe = optimizer_of(plan.optimizer)
    states = recipe.matrix_states if matrix else recipe.states
    master = 0.0 if plan.master == "none" else DTYPE_BYTES[plan.master]
    return (
        DTYPE_BYTES[plan.gradients]
        + 2.0 * master
        + 2.0 * states * state_width(plan)
        + DTYPE_BYTES[plan.weights] * (2.0 if plan.master == "none" else 1.0)
        + recipe.reads * DTYPE_BYTES[plan.gradients]
        + (recipe.matrix_bytes if matrix else 0.0)
        + casts * _cast_bytes(plan)
    )


def _cast_bytes(plan: Plan) -> float:
    """Bytes of passes that only change dtypes, where the update's kernel does not.

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
    casts: float = 0.0,
) -> Array:
    """Update of `parameters` weights on this rank, `matrices` of them in matrices (none given: all).

    `products_s` are the matrix products of the update that fall to this rank (`shared_products_s`);
    `casts`: passes that change a dtype, each.
    """
    weight_s = _weight_s(chip, plan, matrix=True, casts=casts)
    whole = np.asarray(parameters, float)
    if optimizer_of(plan.optimizer).uniform or matrices is None:
        total = weight_s * whole
    else:
        other_s = _weight_s(chip, plan, matrix=False, casts=casts)
        total = weight_s * matrices + other_s * (whole - matrices)
    recipe = optimizer_of(plan.optimizer)
    return np.asarray(recipe.passes * total + (products_s if recipe.products else 0.0))


def _weight_s(chip: Chip, plan: Plan, *, matrix: bool, casts: float) -> Num:
    """Traffic and arithmetic of one weight."""
    moved = update_bytes(plan, matrix=matrix, casts=casts)
    moved_s = moved / (MEMORY_SHARE * chip.memory_bandwidth_bytes_per_s)
    return moved_s + optimizer_of(plan.optimizer).flop / chip.vector_flop_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrices:
    """Of a list of operations or of what is on a stage: what is in matrices, as the optimizer sees it."""

    weights: Array
    """Weights in matrices."""
    edges: Array
    """Rows and columns of the matrices."""
    counts: Array
    """Matrices."""


def is_matrix(op: Op, optimizer: str) -> bool:
    """Whether an optimizer treats an operation's weights as matrices of their own."""
    recipe = optimizer_of(optimizer)
    if recipe.products:
        # Matrices outside the layers are Adam's.
        return isinstance(op, Gemm) and not op.tied and op.region not in ENDS
    if recipe.edge_states:
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
    """Products of the update of every matrix, at the clock of short bursts; (operations, width).

    A step of an a x b matrix, a <= b, is X X^T, its square, and their sum times X: 4 a^2 b + 2 a^3
    operations (Jordan et al. 2024); Kronecker factors are products of blocks. Zero for what is no matrix, and
    for optimizers without products.
    """
    seconds = np.zeros((len(ops), width))
    kind = optimizer_of(plan.optimizer).products
    rows = [i for i, op in enumerate(ops) if kind and is_matrix(op, plan.optimizer)]
    if not rows:
        return seconds
    sides = np.empty((3, len(rows), width))
    for place, row in enumerate(rows):
        for target, value in zip(sides, _sides(ops[row]), strict=True):
            target[place] = value
    if kind == "kronecker":
        blocks = sides[0] * np.ceil(sides[1] / BLOCK) * np.ceil(sides[2] / BLOCK)
        side = np.full((1, *blocks.shape), BLOCK)
        dims, steps = {"m": side, "n": side, "k": side, "batch": blocks[None]}, BLOCK_PRODUCTS
    else:
        batch, short, long = sides[0], np.minimum(*sides[1:]), np.maximum(*sides[1:])
        dims, steps = (
            {
                "m": np.stack([short, short, short]),
                "n": np.stack([short, short, long]),
                "k": np.stack([long, short, short]),
                "batch": np.stack([batch] * 3),
            },
            STEPS,
        )
    dtype = plain_format(plan)
    chosen = coefficients("gemm", dtype, chip, plan)
    engine = engine_of(chip, dtype)
    engine = attainable(engine, chip, chosen.kin) if chosen.foreign else engine
    seconds[rows] = steps * chosen.family.seconds(dims, chosen.record, engine).sum(axis=0)
    return seconds


def shared_products_s(all_s: Num, counts: Num, parts: Num) -> Array:
    """What of the products one of `parts` ranks does that share `counts` whole matrices evenly."""
    many = np.maximum(np.asarray(counts, float), 1.0)
    return np.asarray(all_s * np.ceil(many / parts) / many)


CLIP_FLOP = 60.0
"""Operations of clipping a gradient, as Adam's are counted: on one H200 norm and scaling take 2.4 ps a weight
in 16 bits and 3.6 in 32, 1.0 and 0.8 beyond their traffic."""
LIST_LAUNCHES, TENSOR_LAUNCHES = 190.0, 1.65
"""What a call on a list of tensors takes the host, and each tensor of it, over a launch: 1.6 ms and 14 us on
one H200, clipping and updates of 39, 147 and 311 tensors."""


def clip_s(parameters: Num, chip: Chip, plan: Plan, gradients: float) -> Array:
    """Clipping gradients by their norm, which moves so many `gradients` for each."""
    moved = gradients * DTYPE_BYTES[plan.gradients]
    moved_s = moved / (MEMORY_SHARE * chip.memory_bandwidth_bytes_per_s)
    return np.asarray(
        (moved_s + CLIP_FLOP / chip.vector_flop_per_s) * np.asarray(parameters, float)
    )


def tensors_of(op: Op, *, apart: bool) -> float:
    """Parameters that an operation's weights are, as PyTorch's optimizers see them."""
    if isinstance(op, Gemm):
        return 0.0 if op.tied else len(maps_of(op) if apart else (op,)) * (2.0 if op.bias else 1.0)
    return float(bool(np.any(op.parameters)))


def first_sum_s(parameters: Num, chip: Chip, plan: Plan) -> Array:
    """Gradients of a step's first micro-batch into a wider sum: each is read, and written wide."""
    moved = DTYPE_BYTES[plan.weights] + DTYPE_BYTES[plan.gradients]
    whole = moved * np.asarray(parameters, float)
    return np.asarray(whole / (MEMORY_SHARE * chip.memory_bandwidth_bytes_per_s))


def accumulate_bytes(plan: Plan, *, fused: bool) -> float:
    """Bytes that adding one weight's gradient to the sum moves, beyond the product's own narrow write.

    fused into the product: the sum is read and written wide in place of a narrow write; else a pass that
    reads the gradient and reads and writes the sum.
    """
    wide, narrow = DTYPE_BYTES[plan.gradients], DTYPE_BYTES[plan.weights]
    return 2.0 * wide - narrow if fused else 2.0 * wide + narrow


def accumulate_s(
    parameters: Num, micro_batches: Num, chip: Chip, plan: Plan, *, fused: bool
) -> Array:
    """Adding up the gradients of all micro-batches of a step on this rank."""
    moved = accumulate_bytes(plan, fused=fused) * np.asarray(parameters, float) * micro_batches
    return np.asarray(moved / (MEMORY_SHARE * chip.memory_bandwidth_bytes_per_s))
