"""What the loss holds for each score: in 32 bits, in 16, fused into one kernel (specs/software.py)."""

from foretell.specs.plan import DTYPE_BYTES, Plan
from foretell.specs.software import NARROW_LOSS_BYTES, PLAIN_LOSS_BYTES, Software


def narrow_loss(plan: Plan, software: Software | None = None) -> bool:
    """Whether the loss runs in 16 bits: no copy of the weights is in 32, and they are not themselves; unless
    the software widens the scores all the same."""
    if software is not None and software.loss_wide:
        return False
    return plan.master == "none" and DTYPE_BYTES[plan.weights] < 4.0


def spared_loss_bytes(
    software: Software, *, fused: bool, narrow: bool = False
) -> tuple[float, float]:
    """Of a score's 12 bytes what a fused loss, or one in 16 bits, spares: whole vocabulary, and cut by tensor
    parallelism. Software whose loss is a kernel of its own has it in plain runs too."""
    most = NARROW_LOSS_BYTES if narrow else float("inf")
    if fused or software.loss == "kernel":
        held, cut = software.loss_bytes, software.loss_cut_bytes
    else:
        held, cut = PLAIN_LOSS_BYTES, software.loss_cut_plain_bytes
    return PLAIN_LOSS_BYTES - min(held, most), PLAIN_LOSS_BYTES - min(cut, most)
