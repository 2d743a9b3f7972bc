"""Gradients that the backward pass makes on its way, where no buffer holds them through the step.

Plain PyTorch makes the gradient of a weight when the backward pass comes to it, and gives all of them up
after the update. With one micro-batch and no replicas they never meet all activations; nor do FSDP's shards
of them. The fullest moment is one of

    scores   every layer's tensors and the scores; no gradient yet
    last     the last layer's backward pass: every layer's tensors, gradients of the head and its own
    first    the first layer's: its own tensors, all gradients but the table's
    update   all gradients, with those of a tied table that are added up; nothing else

since between `last` and `first` each layer of a kind gives back and takes as much as the next.
"""

from dataclasses import replace

import numpy as np

from foretell.kernels.memory import StageMemory
from foretell.kernels.modules import is_wide
from foretell.schedules import schedule_named
from foretell.specs._base import Num
from foretell.specs.arrays import Array, Index, Mask
from foretell.specs.plan import Plan, Plans
from foretell.specs.plan_forms import recompute_layers
from foretell.specs.software import Software
from foretell.training.tables import LateWeights

TIED_COPIES = 2.0
"""Gradients of a tied table beside the kept one: the head's and the lookup's (peaks of the allocator)."""


def makes_late(plan: Plan, software: Software) -> bool:
    """Whether gradients are made late, as far as a plan's words tell: plain PyTorch, no sums in a dtype of
    their own, one pass after the other, weights and states on the chip."""
    schedule = schedule_named(plan.schedule)
    in_order = not schedule.splits_backward and schedule.layout != "both"
    here = plan.offload in ("none", "activations")
    plain = not (plan.lora or recompute_layers(plan.recompute)) and here
    own = plan.gradients == plan.weights or _of_shards(plan, software)
    return software.late_gradients and in_order and plain and own


def _of_shards(plan: Plan, software: Software) -> bool:
    """Whether ZeRO 3's gradients have the dtype of what it shares: the master copy, or the weights."""
    kept = plan.master if plan.master != "none" else plan.weights
    return software.late_gradients and software.one_copy and plan.gradients == kept


def nothing_summed(plans: Plans, software: Software, micro_batches: Array) -> Mask:
    """Whether gradients wait for no micro-batch and no replica, or are ZeRO 3's shards; a column."""
    alone = (plans.dp * plans.cp <= 1.0) & (plans.base.gradients == plans.base.weights)
    return np.asarray((micro_batches <= 1.0) & (alone | in_shards(plans, software)))[:, None]


def in_shards(plans: Plans, software: Software) -> Mask:
    """Whether a plan's gradients are shards of ZeRO 3 that the backward pass makes; (plans,)."""
    shared = (plans.zero >= 3) & (plans.dp * plans.cp > 1)
    return np.asarray(shared & _of_shards(plans.base, software))


def is_late(
    late: LateWeights | None, plans: Plans, software: Software, micro_batches: Array
) -> bool:
    """Whether the one plan of a batch makes its gradients on the way."""
    return late is not None and bool(nothing_summed(plans, software, micro_batches)[0, 0])


def late_weights(
    plans: Plans, software: Software, key: Index, parameters: Array, tied: Array, counts: Array
) -> LateWeights | None:
    """Weights by when their gradients are made, of distinct combinations (`key`: that of each plan)."""
    if not makes_late(plans.base, software):
        return None
    layers = counts[:, :, :-2]
    largest = np.where(layers > 0.0, parameters[:, None, :-2], 0.0).max(axis=2, initial=0.0)
    return LateWeights(
        head=(counts[:, :, -1] * (parameters[:, -1] + tied)[:, None])[key],
        layer=largest[key],
        table=(counts[:, :, -2] * (parameters[:, -2] - tied)[:, None])[key],
        layers=np.maximum(layers.sum(axis=2), 1.0)[key],
        copies=(counts[:, :, -2] * (_copies(plans.base, software) * tied)[:, None])[key],
    )


def _copies(plan: Plan, software: Software) -> float:
    """Gradients of a tied table beside the kept one: autocast's are casts, to which others can be added."""
    return max(TIED_COPIES - is_wide(plan, software), 0.0)


def fullest_moment(
    memory: StageMemory, late: LateWeights, passing: tuple[Array, Array], bytes_each: Num
) -> StageMemory:
    """What is held at the fullest moment; `passing` are the bytes of scores and of a layer's backward pass
    (of which `memory.buffers` holds the larger), `bytes_each` those of a gradient on one rank."""
    scores, again = passing
    whole, kept, always = memory.gradients, memory.activations, memory.buffers
    always = always - np.maximum(scores, again)
    gradients = np.stack(
        [
            np.zeros_like(whole),
            bytes_each * (late.head + late.layer),
            whole - bytes_each * late.table,
            whole + bytes_each * late.copies,
        ]
    )
    activations = np.stack([kept, kept, kept / late.layers, np.zeros_like(kept)])
    buffers = always + np.stack([scores, again, again, np.zeros_like(again)])
    moment = (gradients + activations + buffers).argmax(axis=0)[None]

    def then(values: Array) -> Array:
        return np.asarray(np.take_along_axis(values, moment, axis=0)[0])

    return replace(
        memory, gradients=then(gradients), activations=then(activations), buffers=then(buffers)
    )
