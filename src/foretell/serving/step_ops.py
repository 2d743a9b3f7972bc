"""Which of a layer's operations are where in a step: by token, by sequence, or in the experts' kernels."""

from collections.abc import Sequence

from foretell.specs._base import with_fields
from foretell.workload.ops import Gemm, Op
from foretell.workload.roles import OpRole, Region

ALONE = ("attention", "scan")
"""Families of operations that depend on sequences, not on tokens alone."""
ALONE_ROLES = (OpRole.ABSORB, OpRole.LATENT_UP, OpRole.SELECTION)
"""Further operations that do, beside the keys and values of cross-attention."""
ROUTED = (
    OpRole.PERMUTE, OpRole.UP, OpRole.ACTIVATION, OpRole.DOWN, OpRole.UNPERMUTE, OpRole.CHOICE,
    OpRole.EXPERT_BIAS,
)  # fmt: skip
"""Operations of routed experts that their fused kernels stand for."""


def is_alone(op: Op) -> bool:
    """Whether an operation depends on sequences, not on tokens alone."""
    return op.family in ALONE or op.role in ALONE_ROLES or is_cross_keys(op)


def is_cross_keys(op: Op) -> bool:
    """Whether an operation makes keys and values of an encoder's states."""
    return op.role is OpRole.KEY_VALUE and op.region is Region.CROSS_ATTENTION


def is_routed(op: Op) -> bool:
    """Whether the fused kernels of the routed experts stand for an operation."""
    return op.region is Region.EXPERTS and op.role in ROUTED


def low_rank(ops: Sequence[Op]) -> bool:
    """Whether queries go through a low rank too."""
    return any(op.role is OpRole.QUERY_DOWN for op in ops)


def join_low_ranks(op: Op, ops: Sequence[Op]) -> Op:
    """The two products into low ranks as one, as engines store their weights."""
    other = [one for one in ops if one.role is OpRole.LATENT_DOWN]
    if not other or not isinstance(op, Gemm) or not isinstance(other[0], Gemm):
        return op
    return with_fields(op, n=op.n + other[0].n)
