"""What the loss holds for each score: in 32 bits, in 16, fused into one kernel (specs/software.py)."""

from foretell.records import dataclass
from foretell.specs.plan import DTYPE_BYTES, Plan
from foretell.specs.software import Software

KERNEL_LOSS_BYTES = 8.0
"""Bytes held for each score by a loss that is one kernel in modules that shift the scores by a copy: both,
and the gradients of both, in 16 bits."""
INPLACE_LOSS_BYTES = 4.0
"""Bytes of a score whose gradient is written over it."""
COPIED_LOSS_BYTES = 6.0
"""The same of a compiled loss in modules whose vocabulary is filled up: the gradient's copy besides (peaks of
the allocator on one H200)."""
CHUNKED_LOSS_BYTES = 0.5
"""Bytes of a score where scores exist for a chunk of tokens alone: eight chunks at the least among common
models, 4 bytes each (Liger's fused linear cross-entropy)."""

PIECES_LOSS_BYTES = 2.5
"""Bytes of a score that the head gives in eight pieces in 16 bits, of which the loss widens one at a time
(torchtune's chunked outputs)."""

PLAIN_LOSS_BYTES, NARROW_LOSS_BYTES = 12.0, 8.0
"""Bytes that plain kernels hold for each score, the score itself included: in 32 bits the scores, a copy, the
gradient, rounded again; where nothing is in 32 bits, scores, log-softmax and the gradients of both."""
KINDS = {"plain": "plain", "kernel": "inplace", "chunked": "chunked", "pieces": "pieces"}
"""A framework's loss as a plan names it."""
HELD = {
    "plain": PLAIN_LOSS_BYTES,
    "kernel": KERNEL_LOSS_BYTES,
    "inplace": INPLACE_LOSS_BYTES,
    "chunked": CHUNKED_LOSS_BYTES,
    "pieces": PIECES_LOSS_BYTES,
}
"""Bytes held for each score by a plan's loss."""


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
    kind: str = plan.loss
    if kind == "auto":
        own = software.loss
        kind = ("inplace" if plan.fused else "plain") if own == "compiled" else KINDS[own]
        # What a compiler makes of a whole vocabulary it leaves plain over a cut one.
        if own == "compiled" and plan.fused:
            held = COPIED_LOSS_BYTES if software.modules else INPLACE_LOSS_BYTES
            return LossForm(one_kernel=True, held_bytes=held, cut_bytes=PLAIN_LOSS_BYTES)
    held = HELD[kind]
    joined = kind != "plain" and (kind != "pieces" or plan.fused)
    return LossForm(one_kernel=joined, held_bytes=held, cut_bytes=held)


def plain_where_cut(plan: Plan, software: Software) -> bool:
    """Whether the loss is plain kernels over a cut vocabulary though one kernel over a whole one."""
    form = loss_form(plan, software)
    return form.one_kernel and form.cut_bytes > form.held_bytes


def narrow_loss(plan: Plan, software: Software | None = None) -> bool:
    """Whether the loss runs in 16 bits: no copy of the weights is in 32, and they are not themselves; unless
    the software widens the scores all the same."""
    if software is not None and software.modules:
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
