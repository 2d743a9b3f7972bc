"""Passes over memory that the operations of a stack make: which there are, and how far they are fused."""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from foretell.kernels.call_records import CallStack
from foretell.kernels.fusion import (
    APART,
    JOINED,
    MODULES,
    WIDE_MODULES,
    Passes,
    passes,
    traffic,
)
from foretell.kernels.loss import loss_form, narrow_loss, plain_where_cut
from foretell.kernels.modules import is_wide
from foretell.specs.arrays import Array, Mask
from foretell.specs.chip import Chip
from foretell.specs.plan import WIDE_PRECISIONS, Plan
from foretell.specs.software import Software

NO_PASS = Passes(forward=0.0, backward=0.0)
"""What a view is."""


def memory_passes(
    stack: CallStack, plan: Plan, software: Software, chip: Chip, cut: Mask
) -> tuple[Array, Array]:
    """Traffic over the least, and kernels, of each call; (calls, 1), or (calls, shapes) where a loss is plain
    over a cut vocabulary alone."""
    if stack.family != "pointwise":
        return np.ones((len(stack.kinds), 1)), np.ones((len(stack.kinds), 1))
    apart = passes_apart(plan, software)
    told = [(apart.get(kind) or passes(kind, plan.fused), back) for kind, back in stack.kinds]
    per_core = chip.memory_bandwidth_bytes_per_s / np.maximum(chip.cores * chip.clock_hz, 1.0)
    factor = [traffic(p, per_core, backward=backward) for p, backward in told]
    kernels = [p.kernels * (p.back if backward else 1.0) for p, backward in told]
    found = (
        np.stack(np.broadcast_arrays(*factor)).reshape(len(told), -1),
        np.array(kernels)[:, None],
    )
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
    """What a framework does by plain kernels though it fuses the rest, or fused though the rest is plain;
    weights that are kept in 16 bits have a loss in 16 bits, and where all is in 32, nothing is cast."""
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
