"""What the loss holds for each score: in 32 bits, in 16, fused into one kernel (specs/software.py)."""

from foretell.records import dataclass
from foretell.specs.plan import DTYPE_BYTES, Plan
from foretell.specs.software import NARROW_LOSS_BYTES, PLAIN_LOSS_BYTES, Software

KERNEL_LOSS_BYTES = 8.0
"""Bytes held for each score by a loss that is one kernel in modules that shift the scores by a copy: both,
and the gradients of both, in 16 bits."""
INPLACE_LOSS_BYTES = 4.0
"""The same where the gradient is written over the scores."""
CHUNKED_LOSS_BYTES = 0.5
"""The same where scores exist for a chunk of tokens alone: eight chunks at the least among common models, 4
bytes each (Liger's fused linear cross-entropy)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossForm:
    """Cross-entropy as a plan and its software have it."""

    one_kernel: bool
    """Whether it is one kernel over the scores, or with the head."""
    held_bytes: float
    """Bytes held for each score."""
    cut_bytes: float
    """The same over a vocabulary that tensor parallelism cuts."""


def loss_form(plan: Plan, software: Software) -> LossForm:
    """The loss that a plan names, or its software's."""
    if plan.loss == "plain":
        cut = software.loss_cut_plain_bytes
        return LossForm(one_kernel=False, held_bytes=PLAIN_LOSS_BYTES, cut_bytes=cut)
    if plan.loss in ("chunked", "inplace"):
        held = CHUNKED_LOSS_BYTES if plan.loss == "chunked" else INPLACE_LOSS_BYTES
        return LossForm(one_kernel=True, held_bytes=held, cut_bytes=held)
    fused = software.loss == "kernel" or (plan.fused and software.loss == "fused")
    if plan.loss == "kernel" and not fused:
        held = KERNEL_LOSS_BYTES
        return LossForm(one_kernel=True, held_bytes=held, cut_bytes=held)
    held, cut = software.loss_bytes, software.loss_cut_bytes
    if not (plan.fused or software.loss == "kernel"):
        held, cut = PLAIN_LOSS_BYTES, software.loss_cut_plain_bytes
    return LossForm(one_kernel=fused, held_bytes=held, cut_bytes=cut)


def narrow_loss(plan: Plan, software: Software | None = None) -> bool:
    """Whether the loss runs in 16 bits: no copy of the weights is in 32, and they are not themselves; unless
    the software widens the scores all the same."""
    if software is not None and software.loss_wide:
        return False
    return plan.master == "none" and DTYPE_BYTES[plan.weights] < 4.0


def spared_loss_bytes(plan: Plan, software: Software) -> tuple[float, float]:
    """Of a score's 12 bytes what a fused loss, or one in 16 bits, spares: whole vocabulary, and cut by tensor
    parallelism. Software whose loss is a kernel of its own has it in plain runs too."""
    most = NARROW_LOSS_BYTES if narrow_loss(plan, software) else float("inf")
    form = loss_form(plan, software)
    return (
        PLAIN_LOSS_BYTES - min(form.held_bytes, most),
        PLAIN_LOSS_BYTES - min(form.cut_bytes, most),
    )
