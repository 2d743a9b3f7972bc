"""Passes over memory that the operations of a stack make, how far they are fused, and what the loss holds for
each score: in 32 bits, in 16, fused into one kernel (specs/software.py).
"""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from foretell.kernels.call_records import CallStack, table_of
from foretell.kernels.fusion import APART, JOINED, MODULES, WIDE_MODULES, Passes, passes, traffic
from foretell.kernels.modules import is_wide
from foretell.records import dataclass
from foretell.specs.arrays import Array, Mask
from foretell.specs.chip import Chip
from foretell.specs.plan import DTYPE_BYTES, WIDE_PRECISIONS, Plan
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
    """Whether the loss runs in 16 bits: no weights in 32, and the software does not widen scores."""
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


NO_PASS = Passes(forward=0.0, backward=0.0)
"""What a view is."""


def memory_passes(
    stack: CallStack, plan: Plan, software: Software, chip: Chip, cut: Mask
) -> tuple[Array, Array]:
    """Traffic over the least, and kernels, of each call; (calls, 1), or (calls, shapes) of some losses."""
    if stack.family != "pointwise":
        return np.ones((len(stack.kinds), 1)), np.ones((len(stack.kinds), 1))
    apart = passes_apart(plan, software)
    told = [(apart.get(kind) or passes(kind, plan.fused), back) for kind, back in stack.kinds]
    per_core = chip.memory_bandwidth_bytes_per_s / np.maximum(chip.cores * chip.clock_hz, 1.0)
    factor = [traffic(p, per_core, backward=backward) for p, backward in told]
    kernels = [p.kernels * (p.back if backward else 1.0) for p, backward in told]
    found = table_of(factor, np.size(per_core)), np.array(kernels)[:, None]
    if plain_where_cut(plan, software) and cut.any():
        plain = passes("loss", fused=False)
        more = [plain.backward if b else plain.forward for _, b in stack.kinds]
        loss = np.array([kind == "loss" for kind, _ in stack.kinds])[:, None]
        found = np.where(loss & cut, np.array(more)[:, None], found[0]), found[1]
    return found


def traffic_factor(
    kind: str, backward: bool, plan: Plan, software: Software, *, cut: bool = False
) -> float:
    """Bytes that a kind of pass over memory moves, over the least; `cut`: over a cut vocabulary."""
    told = passes_apart(plan, software).get(kind) or passes(kind, plan.fused)
    if kind == "loss" and cut and plain_where_cut(plan, software):
        told = passes("loss", fused=False)
    return told.backward if backward else told.forward


def passes_apart(plan: Plan, software: Software) -> Mapping[str, Passes]:
    """What a framework does by plain kernels though it fuses the rest, or fuses though the rest is plain."""
    fused = loss_form(plan, software).one_kernel
    uncast = narrow_loss(plan, software) or plan.precision in WIDE_PRECISIONS
    found = {"loss": passes("loss16" if uncast else "loss", fused)}
    own = {kind: made for kind, made in passes_made(software) if not (made.compiles and plan.fused)}
    if plan.dispatch == "alltoall" and plan.fused and "spread" in own:
        own["routing"] = own["spread"]
    if software.experts_in_turn:
        own |= {"routing": APART["in-turn"], "zeros": APART["zeros"]}
    if software.modules and not plan.fused:
        modules = WIDE_MODULES if is_wide(plan, software) else MODULES
        return {**modules, **own, **found} if fused else {**modules, **own}
    if fuses_experts(plan, software):
        own["act"] = NO_PASS
    joined = {"join": JOINED} if software.maps_apart else {}
    # Heads and halves of one product are cut without a copy.
    uncut = {} if plan.fused else {"heads": NO_PASS, "halves": NO_PASS}
    return {**found, **joined, **uncut, **own}


def fuses_experts(plan: Plan, software: Software) -> bool:
    """Whether experts' activation, and the cast of what it gives, run inside their products."""
    captured = plan.graphs == "on" and plan.precision == "mxfp8"
    return captured and pass_made(software, "captured-act") is not None


@lru_cache(maxsize=256)
def passes_made(software: Software) -> tuple[tuple[str, Passes], ...]:
    """Kinds of passes that a framework makes in its own way, with what they are."""
    words = [word.partition("=") for word in software.passes.split()]
    return tuple(
        (kind, APART.get(name) or passes(kind, name == "fused")) for kind, _, name in words
    )


def pass_made(software: Software, kind: str) -> Passes | None:
    """How a framework makes a kind of pass, where it has its own way."""
    return dict(passes_made(software)).get(kind)
